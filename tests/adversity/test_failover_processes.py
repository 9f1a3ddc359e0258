"""Real brokers, a real etcd: masters are killed, stopped and switched under load; every answer is checked afterwards.

ROCKETQ_FAILOVERS=n does so many in a row (make chaos).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketq.client import AsyncProducer, AsyncPushConsumer, ConsumeFromWhere, Message, PushConfig, SendStatus
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.errors import RocketQError
from rocketq.model import NewMessage
from rocketq.protocol.messages import decode_records
from rocketq.replication.control import ControlError, Group, GroupView
from rocketq.replication.control_etcd import EtcdControl
from rocketq.replication.etcd_gateway import EtcdConfig
from rocketq.store import Store, StoreConfig
from rocketq.testing.etcd import PACKAGE, find_etcd
from tests.sim.kernel_forms import COMPILED_IS_TESTED_TOO

from .replica_processes import NAME, Process, ReplicaProcesses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"),
]

TURNS = int(os.environ.get("ROCKETQ_FAILOVERS", "2" if COMPILED_IS_TESTED_TOO else "5"))
SENDERS = 4
HEAL_S = 90
GROUP = Group("DefaultCluster", NAME)


@dataclass
class Answers:
    """What senders were told, and when."""

    acked: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    last_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    again: int = 0
    trouble: str = ""

    def consumed(self, place: tuple[int, int], body: bytes) -> None:
        """A consumer saw it there: nothing else may ever be seen there."""
        known = self.seen.setdefault(place, body)
        self.again += known == body
        if known != body:
            self.changed.append(f"{place}: {known!r}, then {body!r}")

    def ok(self, body: bytes, queue_id: int, queue_offset: int) -> None:
        now_s = time.monotonic()
        if self.last_s:
            self.gaps_s.append(now_s - self.last_s)
        self.last_s = now_s
        self.acked[body] = (queue_id, queue_offset)


async def send_on(name_server: str, number: int, answers: Answers, done: asyncio.Event) -> None:
    count = 0
    async with AsyncProducer(f"senders{number}", name_servers=name_server) as producer:
        while not done.is_set():
            body = b"%d-%d" % (number, count)
            count += 1
            try:
                result = await producer.send(Message(topic="Load", body=body), timeout_ms=3_000)
            except RocketQError as error:
                answers.trouble = f"{type(error).__name__}: {error}"
                answers.unknown.add(body)
                await asyncio.sleep(0.1)
                continue
            if result.status is SendStatus.SEND_OK:
                answers.ok(body, result.queue.queue_id, result.queue_offset)
            else:
                answers.trouble = str(result)
                answers.unknown.add(body)


@asynccontextmanager
async def consuming(name_server: str, answers: Answers) -> AsyncIterator[None]:
    async def listener(messages: list[StoredMessage], context: object) -> None:
        for message in messages:
            answers.consumed((message.queue.queue_id, message.queue_offset), message.body)

    config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with AsyncPushConsumer("readers", listener, name_servers=name_server, config=config) as consumer:
        consumer.subscribe("Load")
        yield


class Watcher:
    """What etcd says of the group."""

    def __init__(self, cluster: ReplicaProcesses) -> None:
        self.cluster = cluster
        self.control = EtcdControl(EtcdConfig.from_url(cluster.etcd.url))

    async def view(self) -> GroupView:
        while True:
            try:
                return await self.control.read(GROUP)
            except ControlError:
                await asyncio.sleep(0.2)

    async def master(self, after_epoch: int = 0, members: int = 3) -> tuple[int, Process]:
        """Epoch and process of the master, once so many are in sync."""
        deadline = time.monotonic() + HEAL_S
        while time.monotonic() < deadline:
            view = await self.view()
            in_sync = len(view.state.value.in_sync) if view.state is not None else 0
            if view.master is not None and view.epoch > after_epoch and in_sync >= members:
                port = int(view.master.value.addr.rpartition(":")[2])
                return view.epoch, self.cluster.brokers[self.cluster.ports.index(port)]
            await asyncio.sleep(0.1)
        raise AssertionError(f"no master with {members} in sync: {await self.view()}\n{self.cluster.logs}")


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
    done = await asyncio.create_subprocess_exec(*command, "--broker", NAME)
    assert await done.wait() == 0, watcher.cluster.logs
    _, now = await watcher.master(epoch)
    assert now is not process


FAULTS: dict[str, Callable[..., object]] = {"kill": kill, "pause": pause, "stop": stop, "switch": switch}


@pytest.mark.parametrize(
    ("flush", "mode", "faults"),
    [("ASYNC_FLUSH", "available", "kill"), ("SYNC_FLUSH", "strict", "switch kill pause stop")],
    ids=["async-kills", "sync-strict-mixed"],
)
def test_no_answered_message_is_lost_by_failovers(tmp_path: Path, flush: str, mode: str, faults: str) -> None:
    """Goal: after every failover all that was answered SEND_OK is where the answer said, once; replicas are equal."""
    answers = Answers()
    with ReplicaProcesses(tmp_path, flush=flush, mode=mode, etcd_members=3 if "switch" in faults else 1) as cluster:
        asyncio.run(fail_over(cluster, answers, faults.split()))
        for broker in cluster.brokers:
            broker.stop()
    check(tmp_path, answers)
    gaps = sorted(answers.gaps_s)
    longest = [round(gap, 1) for gap in gaps[-TURNS:]]
    print(
        f"{TURNS} failovers: {len(answers.acked)} acknowledged, 0 lost, {len(answers.unknown)} unknown, "
        f"{answers.again - len(answers.seen)} delivered again, longest times without an answer {longest} s"
    )


async def fail_over(cluster: ReplicaProcesses, answers: Answers, kinds: list[str]) -> None:
    watcher = Watcher(cluster)
    await watcher.master()
    async with consuming(cluster.name_server, answers):
        await _fail_over(cluster, answers, kinds, watcher)
        deadline = time.monotonic() + HEAL_S
        while missing := set(answers.acked.values()) - set(answers.seen):
            assert time.monotonic() < deadline, f"{len(missing)} answered messages were not consumed\n{cluster.logs}"
            await asyncio.sleep(0.2)
    await watcher.control.close()


async def _fail_over(cluster: ReplicaProcesses, answers: Answers, kinds: list[str], watcher: Watcher) -> None:
    done, rng = asyncio.Event(), random.Random(1)
    senders = [asyncio.create_task(send_on(cluster.name_server, at, answers, done)) for at in range(SENDERS)]
    try:
        for turn in range(TURNS):
            await asyncio.to_thread(_disturb_etcd, cluster, turn)
            epoch, process = await watcher.master()
            before = len(answers.acked)
            await _grow(answers, before + 50, cluster)
            await FAULTS[kinds[turn % len(kinds)]](process, watcher, epoch)  # type: ignore[misc]
            await _grow(answers, len(answers.acked) + 20, cluster)
            await asyncio.sleep(rng.random())
        await watcher.master()
    finally:
        done.set()
        ends = await asyncio.gather(*senders, return_exceptions=True)
    assert ends == [None] * SENDERS  # errors are answers; anything else is a defect of the producer


def _disturb_etcd(cluster: ReplicaProcesses, turn: int) -> None:
    """Of three members one is always away, another one each turn."""
    members = cluster.etcd.members
    if len(members) == 3:
        if turn:
            cluster.etcd.start_member(members[(turn - 1) % 3])
            cluster.etcd.wait_ready()
        members[turn % 3].kill()


async def _grow(answers: Answers, wanted: int, cluster: ReplicaProcesses) -> None:
    deadline = time.monotonic() + HEAL_S
    while len(answers.acked) < wanted:
        assert time.monotonic() < deadline, f"no send is answered any more: {answers.trouble}\n{cluster.logs}"
        await asyncio.sleep(0.05)


def check(folder: Path, answers: Answers) -> None:
    """Every log holds every answered message at its place; offsets have no gap; what all have is the same."""
    logs = []
    for number in range(3):
        config = StoreConfig(root=folder / f"data{number}", segment_bytes=8 << 20, message_bytes_max=1 << 20)
        with Store.open(config, services=False) as store:
            logs.append(_log_of(store))
    both = min(map(len, logs))
    assert logs[0][:both] == logs[1][:both] == logs[2][:both]
    places: dict[tuple[int, int], bytes] = {}
    for record in _records(max(logs, key=len)):
        if record.topic == "Load":
            assert (record.queue_id, record.queue_offset) not in places, "a queue offset was given twice"
            places[record.queue_id, record.queue_offset] = record.body
    assert not answers.changed, f"consumers saw two messages at one place: {answers.changed[:5]}"
    vanished = [place for place, body in answers.seen.items() if places.get(place) != body]
    assert not vanished, f"consumers saw what is not there any more: {vanished[:5]}"
    lost = [body for body, place in answers.acked.items() if places.get(place) != body]
    assert not lost, f"{len(lost)} of {len(answers.acked)} answered messages are lost: {lost[:5]}"
    for queue_id in {queue for queue, _ in places}:
        offsets = sorted(offset for queue, offset in places if queue == queue_id)
        assert offsets == list(range(len(offsets)))


def _log_of(store: Store) -> bytes:
    pieces, at = [], store.log_start
    while at < store.log_end:
        pieces.append(bytes(store.raw_range(at, 8 << 20)))
        at += len(pieces[-1])
    return b"".join(pieces)


def _records(log: bytes) -> list[object]:
    records, at = [], 0
    while at < len(log):
        size, magic = int.from_bytes(log[at : at + 4], "big"), int.from_bytes(log[at + 4 : at + 8], "big")
        if magic != 0xCBD43194:  # not the filler at the end of a file
            records += decode_records(log[at : at + size])
        at += size
    return records


def test_messages_go_on_while_etcd_is_away(tmp_path: Path) -> None:
    """Goal: `available`: etcd hangs for twice its leases, nothing stops; back again, a failover works."""
    answers = Answers()

    async def work(cluster: ReplicaProcesses) -> None:
        watcher, done = Watcher(cluster), asyncio.Event()
        await watcher.master()
        sender = asyncio.create_task(send_on(cluster.name_server, 0, answers, done))
        await _grow(answers, 20, cluster)
        for member in cluster.etcd.members:
            member.signal(signal.SIGSTOP)
        try:
            for _ in range(8):
                before = len(answers.acked)
                await asyncio.sleep(1)
                await _grow(answers, before + 1, cluster)
        finally:
            for member in cluster.etcd.members:
                member.signal(signal.SIGCONT)
        epoch, process = await watcher.master()
        await asyncio.to_thread(process.kill)
        await watcher.master(epoch, members=2)
        await _grow(answers, len(answers.acked) + 20, cluster)
        await asyncio.to_thread(process.start)
        await watcher.master(epoch)
        done.set()
        await sender
        await watcher.control.close()

    with ReplicaProcesses(tmp_path) as cluster:
        asyncio.run(work(cluster))
        for broker in cluster.brokers:
            broker.stop()
    check(tmp_path, answers)


def test_a_store_that_has_nothing_in_common_is_put_aside_when_that_is_wanted(tmp_path: Path) -> None:
    """Goal: haAutoResync: what was a broker of its own before keeps its files beside and copies the master's."""
    foreign = tmp_path / "data2"
    config = StoreConfig(root=foreign, segment_bytes=8 << 20, message_bytes_max=1 << 20)
    with Store.open(config, services=False) as store:
        for number in range(10):
            store.append(NewMessage(topic="Old", queue_id=0, body=b"old %d" % number))
    cluster = ReplicaProcesses(tmp_path, haAutoResync="true")
    last = cluster.brokers.pop()
    answers = Answers()

    async def work() -> None:
        watcher, done = Watcher(cluster), asyncio.Event()
        cluster.brokers.append(last)
        await watcher.master(members=2)
        sender = asyncio.create_task(send_on(cluster.name_server, 0, answers, done))
        await _grow(answers, 50, cluster)
        await asyncio.to_thread(last.start)
        await watcher.master(members=3)
        await _grow(answers, len(answers.acked) + 20, cluster)
        done.set()
        await sender
        await watcher.control.close()

    with cluster:
        asyncio.run(work())
        for broker in cluster.brokers:
            broker.stop()
    check(tmp_path, answers)
    (aside,) = foreign.glob("put-aside-*")
    assert (aside / "commitlog").is_dir()
