"""Requests that wait for their answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketq.remoting.pending import PendingCalls


def test_an_answer_finds_who_waits_for_it_once() -> None:
    pending: PendingCalls[str] = PendingCalls()
    first, second = pending.add("a", 100), pending.add("b", 50)
    assert (first, second) == (1, 2)
    assert pending.take(second) == "b"
    assert pending.take(second) is None
    assert pending.next_deadline_ms == 100
    assert len(pending) == 1


def test_those_whose_time_is_up_leave_in_the_order_of_their_deadlines() -> None:
    pending: PendingCalls[str] = PendingCalls()
    for name, deadline_ms in (("late", 300), ("soon", 100), ("later", 200)):
        pending.add(name, deadline_ms)
    assert pending.expire(99) == []
    assert pending.expire(200) == ["soon", "later"]
    assert pending.next_deadline_ms == 300
    assert pending.drain() == ["late"]
    assert pending.next_deadline_ms is None


def test_an_opaque_in_use_is_not_given_again() -> None:
    """Goal: numbers return to 1 after 2^31 - 1, past those still waiting."""
    pending: PendingCalls[str] = PendingCalls()
    pending.add("waits for ever", 1)
    pending._opaque = 0x7FFFFFFE
    assert [pending.next_opaque() for _ in range(3)] == [0x7FFFFFFF, 2, 3]


def test_answered_calls_do_not_pile_up() -> None:
    pending: PendingCalls[int] = PendingCalls()
    for number in range(10_000):
        pending.take(pending.add(number, number + 3_000))
    assert len(pending._deadlines) <= 200


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans())), st.integers(0, 60))
def test_everybody_gets_exactly_one_end(calls: list[tuple[int, bool]], now_ms: int) -> None:
    """Goal: whoever is added leaves once: answered, timed out, or at the end."""
    pending: PendingCalls[int] = PendingCalls()
    opaques = [pending.add(number, deadline_ms) for number, (deadline_ms, _) in enumerate(calls)]
    answered = [pending.take(opaque) for opaque, (_, answer) in zip(opaques, calls, strict=True) if answer]
    expired = pending.expire(now_ms)
    assert all(calls[number][0] <= now_ms for number in expired)
    assert sorted([*answered, *expired, *pending.drain()]) == list(range(len(calls)))
