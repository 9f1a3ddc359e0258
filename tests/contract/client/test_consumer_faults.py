"""Consumers while members, brokers and NameServers come and go: nothing is lost, order is kept."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import rocketq.kernel
from rocketq.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeContext,
    Message,
    MessageQueue,
    Session,
    SessionConfig,
    StoredMessage,
    fetcher,
)
from rocketq.errors import RocketQError
from rocketq.kernel.record_batch import RecordBatch
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.testing.embedded import EmbeddedCluster
from rocketq.testing.fault_proxy import FaultProxy
from tests.contract.broker.test_cli import OPTIONS, Process

from .consuming import QUICK, Remembers, fill, numbers, send, until
from .kit import on_a_loop

OFTEN = SessionConfig(route_life_ms=500, heartbeat_interval_ms=500, control_timeout_ms=1_000)
CHURN_S = 8.0
LONG_CHURN_S = 60.0
"""In order, with the compiled kernel; the interpreted one has nothing to add to it."""


@pytest.fixture
def own() -> Iterator[EmbeddedCluster]:
    """A cluster that a test may break."""
    with EmbeddedCluster(brokers=1) as running:
        yield running


class Log:
    """What all members of a group got, in the order it happened."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, list[int]] = defaultdict(list)
        self.bodies: set[bytes] = set()
        self.busy: dict[MessageQueue, object] = {}
        self.clashes: list[MessageQueue] = []
        self.count = 0

    def listener(self, owner: object) -> object:
        async def listen(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            if self.busy.setdefault(context.queue, owner) is not owner:
                self.clashes.append(context.queue)
            await asyncio.sleep(0.001)
            self.busy.pop(context.queue, None)
            for message in messages:
                self.offsets[context.queue].append(message.queue_offset)
                self.bodies.add(message.body)
                self.count += 1

        return listen

    def skipped(self) -> dict[MessageQueue, list[int]]:
        """Offsets that were delivered before one below them ever was: a repetition is none, a gap is."""
        found: dict[MessageQueue, list[int]] = {}
        for queue, offsets in self.offsets.items():
            expected = 0
            for offset in offsets:
                if offset > expected:
                    found.setdefault(queue, []).append(offset)
                expected = max(expected, offset + 1)
        return found


async def keep_sending(addr: str, topic: str, stop: asyncio.Event) -> set[bytes]:
    """Until told to stop; what brokers acknowledged."""
    sent: set[bytes] = set()
    async with AsyncProducer(f"P-{topic}"[:100], name_servers=addr, session_config=OFTEN) as producer:
        number = 0
        while not stop.is_set():
            body = b"%d" % number
            number += 1
            with suppress(RocketQError):
                await producer.send(Message(topic=topic, body=body), timeout_ms=1_000)
                sent.add(body)
            await asyncio.sleep(0.002)
    return sent


@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "concurrent"])
@pytest.mark.slow
def test_members_come_and_go_under_load(cluster: EmbeddedCluster, topic: str, group: str, orderly: bool) -> None:
    """Goal: at least once; in order: no message before its predecessor, no queue with two owners at a time."""

    async def run() -> None:
        addr, chance, log = cluster.name_server_addr, random.Random(7), Log()
        await fill(addr, topic, 0)
        stop = asyncio.Event()
        sending = asyncio.create_task(keep_sending(addr, topic, stop))
        members: list[AsyncPushConsumer] = []

        async def join() -> None:
            name = object()
            consumer = AsyncPushConsumer(
                group,
                log.listener(name),
                name_servers=addr,
                config=QUICK,
                orderly=orderly,  # type: ignore[arg-type]
            )
            consumer.subscribe(topic)
            await consumer.start()
            members.append(consumer)

        await join()
        lasts_s = LONG_CHURN_S if orderly and rocketq.kernel.compiled else CHURN_S
        ends_s = asyncio.get_running_loop().time() + lasts_s
        while asyncio.get_running_loop().time() < ends_s:
            if len(members) < 3 and (len(members) == 1 or chance.random() < 0.6):
                await join()
            else:
                await members.pop(chance.randrange(len(members))).close()
            await asyncio.sleep(chance.uniform(0.05, 0.6))
        stop.set()
        sent = await sending
        await until(lambda: sent <= log.bodies, 40, lambda: f"{len(sent - log.bodies)} of {len(sent)} never came")
        for member in members:
            await member.close()
        assert sent
        if orderly:
            assert log.clashes == []
            assert log.skipped() == {}

    asyncio.run(asyncio.wait_for(run(), 240))


class StuckOffsets:
    """A store of a user's own that never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def save(self, group: str, offsets: object) -> None:
        pass


@on_a_loop
async def test_a_member_that_leaves_in_the_middle_of_a_round_leaves_no_locks(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: brokers keep a lock for a minute; a member that locked queues and was closed before it began with them
    must not keep its successor waiting for so long."""
    addr, store, listener = cluster.name_server_addr, StuckOffsets(), Remembers()
    await fill(addr, topic, 20)
    first = AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK, orderly=True, offset_store=store)
    first.subscribe(topic)
    starting = asyncio.create_task(first.start())
    await store.asked.wait()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await first.close()
    second = AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK, orderly=True)
    second.subscribe(topic)
    async with second:
        assert len(second.assignment()) == 8
        await listener.until(20)


@on_a_loop
async def test_a_broker_that_is_restarted_under_load(own: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: consumption goes on by itself, and everything acknowledged arrives."""
    addr, listener = own.name_server_addr, Remembers()
    await fill(addr, topic, 0)
    stop = asyncio.Event()
    sending = asyncio.create_task(keep_sending(addr, topic, stop))
    async with AsyncPushConsumer(group, listener, name_servers=addr, session_config=OFTEN, config=QUICK) as consumer:
        consumer.subscribe(topic)
        await listener.until(50)
        for _ in range(2):
            await asyncio.to_thread(own.restart_broker)
            await listener.until(len(set(listener.bodies)) + 50)
        stop.set()
        sent = await sending
        await until(lambda: sent <= set(listener.bodies))


@on_a_loop
async def test_a_name_server_that_is_restarted_under_load(own: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: nothing of consumption needs a NameServer once it runs; later it is used again."""
    addr, listener = own.name_server_addr, Remembers()
    await fill(addr, topic, 0)
    stop = asyncio.Event()
    sending = asyncio.create_task(keep_sending(addr, topic, stop))
    async with AsyncPushConsumer(group, listener, name_servers=addr, session_config=OFTEN, config=QUICK) as consumer:
        consumer.subscribe(topic)
        await listener.until(50)
        await asyncio.to_thread(own.stop_name_server)
        await listener.until(len(set(listener.bodies)) + 200)
        assert len(consumer.assignment()) == 4
        await asyncio.to_thread(own.start_name_server)
        await asyncio.sleep(1.5)
        await listener.until(len(set(listener.bodies)) + 200)
        stop.set()
        sent = await sending
        await until(lambda: sent <= set(listener.bodies))


@on_a_loop
async def test_a_consumer_may_start_before_anything_else(topic: str, group: str, tmp_path: Path) -> None:
    """Goal: with no broker there it waits, and consumes as soon as there is one."""
    listener = Remembers()
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        addr = cluster.name_server_addr
        await fill(addr, topic, 5)
        await asyncio.to_thread(cluster.stop_broker)
        async with AsyncPushConsumer(
            group, listener, name_servers=addr, session_config=OFTEN, config=QUICK
        ) as consumer:
            consumer.subscribe(topic)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(cluster.start_broker)
            await listener.until(5)


@on_a_loop
async def test_a_consumer_may_start_before_its_name_server(own: EmbeddedCluster, topic: str, group: str) -> None:
    listener, addr = Remembers(), own.name_server_addr
    await fill(addr, topic, 5)
    await asyncio.to_thread(own.stop_name_server)
    consumer = AsyncPushConsumer(group, listener, name_servers=addr, session_config=OFTEN, config=QUICK)
    consumer.subscribe(topic)
    async with consumer:
        assert consumer.assignment() == ()
        await asyncio.to_thread(own.start_name_server)
        await asyncio.to_thread(own.restart_broker)  # it registers at once
        await listener.until(5)


@pytest.mark.slow
def test_a_broker_that_is_killed_under_load(own: EmbeddedCluster, topic: str, group: str, tmp_path: Path) -> None:
    """Goal: kill -9 and start again on the same directory: all that was acknowledged arrives, in order per queue."""
    name_server = own.name_server_addr
    arguments = ["broker", "--namesrv", name_server, "--data-dir", str(tmp_path / "store")]

    async def run() -> None:
        log, stop = Log(), asyncio.Event()
        process = Process(tmp_path, *arguments, "--port", "0", *OPTIONS)
        (broker_addr,) = (await asyncio.to_thread(process.addresses)).values()
        port = broker_addr.rpartition(":")[2]
        await asyncio.to_thread(own.stop_broker)
        await fill(name_server, topic, 0)
        sending = asyncio.create_task(keep_sending(name_server, topic, stop))
        consumer = AsyncPushConsumer(
            group,
            log.listener("one"),  # type: ignore[arg-type]
            name_servers=name_server,
            session_config=OFTEN,
            config=replace(QUICK, pull_timeout_ms=5_000, hold_ms=1_000),
            orderly=True,
        )
        consumer.subscribe(topic)
        try:
            async with consumer:
                await until(lambda: len(log.bodies) > 100)
                for _ in range(2):
                    process.kill()
                    before = len(log.bodies)
                    process = Process(tmp_path, *arguments, "--port", port, *OPTIONS)
                    await until(lambda before=before: len(log.bodies) > before + 100, 30)  # type: ignore[misc]
                stop.set()
                sent = await sending
                await until(lambda: sent <= log.bodies, 40, lambda: len(sent - log.bodies))
        finally:
            stop.set()
            process.kill()
        assert log.skipped() == {}

    asyncio.run(asyncio.wait_for(run(), 200))


@pytest.mark.slow
def test_a_broker_that_moves_is_found_where_it_went(
    own: EmbeddedCluster, topic: str, group: str, tmp_path: Path
) -> None:
    """Goal: another address, the same name and store: sends and consumption go on, everything acknowledged arrives."""
    name_server = own.name_server_addr
    arguments = ["broker", "--namesrv", name_server, "--data-dir", str(tmp_path / "store"), "--port", "0"]

    async def run() -> None:
        listener, stop, addrs = Remembers(), asyncio.Event(), set[str]()
        process = Process(tmp_path, *arguments, *OPTIONS)
        addrs |= set((await asyncio.to_thread(process.addresses)).values())
        await asyncio.to_thread(own.stop_broker)
        await fill(name_server, topic, 0)
        sending = asyncio.create_task(keep_sending(name_server, topic, stop))
        consumer = AsyncPushConsumer(
            group,
            listener,
            name_servers=name_server,
            session_config=OFTEN,
            config=replace(QUICK, pull_timeout_ms=5_000, hold_ms=1_000),
        )
        consumer.subscribe(topic)
        try:
            async with consumer:
                await listener.until(100, 30)
                for end in ("stop", "kill"):
                    await asyncio.to_thread(getattr(process, end))
                    before = len(set(listener.bodies))
                    process = Process(tmp_path, *arguments, *OPTIONS)
                    addrs |= set((await asyncio.to_thread(process.addresses)).values())
                    await listener.until(before + 100, 40)
                stop.set()
                sent = await sending
                await until(lambda: sent <= set(listener.bodies), 20, lambda: len(sent - set(listener.bodies)))
        finally:
            stop.set()
            process.kill()
        assert len(addrs) == 3

    asyncio.run(asyncio.wait_for(run(), 150))


@on_a_loop
async def test_answers_that_are_garbage_are_asked_for_again(
    cluster: EmbeddedCluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a pulled body that is cut short costs a moment, not the queue: nothing is skipped."""
    addr, listener, chance, cut = cluster.name_server_addr, Remembers(), random.Random(3), 0
    whole = fetcher.pulled_batch

    def damaged(body: bytes, *given: object) -> RecordBatch:
        nonlocal cut
        if body and cut < 12:
            cut += 1
            body = body[: chance.randrange(1, len(body))] if cut % 2 else chance.randbytes(len(body))
        return whole(body, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(fetcher, "pulled_batch", damaged)
    await fill(addr, topic, 60)
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK) as consumer:
        consumer.subscribe(topic)
        await listener.until(60)
    assert set(listener.bodies) == numbers(0, 60)
    assert cut == 12


LEAVES_IT_OPEN = """
import asyncio, sys, threading
from rocketq.client import AsyncPushConsumer, ConsumeFromWhere, PushConfig

begun = threading.Event()

def listener(messages, context):
    begun.set()
    threading.Event().wait()

async def main():
    config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = AsyncPushConsumer(sys.argv[3], listener, name_servers=sys.argv[1], config=config)
    consumer.subscribe(sys.argv[2])
    await consumer.start()
    while not begun.is_set():
        await asyncio.sleep(0.01)

asyncio.run(main())
print("over")
"""


def test_a_loop_that_ends_under_a_consumer_leaves_nothing_that_hangs(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: a program that forgets to close its consumer, with listeners that never return, ends all the same."""
    asyncio.run(fill(cluster.name_server_addr, topic, 4))
    command = [sys.executable, "-c", LEAVES_IT_OPEN, cluster.name_server_addr, topic, group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


@on_a_loop
async def test_listeners_that_fail_keep_nobody_from_consuming(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: a listener that always raises in one queue's messages does not stop the others."""
    addr = cluster.name_server_addr
    await fill(addr, topic, 40)
    good: set[bytes] = set()
    lock = threading.Lock()

    def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        if context.queue.queue_id == 0:
            raise ValueError("never this queue")
        with lock:
            good.update(message.body for message in messages)

    config = replace(QUICK, suspend_ms=10)
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=config, orderly=True) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(good) == 30, otherwise=lambda: len(good))
    assert good < numbers(0, 40)
    again = Remembers()
    async with AsyncPushConsumer(group, again, name_servers=addr, config=QUICK) as second:
        second.subscribe(topic)
        await again.until(10)
    assert set(again.bodies) == numbers(0, 40) - good
    await send(addr, topic, range(1))


@pytest.fixture
def far_broker(own: EmbeddedCluster, topic: str) -> Iterator[tuple[str, FaultProxy]]:
    """A NameServer whose routes lead through a proxy, as to a broker in another house."""
    with FaultProxy(own.broker_addr) as proxy, FaultProxy(own.name_server_addr) as names:
        asyncio.run(fill(own.name_server_addr, topic, 0))
        yield names.addr, proxy


class ThroughProxy(Session):
    """A session for which every broker is where the proxy is."""

    def __init__(self, name_servers: str, proxy_addr: str, config: SessionConfig) -> None:
        super().__init__(name_servers, config=config)
        self._proxy_addr = proxy_addr

    async def _look_up_route(self, topic: str) -> TopicRoute:
        route = await super()._look_up_route(topic)
        brokers = [replace(broker, addrs=dict.fromkeys(broker.addrs, self._proxy_addr)) for broker in route.brokers]
        return replace(route, brokers=tuple(brokers))


@pytest.mark.parametrize("fault", ["cut", "freeze", "half_close", "delay", "refuse"])
def test_a_bad_line_delays_and_loses_nothing(
    own: EmbeddedCluster, far_broker: tuple[str, FaultProxy], topic: str, group: str, fault: str
) -> None:
    """Goal: whatever happens on the way, consumption goes on by itself when the line is good again."""
    name_server, proxy = far_broker

    async def run() -> None:
        listener, stop = Remembers(), asyncio.Event()
        sending = asyncio.create_task(keep_sending(own.name_server_addr, topic, stop))
        often = replace(OFTEN, control_timeout_ms=500)
        async with ThroughProxy(name_server, proxy.addr, often) as session:
            config = replace(QUICK, hold_ms=500, pull_timeout_ms=1_000)
            async with AsyncPushConsumer(group, listener, session=session, config=config) as consumer:
                consumer.subscribe(topic)
                await listener.until(30)
                for _ in range(3):
                    await asyncio.to_thread(_break, proxy, fault)
                    await asyncio.sleep(1.3 if fault == "freeze" else 0.3)  # longer than any request may take
                    await asyncio.to_thread(proxy.restore)
                    await listener.until(len(set(listener.bodies)) + 50)
                stop.set()
                sent = await sending
                await until(lambda: sent <= set(listener.bodies), 20)
                assert len(consumer.assignment()) == 4

    asyncio.run(asyncio.wait_for(run(), 150))


def _break(proxy: FaultProxy, fault: str) -> None:
    match fault:
        case "delay":
            proxy.delay(700)
        case "refuse":
            proxy.refuse()
            proxy.cut()
        case _:
            getattr(proxy, fault)()
