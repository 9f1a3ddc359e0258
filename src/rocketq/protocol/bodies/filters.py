"""The file consumerFilter.json: what groups filter by, as Apache keeps it."""

from __future__ import annotations

from rocketq.protocol.bodies.json_body import Body, body, member


@body
class BloomPositions(Body):
    """The bits of a group in a bitmap of so many."""

    bits: int = member("bitNum", default=0)
    positions: tuple[int, ...] = member("bitPos", default=())


@body
class KeptFilter(Body):
    """`dead` says the same as the two times; it is written because Apache writes it."""

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
