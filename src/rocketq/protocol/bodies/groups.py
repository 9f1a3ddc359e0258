"""Consumer groups and their configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import DataVersion

STRICT_ATTRIBUTE: Final = "rocketq.strict"


@body
class GroupConfig(Body):
    group: str = member("groupName")
    consume_enable: bool = member("consumeEnable", default=True)
    consume_from_min_enable: bool = member("consumeFromMinEnable", default=True)
    consume_broadcast_enable: bool = member("consumeBroadcastEnable", default=True)
    retry_queue_count: int = member("retryQueueNums", default=1)
    retry_max: int = member("retryMaxTimes", default=16)
    broker_id: int = member("brokerId", default=0)
    slow_consumer_broker_id: int = member("whichBrokerWhenConsumeSlowly", default=1)
    notify_changes: bool = member("notifyConsumerIdsChangedEnable", default=True)
    orderly: bool | None = member("consumeMessageOrderly", default=None)
    consume_timeout_minutes: int | None = member("consumeTimeoutMinute", default=None)
    retry_policy: Any | None = member("groupRetryPolicy", default=None)
    group_sys_flag: int | None = member("groupSysFlag", default=None)
    subscriptions: Any | None = member("subscriptionDataSet", default=None)
    attributes: dict[str, str] | None = member("attributes", default=None)

    @property
    def is_strict(self) -> bool:
        """Whether members that want something else than the others are refused."""
        return (self.attributes or {}).get(STRICT_ATTRIBUTE) == "true"

    def with_strict(self, strict: bool) -> GroupConfig:
        others = {name: value for name, value in (self.attributes or {}).items() if name != STRICT_ATTRIBUTE}
        return replace(self, attributes=(others | {STRICT_ATTRIBUTE: "true"} if strict else others) or None)


@body
class GroupConfigTable(Body):
    """All groups of a broker: an answer, and the file subscriptionGroup.json. `forbidden` has, by group and topic, the
    permissions (bits of `Perm`) that were taken away."""

    data_version: DataVersion = member("dataVersion", factory=DataVersion)
    groups: dict[str, GroupConfig] = member("subscriptionGroupTable", factory=dict)
    forbidden: dict[str, dict[str, int]] | None = member("forbiddenTable", default=None)


@body
class GroupConfigList(Body):
    groups: tuple[GroupConfig, ...] = member("groupConfigList", default=())


@body
class GroupList(Body):
    groups: tuple[str, ...] = member("groupList", default=())


@body
class GroupForbidden(Body):
    group: str = member("group")
    topic: str = member("topic")
    readable: bool = member("readable", default=True)


@body
class GroupSubscription(Body):
    group: str = member("group")
    topic: str | None = member("topic", default=None)
    subscription: Subscription | None = member("subscriptionData", default=None)


@body
class BloomPositions(Body):
    """The bits of a group in a Bloom filter of this size."""

    bits: int = member("bitNum", default=0)
    positions: tuple[int, ...] = member("bitPos", default=())


@body
class KeptFilter(Body):
    """`dead` follows from the two times; it is written because Apache writes it."""

    topic: str = member("topic")
    group: str = member("consumerGroup")
    expression: str = member("expression", default="")
    expression_type: str = member("expressionType", default="SQL92")
    version: int = member("clientVersion", default=0)
    born_ms: int = member("bornTime", default=0)
    dead_ms: int = member("deadTime", default=0)
    dead: bool = member("dead", default=False)
    bloom: BloomPositions | None = member("bloomFilterData", default=None)


@body
class TopicFilters(Body):
    topic: str = member("topic")
    groups: dict[str, KeptFilter] = member("groupFilterData", factory=dict)


@body
class ConsumerFilterTable(Body):
    """By topic and group."""

    topics: dict[str, TopicFilters] = member("filterDataByTopic", factory=dict)
