"""Failovers in a row, each of a kind, under load; how long nothing was answered in each, and what became of it all."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rocketq.replication.handover import STABLE_MS

from .failover_history import Answers, check
from .failover_load import SEND_EVERY_S, Watcher, all_consumed, consuming, grow, sending
from .replica_processes import NAME, Process, ReplicaProcesses
from .small_disks import LOOKS_OFTEN, fill, small_disks

DISK_MIB = 128
PLANNED = frozenset({"switch", "stop"})


async def kill(process: Process, watcher: Watcher, epoch: int) -> None:
    await asyncio.to_thread(process.kill)
    await watcher.master(epoch, members=2)
    await asyncio.to_thread(process.start)


async def pause(process: Process, watcher: Watcher, epoch: int) -> None:
    process.signal(signal.SIGSTOP)
    try:
        await watcher.master(epoch, members=2)
    finally:
        process.signal(signal.SIGCONT)


async def stop(process: Process, watcher: Watcher, epoch: int) -> None:
    await asyncio.to_thread(process.stop)
    await watcher.master(epoch, members=2)
    await asyncio.to_thread(process.start)


async def switch(process: Process, watcher: Watcher, epoch: int) -> None:
    """As an operator does it."""
    command = [str(Path(sys.executable).with_name("rocketq")), "ha", "switch", "--control", watcher.cluster.etcd.url]
    done = await asyncio.create_subprocess_exec(*command, "--broker", NAME, stdout=asyncio.subprocess.DEVNULL)
    assert await done.wait() == 0, watcher.cluster.logs
    _, now = await watcher.master(epoch)
    assert now is not process


async def cut_from_etcd(process: Process, watcher: Watcher, epoch: int) -> None:
    await _cut_from(watcher.cluster.etcd_names, process, watcher, epoch)


async def cut_from_etcd_one_way(process: Process, watcher: Watcher, epoch: int) -> None:
    """It hears etcd and is not heard."""
    network = watcher.cluster.network
    assert network is not None
    for name in watcher.cluster.etcd_names:
        network.cut_way(process.name, name)
    try:
        await watcher.master(epoch, members=2)
    finally:
        network.heal()


async def cut_from_servers(process: Process, watcher: Watcher, epoch: int) -> None:
    """Only clients reach it, and may believe it."""
    await _cut_from(_servers(watcher.cluster, process), process, watcher, epoch)


async def cut_from_all(process: Process, watcher: Watcher, epoch: int) -> None:
    await _cut_from([*_servers(watcher.cluster, process), "clients"], process, watcher, epoch)


def _servers(cluster: ReplicaProcesses, process: Process) -> list[str]:
    return [*cluster.etcd_names, "namesrv", *(other.name for other in cluster.others(process))]


async def _cut_from(names: list[str], process: Process, watcher: Watcher, epoch: int) -> None:
    network = watcher.cluster.network
    assert network is not None, "the processes are not in networks of their own"
    network.cut(process.name, *names)
    try:
        await watcher.master(epoch, members=2)
    finally:
        network.heal()


async def restart(process: Process, watcher: Watcher, epoch: int) -> None:
    """Kill -9 and start at once, as a supervisor does."""
    await asyncio.to_thread(process.kill)
    await asyncio.to_thread(process.start)
    await watcher.master(epoch, members=2)


async def cut_from_slaves(process: Process, watcher: Watcher, epoch: int) -> None:
    """It reaches etcd, and its slaves reach etcd and each other."""
    await asyncio.sleep(STABLE_MS / 1000)
    await _cut_from([other.name for other in watcher.cluster.others(process)], process, watcher, epoch)


async def cut_from_slaves_one_way(process: Process, watcher: Watcher, epoch: int) -> None:
    """Its slaves reach it and do not hear it."""
    await asyncio.sleep(STABLE_MS / 1000)
    network = watcher.cluster.network
    assert network is not None
    for other in watcher.cluster.others(process):
        network.cut_way(process.name, other.name)
    try:
        await watcher.master(epoch, members=2)
    finally:
        network.heal()


async def fill_disk(process: Process, watcher: Watcher, epoch: int) -> None:
    """To the last block; with space again it follows."""
    await asyncio.sleep(STABLE_MS / 1000)
    ballast = fill(watcher.cluster.data_dir(watcher.cluster.brokers.index(process)))
    try:
        await watcher.master(epoch, members=2)
    finally:
        ballast.unlink()


FAULTS: dict[str, Callable[[Process, Watcher, int], Awaitable[None]]] = {
    "kill": kill,
    "restart": restart,
    "full-disk": fill_disk,
    "cut-slaves": cut_from_slaves,
    "cut-slaves-one-way": cut_from_slaves_one_way,
    "pause": pause,
    "stop": stop,
    "switch": switch,
    "cut-etcd": cut_from_etcd,
    "cut-etcd-one-way": cut_from_etcd_one_way,
    "cut-servers": cut_from_servers,
    "cut-all": cut_from_all,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A cluster and what is done to it."""

    turns: int
    kinds: tuple[str, ...]
    flush: str = "SYNC_FLUSH"
    mode: str = "available"
    seed: int | None = None
    """None: kinds come in their order; otherwise by chance."""
    send_every_s: float = SEND_EVERY_S

    @property
    def name(self) -> str:
        return f"{self.flush} {self.mode}"

    @property
    def apart(self) -> bool:
        return any(kind.startswith("cut") for kind in self.kinds)


@dataclass
class Figures:
    """Of one row, or of several together."""

    gaps_s: dict[str, list[float]] = field(default_factory=dict)
    acked: int = 0
    unknown: int = 0
    lost: int = 0
    stored_twice: int = 0
    delivered_again: int = 0

    def add(self, other: Figures) -> None:
        for kind, gaps_s in other.gaps_s.items():
            self.gaps_s.setdefault(kind, []).extend(gaps_s)
        for name in ("acked", "unknown", "lost", "stored_twice", "delivered_again"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def all_gaps_s(self) -> list[float]:
        return [gap_s for gaps_s in self.gaps_s.values() for gap_s in gaps_s]

    def line(self, name: str) -> str:
        gaps_s = self.all_gaps_s
        return (
            f"{name}: {len(gaps_s)} failovers, {self.acked} acknowledged, {self.lost} lost, {self.unknown} unknown, "
            f"{self.stored_twice} stored twice, {self.delivered_again} delivered again; "
            f"time without writes p50 {statistics.median(gaps_s):.1f} s, max {max(gaps_s):.1f} s"
        )


def run_row(folder: Path, row: Row) -> Figures:
    """The whole life of a cluster; asserts everything but losses, which it counts."""
    answers, figures = Answers(), Figures()
    more = LOOKS_OFTEN if "full-disk" in row.kinds else {}
    with small_disks(folder, mib=DISK_MIB) if more else contextlib.nullcontext():
        with ReplicaProcesses(
            folder, flush=row.flush, mode=row.mode, etcd_members=3, apart=row.apart, **more
        ) as cluster:
            asyncio.run(_fail_over(cluster, row, answers, figures))
            cluster.stop_brokers()
        found = check(folder, answers)
    figures.acked, figures.unknown = len(answers.acked), len(answers.unknown)
    figures.lost, figures.stored_twice = len(found.lost), found.stored_twice_count
    figures.delivered_again = answers.again_count
    return figures


async def _fail_over(cluster: ReplicaProcesses, row: Row, answers: Answers, figures: Figures) -> None:
    rng = random.Random(row.seed or 0)
    async with Watcher(cluster) as watcher:
        await watcher.master()
        async with consuming(cluster.name_server, answers):
            async with sending(cluster.name_server, answers, every_s=row.send_every_s):
                for turn in range(row.turns):
                    kind = row.kinds[turn % len(row.kinds)] if row.seed is None else rng.choice(row.kinds)
                    await asyncio.to_thread(_disturb_etcd, cluster, turn)
                    gap_s = await _one_failover(kind, watcher, answers)
                    figures.gaps_s.setdefault(kind, []).append(gap_s)
                    await asyncio.sleep(rng.random() / 2)
                await watcher.master()
            await all_consumed(answers, cluster)


async def _one_failover(kind: str, watcher: Watcher, answers: Answers) -> float:
    """How long nothing was answered."""
    epoch, process = await watcher.master()
    await grow(answers, watcher.cluster, 50)
    began_s = time.monotonic()
    await FAULTS[kind](process, watcher, epoch)
    await grow(answers, watcher.cluster, 50)
    return answers.longest_gap_s(began_s)


def _disturb_etcd(cluster: ReplicaProcesses, turn: int) -> None:
    """Every other turn one of etcd's three members is away, another one each time."""
    members = cluster.etcd.members
    member = members[turn // 2 % len(members)]
    if turn % 2 == 0:
        member.kill()
    else:
        cluster.etcd.start_member(member)
        cluster.etcd.wait_ready()
