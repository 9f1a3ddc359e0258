"""What is confirmed, and who is in sync."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rocketq.replication.confirm import SyncRules, Term
from rocketq.replication.control import GroupState


def term(*in_sync: int, rules: SyncRules | None = None) -> Term:
    return Term(
        broker_id=1,
        epoch=4,
        epoch_start=100,
        rules=rules or SyncRules(),
        in_sync=frozenset({1, *in_sync}),
        version=1,
        revision=10,
        began_ms=0,
        confirm_offset=100,
        own_acked_end=100,
        own_written=100,
    )


def adopt(one: Term, revision: int, *in_sync: int) -> None:
    one.adopt(GroupState(1, 4, frozenset(in_sync), one.version + 1), revision)


def test_alone_the_own_log_is_confirmed() -> None:
    """Goal: S = {master}: C is its end."""
    one = term()
    one.on_own(250, 200)
    assert one.confirm_offset == 250


def test_with_sync_flush_only_what_is_on_disk_counts() -> None:
    """Goal: written and not synced is not confirmed, at master and slave."""
    one = term(2, rules=SyncRules(sync_flush=True))
    one.on_own(300, 250)
    one.on_ack(2, 300, 200, 0)
    assert one.confirm_offset == 200
    one.on_ack(2, 300, 300, 0)
    assert one.confirm_offset == 250


def test_a_member_without_an_ack_of_this_epoch_stops_everything() -> None:
    """Goal: what it had in earlier epochs says nothing."""
    one = term(2, 3)
    one.on_own(300, 300)
    one.on_ack(2, 300, 300, 0)
    assert one.confirm_offset == 100


def test_a_proposed_member_counts_until_the_state_has_moved_on() -> None:
    """Goal: also when the proposal was refused or nobody knows."""
    one = term()
    one.on_ack(2, 100, 100, 0)
    assert one.wanted_set(0) == {1, 2}
    one.propose(frozenset({1, 2}))
    one.on_own(300, 300)
    assert one.confirm_offset == 100
    assert one.wanted_set(0) == {1, 2}, "an open proposal is followed by another one"
    adopt(one, 10, 1, 2)
    assert one.in_sync == {1}, "an older revision says nothing"
    adopt(one, 11, 1)
    assert one.confirm_offset == 300
    assert one.wanted_set(0) is None


def test_a_member_leaves_only_by_a_committed_set() -> None:
    """Goal: C passes a dead slave after the change, not before."""
    one = term(2)
    one.on_own(300, 300)
    one.on_ack(2, 200, 200, 0)
    one.on_disconnected(2, 1_000)
    assert one.wanted_set(3_999) is None
    assert one.wanted_set(4_001) == {1}
    one.propose(frozenset({1}))
    assert one.confirm_offset == 200
    adopt(one, 11, 1)
    assert one.confirm_offset == 300


def test_a_slow_member_leaves_after_its_time() -> None:
    """Goal: connected and always behind for 15 s; one that keeps up with what there was stays."""
    one = term(2, 3)
    for now_ms in range(0, 16_001, 1_000):
        one.on_own(1_000 + now_ms, 1_000 + now_ms)
        one.on_ack(2, 500, 500, now_ms)
        one.on_ack(3, now_ms, now_ms, now_ms)
    assert one.wanted_set(16_001) == {1, 3}


def test_a_slave_comes_in_only_with_all_that_is_confirmed_and_of_this_epoch() -> None:
    """Goal: d >= C, and the epoch's start; learners never."""
    one = term()
    one.on_ack(2, 99, 99, 0)
    one.on_ack(3, 100, 100, 0, learner=True)
    assert one.wanted_set(0) is None
    one.on_own(300, 300)
    one.on_ack(2, 299, 299, 0)
    assert one.wanted_set(0) is None
    one.on_ack(2, 300, 300, 0)
    assert one.wanted_set(0) == {1, 2}


def test_a_member_that_lost_what_it_confirmed_leaves_at_once() -> None:
    """Goal: ASYNC_FLUSH and a power cut: it must not be elected."""
    one = term(2)
    one.on_own(300, 300)
    one.on_ack(2, 300, 300, 0)
    one.on_ack(2, 250, 250, 1)
    assert one.confirm_offset == 300
    assert one.wanted_set(1) == {1}


def test_too_few_in_sync() -> None:
    """Goal: told before anything is stored."""
    rules = SyncRules(min_in_sync=2)
    assert not term(rules=rules).enough_in_sync
    assert term(2, rules=rules).enough_in_sync


def test_without_all_ack_enough_copies_are_enough() -> None:
    """Goal: minInSyncReplicas copies, the master's among them."""
    one = term(2, 3, rules=SyncRules(min_in_sync=2, all_ack=False))
    one.on_own(300, 300)
    one.on_ack(2, 200, 200, 0)
    assert one.confirm_offset == 200
    one.on_ack(3, 250, 250, 0)
    assert one.confirm_offset == 250


events = st.lists(
    st.tuples(st.sampled_from(["own", "ack2", "ack3", "gone", "propose", "adopt"]), st.integers(0, 500)), max_size=40
)


@given(events)
def test_the_confirm_offset_never_goes_back_nor_beyond_anybody_who_counts(steps: list[tuple[str, int]]) -> None:
    """Goal: whatever comes in whatever order."""
    one, revision = term(2), 10
    for now_ms, (kind, number) in enumerate(steps):
        before, possible_members = one.confirm_offset, one.in_sync.union(*one._proposed)
        match kind:
            case "own":
                one.on_own(number, number)
            case "ack2" | "ack3":
                one.on_ack(int(kind[-1]), number, number, now_ms)
            case "gone":
                one.on_disconnected(2, now_ms)
            case "propose":
                one.propose(frozenset({1, 3}))
            case "adopt":
                revision += number % 2
                adopt(one, revision, 1, *([3] if number % 3 else [2]))
                possible_members = one.in_sync
        assert one.confirm_offset >= before
        if one.confirm_offset > before:
            ends = [
                one.own_acked_end if member == 1 else one.followers[member].acked_end for member in possible_members
            ]
            assert one.confirm_offset <= min(ends)
    assert replace(one) == one


def test_how_far_slaves_are_is_told_in_bytes_and_time() -> None:
    """Goal: nothing behind: no time; otherwise since it last had everything."""
    one = term(2, 3)
    one.on_ack(2, 100, 100, 1_000)
    one.on_ack(3, 100, 100, 1_000)
    one.on_own(300, 300)
    one.on_ack(2, 300, 300, 2_000)
    one.on_ack(3, 150, 150, 2_000)
    assert one.lags(4_500) == ((2, 300, 0), (3, 150, 3_500))
