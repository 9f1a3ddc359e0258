"""Pull consumers against a running cluster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from rocketq.client import (
    AsyncAdmin,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ClientClosedError,
    ClientError,
    Message,
    MessageQueue,
    NotAssignedError,
    OffsetOutOfRangeError,
    PullConfig,
    PullStatus,
    PullWindow,
    ResetTo,
    StoredMessage,
)
from rocketq.testing.embedded import EmbeddedCluster

from .consuming import FIRST, QUICK, Remembers, fill, numbers, send, until
from .kit import on_a_loop

PULLS = PullConfig(from_where=FIRST, rebalance_interval_ms=500, persist_interval_ms=200, retry_ms=100)


def queue_of(topic: str, broker: int = 0, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=f"broker-{broker}", queue_id=queue_id)


async def committed(addr: str, group: str, topic: str) -> int:
    async with AsyncAdmin(addr) as admin:
        return sum(one.committed or 0 for one in await admin.offsets.get(group, topic))


@on_a_loop
async def test_iterating_hands_out_everything_in_order(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 50)
    seen: list[StoredMessage] = []
    async with AsyncPullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        consumer.subscribe(topic)
        async for message in consumer:
            seen.append(message)
            if len(seen) == 50:
                break
    assert {message.body for message in seen} == numbers(0, 50)
    for queue in {message.queue for message in seen}:
        offsets = [message.queue_offset for message in seen if message.queue == queue]
        assert offsets == sorted(offsets)
    assert await committed(addr, group, topic) == 50


@on_a_loop
async def test_the_message_an_exception_came_with_is_handed_out_again(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 6, queues=1)
    seen: list[bytes] = []

    async def work(stop_at: int | None) -> None:
        consumer = AsyncPullConsumer(group, name_servers=addr, config=PULLS)
        consumer.assign([queue_of(topic)])
        async with consumer:
            async for message in consumer:
                if len(seen) == stop_at:
                    raise ValueError("on the way")
                seen.append(message.body)
                if message.queue_offset == 2:
                    return

    with pytest.raises(ValueError, match="on the way"):
        await work(stop_at=1)
    await work(stop_at=None)
    assert len(seen) == len(set(seen)) == 3


@on_a_loop
async def test_polls_hand_out_several_and_nothing_when_nothing_is_there(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 20)
    async with AsyncPullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        consumer.subscribe(topic)
        got: list[StoredMessage] = []
        while len(got) < 20:
            some = await consumer.poll(timeout_ms=5_000, count_max=7)
            assert 0 < len(some) <= 7
            got += some
        assert await consumer.poll(timeout_ms=50) == []
        assert await consumer.poll(timeout_ms=0) == []
    assert {message.body for message in got} == numbers(0, 20)


@on_a_loop
async def test_seeking_pausing_and_positions(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr, queue = cluster.name_server_addr, queue_of(topic)
    await fill(addr, topic, 20, queues=1)
    async with AsyncPullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        consumer.assign([queue])
        assert len(await consumer.poll(count_max=4)) == 4
        assert consumer.position(queue) == 4
        await consumer.seek(queue, 1)
        (message,) = await consumer.poll(count_max=1)
        assert message.queue_offset == 1
        await consumer.seek_to_begin(queue)
        assert (await consumer.poll(count_max=1))[0].queue_offset == 0
        await consumer.seek_to_end(queue)
        started = time.monotonic()
        assert await consumer.poll(timeout_ms=100) == []
        await consumer.seek(queue, 7)  # while the pull at the end is held by the broker
        assert (await consumer.poll(count_max=1))[0].queue_offset == 7
        assert time.monotonic() - started < 5
        consumer.pause([queue])
        assert await consumer.poll(timeout_ms=100) == []
        consumer.resume([queue])
        assert (await consumer.poll(count_max=1))[0].queue_offset == 8
        for bad in (-1, 11):
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.seek(queue, bad)
        with pytest.raises(NotAssignedError):
            await consumer.seek(queue_of(topic, 1), 0)


@on_a_loop
async def test_seeking_to_a_time(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr, queue = cluster.name_server_addr, queue_of(topic)
    await fill(addr, topic, 8, queues=1)
    await asyncio.sleep(0.05)
    middle_ms = int(time.time() * 1000)
    await asyncio.sleep(0.05)
    await send(addr, topic, range(8, 16))
    async with AsyncPullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        consumer.assign([queue, queue_of(topic, 1)])
        await until(lambda: len(consumer.assignment()) == 2)
        for one in consumer.assignment():
            await consumer.seek_to_time(one, middle_ms)
        got: list[bytes] = []
        while len(got) < 8:
            got += [message.body for message in await consumer.poll()]
    assert set(got) == numbers(8, 16)


@on_a_loop
async def test_commits_by_hand(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr, queue = cluster.name_server_addr, queue_of(topic)
    await fill(addr, topic, 12, queues=1)
    config = replace(PULLS, auto_commit=False)
    async with AsyncPullConsumer(group, name_servers=addr, config=config) as consumer:
        consumer.assign([queue])
        await consumer.poll(count_max=3)
        await consumer.commit()
        await consumer.poll(count_max=2)
        assert await consumer.committed(queue) == 3
    assert await committed(addr, group, topic) == 3
    async with AsyncPullConsumer(group, name_servers=addr, config=config) as consumer:
        consumer.assign([queue])
        assert (await consumer.poll(count_max=1))[0].queue_offset == 3
        await consumer.commit({queue: 5})
    assert await committed(addr, group, topic) == 5


@on_a_loop
async def test_committing_goes_on_in_the_background(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 10)
    config = replace(PULLS, auto_commit_interval_ms=1_000)
    consumer = AsyncPullConsumer(group, name_servers=addr, config=config)
    consumer.subscribe(topic)
    async with consumer:
        got = 0
        while got < 10:
            got += len(await consumer.poll())
        await asyncio.sleep(1.1)
        await consumer.poll(timeout_ms=0)
        assert await committed(addr, group, topic) == 10


@on_a_loop
async def test_pull_and_push_consumers_share_a_group(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr, listener = cluster.name_server_addr, Remembers()
    await fill(addr, topic, 0)
    async with (
        AsyncPullConsumer(group, name_servers=addr, config=PULLS) as pulling,
        AsyncPullConsumer(group, name_servers=addr, config=PULLS) as other,
    ):
        pulling.subscribe(topic)
        other.subscribe(topic)
        await until(lambda: len(pulling.assignment()) == len(other.assignment()) == 4)
        assert not set(pulling.assignment()) & set(other.assignment())
        await other.close()
        await until(lambda: len(pulling.assignment()) == 8)
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK) as consumer:
        consumer.subscribe(topic)
        await send(addr, topic, range(8))
        await listener.until(8)


@on_a_loop
async def test_a_bare_pull_returns_at_once_or_waits(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr, queue = cluster.name_server_addr, queue_of(topic)
    await fill(addr, topic, 6, queues=1, tag="a")
    consumer = AsyncPullConsumer(group, name_servers=addr)
    result = await consumer.pull(queue, "*", 0, 2)
    assert [message.queue_offset for message in result.messages] == [0, 1]
    assert (await consumer.pull(queue, "b", 0)).status is PullStatus.NO_MATCHED_MESSAGE
    end = (await consumer.pull(queue, "*", 0)).max_offset
    assert (await consumer.pull(queue, "*", end)).status is PullStatus.NO_NEW_MESSAGE
    waiting = asyncio.create_task(consumer.pull(queue, "*", end, block=True))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await send(addr, topic, range(6, 10))
    assert (await waiting).status is PullStatus.FOUND
    for offset, count in ((-1, 1), (0, 0)):
        with pytest.raises(ValueError, match="no pull"):
            await consumer.pull(queue, "*", offset, count)
    await consumer.close()


@on_a_loop
async def test_not_more_is_held_than_allowed(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 100, queues=1)
    config = replace(PULLS, window=PullWindow(count_max=10), pull_batch_max=5, held_max=12)
    async with AsyncPullConsumer(group, name_servers=addr, config=config) as consumer:
        consumer.subscribe(topic)
        got: list[StoredMessage] = []
        while len(got) < 100:
            await asyncio.sleep(0.01)
            assert sum(consumer.health()["assignment"].values()) <= 12 + 2 * 5
            got += await consumer.poll(count_max=5)


@on_a_loop
async def test_a_reset_moves_a_pull_consumer(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 8)
    async with AsyncPullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        consumer.subscribe(topic)
        got: list[StoredMessage] = []
        while len(got) < 8:
            got += await consumer.poll()
        await consumer.commit()
        async with AsyncAdmin(addr) as admin:
            await admin.offsets.reset(group, topic, ResetTo.earliest())
        while len(got) < 16:
            got += await consumer.poll()


@on_a_loop
async def test_subscribing_and_assigning_exclude_each_other(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    one = AsyncPullConsumer(group, name_servers=addr)
    one.subscribe(topic)
    with pytest.raises(ClientError, match="not both"):
        one.assign([queue_of(topic)])
    other = AsyncPullConsumer(group, name_servers=addr)
    other.assign([queue_of(topic)])
    with pytest.raises(ClientError, match="not both"):
        other.subscribe(topic)
    with pytest.raises(ClientError, match="not started"):
        await other.poll()
    await other.close()
    with pytest.raises(ClientClosedError):
        await other.poll()
    await one.close()


@on_a_loop
async def test_assigned_queues_are_replaced(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 8, queues=2)
    async with AsyncPullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        assert set(await consumer.queues(topic)) == {queue_of(topic, one, two) for one in (0, 1) for two in (0, 1)}
        consumer.assign([queue_of(topic, 0, 0)])
        await until(lambda: consumer.assignment() == (queue_of(topic, 0, 0),))
        consumer.assign([queue_of(topic, 1, 1)])
        await until(lambda: consumer.assignment() == (queue_of(topic, 1, 1),))
        assert {message.queue for message in await consumer.poll()} == {queue_of(topic, 1, 1)}


@on_a_loop
async def test_batches_have_everything_in_order_and_commit(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 300)
    bodies: list[bytes] = []
    sizes: list[int] = []
    async with AsyncPullConsumer(group, name_servers=addr, config=replace(PULLS, auto_commit=False)) as consumer:
        consumer.subscribe(topic)
        async for batch in consumer.batches(max_count=7, max_wait_ms=200):
            sizes.append(len(batch))
            assert batch.offsets == list(range(batch.offsets[0], batch.offsets[0] + len(batch)))
            assert [message.body for message in batch] == batch.bodies()
            assert {message.queue for message in batch} == {batch.queue}
            bodies += batch.bodies()
            await batch.commit()
            if len(bodies) == 300:
                break
        assert max(sizes) == 7
        assert sizes.count(7) > 20, "a batch is full while there is enough"
    assert set(bodies) == numbers(0, 300)
    assert await committed(addr, group, topic) == 300


@on_a_loop
async def test_a_batch_as_arrow_columns(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    addr = cluster.name_server_addr
    async with AsyncProducer(f"P-{topic}"[:100], name_servers=addr) as producer:
        for body in (b"plain", b"large" * 2_000):
            await producer.send(Message(topic=topic, body=body, tag="t", keys=("k", "l"), properties={"a": "b"}))
    seen = 0
    async with AsyncPullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        consumer.subscribe(topic)
        async for batch in consumer.batches(max_wait_ms=0):
            columns = batch.to_arrow()
            assert isinstance(columns, arrow.RecordBatch)
            for row, message in zip(columns.to_pylist(), batch, strict=True):
                seen += 1
                assert row["body"] == message.body
                assert (row["topic"], row["tag"], row["keys"]) == (topic, "t", ["k", "l"])
                assert ("a", "b") in row["properties"]
                assert row["message_id"] == message.message_id
                kept = message.detach()
                assert (kept.body, kept.tag, bytes(kept.body_view)) == (row["body"], "t", row["body"])
            if seen == 2:
                break
