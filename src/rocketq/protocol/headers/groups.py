"""Consumer groups: configuration, progress, members and their connections."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, Header, header, wire


@header
class DeleteGroupRequest(Header):
    """The switch has one name in 4.9 and another in 5.x; the newer is written."""

    CODE: ClassVar = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group: str = wire("groupName")
    clean_offset: bool = wire("cleanOffset", also="removeOffset", default=False)


@header
class GroupConfigRequest(Header):
    CODE: ClassVar = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str = wire("group")


@header
class AllGroupConfigRequest(Header):
    """Newer tools page; without these fields everything is answered."""

    CODE: ClassVar = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    first_index: I32 | None = wire("groupSeq", default=None)
    data_version: str | None = wire("dataVersion", default=None)
    count_max: I32 | None = wire("maxGroupNum", default=None)


@header
class AllGroupConfigResponse(Header):
    total_count: I32 | None = wire("totalGroupNum", default=None)


@header
class GroupForbiddenRequest(Header):
    CODE: ClassVar = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    group: str = wire("group")
    topic: str = wire("topic")
    readable: bool | None = wire("readable", default=None)


@header
class ConsumeStatsRequest(Header):
    CODE: ClassVar = RequestCode.GET_CONSUME_STATS
    group: str = wire("consumerGroup")
    topic: str | None = wire("topic", default=None)
    topics: str | None = wire("topicList", default=None)


@header
class GroupTopicsRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_TOPICS_BY_CONSUMER
    group: str = wire("group")


@header
class GroupSubscriptionRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    group: str = wire("group")
    topic: str | None = wire("topic", default=None)


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
