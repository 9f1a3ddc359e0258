"""Clients coming, going and being told."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, Header, header, wire


@header
class HeartbeatResponse(Header):
    """Only for brokers that take heartbeats without subscriptions; others send none of it."""

    supports_v2: bool | None = wire("IS_SUPPORT_HEART_BEAT_V2", default=None)
    subscription_changed: bool | None = wire("IS_SUB_CHANGE", default=None)


@header
class UnregisterClientRequest(Header):
    """The wire name ends in capital ID, unlike everywhere else."""

    CODE: ClassVar = RequestCode.UNREGISTER_CLIENT
    client_id: str | None = wire("clientID", default=None)
    producer_group: str | None = wire("producerGroup", default=None)
    consumer_group: str | None = wire("consumerGroup", default=None)


@header
class ConsumerListRequest(Header):
    CODE: ClassVar = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    group: str = wire("consumerGroup")


@header
class ConsumersChangedRequest(Header):
    """Broker to client: rebalance."""

    CODE: ClassVar = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    group: str = wire("consumerGroup")


@header
class ConsumerConnectionRequest(Header):
    CODE: ClassVar = RequestCode.GET_CONSUMER_CONNECTION_LIST
    group: str = wire("consumerGroup")


@header
class ProducerConnectionRequest(Header):
    CODE: ClassVar = RequestCode.GET_PRODUCER_CONNECTION_LIST
    group: str = wire("producerGroup")


@header
class RunningInfoRequest(Header):
    """From a tool to the broker, and on to the client."""

    CODE: ClassVar = RequestCode.GET_CONSUMER_RUNNING_INFO
    group: str = wire("consumerGroup")
    client_id: str = wire("clientId")
    with_stacks: bool = wire("jstackEnable", default=False)


@header
class ConsumeDirectlyRequest(Header):
    """From a tool to the broker, and on to the client with the stored message as body."""

    CODE: ClassVar = RequestCode.CONSUME_MESSAGE_DIRECTLY
    group: str = wire("consumerGroup")
    client_id: str | None = wire("clientId", default=None)
    message_id: str | None = wire("msgId", default=None)
    broker_name: str | None = wire("brokerName", default=None)
    topic: str | None = wire("topic", default=None)
    topic_sys_flag: I32 | None = wire("topicSysFlag", default=None)
    group_sys_flag: I32 | None = wire("groupSysFlag", default=None)
