"""Each fault a replicated broker must live through, done to real processes under load, one test per fault.

Every test ends with the same check: what was answered is there, once, and was consumed; replicas are equal. The log of
who was hit says so in one line.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from rocketq.replication.handover import STABLE_MS
from rocketq.testing.etcd import PACKAGE, find_etcd
from tests.sim.kernel_forms import COMPILED_IS_TESTED_TOO

from .failover_history import clock_differences_s
from .failover_scene import Scene, play, says, stopped
from .jumping_clock import JumpingClock
from .namespaces import CLIENTS, why_not
from .replica_processes import TTL_S
from .small_disks import LOOKS_OFTEN, fill, small_disks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"),
    pytest.mark.skipif(COMPILED_IS_TESTED_TOO, reason="what decides has no kernel in it: run with the compiled one"),
]
needs_networks = pytest.mark.skipif((reason := why_not()) is not None, reason=str(reason))

ETCD_AWAY_S = float(os.environ.get("ROCKETQ_ETCD_AWAY_S", "10"))


# partitions


@needs_networks
def test_a_master_cut_off_from_its_slaves_hands_over(tmp_path: Path) -> None:
    """Goal: it reaches etcd, and so do its slaves, which reach each other: one of them leads while the cut lasts."""

    async def fault(scene: Scene) -> None:
        await asyncio.sleep(STABLE_MS / 1000)
        began_s = time.monotonic()
        scene.network.cut(scene.master.name, *(slave.name for slave in scene.slaves))
        await scene.new_master()
        await scene.goes_on()
        assert scene.answers.longest_gap_s(began_s) < 8
        await says(scene.master, "another replica takes over")
        scene.network.heal()

    play(tmp_path, fault, apart=True)


@needs_networks
@pytest.mark.parametrize("mode", ["strict", "available"])
def test_a_master_cut_off_from_etcd_is_replaced(tmp_path: Path, mode: str) -> None:
    """Goal: others elect a master; the old one, which all clients still reach, answers nothing more; it follows."""

    async def fault(scene: Scene) -> None:
        scene.network.cut(scene.master.name, *scene.cluster.etcd_names)
        await scene.new_master()
        await scene.goes_on()
        await says(scene.master, "has no valid lease")
        scene.network.heal()
        await says(scene.master, "is no longer master")

    play(tmp_path, fault, apart=True, mode=mode, etcd_members=3)


@needs_networks
def test_a_master_cut_off_from_everybody_is_replaced(tmp_path: Path) -> None:
    """Goal: clients, NameServer, slaves and etcd are gone for it at once; it comes back as a slave."""

    async def fault(scene: Scene) -> None:
        others = [slave.name for slave in scene.slaves]
        scene.network.cut(scene.master.name, CLIENTS, "namesrv", *scene.cluster.etcd_names, *others)
        await scene.new_master()
        await scene.goes_on()
        scene.network.heal()
        await says(scene.master, "is no longer master")

    play(tmp_path, fault, apart=True, etcd_members=3)


@needs_networks
def test_a_master_that_hears_and_is_not_heard(tmp_path: Path) -> None:
    """Goal: one way only: what it says reaches neither slaves nor etcd, what they say reaches it."""

    async def fault(scene: Scene) -> None:
        for name in [*scene.cluster.etcd_names, *(slave.name for slave in scene.slaves)]:
            scene.network.cut_way(scene.master.name, name)
        await scene.new_master()
        await scene.goes_on()
        scene.network.heal()
        await says(scene.master, "is no longer master")

    play(tmp_path, fault, apart=True)


@needs_networks
def test_a_slave_whose_acknowledgements_are_lost(tmp_path: Path) -> None:
    """Goal: it hears its master and is not heard: it leaves the in-sync set, sends go on; later it is in again."""

    async def fault(scene: Scene) -> None:
        scene.network.cut_way(scene.slaves[0].name, scene.master.name)
        await scene.watcher.in_sync(2)
        await scene.goes_on()
        scene.network.heal()
        await scene.same_master()
        await says(scene.master, r"in-sync set is \d, \d, was")

    play(tmp_path, fault, apart=True)


@needs_networks
def test_slaves_that_do_not_reach_each_other(tmp_path: Path) -> None:
    """Goal: nothing goes between slaves: a failover meanwhile leaves one of them out, and nothing is lost."""

    async def fault(scene: Scene) -> None:
        one, other = scene.slaves
        scene.network.cut(one.name, other.name)
        await scene.goes_on()
        await asyncio.to_thread(scene.master.kill)
        await scene.new_master(members=1)
        await scene.nothing_is_answered(for_s=1)  # the new master is alone, two are asked for
        await asyncio.to_thread(scene.master.start)
        await scene.watcher.master(scene.epoch - 1, members=2)
        await scene.goes_on()
        scene.network.heal()

    play(tmp_path, fault, apart=True)


@needs_networks
def test_cuts_between_others_stop_nothing(tmp_path: Path) -> None:
    """Goal: master and NameServer, a slave and etcd, a slave and clients, each for longer than a lease: sends go on
    and nobody else is elected."""

    async def fault(scene: Scene) -> None:
        slave = scene.slaves[0].name
        for one, others in (
            (scene.master.name, ["namesrv"]),
            (slave, scene.cluster.etcd_names),
            (slave, ["namesrv", CLIENTS]),
        ):
            scene.network.cut(one, *others)
            await go_on_for(scene, TTL_S + 2)
            scene.network.heal()
        await scene.same_master()

    play(tmp_path, fault, apart=True)


@needs_networks
def test_a_member_of_etcd_that_is_cut_off_from_the_others(tmp_path: Path) -> None:
    """Goal: each of three in turn, so its leader too; brokers still reach it, and must leave it."""

    async def fault(scene: Scene) -> None:
        names = scene.cluster.etcd_names
        for name in names:
            scene.network.cut(name, *(other for other in names if other != name))
            await asyncio.sleep(TTL_S)
            await scene.goes_on()
            scene.network.heal()
            await asyncio.sleep(1)

    play(tmp_path, fault, apart=True, etcd_members=3)


# what is slow or stands still


def test_a_slow_slave_slows_and_stops_nothing(tmp_path: Path) -> None:
    """Goal: a slave that works a quarter of the time: sends go on, nobody is elected."""

    async def fault(scene: Scene) -> None:
        until_s = time.monotonic() + 6
        while time.monotonic() < until_s:
            with stopped(scene.slaves[0]):
                await asyncio.sleep(0.3)
            await asyncio.sleep(0.1)
        await scene.goes_on()
        await scene.same_master()

    play(tmp_path, fault)


def test_a_slave_that_stands_still_leaves_the_set(tmp_path: Path) -> None:
    """Goal: sends wait until it is out, then go on; it comes back by itself."""

    async def fault(scene: Scene) -> None:
        with stopped(scene.slaves[0]):
            await scene.watcher.in_sync(2)
            await scene.goes_on()
        await scene.same_master()
        await says(scene.master, r"in-sync set is \d, \d, was")

    play(tmp_path, fault, haMaxTimeSlaveNotCatchup="2000")


def test_a_slave_that_is_killed_comes_back(tmp_path: Path) -> None:
    """Goal: sends go on without it; started again it copies what it missed, and is in sync."""

    async def fault(scene: Scene) -> None:
        slave = scene.slaves[0]
        await asyncio.to_thread(slave.kill)
        await scene.watcher.in_sync(2)
        await scene.goes_on(200)
        await asyncio.to_thread(slave.start)
        await scene.same_master()
        await says(scene.master, r"in-sync set is \d, \d, was")

    play(tmp_path, fault)


@pytest.mark.parametrize("mode", ["strict", "available"])
def test_a_master_that_stood_still_longer_than_its_lease(tmp_path: Path, mode: str) -> None:
    """Goal: awake again it answers nothing of what had been waiting, and follows the new master."""

    async def fault(scene: Scene) -> None:
        with stopped(scene.master):
            await scene.new_master()
            await scene.goes_on()
        await says(scene.master, "is no longer master")

    play(tmp_path, fault, mode=mode, flush="SYNC_FLUSH")


def test_a_member_of_etcd_that_stands_still(tmp_path: Path) -> None:
    """Goal: each of three in turn, so its leader too: sends go on. An old etcd (3.4) whose leader wakes up may end
    leases that are kept alive: that costs an election, nothing more."""

    async def fault(scene: Scene) -> None:
        for member in scene.cluster.etcd.members:
            with stopped(member):
                await asyncio.sleep(TTL_S)
                await scene.goes_on()
            await asyncio.sleep(1)

    play(tmp_path, fault, etcd_members=3)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_messages_go_on_while_etcd_is_away(tmp_path: Path, how: str) -> None:
    """Goal: `available`: etcd is away for longer than its leases, nothing stops; back again, a failover works."""

    async def fault(scene: Scene) -> None:
        etcd = scene.cluster.etcd
        if how == "stopped":
            with stopped(*etcd.members):
                await go_on_for(scene, ETCD_AWAY_S)
        else:
            for member in etcd.members:
                member.kill()
            await go_on_for(scene, ETCD_AWAY_S)
            await asyncio.to_thread(etcd.start)
        await says(scene.master, "control store unavailable")
        await says(scene.master, "control store available again")
        _, scene.master = await scene.watcher.master()
        scene.epoch = (await scene.watcher.view()).epoch
        await asyncio.to_thread(scene.master.kill)
        await scene.new_master()
        await scene.goes_on()
        await asyncio.to_thread(scene.master.start)

    play(tmp_path, fault)


async def go_on_for(scene: Scene, wanted_s: float) -> None:
    until_s = time.monotonic() + wanted_s
    while time.monotonic() < until_s:
        await scene.goes_on(1)
        await asyncio.sleep(0.5)


def test_a_strict_master_refuses_while_etcd_is_away(tmp_path: Path) -> None:
    """Goal: `strict`: without etcd nothing is answered once the lease is over; with it all goes on by itself."""

    async def fault(scene: Scene) -> None:
        with stopped(*scene.cluster.etcd.members):
            await asyncio.sleep(3)  # haLeaseTimeout is 2 s
            await scene.nothing_is_answered(for_s=2)
            await scene.senders_hear("lease")
        await scene.goes_on()
        await says(scene.master, "has no valid lease")

    play(tmp_path, fault, mode="strict")


# several at once


def test_two_failovers_in_a_row(tmp_path: Path) -> None:
    """Goal: the new master is killed as soon as it is one; the last replica alone answers nothing."""

    async def fault(scene: Scene) -> None:
        await asyncio.to_thread(scene.master.kill)
        second = await scene.new_master()
        await asyncio.to_thread(second.kill)
        await scene.new_master(members=1)
        await scene.nothing_is_answered(for_s=1)
        await asyncio.gather(asyncio.to_thread(scene.master.start), asyncio.to_thread(second.start))

    play(tmp_path, fault)


@needs_networks
def test_an_old_master_drops_the_tail_nobody_else_has(tmp_path: Path) -> None:
    """Goal: it stored sends that no slave got, and died: back again it cuts them off, and says how much."""

    async def fault(scene: Scene) -> None:
        scene.network.cut(scene.master.name, *(slave.name for slave in scene.slaves))
        await asyncio.sleep(1)  # every sender's next message is stored there, and not answered
        await asyncio.to_thread(scene.master.kill)
        await scene.new_master()
        scene.network.heal()  # not before: the dead process's kernel still sends what it has
        await scene.goes_on()
        await asyncio.to_thread(scene.master.start)
        await says(scene.master, r"dropped [1-9]\d* unconfirmed bytes after log offset")

    play(tmp_path, fault, apart=True)


# disks and clocks


def test_a_full_disk_of_a_slave(tmp_path: Path) -> None:
    """Goal: it acknowledges nothing it has no room for and skips nothing; with room again it catches up."""

    async def fault(scene: Scene) -> None:
        slave = scene.slaves[0]
        ballast = fill(scene.data_dir_of(slave))
        await scene.watcher.in_sync(2)
        await scene.goes_on()
        ballast.unlink()
        await scene.same_master()
        await says(slave, "stopped: the (?:append failed|tables cannot be stored): .*No space")

    with small_disks(tmp_path):
        play(tmp_path, fault, **LOOKS_OFTEN)


def test_a_master_with_a_full_disk_hands_over(tmp_path: Path) -> None:
    """Goal: a slave with space leads and sends continue; with space again the old master follows."""

    async def fault(scene: Scene) -> None:
        await asyncio.sleep(STABLE_MS / 1000)
        began_s = time.monotonic()
        ballast = fill(scene.data_dir_of(scene.master))
        await says(scene.master, "ERROR .* full")
        await scene.new_master(members=1)
        await scene.goes_on()
        assert scene.answers.longest_gap_s(began_s) < 8, scene.cluster.logs
        ballast.unlink()

    with small_disks(tmp_path):
        play(tmp_path, fault, **LOOKS_OFTEN)


@pytest.mark.skipif(shutil.which("cc") is None, reason="a clock that jumps is a few lines of C: there is no compiler")
@pytest.mark.parametrize("jump_s", [3600, -3600], ids=["ahead", "back"])
def test_a_jump_of_the_wall_clock_changes_nothing(tmp_path: Path, jump_s: int) -> None:
    """Goal: an hour ahead or back on the master, then on a slave: no lease ends, nobody is elected."""
    clock = JumpingClock(tmp_path)

    async def fault(scene: Scene) -> None:
        for process in (scene.master, scene.slaves[0]):
            clock.jump(scene.number_of(process), jump_s)
            await go_on_for(scene, TTL_S + 1)
        await scene.same_master()

    play(tmp_path, fault, environments=[clock.environment(number) for number in range(3)])
    differences_s = clock_differences_s(tmp_path)
    assert any(abs(each - jump_s) < 600 for each in differences_s), "the clock never jumped: this shows nothing"
