"""One fault of a replicated broker under load: three replicas, senders, a consumer, and the check at the end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketq.testing.etcd import EtcdMember

from .failover_history import Answers, check_nothing_lost
from .failover_load import HEAL_S, Watcher, all_consumed, consuming, grow, sending
from .namespaces import Namespaces
from .replica_processes import Process, ReplicaProcesses


@dataclass
class Scene:
    """What a fault can be done to."""

    cluster: ReplicaProcesses
    watcher: Watcher
    answers: Answers
    epoch: int
    master: Process

    @property
    def slaves(self) -> list[Process]:
        return self.cluster.others(self.master)

    def number_of(self, process: Process) -> int:
        return self.cluster.brokers.index(process)

    def data_dir_of(self, process: Process) -> Path:
        return self.cluster.data_dir(self.number_of(process))

    @property
    def network(self) -> Namespaces:
        assert self.cluster.network is not None
        return self.cluster.network

    async def goes_on(self, more: int = 20) -> None:
        await grow(self.answers, self.cluster, more)

    async def nothing_is_answered(self, for_s: float) -> None:
        """Not one send, from now on."""
        before = len(self.answers.acked)
        await asyncio.sleep(for_s)
        assert len(self.answers.acked) == before, "a send was answered that could not be"

    async def senders_hear(self, word: str) -> None:
        """Why they are refused."""
        deadline = time.monotonic() + HEAL_S
        while word not in self.answers.trouble:
            assert time.monotonic() < deadline, f"nobody was told of {word!r}, but: {self.answers.trouble}"
            await asyncio.sleep(0.05)

    async def new_master(self, members: int = 2) -> Process:
        """Another one, in a later epoch."""
        self.epoch, master = await self.watcher.master(self.epoch, members)
        return master

    async def same_master(self) -> None:
        """All are in sync, and nobody else was ever elected."""
        epoch, master = await self.watcher.master()
        assert (epoch, master) == (self.epoch, self.master), self.cluster.logs


Fault = Callable[[Scene], Awaitable[None]]


def play(folder: Path, fault: Fault, cluster: ReplicaProcesses | None = None, **options: Any) -> None:
    """Do the fault under load; in the end all three are in sync, and nothing that was answered is lost or unseen."""
    with cluster or ReplicaProcesses(folder, **options) as running:
        answers = asyncio.run(_play(running, fault))
        running.stop_brokers()
    check_nothing_lost(folder, answers)


async def _play(cluster: ReplicaProcesses, fault: Fault) -> Answers:
    answers = Answers()
    async with Watcher(cluster) as watcher:
        epoch, master = await watcher.master()
        scene = Scene(cluster, watcher, answers, epoch, master)
        async with consuming(cluster.name_server, answers):
            async with sending(cluster.name_server, answers):
                await scene.goes_on()
                await fault(scene)
                await watcher.master()
                await scene.goes_on()
            await all_consumed(answers, cluster)
    return answers


@contextlib.contextmanager
def stopped(*processes: Process | EtcdMember) -> Iterator[None]:
    """They do nothing for a while, and notice nothing of it."""
    for process in processes:
        process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.signal(signal.SIGCONT)


async def says(process: Process, pattern: str) -> str:
    """The line of its log that says so, once it is there."""
    deadline = time.monotonic() + HEAL_S
    while not (found := re.search(f".*(?:{pattern}).*", process.said)):
        assert time.monotonic() < deadline, f"{process.name} never said {pattern!r}: {process.tail}"
        await asyncio.sleep(0.1)
    return found.group()
