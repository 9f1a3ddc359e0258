"""Corner cases of epochs, truncation, sets and leases, each set up on purpose in the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketq.replication import control
from rocketq.replication.agent import Role
from rocketq.replication.election import LeaseMode
from rocketq.replication.epochs import Epoch, EpochList
from rocketq.replication.recovery import promote, recover, truncate

from .replica_disk import RECORD_BYTES, ReplicaDisk, copied, record, run_steps
from .replica_node import Node
from .replica_schedule import Cluster
from .replica_world import CONTROL, GROUP


def make(
    count: int = 2, *, seed: int = 1, mode: LeaseMode = LeaseMode.AVAILABLE, min_in_sync: int = 1, sync: bool = True
) -> Cluster:
    cluster = Cluster.make(seed, count=count, mode=mode, sync_flush=sync, min_in_sync=min_in_sync)
    cluster.start()
    return cluster


def until(cluster: Cluster, done: Callable[[], object], span_ms: int = 30_000) -> None:
    deadline_ms = cluster.world.now_ms + span_ms
    while not done():
        assert cluster.world.now_ms < deadline_ms, cluster.describe()
        cluster.run(50)


def leader_of(cluster: Cluster, members: int | None = None) -> Node:
    """The master, once so many are in sync with it."""
    wanted = len(cluster.nodes) if members is None else members

    def ready() -> bool:
        leaders = cluster.leaders
        return len(leaders) == 1 and leaders[0].agent.term is not None and len(leaders[0].agent.term.in_sync) == wanted

    until(cluster, ready)
    return cluster.leaders[0]


def other_than(cluster: Cluster, node: Node) -> Node:
    return next(each for each in cluster.nodes if each is not node)


def send(cluster: Cluster, node: Node, count: int) -> None:
    for _ in range(count):
        assert node.send(cluster.next_id)
        cluster.next_id += 1


def cut_off(cluster: Cluster, node: Node) -> None:
    """From everybody and the control store, both ways."""
    for peer in [CONTROL, *(each.number for each in cluster.nodes if each is not node)]:
        cluster.world.cuts |= {(node.number, peer), (peer, node.number)}


# 1 and 5: epochs without data, a slave ahead


def test_an_epoch_without_data_does_not_hide_where_logs_part() -> None:
    """Goal: A leads epoch 1 and 2, B hears of 2 by heartbeat alone; A's tail of epoch 2 is gone when it is back."""
    cluster = make()
    a = leader_of(cluster)
    b = other_than(cluster, a)
    send(cluster, a, 10)
    cluster.run(500)
    a.kill(power=False)
    a.start()
    assert leader_of(cluster) is a
    second_epoch = a.leading_epoch
    until(cluster, lambda: b.agent.state.epoch == second_epoch and b.session is not None)
    assert b.disk.load_epochs().last == Epoch(1, 0)
    cut_off(cluster, a)
    send(cluster, a, 5)
    cluster.run(100)
    a.kill(power=False)
    cluster.world.cuts.clear()
    until(cluster, lambda: b.agent.role is Role.LEADING)
    send(cluster, b, 3)
    a.start()
    leader_of(cluster)
    cluster.rest()
    assert cluster.history.cuts == 1
    assert cluster.history.cut_bytes == 5 * RECORD_BYTES
    assert a.disk.load_epochs() == b.disk.load_epochs()


def test_double_failover_with_tails_at_each_step() -> None:
    """Goal: A to B to A, each leaving messages nobody else had: they are cut, what was acknowledged stays."""
    cluster = make(3, min_in_sync=2)
    tails = 0
    for _ in range(4):
        leader = leader_of(cluster)
        send(cluster, leader, 6)
        cluster.run(500)
        cut_off(cluster, leader)
        send(cluster, leader, 4)
        tails += 1
        until(cluster, lambda leader=leader: [each for each in cluster.leaders if each is not leader])  # type: ignore[misc]
        new = next(each for each in cluster.leaders if each is not leader)
        until(cluster, lambda new=new: new.agent.may_write(new.clock_ms) is None)  # type: ignore[misc]
        send(cluster, new, 2)
        cluster.world.cuts.clear()
    cluster.rest()
    assert cluster.history.cuts == tails
    assert cluster.history.cut_bytes == tails * 4 * RECORD_BYTES


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_elections_without_writes_between_them(order: tuple[int, int, int]) -> None:
    """Goal: empty epochs leave no trace; all restart in any order and agree."""
    cluster = make(3)
    send(cluster, leader_of(cluster), 5)
    cluster.run(500)
    for _ in range(2):
        leader = leader_of(cluster)
        leader.kill(power=True)
        until(cluster, lambda leader=leader: [each for each in cluster.leaders if each is not leader])  # type: ignore[misc]
        leader.start()
    send(cluster, leader_of(cluster), 5)
    cluster.run(500)
    for number in order:
        cluster.nodes[number].kill(power=True)
    for number in order:
        cluster.nodes[number].start()
        cluster.run(700)
    cluster.rest()
    assert len(cluster.nodes[0].disk.load_epochs()) <= 3


def test_a_slave_ahead_of_its_master_is_cut() -> None:
    """Goal: the master never waits for the larger offset of a slave; the slave's rest goes."""
    cluster = make(3)
    a = leader_of(cluster)
    cut_off(cluster, a)
    send(cluster, a, 50)
    a.kill(power=False)
    cluster.world.cuts.clear()
    until(cluster, lambda: cluster.leaders and cluster.leaders[0] is not a)
    a.start()
    leader = leader_of(cluster)
    assert a.disk.log_end == leader.disk.log_end == 0


# 4: crashes at every step


def epochs_of(disk: ReplicaDisk) -> EpochList:
    epochs = disk.load_epochs()
    epochs.cut(disk.log_end)
    return epochs


def disk_with(*epochs: tuple[int, int], end: int) -> ReplicaDisk:
    disk = ReplicaDisk.new(1)
    disk.append(b"".join(record(number + 1, number) for number in range(end // RECORD_BYTES)))
    disk.sync()
    disk.save_epochs(EpochList(Epoch(number, start) for number, start in epochs))
    return disk


@pytest.mark.parametrize("step", range(7))
def test_a_crash_at_any_step_of_a_truncation_ends_the_same(step: int) -> None:
    """Goal: once it was marked, a start finishes it; before, nothing has happened."""
    whole, torn = (disk_with((1, 0), (2, 160), (3, 320), end=480) for _ in range(2))
    assert run_steps(truncate(whole, 240))
    assert run_steps(truncate(torn, 240), step) == (step >= 6)
    before = copied(torn)
    torn.recover_tail()
    assert run_steps(recover(torn))
    if step == 0:
        assert torn.log_end == 480
        assert run_steps(truncate(torn, 240))
    assert (torn.log, torn.epoch_file) == (whole.log, whole.epoch_file)
    assert torn.load_state().truncating_to is None
    assert torn.dispatching
    assert before.log_end in (240, 480)


@pytest.mark.parametrize("crash_in_recovery", range(8))
def test_a_crash_while_a_truncation_is_finished_ends_the_same(crash_in_recovery: int) -> None:
    """Goal: starts may be cut off too."""
    whole, torn = (disk_with((1, 0), (2, 160), end=480) for _ in range(2))
    run_steps(truncate(whole, 240))
    run_steps(truncate(torn, 240), 3)
    run_steps(recover(torn), crash_in_recovery)
    torn.recover_tail()
    assert run_steps(recover(torn))
    assert (torn.log, torn.epoch_file, torn.load_state()) == (whole.log, whole.epoch_file, whole.load_state())


@pytest.mark.parametrize("step", range(5))
def test_a_crash_at_any_step_of_a_promotion_leaves_nothing_behind(step: int) -> None:
    """Goal: the next election, in a larger epoch, starts from the same log and the same epochs."""
    whole, torn = (disk_with((1, 0), (2, 160), end=320) for _ in range(2))
    run_steps(promote(torn, 5), step)
    torn.recover_tail()
    assert run_steps(recover(torn))
    assert epochs_of(torn) == epochs_of(whole)
    for disk in (whole, torn):
        assert run_steps(promote(disk, 7))
    assert torn.load_epochs() == whole.load_epochs() == EpochList([Epoch(1, 0), Epoch(2, 160), Epoch(7, 320)])
    assert torn.load_state().epoch == 7


# 6: retention


@pytest.mark.parametrize("resync", [False, True])
def test_a_replica_that_was_away_too_long_never_joins_silently(resync: bool) -> None:
    """Goal: what it needs is deleted: it stays out and says why, or (haAutoResync) copies everything anew."""
    cluster = make(3)
    leader = leader_of(cluster)
    send(cluster, leader, 20)
    cluster.run(500)
    slave = other_than(cluster, leader)
    slave.kill(power=False)
    leader_of(cluster, members=2)
    send(cluster, leader, 20)
    cluster.run(500)
    leader.disk.drop_before(30 * RECORD_BYTES)
    slave.auto_resync = resync
    slave.start()
    cluster.run(10_000)
    assert leader.agent.term is not None
    if resync:
        assert slave.agent.broker_id in leader.agent.term.in_sync
        assert slave.disk.start == leader.disk.start
        assert slave.disk.log == leader.disk.log
    else:
        assert slave.refused is not None
        assert "master's start" in slave.refused
        assert slave.agent.broker_id not in leader.agent.term.in_sync
        assert slave.disk.log_end == 20 * RECORD_BYTES


# 7: notices out of order


def test_old_notices_change_nothing() -> None:
    """Goal: views and epochs that come late, twice or in the wrong order are ignored."""
    cluster = make(3)
    first = leader_of(cluster)
    old_view = cluster.world.table.view(GROUP, int(cluster.world.now_ms))
    first.kill(power=False)
    until(cluster, lambda: cluster.leaders)
    first.start()
    leader = leader_of(cluster)
    slave = other_than(cluster, leader)
    for node in (leader, slave, first):
        role, followed, state = node.agent.role, node.agent.followed, node.agent.state
        for _ in range(2):
            assert node.agent.on_view(1, old_view, node.clock_ms) == []
        assert (node.agent.role, node.agent.followed, node.agent.state) == (role, followed, state)


def test_a_forged_epoch_does_not_end_a_mastership() -> None:
    """Goal: a peer's epoch triggers one read of the control store per interval, and changes nothing by itself."""
    cluster = make(2)
    leader = leader_of(cluster)
    epoch, now_ms = leader.leading_epoch, leader.clock_ms + 10_000
    reads = [leader.agent.on_outdated(now_ms) for _ in range(100)]
    assert [len(actions) for actions in reads] == [1] + [0] * 99
    leader._do(reads[0])
    cluster.run(5_000)
    assert leader.agent.role is Role.LEADING
    assert leader.disk.load_state().epoch == leader.leading_epoch == epoch


# Sets, leases, ids


def test_a_set_whose_commit_is_not_known_counts() -> None:
    """Goal: the master proposes a slave and never hears that it is in sync: nothing is confirmed without that slave."""
    cluster = make(2, seed=2)
    leader = leader_of(cluster)
    slave = other_than(cluster, leader)
    slave.kill(power=False)
    leader_of(cluster, members=1)
    cluster.world.cuts.add((CONTROL, leader.number))  # it speaks to the control store and hears nothing
    slave.start()

    def slave_is_in() -> bool:
        state = cluster.world.table.view(GROUP, int(cluster.world.now_ms)).state
        return state is not None and slave.agent.broker_id in state.value.in_sync

    until(cluster, slave_is_in)
    assert leader.agent.term is not None
    assert leader.agent.term.in_sync == {leader.agent.broker_id}
    cluster.world.cuts |= {(leader.number, slave.number), (slave.number, leader.number)}
    acked = len(cluster.history.acked)
    send(cluster, leader, 5)
    cluster.run(1_000)
    assert len(cluster.history.acked) == acked, "acknowledged without the slave that can be elected"
    leader.kill(power=True)
    until(cluster, lambda: slave.agent.role is Role.LEADING)
    cluster.rest()


def test_a_state_read_before_a_commit_takes_no_proposal_back() -> None:
    """Goal: the same, and a read from before the commit is answered behind it: the proposal counts on."""
    cluster = make(2, seed=2)
    leader = leader_of(cluster)
    slave = other_than(cluster, leader)
    slave.kill(power=False)
    leader_of(cluster, members=1)
    until(cluster, lambda: leader.agent.view.state == cluster.world.table.view(GROUP, int(cluster.world.now_ms)).state)
    before = leader.agent.view
    cluster.world.cuts.add((CONTROL, leader.number))
    slave.start()

    def slave_is_in() -> bool:
        state = cluster.world.table.view(GROUP, int(cluster.world.now_ms)).state
        return state is not None and slave.agent.broker_id in state.value.in_sync

    until(cluster, slave_is_in)
    leader._do(leader.agent.on_view(leader.agent._read_count, before, leader.clock_ms))
    cluster.world.cuts |= {(leader.number, slave.number), (slave.number, leader.number)}
    acked = len(cluster.history.acked)
    send(cluster, leader, 5)
    cluster.run(1_000)
    assert len(cluster.history.acked) == acked, "acknowledged without the slave that can be elected"


def test_fewer_in_sync_than_asked_for_refuses_before_anything_is_stored() -> None:
    """Goal: both slaves gone, minInSyncReplicas 2: no send is taken, none is acknowledged."""
    cluster = make(3, min_in_sync=2)
    leader = leader_of(cluster)
    for node in cluster.nodes:
        if node is not leader:
            node.kill(power=False)
    leader_of(cluster, members=1)
    end = leader.disk.log_end
    assert not leader.send(99)
    assert leader.disk.log_end == end
    assert "minInSyncReplicas is 2" in (leader.agent.may_write(leader.clock_ms) or "")


@pytest.mark.parametrize("mode", list(LeaseMode))
def test_a_master_without_the_control_store(mode: LeaseMode) -> None:
    """Goal: `strict` refuses within L and stops before another is elected; `available` goes on while nobody is."""
    cluster = make(3, mode=mode, min_in_sync=2)
    leader = leader_of(cluster)
    cluster.world.control_up = False
    cluster.run(3_000)
    assert (leader.agent.may_write(leader.clock_ms) is None) == (mode is LeaseMode.AVAILABLE)
    assert not leader.agent.has_lease(leader.clock_ms)
    if mode is LeaseMode.AVAILABLE:
        acked = len(cluster.history.acked)
        send(cluster, leader, 3)
        cluster.run(600_000)
        assert len(cluster.history.acked) == acked + 3
    cluster.rest()


def test_a_paused_master_acknowledges_nothing_of_its_own_afterwards() -> None:
    """Goal: paused for longer than its lease, a master wakes up with sends that wait: none of them is answered."""
    cluster = make(3, min_in_sync=2)
    leader = leader_of(cluster)
    for node in cluster.nodes:
        if node is not leader:
            cluster.world.cuts.add((leader.number, node.number))
    send(cluster, leader, 5)
    acked = len(cluster.history.acked)
    leader.paused_to_ms = cluster.world.now_ms + 15_000
    cluster.run(1_000)
    cluster.world.cuts.clear()
    until(cluster, lambda: [each for each in cluster.leaders if each is not leader])
    cluster.run(20_000)
    assert len(cluster.history.acked) == acked
    assert leader.agent.role is Role.FOLLOWING
    cluster.rest()


def test_a_planned_switch_is_quick_and_loses_nothing() -> None:
    """Goal: the chosen replica leads within a second of the request, with every message."""
    cluster = make(3, seed=2, min_in_sync=2)
    leader = leader_of(cluster)
    send(cluster, leader, 20)
    chosen = other_than(cluster, leader)
    asked_ms = cluster.world.now_ms
    leader._do(leader.agent.on_switch(chosen.agent.broker_id, leader.clock_ms))
    assert "switched" in (leader.agent.may_write(leader.clock_ms) or "")
    until(cluster, lambda: chosen.agent.role is Role.LEADING)
    assert cluster.world.now_ms - asked_ms <= 1_500
    assert len(cluster.history.acked) == 20
    cluster.rest()


def test_a_switch_to_one_that_is_not_in_sync_is_refused() -> None:
    """Goal: a planned switch never waits for what cannot be."""
    cluster = make(2)
    leader = leader_of(cluster)
    with pytest.raises(control.ChangeRejectedError):
        leader.agent.on_switch(9, leader.clock_ms)
    with pytest.raises(control.ChangeRejectedError):
        other_than(cluster, leader).agent.on_switch(0, 0)


def test_a_wiped_disk_comes_back_under_a_new_id() -> None:
    """Goal: an empty replica never inherits membership in the set that may be elected."""
    cluster = make(3, min_in_sync=2)
    leader = leader_of(cluster)
    send(cluster, leader, 10)
    cluster.run(500)
    slave = other_than(cluster, leader)
    old_id = slave.agent.broker_id
    slave.kill(power=True)
    slave.disk = ReplicaDisk.new(77)
    slave.start()
    until(cluster, lambda: slave.agent.broker_id and slave.disk.log_end == leader.disk.log_end)
    assert slave.agent.broker_id not in (0, old_id)
    until(cluster, lambda: leader.agent.term and slave.agent.broker_id in leader.agent.term.in_sync)
    assert leader.agent.term is not None
    until(cluster, lambda: leader.agent.term and old_id not in leader.agent.term.in_sync)
    cluster.history.told(slave.disk, len(cluster.history.truth), "the new disk")


def test_a_master_that_restarts_need_not_wait_for_its_old_lease() -> None:
    """Goal: the same store, alone in sync, is elected at once, in a new epoch."""
    cluster = make(1)
    leader = leader_of(cluster)
    send(cluster, leader, 3)
    cluster.run(500)
    leader.kill(power=False)
    killed_ms = cluster.world.now_ms
    leader.start()
    until(cluster, lambda: leader.agent.role is Role.LEADING)
    assert cluster.world.now_ms - killed_ms < 2_000
    assert leader.leading_epoch == 2
