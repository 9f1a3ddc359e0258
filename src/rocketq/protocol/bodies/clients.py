"""Clients: heartbeats, connections and the state of running consumers."""

from __future__ import annotations

from typing import Any

from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeFromWhere, ConsumeResult, ConsumeType, MessageModel

ALL = "*"


@body
class Subscription(Body):
    """One topic of a consumer group. `codes` is only a claim: some clients fill it with other numbers."""

    topic: str = member("topic")
    expression: str = member("subString", default=ALL)
    expression_type: str = member("expressionType", default="TAG")
    tags: tuple[str, ...] = member("tagsSet", default=())
    codes: tuple[int, ...] = member("codeSet", default=())
    version: int = member("subVersion", default=0)
    class_filter: bool = member("classFilterMode", default=False)


@body
class ConsumerData(Body):
    """The defaults are what Java has for members a client leaves out."""

    group: str = member("groupName")
    consume_type: ConsumeType = member("consumeType", default=ConsumeType.CONSUME_PASSIVELY)
    model: MessageModel = member("messageModel", default=MessageModel.CLUSTERING)
    from_where: ConsumeFromWhere = member("consumeFromWhere", default=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    subscriptions: tuple[Subscription, ...] = member("subscriptionDataSet", default=())
    unit_mode: bool = member("unitMode", default=False)


@body
class ProducerData(Body):
    group: str = member("groupName")


@body
class Heartbeat(Body):
    client_id: str = member("clientID")
    producers: tuple[ProducerData, ...] = member("producerDataSet", default=())
    consumers: tuple[ConsumerData, ...] = member("consumerDataSet", default=())
    fingerprint: int | None = member("heartbeatFingerprint", default=None)
    without_subscriptions: bool | None = member("withoutSub", default=None)


@body
class CheckClient(Body):
    """Would the broker take this subscription?"""

    client_id: str = member("clientId", default="")
    group: str = member("group", default="")
    subscription: Subscription = member("subscriptionData")
    namespace: str | None = member("namespace", default=None)


@body
class Connection(Body):
    client_id: str = member("clientId", default="")
    addr: str = member("clientAddr", default="")
    language: str = member("language", default="JAVA")
    version: int = member("version", default=0)


@body
class ConsumerConnections(Body):
    connections: tuple[Connection, ...] = member("connectionSet", default=())
    consume_type: ConsumeType | None = member("consumeType", default=None)
    model: MessageModel | None = member("messageModel", default=None)
    from_where: ConsumeFromWhere | None = member("consumeFromWhere", default=None)
    subscriptions: dict[str, Subscription] = member("subscriptionTable", factory=dict)
    conflicts: dict[str, tuple[str, ...]] | None = member("subscriptionConflicts", default=None)
    """The different subscriptions of the members by topic; sent by RocketQ brokers only."""


@body
class ProducerConnections(Body):
    connections: tuple[Connection, ...] = member("connectionSet", default=())


@body
class Producer(Body):
    """`remote_addr` is a Java socket text with a leading slash and the port."""

    client_id: str = member("clientId", default="")
    remote_addr: str = member("remoteIP", default="")
    language: str = member("language", default="JAVA")
    version: int = member("version", default=0)
    updated_ms: int = member("lastUpdateTimestamp", default=0)


@body
class ProducerTable(Body):
    groups: dict[str, tuple[Producer, ...]] = member("data", factory=dict)


@body
class ConsumerList(Body):
    client_ids: tuple[str, ...] = member("consumerIdList", default=())


@body
class ProcessQueue(Body):
    """One owned queue. `droped` is how Java spells it; Go writes `dropped`."""

    commit_offset: int = member("commitOffset", default=0)
    cached_min_offset: int = member("cachedMsgMinOffset", default=0)
    cached_max_offset: int = member("cachedMsgMaxOffset", default=0)
    cached_count: int = member("cachedMsgCount", default=0)
    cached_mib: int = member("cachedMsgSizeInMiB", default=0)
    transaction_min_offset: int = member("transactionMsgMinOffset", default=0)
    transaction_max_offset: int = member("transactionMsgMaxOffset", default=0)
    transaction_count: int = member("transactionMsgCount", default=0)
    locked: bool = member("locked", default=False)
    unlock_attempts: int = member("tryUnlockTimes", default=0)
    last_lock_ms: int = member("lastLockTimestamp", default=0)
    dropped: bool = member("droped", also="dropped", default=False)
    last_pull_ms: int = member("lastPullTimestamp", default=0)
    last_consume_ms: int = member("lastConsumeTimestamp", default=0)


@body
class ConsumeRates(Body):
    pull_rt: float = member("pullRT", default=0.0)
    pull_tps: float = member("pullTPS", default=0.0)
    consume_rt: float = member("consumeRT", default=0.0)
    consume_ok_tps: float = member("consumeOKTPS", default=0.0)
    consume_failed_tps: float = member("consumeFailedTPS", default=0.0)
    consume_failed_count: int = member("consumeFailedMsgs", default=0)


@body
class RunningConsumer(Body):
    properties: dict[str, str] = member("properties", factory=dict)
    subscriptions: tuple[Subscription, ...] = member("subscriptionSet", default=())
    queues: dict[MessageQueue, ProcessQueue] = member("mqTable", factory=dict)
    pop_queues: dict[MessageQueue, Any] | None = member("mqPopTable", default=None)
    rates: dict[str, ConsumeRates] = member("statusTable", factory=dict)
    user_text: dict[str, str] | None = member("userConsumerInfo", default=None)
    stacks: str | None = member("jstack", default=None)


@body
class ConsumeDirectlyResult(Body):
    order: bool = member("order", default=False)
    auto_commit: bool = member("autoCommit", default=True)
    result: ConsumeResult | None = member("consumeResult", default=None)
    remark: str | None = member("remark", default=None)
    spent_ms: int = member("spentTimeMills", default=0)
