"""The groups' conditions: what replaces what, when they die, and what comes back from disk."""

from __future__ import annotations

from rocketq.broker.consumer_filters import RETURN_MS, ConsumerFilters
from rocketq.filter import BloomGeometry
from rocketq.protocol.bodies.filters import ConsumerFilterTable
from rocketq.protocol.bodies.heartbeat import Subscription

DAY_MS = 24 * 3_600_000


def sql(expression: str, version: int = 1, topic: str = "T") -> Subscription:
    return Subscription(topic=topic, expression=expression, expression_type="SQL92", version=version)


def fresh() -> ConsumerFilters:
    return ConsumerFilters(BloomGeometry.of())


def expression_of(filters: ConsumerFilters, topic: str = "T") -> str | None:
    known = filters.get("g", topic)
    return None if known is None else known.expression


def test_newer_expressions_replace_older_ones() -> None:
    """Goal: by version, never by order of arrival; the same expression only gets the version."""
    filters = fresh()
    filters.register("g", [sql("a = 1", 5)], 1_000)
    filters.register("g", [sql("a = 2", 5)], 2_000)
    filters.register("g", [sql("a = 3", 4)], 2_000)
    known = filters.get("g", "T")
    assert known is not None
    assert (known.expression, known.version, known.born_ms) == ("a = 1", 5, 1_000)
    filters.register("g", [sql("a = 1", 6)], 3_000)
    assert (known.version, known.born_ms) == (6, 1_000)
    filters.register("g", [sql("a = 2", 7)], 4_000)
    known = filters.get("g", "T")
    assert known is not None
    assert (known.expression, known.version, known.born_ms) == ("a = 2", 7, 4_000)


def test_only_conditions_that_can_be_used_are_kept() -> None:
    """Goal: tags, empty and bad ones are not; a bad one that is newer removes what was known."""
    filters = fresh()
    tags = Subscription(topic="T", expression="a || b", version=1)
    filters.register("g", [tags, sql("", topic="U"), sql("a >", topic="V")], 0)
    assert [filters.get("g", topic) for topic in "TUV"] == [None] * 3
    filters.register("g", [sql("a = 1", 1)], 0)
    filters.register("g", [sql("a =", 2)], 0)
    assert expression_of(filters) is None


def test_conditions_die_with_their_topic_or_group_and_are_forgotten_later() -> None:
    """Goal: a day after, unless the group comes back."""
    filters = fresh()
    filters.register("g", [sql("a = 1"), sql("b = 1", topic="U")], 1_000)
    filters.register("g", [sql("a = 1")], 2_000)
    dead, alive = filters.get("g", "U"), filters.get("g", "T")
    assert dead is not None
    assert alive is not None
    assert (dead.is_dead, dead.dead_ms, alive.is_dead) == (True, 2_000, False)
    filters.unregister("g", 3_000)
    assert (dead.dead_ms, alive.dead_ms) == (2_000, 3_000)
    filters.clean(2_000 + DAY_MS, DAY_MS)
    assert (expression_of(filters, "U"), expression_of(filters)) == (None, "a = 1")
    filters.register("g", [sql("a = 1")], 4_000)
    filters.clean(10 * DAY_MS, DAY_MS)
    assert expression_of(filters) == "a = 1"
    filters.unregister("g", 5_000)
    filters.clean(5_000 + DAY_MS, DAY_MS)
    assert expression_of(filters) is None
    assert filters.snapshot() == ConsumerFilterTable()


def test_what_was_kept_comes_back_as_dead() -> None:
    """Goal: through the file's bytes; times of death are kept, the living died half a minute ago at the earliest."""
    filters = fresh()
    filters.register("g", [sql("a = 1"), sql("b = 1", topic="U")], 1_000)
    filters.register("g", [sql("a = 1")], 2_000)
    again = fresh()
    again.load(ConsumerFilterTable.decode(filters.snapshot().encode()), 100_000)
    back, dead = again.get("g", "T"), again.get("g", "U")
    assert back is not None
    assert dead is not None
    assert (back.expression, back.born_ms, back.dead_ms) == ("a = 1", 1_000, 100_000 - RETURN_MS)
    assert back.program.matches(b"a\x011\x02")
    assert dead.dead_ms == 2_000
    early = fresh()
    early.load(filters.snapshot(), 5_000)
    known = early.get("g", "T")
    assert known is not None
    assert (known.dead_ms, known.is_dead) == (1_000, True)


def test_a_file_for_another_bloom_filter_is_not_used() -> None:
    """Goal: as Apache: all or nothing."""
    filters = fresh()
    filters.register("g", [sql("a = 1")], 0)
    other = ConsumerFilters(BloomGeometry.of(20, 64))
    other.load(filters.snapshot(), 0)
    assert expression_of(other) is None


def test_changes_are_counted_so_that_they_are_saved() -> None:
    """Goal: what changes nothing is not written again."""
    filters = fresh()
    filters.register("g", [sql("a = 1")], 1_000)
    counted = filters.changes
    filters.register("g", [sql("a = 1")], 2_000)
    filters.register("g", [sql("a = 1"), sql("a =", topic="U")], 2_000)
    filters.register("h", [Subscription(topic="T")], 2_000)
    filters.unregister("nobody", 2_000)
    assert filters.changes == counted
    filters.unregister("g", 3_000)
    assert filters.changes == counted + 1
