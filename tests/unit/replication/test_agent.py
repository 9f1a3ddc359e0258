"""The agent alone: what it says to what happens, without any world around it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketq.replication import actions as act
from rocketq.replication import control
from rocketq.replication.agent import Agent, AgentSettings, LogEnds, Role
from rocketq.replication.control import ChangeRejectedError, Group, GroupView, MasterKey, Replica
from rocketq.replication.control_memory import ControlTable
from rocketq.replication.election import LeaseMode
from rocketq.replication.recovery import HaState

GROUP = Group("c", "b")
STATE = HaState(cluster="c", broker_name="b", check_code="mine")
SETTINGS = AgentSettings(addr="a:1", ha_addr="a:2", new_secret=bytes(32))


class Bench:
    """An agent and a table that answers at once."""

    def __init__(self, settings: AgentSettings = SETTINGS, state: HaState = STATE) -> None:
        self.table = ControlTable()
        self.agent = Agent(settings, state, LogEnds(100, 100, 0))
        self.now_ms = 0
        self.done: list[act.Action] = []

    def run(self, span_ms: int) -> None:
        for _ in range(span_ms // 100):
            self.now_ms += 100
            self.do(self.agent.on_tick(self.now_ms))

    def do(self, actions: list[act.Action]) -> None:
        for action in actions:
            self.done.append(action)
            match action:
                case act.Read(number):
                    self.do(self.agent.on_view(number, self.view, self.now_ms))
                case act.Commit(number, _, change):
                    self.do(self.agent.on_committed(number, self.table.commit(GROUP, change, self.now_ms), self.now_ms))
                case act.Grant(ttl_ms):
                    self.do(self.agent.on_granted(self.table.grant(ttl_ms, self.now_ms), self.now_ms))
                case act.KeepAlive(lease_id):
                    self.table.keep_alive(lease_id, self.now_ms)
                    self.do(self.agent.on_kept_alive(lease_id, self.now_ms))
                case act.Promote(epoch):
                    self.do(self.agent.on_promoted(epoch, LogEnds(100, 100, epoch), self.now_ms))

    @property
    def view(self) -> GroupView:
        return self.table.view(GROUP, self.now_ms)

    def kinds(self) -> list[str]:
        quiet = (act.Read, act.KeepAlive, act.Grant, act.Commit)
        return [type(action).__name__ for action in self.done if not isinstance(action, quiet)]


def test_the_first_of_a_group_gets_an_id_and_leads() -> None:
    """Goal: the epoch is on disk before the log is touched, the log is ready before anybody writes."""
    bench = Bench()
    bench.run(2_000)
    assert bench.agent.role is Role.LEADING
    assert bench.kinds() == ["Persist", "Persist", "StopFollowing", "Promote", "Lead"]
    assert bench.agent.state == replace(STATE, broker_id=1, epoch=1)
    assert bench.agent.may_write(bench.now_ms) is None
    assert bench.agent.answerable_to(bench.now_ms) == 100


def test_an_id_with_another_check_code_is_not_taken() -> None:
    """Goal: a wiped disk, or one that was forgotten, gets a new id."""
    bench = Bench(state=replace(STATE, broker_id=1))
    _, change = control.apply_for_id(bench.view, Replica("other", "another code"))
    bench.table.commit(GROUP, change, 0)
    bench.run(500)
    assert bench.agent.broker_id == 2


def test_without_a_lease_nobody_campaigns() -> None:
    """Goal: an election needs a lease that is trusted now."""
    bench = Bench()
    bench.agent._keep_lease = lambda now_ms: []  # type: ignore[method-assign]
    bench.run(10_000)
    assert bench.agent.role is Role.FOLLOWING


@pytest.mark.parametrize("mode", list(LeaseMode))
def test_a_lease_that_runs_out(mode: LeaseMode) -> None:
    """Goal: `strict` stops serving by its own clock; `available` goes on; locks need the lease in both."""
    bench = Bench(replace(SETTINGS, lease_mode=mode))
    bench.run(2_000)
    later_ms = bench.now_ms + SETTINGS.times.valid_ms + 1_000
    assert bench.agent.has_lease(bench.now_ms)
    assert not bench.agent.has_lease(later_ms)
    assert (bench.agent.may_write(later_ms) is None) == (mode is LeaseMode.AVAILABLE)
    assert bench.agent.answerable_to(later_ms) == (100 if mode is LeaseMode.AVAILABLE else -1)


def test_a_lost_lease_ends_a_mastership_and_a_new_epoch_begins() -> None:
    """Goal: never two times master in one epoch."""
    bench = Bench()
    bench.run(2_000)
    assert bench.agent.lease is not None
    bench.table.revoke(bench.agent.lease.id)
    bench.do(bench.agent.on_lease_lost(bench.agent.lease.id, bench.now_ms))
    assert bench.agent.role is not Role.LEADING
    assert "StepDown" in bench.kinds()
    bench.run(3_000)
    assert bench.agent.role is Role.LEADING
    assert bench.agent.state.epoch == 2


def test_another_master_is_followed_and_a_newer_one_after_it() -> None:
    """Goal: once per epoch, and never one of an older epoch."""
    bench = Bench()
    _, change = control.apply_for_id(bench.view, Replica("other", "x"))
    bench.table.commit(GROUP, change, 0)
    lease = bench.table.grant(100_000, 0)
    for epoch in (1, 2):
        _, change = control.elect(bench.view, MasterKey(1, 0, f"ha{epoch}"), lease)
        assert bench.table.commit(GROUP, change, bench.now_ms)
        bench.run(6_000)
    follows = [action for action in bench.done if isinstance(action, act.Follow)]
    assert [(follow.ha_addr, follow.epoch) for follow in follows] == [("ha1", 1), ("ha2", 2)]
    assert bench.agent.may_write(bench.now_ms) == "this replica is not the master"
    with pytest.raises(ChangeRejectedError):
        bench.agent.on_switch(0, bench.now_ms)


def test_a_clean_stop_of_a_master_retires_first() -> None:
    """Goal: no writes, then the key goes, then the lease, then the end."""
    bench = Bench()
    bench.run(2_000)
    bench.done.clear()
    bench.do(bench.agent.on_stop(bench.now_ms))
    assert bench.agent.may_write(bench.now_ms) == "the master is being switched"
    bench.run(500)
    assert bench.kinds() == ["StopAccepting", "StepDown", "StopFollowing", "Revoke", "Stopped"]
    assert bench.view.master is None
    assert bench.view.epoch == 2
    assert bench.agent.on_tick(bench.now_ms) == []


def test_an_operators_wish_is_heard_once() -> None:
    """Goal: one that cannot be granted is left alone."""
    bench = Bench()
    bench.run(2_000)
    bench.table.commit(GROUP, control.Transaction((), (control.Put("switch", b"9"),)), bench.now_ms)
    bench.run(6_000)
    assert bench.agent.role is Role.LEADING
    assert "StopAccepting" not in bench.kinds()


def retiring(mode: LeaseMode) -> tuple[Bench, act.Commit]:
    """A master that has asked to give its mastership to replica 2, and was not answered yet."""
    bench = Bench(replace(SETTINGS, lease_mode=mode))
    bench.run(2_000)
    agent, table = bench.agent, bench.table
    assert agent.lease is not None
    _, change = control.apply_for_id(bench.view, Replica("other", "x"))
    assert table.commit(GROUP, change, bench.now_ms)
    _, change = control.alter_set(bench.view, 1, agent.lease.id, frozenset({1, 2}))
    assert table.commit(GROUP, change, bench.now_ms)
    bench.do(agent.on_changed(bench.now_ms))
    agent.on_switch(2, bench.now_ms)
    assert agent.may_serve(bench.now_ms)
    (retire,) = [action for action in agent.on_tick(bench.now_ms) if isinstance(action, act.Commit)]
    return bench, retire


def test_a_late_answer_about_a_switch_that_is_over_changes_nothing() -> None:
    """Goal: the new master may be followed already when the old one hears that its own change was made."""
    bench, retire = retiring(LeaseMode.AVAILABLE)
    agent, table = bench.agent, bench.table
    revision = table.commit(GROUP, retire.change, bench.now_ms)
    assert revision is not None
    _, change = control.elect(bench.view, MasterKey(2, 0, "ha2"), table.grant(100_000, bench.now_ms))
    assert table.commit(GROUP, change, bench.now_ms)
    bench.do(agent.on_changed(bench.now_ms))
    followed = agent.followed
    assert followed is not None
    bench.done.clear()
    bench.do(agent.on_committed(retire.number, revision, bench.now_ms))
    assert bench.kinds() == []
    assert agent.followed is followed


def test_a_master_that_asked_to_go_grants_nothing_that_another_could_contradict() -> None:
    """Goal: from the asking on another one may lead; `available` serves reads on, but no locks and no deliveries."""
    for mode in LeaseMode:
        bench, _ = retiring(mode)
        assert not bench.agent.has_lease(bench.now_ms)
        assert bench.agent.may_serve(bench.now_ms) == (mode is LeaseMode.AVAILABLE)


def test_a_strict_master_that_was_not_answered_insists_on_going() -> None:
    """Goal: the change may be made at any time, so serving again would be wrong for ever."""
    bench, retire = retiring(LeaseMode.STRICT)
    bench.do(bench.agent.on_commit_unknown(retire.number, bench.now_ms))
    assert not bench.agent.may_serve(bench.now_ms)
    bench.run(500)
    assert "AcceptAgain" not in bench.kinds()
    assert "StepDown" in bench.kinds()
    assert bench.view.epoch > 1


def test_a_master_whose_going_was_not_made_serves_again_when_it_has_looked() -> None:
    """Goal: another change came in between; the read after it says who is master."""
    bench, retire = retiring(LeaseMode.STRICT)
    (read,) = bench.agent.on_committed(retire.number, None, bench.now_ms)
    assert isinstance(read, act.Read)
    assert not bench.agent.may_serve(bench.now_ms)
    bench.agent.on_view(read.number, bench.view, bench.now_ms)
    assert bench.agent.role is Role.LEADING


def test_an_available_master_that_was_not_answered_goes_on_after_a_while() -> None:
    """Goal: an etcd that is away must not cost the writes of a master that was asked to go."""
    bench, retire = retiring(LeaseMode.AVAILABLE)
    bench.now_ms += SETTINGS.retire_ms_max + 100
    actions = bench.agent.on_commit_unknown(retire.number, bench.now_ms)
    (read,) = [action for action in actions if isinstance(action, act.Read)]
    assert bench.agent.lease is not None
    assert act.AcceptAgain() in bench.agent.on_view(read.number, bench.table.view(GROUP, 0), bench.now_ms)
    assert bench.agent.may_serve(bench.now_ms)
