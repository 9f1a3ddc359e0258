"""Timers whose second has begun: in order, cancelled, and settled before a mark counts."""

from __future__ import annotations

from rocketq.broker.delay.open_timers import OpenTimer, OpenTimers


def timer(due_ms: int, queue_offset: int, key: str = "") -> OpenTimer:
    return OpenTimer(due_ms, queue_offset, queue_offset * 100, 50, key)


def test_they_come_in_the_order_they_are_due() -> None:
    opened: OpenTimers[str] = OpenTimers()
    for each in (timer(30, 1), timer(10, 2), timer(20, 3), timer(10, 0)):
        opened.add(each)
    assert opened.next_due_ms() == 10
    taken = [found.queue_offset for _ in range(3) if (found := opened.pop_due(20)) is not None]
    assert (taken, opened.pop_due(29)) == ([0, 2, 3], None)


def test_a_mark_counts_when_everything_before_it_is_settled() -> None:
    opened: OpenTimers[str] = OpenTimers()
    first, second = timer(1, 1), timer(1, 2)
    opened.add(first)
    opened.mark("one")
    opened.add(second)
    opened.mark("two")
    assert opened.completed_mark() is None
    opened.complete(second)
    assert opened.completed_mark() is None
    opened.complete(first)
    assert opened.completed_mark() == "two"
    opened.mark("three")
    assert (opened.completed_mark(), opened.completed_mark()) == ("three", None)


def test_a_cancelled_one_is_settled_and_never_taken() -> None:
    opened: OpenTimers[str] = OpenTimers()
    opened.add(timer(1, 1, "T+a"))
    opened.add(timer(2, 2, "T+b"))
    opened.mark("one")
    assert (opened.is_open("T+a"), opened.cancel("T+a"), opened.cancel("T+a")) == (True, True, False)
    found = opened.pop_due(5)
    assert found is not None
    assert found.queue_offset == 2
    opened.put_back(found)
    assert opened.pop_due(5) == found
    opened.complete(found)
    assert (opened.completed_mark(), len(opened), opened.is_open("T+b")) == ("one", 0, False)
