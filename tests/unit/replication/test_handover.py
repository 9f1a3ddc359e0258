"""When a master hands over without being asked, and when a slave replaces one whose process has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketq.replication import actions as act
from rocketq.replication import control
from rocketq.replication.agent import Agent, AgentSettings, LogEnds, Role
from rocketq.replication.confirm import SyncRules, Term
from rocketq.replication.control import AliveReport, GroupState, GroupView, MasterKey, Replica, Versioned
from rocketq.replication.election import LeaseMode, campaign_delay_ms
from rocketq.replication.handover import (
    GRACE_MS,
    QUIET_MS,
    STABLE_MS,
    isolation_target,
    may_shrink,
    room_target,
)
from rocketq.replication.recovery import HaState

NOW_MS = STABLE_MS + 60_000


def term(min_in_sync: int = 2, members: frozenset[int] = frozenset({1, 2, 3})) -> Term:
    """Master 1 of epoch 7, all slaves heard at NOW_MS."""
    made = Term(
        broker_id=1,
        epoch=7,
        epoch_start=0,
        rules=SyncRules(min_in_sync=min_in_sync),
        in_sync=members,
        version=1,
        revision=1,
        began_ms=0,
        confirm_offset=0,
        own_acked_end=0,
        own_written=0,
    )
    for member in members - {1}:
        made.on_ack(member, 0, 0, NOW_MS)
    return made


def view(**reports: AliveReport) -> GroupView:
    """`r2=` is the report of replica 2."""
    alive = {int(name[1:]): Versioned(report, 1, 1) for name, report in reports.items()}
    state = GroupState(1, 7, frozenset({1, 2, 3}), 1)
    master = MasterKey(1, 7, "ha1", "addr1")
    replicas = {number: Versioned(Replica(f"addr{number}", f"code{number}"), 1) for number in (1, 2, 3)}
    return GroupView(9, Versioned(state, 1), Versioned(master, 1, 1), replicas=replicas, alive=alive)


def report(end: int = 100, **fields: object) -> AliveReport:
    return replace(AliveReport("ha", end, 7), **fields)  # type: ignore[arg-type]


CUT_OFF = {"isolated_epoch": 7}


def test_a_master_that_nobody_hears_hands_over_to_the_longest_log() -> None:
    """Goal: both slaves report that they reach each other and not the master."""
    seen = view(r1=report(), r2=report(90, **CUT_OFF, reaches=(3,)), r3=report(100, **CUT_OFF, reaches=(2,)))
    assert isolation_target(seen, term(), NOW_MS + QUIET_MS + 1) == 3
    assert isolation_target(seen, term(), NOW_MS + QUIET_MS) is None, "slaves were heard a moment ago"


@pytest.mark.parametrize(
    "reports",
    [
        {"r2": report(), "r3": report()},
        {"r2": report(isolated_epoch=6, reaches=(3,)), "r3": report(isolated_epoch=6, reaches=(2,))},
        {"r2": report(**CUT_OFF), "r3": report(**CUT_OFF)},
        {"r2": report(**CUT_OFF, reaches=(3,))},
        {},
    ],
    ids=["not reported", "an earlier epoch", "slaves do not reach each other", "the other one is dead", "no report"],
)
def test_a_master_stays_when_no_slave_could_do_better(reports: dict[str, AliveReport]) -> None:
    """Goal: a new master would be alone as well, or nothing is known."""
    assert isolation_target(view(r1=report(), **reports), term(), NOW_MS + 10_000) is None


def test_one_of_two_replicas_never_hands_over() -> None:
    """Goal: after a cut between two, each side is alone: changing the master gains nothing."""
    pair = term(min_in_sync=1, members=frozenset({1, 2}))
    assert isolation_target(view(r1=report(), r2=report(**CUT_OFF)), pair, NOW_MS + 10_000) is None


def test_a_new_master_does_not_hand_over() -> None:
    """Goal: right after an election slaves are still connecting."""
    seen = view(r2=report(**CUT_OFF, reaches=(3,)), r3=report(**CUT_OFF, reaches=(2,)))
    young = replace(term(), followers={}, began_ms=NOW_MS)
    assert isolation_target(seen, young, NOW_MS + STABLE_MS - 1) is None


def test_a_full_master_hands_over_to_a_slave_with_space() -> None:
    """Goal: only a connected one; without any the master stays."""
    full = report(has_room=False)
    assert room_target(view(r2=report(90), r3=full), term(), NOW_MS) == 2
    assert room_target(view(r2=full, r3=full), term(), NOW_MS) is None
    assert room_target(view(r2=report(), r3=report()), term(), NOW_MS + QUIET_MS + 1) is None


def test_the_set_waits_before_it_shrinks_below_what_a_handover_needs() -> None:
    """Goal: who is removed cannot be elected; dead members, and one of several, are removed without the delay."""
    seen, lone = view(r2=report(), r3=report()), frozenset({1})
    gone = term()
    for member in (2, 3):
        gone.on_disconnected(member, NOW_MS)
    at = NOW_MS + gone.rules.gone_ms_max
    assert not may_shrink(seen, gone, lone, at + 1)
    assert may_shrink(seen, gone, lone, at + GRACE_MS + 1)
    assert may_shrink(seen, gone, frozenset({1, 2}), at + 1)
    assert may_shrink(view(), gone, lone, at + 1)


def test_a_replica_with_a_full_disk_campaigns_last() -> None:
    """Goal: a longer log does not help when nothing can be appended to it."""
    seen = replace(view(r2=report(100, has_room=False), r3=report(90)), master=None)
    full, other = (
        campaign_delay_ms(seen, 2, 7, 100, has_room=False),
        campaign_delay_ms(seen, 3, 7, 90),
    )
    assert full is not None
    assert other is not None
    assert other < full


def slave(mode: LeaseMode = LeaseMode.AVAILABLE, boot_id: str = "boot", broker_id: int = 2) -> Agent:
    """A slave with a lease that has read the group."""
    settings = AgentSettings(addr="a", ha_addr="h", lease_mode=mode, boot_id=boot_id)
    state = HaState(cluster="c", broker_name="b", check_code=f"code{broker_id}", broker_id=broker_id, epoch=7)
    agent = Agent(settings, state, LogEnds(100, 100, 7))
    agent.on_tick(0)
    agent.on_granted(5, 0)
    return agent


def deliver(agent: Agent, seen: GroupView, now_ms: int) -> list[act.Action]:
    """The answer to the read that was sent last, and what follows until a transaction is sent."""
    actions = agent.on_view(agent._read_count, seen, now_ms)
    for at in range(now_ms, now_ms + 2_000, 100):
        for action in actions:
            if isinstance(action, act.Commit) and action.purpose is act.Purpose.REPORT:
                agent.on_committed(action.number, 10, at)
            elif isinstance(action, act.Commit):
                return [action]
        actions = agent.on_tick(at)
    return []


def seen_by(reported: AliveReport) -> GroupView:
    return replace(view(r2=report(), r3=reported), secret=Versioned(bytes(32), 1))


@pytest.mark.parametrize("agreed", [True, False])
def test_a_dead_master_is_replaced_when_the_other_slave_agrees(agreed: bool) -> None:
    """Goal: one refused connection between two machines does not end a mastership."""
    agent = slave()
    agent.on_view(1, seen_by(report()), 0)
    assert agent.role is Role.FOLLOWING
    agent.on_master_dead(7, 500)
    sent = deliver(agent, seen_by(report(90, isolated_epoch=7 if agreed else 0)), 500)
    assert [action.purpose for action in sent if isinstance(action, act.Commit)] == [act.Purpose.ELECT] * agreed


def test_a_strict_slave_waits_for_the_lease() -> None:
    """Goal: `strict` promises that two masters never accept writes, and only leases prove that."""
    agent = slave(LeaseMode.STRICT)
    agent.on_view(1, seen_by(report()), 0)
    assert agent.on_master_dead(7, 500) == []
    assert deliver(agent, seen_by(report(90, isolated_epoch=7)), 500) == []


@pytest.mark.parametrize(("boot_id", "resumes"), [("boot", True), ("another boot", False), ("", False)])
def test_a_restarted_master_resumes_within_its_own_lease(boot_id: str, resumes: bool) -> None:
    """Goal: the same boot of the machine: its log is complete, and nobody else can be elected meanwhile."""
    agent = slave(boot_id=boot_id, broker_id=1)
    seen = seen_by(report())
    assert seen.master is not None
    own = replace(seen.master, value=replace(seen.master.value, boot_id="boot"))
    agent.on_view(1, replace(seen, master=own), 0)
    actions = agent.on_tick(100)
    elects = [action for action in actions if isinstance(action, act.Commit) and action.purpose is act.Purpose.ELECT]
    if not elects:
        actions = agent.on_view(2, replace(seen, master=own), 100)
        elects = [each for each in actions if isinstance(each, act.Commit) and each.purpose is act.Purpose.ELECT]
    assert bool(elects) == resumes


def test_a_master_of_another_epoch_is_not_replaced() -> None:
    """Goal: ELECT names the epoch whose process ended; a newer master's key is left alone."""
    seen = seen_by(report())
    caller = MasterKey(2, 0, "h")
    with pytest.raises(control.ChangeRejectedError):
        control.elect(seen, caller, 5, dead_epoch=6)
    state, _ = control.elect(seen, caller, 5, dead_epoch=7)
    assert (state.epoch, state.master_id, state.in_sync) == (8, 2, frozenset({2}))
