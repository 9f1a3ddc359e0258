"""Locks, committed offsets, assignment, tag filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.broker.groups.assignment_handlers import allocate
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.groups.queue_locks import QueueLocks
from rocketq.broker.pull.filters import is_tag_filter, subscription_of, tag_codes
from rocketq.filter import BadExpressionError, parse_tags
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.offsets import ConsumerOffsets
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.runtime.clock import ManualClock

Q0, Q1 = (MessageQueue(topic="T", broker_name="b", queue_id=number) for number in (0, 1))


def test_a_queue_belongs_to_one_client_until_it_unlocks_or_falls_silent() -> None:
    clock, locks = ManualClock(), QueueLocks()
    assert locks.lock("g", "a", [Q0, Q1], clock.monotonic_ms()) == (Q0, Q1)
    assert locks.lock("g", "b", [Q0], clock.monotonic_ms()) == ()
    assert locks.lock("other", "b", [Q0], clock.monotonic_ms()) == (Q0,)
    locks.unlock("g", "b", [Q0])
    assert locks.lock("g", "b", [Q0], clock.monotonic_ms()) == ()
    locks.unlock("g", "a", [Q0])
    assert locks.lock("g", "b", [Q0, Q1], clock.monotonic_ms()) == (Q0,)
    clock.advance(60_000)
    assert locks.lock("g", "b", [Q1], clock.monotonic_ms()) == ()
    assert locks.lock("g", "a", [Q1], clock.monotonic_ms()) == (Q1,)
    clock.advance(60_001)
    assert not locks.is_locked("g", clock.monotonic_ms())
    assert locks.lock("g", "b", [Q1], clock.monotonic_ms()) == (Q1,)
    clock.advance(60_001)
    locks.expire(clock.monotonic_ms())
    locks.unlock("nobody", "a", [Q0])
    assert not locks.is_locked("g", 0)


def test_offsets_move_both_ways_and_never_below_zero() -> None:
    offsets = OffsetTable()
    assert offsets.get("g", "T", 0) is None
    assert offsets.commit("g", "T", 0, 10)
    assert offsets.commit("g", "T", 0, 5)
    assert not offsets.commit("g", "T", 0, -1)
    assert offsets.get("g", "T", 0) == 5
    assert offsets.changes == 2


def test_offsets_by_topic_and_group() -> None:
    offsets = OffsetTable()
    offsets.load(ConsumerOffsets(offsets={"T@g": {0: 1}, "T@h": {1: 2}, "U@g": {0: -1}}))
    assert offsets.topics_of("g") == ["T", "U"]
    assert offsets.groups_of("T") == ["g", "h"]
    assert offsets.get("g", "U", 0) is None
    offsets.clone("h", "k", "T")
    offsets.clone("nobody", "k", "T")
    assert offsets.of("k", "T") == {1: 2}
    offsets.forget_topic("T")
    assert offsets.body().offsets == {"U@g": {0: -1}}
    offsets.forget_group("g")
    assert offsets.body().offsets == {}


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue(topic="T", broker_name="b", queue_id=number) for number in range(count)]


def ids(found: tuple[MessageQueue, ...] | None) -> list[int]:
    assert found is not None
    return [queue.queue_id for queue in found]


@pytest.mark.parametrize(
    ("strategy", "expected"), [("AVG", [[0, 1, 2], [3, 4], [5, 6]]), ("AVG_BY_CIRCLE", [[0, 3, 6], [1, 4], [2, 5]])]
)
def test_queues_are_dealt_out(strategy: str, expected: list[list[int]]) -> None:
    clients = ["c", "a", "b"]
    assert [ids(allocate(strategy, queues(7), clients, client)) for client in "abc"] == expected


def test_an_unknown_strategy_or_consumer_gets_no_answer() -> None:
    assert allocate("MACHINE_ROOM_NEARBY", queues(2), ["a"], "a") is None
    assert allocate("AVG", queues(2), ["a"], "z") is None
    assert allocate(None, queues(2), ["a"], "a") == tuple(queues(2))


@given(st.sampled_from(["AVG", "AVG_BY_CIRCLE"]), st.integers(0, 40), st.integers(1, 12))
def test_every_queue_has_one_owner_and_shares_differ_by_one_at_most(strategy: str, count: int, clients: int) -> None:
    names = [f"c{number}" for number in range(clients)]
    shares = [ids(allocate(strategy, queues(count), names, name)) for name in names]
    assert sorted(number for share in shares for number in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("expression", "tags"),
    [(None, None), ("", None), ("*", None), ("a", ("a",)), (" a ||b|| ||a", ("a", "b")), ("  ", ())],
)
def test_tag_expressions(expression: str | None, tags: tuple[str, ...] | None) -> None:
    assert parse_tags(expression) == tags


def test_an_expression_of_separators_only_is_none() -> None:
    with pytest.raises(BadExpressionError):
        subscription_of("T", "|| ||", 0)


def test_codes_come_from_the_tags_not_from_the_peer() -> None:
    """Goal: a C++ client fills codeSet with other numbers and still gets what it asked for."""
    claimed = Subscription(topic="T", expression="TagA || TagB", tags=("TagA", "TagB"), codes=(0, 1))
    assert tag_codes(claimed) == {2598919, 2598920}
    assert tag_codes(Subscription(topic="T", expression="TagA", codes=(7,))) == {2598919}
    assert tag_codes(Subscription(topic="T")) is None
    assert tag_codes(Subscription(topic="T", expression="x.Filter", class_filter=True)) is None
    assert tag_codes(subscription_of("T", " ", 0)) == frozenset()
    assert subscription_of("T", "TagA", 3).codes == (2598919,)


def test_tag_is_the_filter_nobody_needs_to_name() -> None:
    assert [is_tag_filter(kind) for kind in (None, "", "TAG", "SQL92", "odd")] == [True, True, True, False, False]
