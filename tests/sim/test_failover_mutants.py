"""The checker itself: each rule that keeps messages safe is broken once, and the schedules must notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketq.replication import control, fenced_master, fenced_slave
from rocketq.replication.confirm import Term
from rocketq.replication.control import GroupState
from rocketq.replication.election import FIRST_MS, Lease
from rocketq.replication.epochs import CopyFrom, Epoch, EpochList
from rocketq.replication.fenced_master import MasterAction, MasterSession

from .kernel_forms import COMPILED_IS_TESTED_TOO
from .replica_disk import ReplicaDisk
from .replica_schedule import run_schedule
from .test_failover_cases import test_a_state_read_before_a_commit_takes_no_proposal_back as a_read_overtakes_a_commit

SEEDS_MAX = 300
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILED_IS_TESTED_TOO, reason="no kernel is used: run with the compiled one"),
]
Patch = pytest.MonkeyPatch


def acks_of_one_are_enough(patch: Patch) -> None:
    """C is the largest end of a slave, as in the classic stream."""
    patch.setattr("rocketq.replication.confirm.min", lambda ends: sorted(ends)[-1], raising=False)


def proposals_count_as_committed(patch: Patch) -> None:

    def propose(self: Term, in_sync: frozenset[int]) -> None:
        self.in_sync = in_sync

    patch.setattr(Term, "propose", propose)


def anybody_may_be_elected(patch: Patch) -> None:
    original = control.elect

    def elect(view: control.GroupView, caller: control.MasterKey, lease_id: int, *, dead_epoch: int) -> object:
        if view.state is not None:
            state = control.replace(view.state.value, in_sync=view.state.value.in_sync | {caller.broker_id})
            view = control.replace(view, state=control.replace(view.state, value=state))
        return original(view, caller, lease_id, dead_epoch=dead_epoch)

    patch.setattr(control, "elect", elect)
    patch.setattr("rocketq.replication.agent.campaign_delay_ms", lambda *_, **__: FIRST_MS)


def nothing_is_cut(patch: Patch) -> None:
    """A slave keeps its tail whatever the master has."""
    patch.setattr(fenced_slave, "find_rejoin_point", lambda local, master: CopyFrom(local.end))
    patch.setattr(
        "rocketq.replication.fenced_master.find_rejoin_point",
        lambda local, master: CopyFrom(max(local.end, master.end)),
    )


def epochs_without_data_stay(patch: Patch) -> None:
    """As Apache's list: an epoch that starts where the last one did is not recorded."""

    def add(self: EpochList, number: int, start: int) -> None:
        if self.last is None or start > self.last.start:
            self._entries.append(Epoch(number, start))

    patch.setattr(EpochList, "add", add)
    patch.setattr(EpochList, "cut", _cut_behind)


def _cut_behind(self: EpochList, log_end: int) -> bool:
    before = len(self._entries)
    self._entries = [entry for entry in self._entries if entry.start <= log_end]
    return len(self._entries) != before


def leases_count_from_the_answer(patch: Patch) -> None:
    """`strict`: a lease is trusted twice as long as it should be."""
    patch.setattr(Lease, "is_valid", lambda self, now_ms: now_ms < self.valid_to_ms + 4_000)


def sets_shrink_before_they_are_committed(patch: Patch) -> None:
    original = Term.propose

    def propose(self: Term, in_sync: frozenset[int]) -> None:
        self.in_sync = self.in_sync & in_sync
        original(self, in_sync)

    patch.setattr(Term, "propose", propose)
    patch.setattr(Term, "_advance", _advance_by_own_set(Term._advance))


def _advance_by_own_set(original: Callable[[Term], None]) -> Callable[[Term], None]:
    def advance(self: Term) -> None:
        proposed, self._proposed = self._proposed, set()
        original(self)
        self._proposed = proposed

    return advance


def restarts_do_not_sync(patch: Patch) -> None:
    """What an earlier process wrote is taken for synced."""
    patch.setattr(ReplicaDisk, "sync", lambda self: None)


def any_proof_is_accepted(patch: Patch) -> None:
    """Whoever names the id of a slave is taken for it."""
    patch.setattr(fenced_master, "is_proof", lambda *_: True)
    patch.setattr(MasterSession, "log_checked", _checked_without_comparison(MasterSession.log_checked))


def _checked_without_comparison(original: Callable[..., list[MasterAction]]) -> Callable[..., list[MasterAction]]:
    return lambda self, mismatch: original(self, None)


def any_challenge_is_accepted(patch: Patch) -> None:
    """A slave copies from whatever answers at its master's address."""
    patch.setattr(fenced_slave, "is_proof", lambda *_: True)


MUTANTS: list[Callable[[Patch], None]] = [
    acks_of_one_are_enough,
    proposals_count_as_committed,
    anybody_may_be_elected,
    nothing_is_cut,
    epochs_without_data_stay,
    leases_count_from_the_answer,
    sets_shrink_before_they_are_committed,
    restarts_do_not_sync,
    any_proof_is_accepted,
    any_challenge_is_accepted,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_noticed(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """Goal: the schedules reach the situations that each rule is for, and the checker sees what goes wrong."""
    mutant(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            run_schedule(seed)
        except Exception:  # any failure is a notice: a violation, or a state that cannot be
            return
    pytest.fail(f"{mutant.__name__}: {SEEDS_MAX} schedules passed")


def any_state_is_adopted(patch: Patch) -> None:
    """A read that is older than the proposal takes it back: the set may be committed all the same."""

    def adopt(self: Term, state: GroupState, revision: int) -> None:
        self.in_sync, self.version, self.revision = state.in_sync, state.version, revision
        self._proposed.clear()
        self._advance()

    patch.setattr(Term, "adopt", adopt)


def test_a_state_read_before_a_proposal_does_not_take_it_back(monkeypatch: Patch) -> None:
    """Goal: a rule that random schedules hardly reach (a read overtakes a commit whose answer is lost, and within that
    moment a message is acknowledged that the new member lacks) is noticed where the moment is made on purpose."""
    a_read_overtakes_a_commit()
    any_state_is_adopted(monkeypatch)
    with pytest.raises(AssertionError):
        a_read_overtakes_a_commit()
