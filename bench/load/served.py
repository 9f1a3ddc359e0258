"""One of our servers as a process of its own, on a data directory that is filled before it starts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.peers import START_SECONDS_MAX, as_installed, end
from rocketq.model import NewMessage
from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigTable
from rocketq.protocol.bodies.offsets import ConsumerOffsets
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.store import StateFiles, Store, StoreConfig

TOPIC = "BenchMany"
QUEUES = 8


@dataclass(frozen=True, slots=True)
class Size:
    """How much a broker has in its tables. A group has committed for the queues of one topic."""

    topics: int = 10_000
    groups: int = 2_000

    @property
    def read_topics(self) -> int:
        return min(self.groups, self.topics)


@dataclass(frozen=True, slots=True)
class Served:
    addr: str
    pid: int

    @property
    def port(self) -> int:
        return int(self.addr.rpartition(":")[2])

    def cpu_s(self) -> float:
        """CPU of all its threads so far."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9

    def loop_cpu_s(self) -> float:
        """CPU of the thread with the event loop so far."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def served(folder: Path, *words: str) -> Iterator[Served]:
    """`rocketq <words>` until the block ends; its files are in the folder."""
    ready = folder / f"{words[0]}.json"
    command = [sys.executable, "-m", "rocketq", *words, "--port", "0", "--ready-file", str(ready)]
    with (folder / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--log-level", "warning"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=as_installed()
        )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{words[0]} did not start: {(folder / f'{words[0]}.log').read_text()[-2000:]}")
            time.sleep(0.005)
        (addr,) = json.loads(ready.read_text())["addresses"].values()
        yield Served(addr, process.pid)
    finally:
        end(process)


def fill(root: Path, size: Size, settings: Mapping[str, str]) -> None:
    """The config files of a broker, and two messages in each queue that a group has committed for."""
    files, version = StateFiles(root), DataVersion().next(1)
    for file in (files.topics, files.groups, files.consumer_offsets):
        file.load()
    names = [f"{TOPIC}{number}" for number in range(size.topics)]
    topics = {name: TopicConfig(topic=name, read_queue_count=QUEUES, write_queue_count=QUEUES) for name in names}
    files.topics.save(TopicConfigTable(data_version=version, topics=topics))
    groups = {f"group-{number}": GroupConfig(group=f"group-{number}") for number in range(size.groups)}
    files.groups.save(GroupConfigTable(data_version=version, groups=groups))
    committed = dict.fromkeys(range(QUEUES), 1)
    keys = [f"{TOPIC}{number % size.read_topics}@group-{number}" for number in range(size.groups)]
    files.consumer_offsets.save(ConsumerOffsets(offsets=dict.fromkeys(keys, committed)))
    with Store.open(StoreConfig(root=root).with_java(dict(settings))) as store:
        for name in names[: size.read_topics]:
            for number in range(2 * QUEUES):
                store.append(NewMessage(topic=name, queue_id=number % QUEUES, body=b"x" * 128), wait=False)
