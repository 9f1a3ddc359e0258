"""Who holds how much of a limited resource, and who is closed when a limit is exceeded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketq.remoting.limits import SMALL_HOLDER_SLOTS, HandlerSlots, Holdings


def test_the_holder_is_chosen_not_the_peer_that_exceeds_the_limit() -> None:
    holdings: Holdings[str] = Holdings()
    holdings.set("holder", "10.0.0.1", 60, now_ms=0)
    holdings.set("innocent", "10.0.0.2", 80, now_ms=10_000)
    assert holdings.excess(100, 100, now_ms=10_001) == ["holder"]


def test_a_completed_frame_counts_as_newly_held() -> None:
    holdings: Holdings[str] = Holdings()
    holdings.set("active", "10.0.0.1", 60, now_ms=0)
    holdings.set("active", "10.0.0.1", 50, now_ms=9_999)
    holdings.set("holder", "10.0.0.1", 51, now_ms=5_000)
    assert holdings.excess(100, 100, now_ms=10_000) == ["holder"]


def test_holders_of_a_crowded_address_are_closed_first() -> None:
    holdings: Holdings[str] = Holdings()
    holdings.set("other", "10.0.0.2", 45, now_ms=0)
    for number in range(6):
        holdings.set(f"crowd {number}", "10.0.0.1", 10, now_ms=1_000)
    assert holdings.excess(100, 50, now_ms=2_000) == ["crowd 0", "crowd 1"]


def test_refresh_forgets_what_was_read_meanwhile() -> None:
    holdings: Holdings[str] = Holdings()
    holdings.set("fast", "10.0.0.1", 100, now_ms=0)
    holdings.set("slow", "10.0.0.1", 100, now_ms=0)
    holdings.refresh({"fast": 0, "slow": 90}.__getitem__, now_ms=1)
    assert holdings.total == 90
    assert holdings.holders == ["slow"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 100))), st.integers(1, 200))
def test_closing_the_chosen_holders_satisfies_every_limit(
    changes: list[tuple[int, int, int]], address_max: int
) -> None:
    holdings: Holdings[tuple[int, int]] = Holdings()
    for now_ms, (holder, address, amount) in enumerate(changes):
        holdings.set((holder, address), str(address), amount, now_ms)
    chosen = holdings.excess(150, address_max, now_ms=1_000)
    assert len(set(chosen)) == len(chosen)
    for one in chosen:
        holdings.set(one, "", 0, now_ms=1_000)
    assert holdings.total <= 150
    assert holdings.total == sum(holdings.of_holder(one) for one in holdings.holders)
    assert all(holdings.of_address(str(address)) <= address_max for address in range(3))


def test_a_connection_cannot_take_all_handler_slots() -> None:
    slots = HandlerSlots(100)
    while slots.rejection("greedy", "10.0.0.1", 0) is None:
        slots.take("greedy", "10.0.0.1")
    assert slots.used == 25
    assert slots.rejection("greedy", "10.0.0.1", 0) == "25 requests of this connection are in progress"
    assert slots.rejection("other", "10.0.0.1", 0) is None


def test_an_address_leaves_slots_to_others_and_to_its_small_holders() -> None:
    slots = HandlerSlots(100)
    for number in range(4):
        while slots.rejection(number, "10.0.0.1", 0) is None:
            slots.take(number, "10.0.0.1")
    assert slots.used == 75 + SMALL_HOLDER_SLOTS
    assert slots.rejection("probe", "10.0.0.1", 0) is None
    assert slots.rejection("probe", "10.0.0.2", 0) is None
    slots.release(0, "10.0.0.1")
    assert slots.used == 74 + SMALL_HOLDER_SLOTS
    assert slots.rejection("probe", "10.0.0.2", 26 - SMALL_HOLDER_SLOTS) == "100 requests are in progress"
