"""Senders and a consumer that live through failovers, and an eye on what etcd says of the group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from rocketq.client import AsyncProducer, AsyncPushConsumer, ConsumeFromWhere, Message, PushConfig, SendStatus
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.errors import RocketQError
from rocketq.replication.control import ControlError, Group, GroupView
from rocketq.replication.control_etcd import EtcdControl
from rocketq.replication.etcd_gateway import EtcdConfig

from .failover_history import TOPIC, Answers
from .replica_processes import NAME, Process, ReplicaProcesses

SENDERS = 4
SEND_EVERY_S = 0.002
HEAL_S = 90
GROUP = Group("DefaultCluster", NAME)


async def send_on(name_server: str, number: int, answers: Answers, done: asyncio.Event, every_s: float) -> None:
    count = 0
    async with AsyncProducer(f"senders{number}", name_servers=name_server) as producer:
        while not done.is_set():
            body = b"%d-%d" % (number, count)
            count += 1
            try:
                result = await producer.send(Message(topic=TOPIC, body=body), timeout_ms=3_000)
            except RocketQError as error:
                answers.failed(body, f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.1)
                continue
            if result.status is SendStatus.SEND_OK:
                answers.ok(body, (result.queue.queue_id, result.queue_offset))
            else:
                answers.failed(body, str(result))
            await asyncio.sleep(every_s)


@asynccontextmanager
async def sending(
    name_server: str, answers: Answers, senders: int = SENDERS, every_s: float = SEND_EVERY_S
) -> AsyncIterator[None]:
    """Senders go on until the end of the block, whatever they are told."""
    done = asyncio.Event()
    tasks = [asyncio.create_task(send_on(name_server, at, answers, done, every_s)) for at in range(senders)]
    try:
        yield
    finally:
        done.set()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert ends == [None] * senders  # errors are answers; anything else is a defect of the producer


@asynccontextmanager
async def consuming(name_server: str, answers: Answers) -> AsyncIterator[None]:
    async def listener(messages: list[StoredMessage], context: object) -> None:
        for message in messages:
            answers.consumed((message.queue.queue_id, message.queue_offset), message.body)

    config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with AsyncPushConsumer("readers", listener, name_servers=name_server, config=config) as consumer:
        consumer.subscribe(TOPIC)
        yield


async def all_consumed(answers: Answers, cluster: ReplicaProcesses) -> None:
    deadline = time.monotonic() + HEAL_S
    while missing := answers.unseen:
        assert time.monotonic() < deadline, f"{len(missing)} answered messages were not consumed\n{cluster.logs}"
        await asyncio.sleep(0.2)


async def grow(answers: Answers, cluster: ReplicaProcesses, more: int = 20) -> None:
    """Wait until so many more sends are answered."""
    deadline, wanted = time.monotonic() + HEAL_S, len(answers.acked) + more
    while len(answers.acked) < wanted:
        assert time.monotonic() < deadline, f"no send is answered any more: {answers.trouble}\n{cluster.logs}"
        await asyncio.sleep(0.05)


class Watcher:
    """What etcd says of the group."""

    def __init__(self, cluster: ReplicaProcesses, config: EtcdConfig | None = None) -> None:
        self.cluster = cluster
        self.control = EtcdControl(config or EtcdConfig.from_url(cluster.etcd.url))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.control.close()

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
                return view.epoch, self.process_at(view.master.value.addr)
            await asyncio.sleep(0.05)
        raise AssertionError(f"no master with {members} in sync: {await self.view()}\n{self.cluster.logs}")

    async def in_sync(self, count: int) -> None:
        """Wait until exactly so many are."""
        deadline = time.monotonic() + HEAL_S
        while time.monotonic() < deadline:
            state = (await self.view()).state
            if state is not None and len(state.value.in_sync) == count:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never {count} in sync: {await self.view()}\n{self.cluster.logs}")

    def process_at(self, addr: str) -> Process:
        return self.cluster.brokers[self.cluster.ports.index(int(addr.rpartition(":")[2]))]
