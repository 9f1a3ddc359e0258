"""The groups' conditions: what replaces what, when they die, and what comes back from disk."""

from __future__ import annotations

from rocketq.broker.pull.consumer_filters import RETURN_MS, ConsumerFilters
from rocketq.filter import BloomGeometry
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.groups import ConsumerFilterTable

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


# bitmaps


def bits(filters: ConsumerFilters, store_ms: int = 0, topic: str = "T", **properties: str) -> bytes:
    data = b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())
    return filters.bitmap(topic, data, store_ms)


def test_a_bitmap_has_the_bits_of_every_condition_that_is_met() -> None:
    """Goal: by topic; of groups that have gone as well, until they are forgotten; nothing without conditions."""
    filters, geometry = fresh(), BloomGeometry.of()
    assert bits(filters, a="1") == b""
    filters.register("g", [sql("a = 1")], 1_000)
    filters.register("h", [sql("a > 0"), sql("a = 1", topic="U")], 1_000)
    both = geometry.bitmap([geometry.positions("g", "T"), geometry.positions("h", "T")])
    assert bits(filters, a="1") == both
    assert bits(filters, a="2") == geometry.bitmap([geometry.positions("h", "T")])
    assert bits(filters, a="0") == bytes(14)
    assert bits(filters, topic="U", a="1") == geometry.bitmap([geometry.positions("h", "U")])
    filters.unregister("g", 2_000)
    assert bits(filters, a="1") == both
    filters.clean(2_000 + DAY_MS, DAY_MS)
    assert bits(filters, a="1") == geometry.bitmap([geometry.positions("h", "T")])
    filters.register("h", [sql("a >", 2)], 3_000)
    assert bits(filters, a="1") == b""


def test_a_changed_condition_is_judged_in_place_of_the_old() -> None:
    """Goal: and what comes back from disk is judged at once, dead or not."""
    filters, geometry = fresh(), BloomGeometry.of()
    filters.register("g", [sql("a = 1", 1)], 1_000)
    filters.register("g", [sql("a = 2", 2)], 2_000)
    assert (bits(filters, a="1"), any(bits(filters, a="2"))) == (bytes(14), True)
    again = fresh()
    again.load(ConsumerFilterTable.decode(filters.snapshot().encode()), 10_000_000)
    assert bits(again, a="2") == geometry.bitmap([geometry.positions("g", "T")])


def test_bitmaps_say_nothing_about_conditions_that_came_later() -> None:
    """Goal: whatever the clock says: a message that was judged before a condition came is never ruled out by it."""
    filters = fresh()
    filters.register("other", [sql("b = 1")], 500)
    before = bits(filters, store_ms=5_000, a="1")
    filters.register("g", [sql("a = 1")], 1_000)  # the clock went back
    known = filters.get("g", "T")
    assert known is not None
    assert filters.may_match(known, before, 5_000)
    assert not filters.may_match(known, bits(filters, store_ms=5_001, a="2"), 5_001)
    assert filters.may_match(known, bits(filters, store_ms=5_001, a="1"), 5_001)
    assert filters.may_match(known, b"", 5_001)
    assert filters.may_match(known, bytes(13), 5_001)


def test_messages_of_an_earlier_run_were_judged_without_new_conditions() -> None:
    """Goal: a clock that went back over a restart makes no condition older than what is stored."""
    filters = fresh()
    filters.distrust_until(9_000)
    filters.register("g", [sql("a = 1")], 1_000)
    known = filters.get("g", "T")
    assert known is not None
    assert known.born_ms == 9_000
    assert filters.may_match(known, bytes(14), 9_000)
