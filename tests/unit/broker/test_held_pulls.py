"""Held pulls: which wake on arrival, which at the re-check, which when their time is over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketq.broker.pull.held_pulls import HeldPull, HeldPulls


def pull(name: str, queue_id: int = 0, at: int = 5, deadline_ms: int = 100, connection: str = "a") -> HeldPull[str]:
    return HeldPull(("T", queue_id), at, deadline_ms, connection, name)


def names(pulls: list[HeldPull[str]]) -> list[str]:
    return [one.payload for one in pulls]


def test_an_arrival_wakes_those_who_wait_for_it() -> None:
    held: HeldPulls[str] = HeldPulls()
    for one in (pull("a"), pull("b", at=6), pull("c", queue_id=1)):
        held.hold(one)
    assert held.waits_for(("T", 0))
    assert held.on_append(("T", 0), 5) == []
    assert names(held.on_append(("T", 0), 6)) == ["a"]
    assert names(held.on_append(("T", 0), 9)) == ["b"]
    assert not held.waits_for(("T", 0))
    assert len(held) == 1


def test_time_is_up_exactly_at_the_deadline() -> None:
    held: HeldPulls[str] = HeldPulls()
    held.hold(pull("late", deadline_ms=200))
    held.hold(pull("early", deadline_ms=100))
    assert held.next_deadline_ms == 100
    assert held.on_deadline(99) == []
    assert names(held.on_deadline(100)) == ["early"]
    assert held.next_deadline_ms == 200
    held.on_append(("T", 0), 99)
    assert held.next_deadline_ms is None


def test_the_recheck_wakes_whoever_has_seen_something_it_did_not_want() -> None:
    """Goal: a filtered consumer makes progress although nothing matches."""
    held: HeldPulls[str] = HeldPulls()
    moved = pull("moved")
    moved.scan_offset = 8
    held.hold(moved)
    held.hold(pull("still", at=8))
    assert held.on_append(("T", 0), 8) == []
    assert names([pull for grown in held.on_recheck(lambda queue: 8) for pull in grown]) == ["moved"]


def test_a_lost_connection_takes_its_pulls_along() -> None:
    held: HeldPulls[str] = HeldPulls()
    held.hold(pull("a"))
    held.hold(pull("b", connection="b"))
    held.on_disconnect("a")
    held.on_disconnect("nobody")
    assert names(held.release_all()) == ["b"]
    assert len(held) == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 20), st.sampled_from("xy"))))
def test_nobody_is_forgotten_and_nobody_wakes_twice(events: list[tuple[int, int, int, str]]) -> None:
    held: HeldPulls[str] = HeldPulls()
    waiting: dict[str, HeldPull[str]] = {}
    for number, (what, queue_id, value, connection) in enumerate(events):
        if what <= 1:
            fresh = pull(str(number), queue_id, at=value, deadline_ms=value, connection=connection)
            held.hold(fresh)
            waiting[fresh.payload] = fresh
            continue
        if what == 2:
            woken, right = (
                held.on_append(("T", queue_id), value),
                {name for name, one in waiting.items() if one.queue[1] == queue_id and one.scan_offset < value},
            )
        elif what == 3:
            woken, right = held.on_deadline(value), {name for name, one in waiting.items() if one.deadline_ms <= value}
        else:
            held.on_disconnect(connection)
            woken, right = [], set()
            waiting = {name: one for name, one in waiting.items() if one.connection != connection}
        assert set(names(woken)) == right
        assert len(woken) == len(right)
        for name in right:
            del waiting[name]
    assert len(held) == len(waiting)
    deadlines = [one.deadline_ms for one in waiting.values()]
    assert held.next_deadline_ms == (min(deadlines) if deadlines else None)
    assert set(names(held.release_all())) == set(waiting)
