"""Admission of sends and pulls: one function per family of requests, used by both paths.

The slow path calls it for every request. The fast path calls it for the first request of a (connection, principal,
topic, group), caches the result as a grant, and executes later requests until the generation is bumped.

A rule such as "no sends to topics over quota" is added here, once. Everything a rule depends on must bump the
generation when it changes. Time comes in as an argument; the slow path passes the functions that create topics and
groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketq.access.rights import Action
from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.pipeline.access import Access
from rocketq.broker.pipeline.quotas import Quotas, quota_fault
from rocketq.broker.topics.table import TopicTable
from rocketq.kernel.admission import TokenBucket
from rocketq.model import SysFlag
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.flags import MessageModel, Perm, TopicFilterType
from rocketq.protocol.names import NOT_FOR_CLIENTS, Property, topic_fault
from rocketq.remoting import Connection

_READ: Final = int(Perm.READ)  # operations on enum members are expensive
_WRITE: Final = int(Perm.WRITE)
_FORBIDDEN_BROKER, _FORBIDDEN_GROUP, _FORBIDDEN_TOPIC, _FORBIDDEN_BROADCAST, _FORBIDDEN_SUBSCRIPTION = range(1, 6)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a request is rejected: code, remark and fields of the answer."""

    code: int
    remark: str
    fields: Mapping[str, str] | None = None
    cause: str | None = field(default=None, compare=False)
    """The reason as one word for metrics, where the code does not say it."""


@dataclass(frozen=True, slots=True)
class AdmissionTables:
    """What admission reads."""

    settings: Settings
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    access: Access
    quotas: Quotas


# Sends


@dataclass(slots=True)
class SendAsk:
    """A send to admit."""

    topic: str
    group: str
    connection: Connection
    principal: str | None = None


@dataclass(slots=True)
class SendAdmission:
    """An admitted send: its topic, the flags and properties to add, and the quotas it takes from."""

    topic: TopicConfig
    queue_count: int
    sys_flag: int
    properties: Mapping[str, str]
    quotas: tuple[TokenBucket, ...]


def admit_send(
    ask: SendAsk, tables: AdmissionTables, now_ms: int, create: Callable[[], TopicConfig | None] = lambda: None
) -> SendAdmission | Rejection:
    """Admit or reject a send. `create` creates the topic if a send may do so."""
    config, topic = tables.settings.config, tables.topics.get(ask.topic)
    if now_ms < config.accept_sends_from_ms:
        return Rejection(ResponseCode.SYSTEM_ERROR, f"sends are accepted from {config.accept_sends_from_ms} on")
    if not config.perm & _WRITE and topic is not None and topic.order:
        return Rejection(
            ResponseCode.NO_PERMISSION, f"broker {config.name} does not accept messages (brokerPermission)"
        )
    if topic is None and (fault := topic_fault(ask.topic)) is not None:
        return Rejection(ResponseCode.SYSTEM_ERROR, fault)
    if ask.topic in NOT_FOR_CLIENTS:
        return Rejection(ResponseCode.NO_PERMISSION, f"clients must not send to {ask.topic}")
    if (
        denial := tables.access.denial(Action.PUBLISH, ask.topic, ask.group, ask.principal, ask.connection)
    ) is not None:
        return Rejection(denial.code, denial.remark)
    quotas = tables.quotas.buckets(ask.topic, ask.group, ask.principal)
    if (fault := quota_fault(quotas, now_ms)) is not None:
        return Rejection(ResponseCode.SYSTEM_BUSY, fault, cause="quota")
    topic = topic or create()
    if topic is None:
        return Rejection(ResponseCode.TOPIC_NOT_EXIST, f"topic {ask.topic} does not exist, create it first")
    return SendAdmission(
        topic=topic,
        queue_count=max(topic.write_queue_count, topic.read_queue_count),
        sys_flag=SysFlag.MULTI_TAGS if topic.filter_type is TopicFilterType.MULTI_TAG else 0,
        properties=added_properties(config, is_traced=config.trace_topic in tables.topics),
        quotas=quotas,
    )


def added_properties(config: BrokerConfig, *, is_traced: bool) -> Mapping[str, str]:
    """Properties added to every stored message in this order, replacing the sender's. Consumers of 5.x write traces
    only for messages with region and trace switch."""
    added = {Property.CLUSTER: config.cluster}
    if not is_traced:
        return added
    return {Property.REGION: config.region, Property.TRACE_ON: "true" if config.trace_on else "false"} | added


# Pulls


@dataclass(slots=True)
class PullAsk:
    """A pull to admit. Without a filter in the request, the group's subscription of at least `version` is used."""

    group: str
    topic: str
    connection: Connection
    queue_id: int = 0
    carries_filter: bool = False
    version: int = 0
    principal: str | None = None


@dataclass(slots=True)
class PullAdmission:
    """An admitted pull; `subscription` is None if the request carries a filter."""

    group: GroupConfig
    topic: TopicConfig
    subscription: Subscription | None
    quotas: tuple[TokenBucket, ...]


def admit_pull(
    ask: PullAsk, tables: AdmissionTables, now_ms: int, find_group: Callable[[str], GroupConfig | None] | None = None
) -> PullAdmission | Rejection:
    """Admit or reject a pull. `find_group` creates the group if a pull may do so."""
    config = tables.settings.config
    if not config.perm & _READ:
        return _forbidden(_FORBIDDEN_BROKER, f"broker {config.name} does not serve pulls (brokerPermission)")
    group = (find_group or tables.groups.get)(ask.group)
    if group is None:
        return Rejection(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {ask.group} does not exist")
    if not group.consume_enable:
        return _forbidden(_FORBIDDEN_GROUP, f"consumer group {ask.group} may not consume")
    topic = tables.topics.get(ask.topic)
    if topic is None:
        return Rejection(ResponseCode.TOPIC_NOT_EXIST, f"topic {ask.topic} does not exist")
    if not topic.perm & _READ:
        return _forbidden(_FORBIDDEN_TOPIC, f"topic {ask.topic} may not be read")
    if not 0 <= ask.queue_id < topic.read_queue_count:
        remark = f"queue {ask.queue_id} is outside topic {topic.topic}, which has {topic.read_queue_count} to read"
        return Rejection(ResponseCode.SYSTEM_ERROR, remark)
    if not tables.groups.may_read(ask.group, ask.topic):
        return _forbidden(_FORBIDDEN_SUBSCRIPTION, f"consumer group {ask.group} may not read {ask.topic}")
    denial = tables.access.denial(Action.SUBSCRIBE, ask.topic, ask.group, ask.principal, ask.connection)
    if denial is not None:
        return Rejection(denial.code, denial.remark)
    quotas = tables.quotas.buckets(ask.topic, ask.group, ask.principal)
    if (fault := quota_fault(quotas, now_ms)) is not None:
        return Rejection(ResponseCode.SYSTEM_BUSY, fault)
    if ask.carries_filter:
        return PullAdmission(group, topic, None, quotas)
    subscription = _known_subscription(ask, group, tables)
    return subscription if isinstance(subscription, Rejection) else PullAdmission(group, topic, subscription, quotas)


def _known_subscription(ask: PullAsk, group: GroupConfig, tables: AdmissionTables) -> Subscription | Rejection:
    """The group's subscription from heartbeats."""
    members = tables.consumers.get(ask.group)
    if members is None:
        remark = f"no member of consumer group {ask.group} has sent a heartbeat yet"
        return Rejection(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    if members.model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
        return _forbidden(_FORBIDDEN_BROADCAST, f"consumer group {ask.group} may not consume as broadcast")
    subscription = members.subscriptions.get(ask.topic)
    if subscription is None:
        remark = f"consumer group {ask.group} does not subscribe to {ask.topic}"
        return Rejection(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    if subscription.version < ask.version:
        remark = f"the broker knows an older subscription of {ask.group} to {ask.topic}"
        return Rejection(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
    return subscription


def _forbidden(kind: int, remark: str) -> Rejection:
    return Rejection(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind)})
