"""Pulls of old messages: as many as of fresh ones, whether they are in memory or not, and the event loop never waits.

The store is one whose every message is far behind its end. Loads are watched, or stopped half-way, by a loader in
place of the store's: what is asserted is who reads, never how fast.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.flags import PullFlag
from rocketq.protocol.messages import decode_records
from rocketq.runtime.clock import ManualClock
from rocketq.store import ReadResult, ReadStatus, Store
from rocketq.store.page_loads import Loaded
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    Peer,
    connected,
    drop_finished_segments,
    eventually,
    hold,
    over_loopback,
    pull,
    pull_fields,
    records,
    send,
)
from tests.page_cache import KNOWS_PAGES, drop_messages, drop_queue

MakeCluster = Callable[..., EmbeddedCluster]
FAR = {"accessMessageInMemoryMaxRatio": "0"}
COUNT = 40
BODY_BYTES = 3_000


class Loader:
    """The store's own, watched: by which threads it is called, and held up while `gate` is closed."""

    def __init__(self, store: Store) -> None:
        self._load = store.load
        self.threads: list[str] = []
        self.loads: list[Loaded] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, *given: Any, **more: Any) -> Loaded:
        self.threads.append(threading.current_thread().name)
        assert self.gate.wait(10)
        self.loads.append(self._load(*given, **more))
        return self.loads[-1]


@contextmanager
def watched(store: Store) -> Iterator[Loader]:
    loader = Loader(store)
    store.load = loader  # type: ignore[method-assign]
    try:
        yield loader
    finally:
        loader.gate.set()
        del store.load  # type: ignore[method-assign]


async def fill(peer: Peer, topic: str, count: int = COUNT) -> None:
    for number in range(count):
        assert (await send(peer, topic, b"%04d" % number + b"x" * BODY_BYTES)).code == 0


async def loading(loader: Loader, count: int = 1) -> None:
    async def has_begun() -> bool:
        return len(loader.threads) >= count

    await eventually(has_begun)


def store_of(cluster: EmbeddedCluster) -> Store:
    return cluster.brokers[0].parts.store


@pytest.fixture
def far(make_rocketq_cluster: MakeCluster) -> EmbeddedCluster:
    return make_rocketq_cluster(settings=FAR)


@over_loopback
async def test_old_messages_in_memory_are_pulled_like_fresh_ones(far: EmbeddedCluster, topic: str) -> None:
    """Goal: 32 a pull, not 8, and without a load where the system can be asked."""
    with watched(store_of(far)) as loader:
        async with connected(far.broker_addr) as (peer,):
            await fill(peer, topic)
            for _ in range(3):
                assert len(records(await pull(peer, topic))) == 32
            assert len(records(await pull(peer, topic, 32))) == COUNT - 32
    if KNOWS_PAGES:
        assert loader.threads == []


@over_loopback
async def test_old_messages_on_disk_are_loaded_by_a_worker_and_pulled_like_fresh_ones(
    far: EmbeddedCluster, topic: str
) -> None:
    """Goal: the loop hands the disk to another thread; the answer is the same, the next pull is loaded too."""
    store = store_of(far)
    with watched(store) as loader:
        async with connected(far.broker_addr) as (peer,):
            await fill(peer, topic)
            fresh = await pull(peer, topic)
            begun = len(loader.threads)
            drop_queue(store, topic)
            drop_messages(far.brokers[0])
            cold = await pull(peer, topic)
            assert (cold.body, cold.ext_fields["nextBeginOffset"]) == (fresh.body, "32")
            assert len(decode_records(cold.body)) == 32
            assert len(loader.threads) == begun + 1
            assert all(name.startswith("rocketq-load") for name in loader.threads)
            assert loader.loads[-1].stop == 32
            assert loader.loads[-1].size_bytes >= COUNT * BODY_BYTES


@over_loopback
async def test_a_load_holds_nobody_up(far: EmbeddedCluster, topic: str) -> None:
    """Goal: later requests of the same connection are answered before it, commits stay in the order of requests."""
    store = store_of(far)
    async with connected(far.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(far.brokers[0])
        with watched(store) as loader:
            loader.gate.clear()
            flags = int(PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)
            slow = [
                peer.start(RequestCode.PULL_MESSAGE, pull_fields(topic, at, sysFlag=flags, commitOffset=at))
                for at in (1, 2)
            ]
            await loading(loader, 2)
            committed = await peer.ask(
                RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": topic, "queueId": 0}
            )
            assert committed.ext_fields["offset"] == "2"
            assert (await send(peer, topic)).code == 0
            assert not any(each.done() for each in slow)
            loader.gate.set()
            for at, answer in zip((1, 2), slow, strict=True):
                assert records(await answer)[0].queue_offset == at


@over_loopback
async def test_more_loads_than_threads_wait_their_turn(far: EmbeddedCluster, topic: str) -> None:
    store = store_of(far)
    async with connected(far.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(far.brokers[0])
        with watched(store) as loader:
            loader.gate.clear()
            slow = [peer.start(RequestCode.PULL_MESSAGE, pull_fields(topic, at)) for at in range(20)]
            await loading(loader, 8)
            assert (await send(peer, topic)).code == 0
            assert len(loader.threads) == 8
            loader.gate.set()
            for at, answer in enumerate(slow):
                assert records(await answer)[0].queue_offset == at


@over_loopback
async def test_a_peer_that_leaves_during_a_load_is_forgotten(far: EmbeddedCluster, topic: str) -> None:
    """Goal: nothing is read for it any more, waiting loads are not begun, and others are served."""
    store = store_of(far)
    async with connected(far.broker_addr, far.broker_addr) as (leaving, peer):
        await fill(peer, topic)
        drop_messages(far.brokers[0])
        with watched(store) as loader:
            loader.gate.clear()
            for at in range(10):
                leaving.start(RequestCode.PULL_MESSAGE, pull_fields(topic, at))
            await loading(loader, 8)
            await leaving.close()
            server = far.brokers[0]._servers[0]

            async def has_left() -> bool:
                return len(server.connections) == 1

            await eventually(has_left)
            reads: list[int] = []
            read = store.read
            store.read = lambda *given, **more: reads.append(given[2]) or read(*given, **more)  # type: ignore[method-assign]
            try:
                loader.gate.set()
                assert records(await pull(peer, topic, 30))[0].queue_offset == 30
            finally:
                del store.read  # type: ignore[method-assign]
            assert set(reads) <= {30}
            assert len(loader.threads) in (8, 9)


@over_loopback
async def test_retention_may_delete_what_is_being_loaded(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    """Goal: the reader is led past what is gone, as without a load."""
    cluster = make_rocketq_cluster(
        settings={**FAR, "mappedFileSizeCommitLog": str(1 << 16), "maxMessageSize": str(1 << 14)}
    )
    store = store_of(cluster)
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(cluster.brokers[0])
        with watched(store) as loader:
            loader.gate.clear()
            slow = peer.start(RequestCode.PULL_MESSAGE, pull_fields(topic))
            await loading(loader)
            await drop_finished_segments(store)
            loader.gate.set()
            answer = await slow
        first = store.min_offset(topic, 0)
        assert first > 0
        assert answer.code in (20, 21)
        following = int(answer.ext_fields["nextBeginOffset"])
        assert 0 < following <= first
        assert records(await pull(peer, topic, max(following, first)))[0].queue_offset == first


@over_loopback
async def test_a_topic_deleted_during_a_load(far: EmbeddedCluster, topic: str) -> None:
    store = store_of(far)
    async with connected(far.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(far.brokers[0])
        with watched(store) as loader:
            loader.gate.clear()
            slow = peer.start(RequestCode.PULL_MESSAGE, pull_fields(topic))
            await loading(loader)
            assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0
            loader.gate.set()
            assert (await slow).code == 17


@over_loopback
async def test_a_disk_that_fails_is_an_answer(far: EmbeddedCluster, topic: str) -> None:
    """Goal: an unreadable sector is code 1 for whoever asked; a mapped read of it would end the broker."""
    store = store_of(far)
    async with connected(far.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(far.brokers[0])

        def fail(*given: Any, **more: Any) -> Loaded:
            raise OSError(5, "Input/output error")

        store.load = fail  # type: ignore[method-assign]
        answer = await pull(peer, topic)
        assert (answer.code, "Input/output error" in (answer.remark or "")) == (1, True)
        del store.load  # type: ignore[method-assign]
        assert len(records(await pull(peer, topic))) == 32


@over_loopback
async def test_damaged_old_records_are_skipped(far: EmbeddedCluster, topic: str) -> None:
    store = store_of(far)
    async with connected(far.broker_addr) as (peer,):
        await fill(peer, topic)
        queue = store.queues.get(topic, 0)
        assert queue is not None
        log_offset, size, _ = queue.unit(3) or (0, 0, 0)
        base = store.log.files.start_of(log_offset)
        drop_messages(far.brokers[0])
        with store.log.files.path_of(base).open("r+b") as file:
            file.seek(log_offset - base + size - 100)
            file.write(b"?" * 50)
        drop_messages(far.brokers[0])
        found = [record.queue_offset for record in records(await pull(peer, topic))]
        assert found[:4] == [0, 1, 2, 4]
        assert len(found) in (31, 32)


def without_memory(store: Store) -> None:
    """As if nothing was ever resident; what was loaded is read."""
    read = store.read

    def read_loaded(*given: Any, resident_only: bool = False, **more: Any) -> ReadResult:
        found = read(*given, **more)
        if not resident_only or not found.count:
            return found
        return replace(found, status=ReadStatus.NOT_RESIDENT, next_offset=given[2], records=b"", count=0, size_bytes=0)

    store.read = read_loaded  # type: ignore[method-assign]


@over_loopback
async def test_held_pulls_take_the_same_way(far: EmbeddedCluster, topic: str) -> None:
    """Goal: a held pull whose message is not resident is answered after its load; one that is not wanted waits on."""
    store = store_of(far)
    async with connected(far.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        without_memory(store)
        with watched(store) as loader:
            held = hold(peer, topic, 1, suspendTimeoutMillis=60_000)
            picky = hold(peer, topic, 1, suspendTimeoutMillis=60_000, subscription="Other", group="h")

            async def both_wait() -> bool:
                return len(far.brokers[0].parts.pull.polling) == 2

            await eventually(both_wait)
            assert (await send(peer, topic, b"new")).code == 0
            assert [record.body for record in records(await asyncio.wait_for(held, 10))] == [b"new"]
            assert all(name.startswith("rocketq-load") for name in loader.threads)
            assert loader.threads
            assert not picky.done()
            assert (await send(peer, topic, b"wanted", properties="TAGS\x01Other\x02")).code == 0
            assert [record.body for record in records(await asyncio.wait_for(picky, 10))] == [b"wanted"]


@over_loopback
async def test_a_broker_that_stops_answers_held_pulls_that_load(far: EmbeddedCluster, topic: str) -> None:
    """Goal: a load under way at the stop ends before the store is closed."""
    store = store_of(far)
    async with connected(far.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(far.brokers[0])
        with watched(store) as loader:
            loader.gate.clear()
            slow = peer.start(RequestCode.PULL_MESSAGE, pull_fields(topic))
            await loading(loader)
            stopping = asyncio.create_task(asyncio.to_thread(far.stop_broker))
            loader.gate.set()
            await stopping
            assert len(records(await asyncio.wait_for(slow, 10))) == 32


@over_loopback
async def test_groups_that_read_from_disk_are_counted_by_what_it_gave(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    """Goal: coldDataFlowControlEnable counts loads, and refuses only what would be another."""
    settings = {**FAR, "coldDataFlowControlEnable": "true", "cgColdReadThreshold": "500"}
    cluster = make_rocketq_cluster(settings=settings, clock=ManualClock())
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(cluster.brokers[0])
        assert (await pull(peer, topic, group="slow", maxMsgNums=1)).code == 0
        drop_messages(cluster.brokers[0])
        assert (await pull(peer, topic, 1, group="slow", maxMsgNums=1)).code == 2
        assert (await pull(peer, topic, 1, group="other", maxMsgNums=1)).code == 0
        if KNOWS_PAGES:
            assert (await pull(peer, topic, 1, group="slow", maxMsgNums=1)).code == 0


@over_loopback
async def test_a_pull_from_disk_is_not_refused_for_what_it_reads_itself(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    """Goal: a pull that takes more than its quota is answered and then paid for, also when it had to be loaded."""
    cluster = make_rocketq_cluster(settings={**FAR, "quotas": "group/g: 10 msg/s"}, clock=ManualClock())
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(cluster.brokers[0])
        with watched(store_of(cluster)) as loader:
            assert len(records(await pull(peer, topic))) == 32
            assert loader.threads
            refused = await pull(peer, topic, 32)
            assert (refused.code, "over quota of group g" in (refused.remark or "")) == (2, True)


@over_loopback
async def test_a_quota_used_up_during_a_load_gives_and_charges_nothing(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    clock = ManualClock()
    cluster = make_rocketq_cluster(settings={**FAR, "quotas": "group/g: 10 msg/s"}, clock=clock)
    store = store_of(cluster)
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic)
        drop_messages(cluster.brokers[0])
        with watched(store) as loader:
            loader.gate.clear()
            both = [peer.start(RequestCode.PULL_MESSAGE, pull_fields(topic, maxMsgNums=10)) for _ in range(2)]
            await loading(loader, 2)
            loader.gate.set()
            assert sorted([(await each).code for each in both]) == [0, 2]
        clock.advance(1_001)
        assert len(records(await pull(peer, topic, maxMsgNums=10))) == 10
