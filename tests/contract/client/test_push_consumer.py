"""Push consumers against a running cluster: what is delivered, to whom, and what is committed."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq import AsyncProducer, Message, OffsetFileError
from rocketq.client import (
    AsyncAdmin,
    AsyncPushConsumer,
    ByConsistentHash,
    ClientClosedError,
    ClientError,
    ConsumeContext,
    ConsumeEvent,
    ConsumeOutcome,
    ConsumeResult,
    GroupTakenError,
    MessageModel,
    MessageQueue,
    PullWindow,
    PushConfig,
    ResetTo,
    Session,
    SessionConfig,
    StoredMessage,
)
from rocketq.client.core.process_queue import OrderlyQueue
from rocketq.client.push_queues import QueueLocks
from rocketq.errors import ConfigError
from rocketq.testing.embedded import EmbeddedCluster

from .consuming import FIRST, QUICK, Remembers, fill, numbers, send, until
from .kit import on_a_loop

BROADCAST = replace(QUICK, model=MessageModel.BROADCASTING)


async def committed(cluster: EmbeddedCluster, group: str, topic: str) -> int:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        return sum(one.committed or 0 for one in await admin.offsets.get(group, topic))


@on_a_loop
async def test_every_message_comes_and_its_offset_is_committed(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    await fill(cluster.name_server_addr, topic, 40)
    listener = Remembers()
    async with AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=QUICK) as consumer:
        consumer.subscribe(topic)
        await listener.until(40)
        await send(cluster.name_server_addr, topic, range(40, 50))
        await listener.until(50)
        assert len(consumer.assignment()) == 8
    assert sorted(listener.bodies) == sorted(numbers(0, 50))
    assert await committed(cluster, group, topic) == 50


@on_a_loop
async def test_what_was_committed_does_not_come_again(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    await fill(cluster.name_server_addr, topic, 10)
    for start, end in ((0, 10), (10, 15)):
        listener = Remembers()
        consumer = AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=QUICK)
        consumer.subscribe(topic)
        async with consumer:
            await listener.until(end - start)
            assert set(listener.bodies) == numbers(start, end)
        await send(cluster.name_server_addr, topic, range(10, 15))


@on_a_loop
async def test_two_groups_each_get_everything(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: groups have offsets of their own."""
    await fill(cluster.name_server_addr, topic, 30)
    one, other = Remembers(), Remembers()
    addr = cluster.name_server_addr
    async with (
        AsyncPushConsumer(group + "-1", one, name_servers=addr, config=QUICK) as first,
        AsyncPushConsumer(group + "-2", other, name_servers=addr, config=QUICK) as second,
    ):
        first.subscribe(topic)
        await one.until(30)
        second.subscribe(topic)
        await other.until(30)
    assert set(one.bodies) == set(other.bodies) == numbers(0, 30)
    assert await committed(cluster, group + "-1", topic) == await committed(cluster, group + "-2", topic) == 30


@on_a_loop
async def test_members_share_queues_and_take_over(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: no queue has two owners, and what one leaves the other gets."""
    await fill(cluster.name_server_addr, topic, 16)
    addr, listener, late = cluster.name_server_addr, Remembers(), Remembers()
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK) as consumer:
        consumer.subscribe(topic)
        await listener.until(16)
        async with AsyncPushConsumer(group, late, name_servers=addr, config=QUICK) as second:
            second.subscribe(topic)
            await until(lambda: len(second.assignment()) == 4 and len(consumer.assignment()) == 4)
            assert not set(second.assignment()) & set(consumer.assignment())
            await send(addr, topic, range(16, 48))
            await until(lambda: len(set(listener.bodies) | set(late.bodies)) == 48)
            assert late.messages
        await until(lambda: len(consumer.assignment()) == 8)
        await send(addr, topic, range(48, 64))
        await until(lambda: set(listener.bodies) | set(late.bodies) == numbers(0, 64))


@on_a_loop
async def test_tags_are_checked_by_name(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: `Aa` and `BB` have the same hash; whoever asked for one must not get the other."""
    addr, listener = cluster.name_server_addr, Remembers()
    await fill(addr, topic, 5, tag="Aa")
    await send(addr, topic, range(5, 10), tag="BB")
    await send(addr, topic, range(10, 15), tag="c")
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK) as consumer:
        consumer.subscribe(topic, "BB || c")
        await listener.until(10)
        await until(lambda: all(one.committed for one in consumer.health()["assignment"].values() if one.committed))
    assert set(listener.bodies) == numbers(5, 15)


@on_a_loop
async def test_subscriptions_change_while_it_runs(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr, listener = cluster.name_server_addr, Remembers()
    await fill(addr, topic + "-1", 3, queues=1)
    await fill(addr, topic + "-2", 3, queues=1, start=3)
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK) as consumer:
        consumer.subscribe(topic + "-1")
        await listener.until(3)
        consumer.subscribe(topic + "-2")
        await listener.until(6)
        consumer.unsubscribe(topic + "-1")
        await until(lambda: {queue.topic for queue in consumer.assignment()} == {topic + "-2"})
        await send(addr, topic + "-1", range(6, 8))
        await send(addr, topic + "-2", range(8, 10))
        await listener.until(8)
    assert set(listener.bodies) == numbers(0, 6) | numbers(8, 10)


@on_a_loop
async def test_a_topic_may_come_later_than_its_consumer(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: it is found with the next look at routes, on brokers that got it later too."""
    listener, often = Remembers(), SessionConfig(route_life_ms=300)
    async with AsyncPushConsumer(
        group, listener, name_servers=cluster.name_server_addr, session_config=often, config=QUICK
    ) as consumer:
        consumer.subscribe(topic)
        await fill(cluster.name_server_addr, topic, 5)
        await listener.until(5)


@on_a_loop
async def test_plain_functions_run_in_threads_at_the_same_time(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: four calls must be under way together, or the barrier breaks."""
    await fill(cluster.name_server_addr, topic, 4, queues=1)
    barrier, seen = threading.Barrier(4, timeout=10), []

    def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        barrier.wait()
        seen.append(threading.current_thread().name)

    config = replace(QUICK, workers=4)
    async with AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=config) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(seen) == 4)
    assert set(seen) == {"rocketq-listener"}
    assert await committed(cluster, group, topic) == 4


@on_a_loop
async def test_a_plain_function_may_run_on_the_loop(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    await fill(cluster.name_server_addr, topic, 100)
    seen: list[tuple[bytes, str]] = []

    def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        seen.extend((message.body, threading.current_thread().name) for message in messages)

    config = replace(QUICK, on_loop=True)
    async with AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=config) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(seen) == 100)
    assert {name for _, name in seen} == {"MainThread"}


@on_a_loop
async def test_asynchronous_calls_are_bounded(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    await fill(cluster.name_server_addr, topic, 30)
    running, most, done = 0, 0, 0

    async def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        done += 1

    config = replace(QUICK, workers=3)
    async with AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=config) as consumer:
        consumer.subscribe(topic)
        await until(lambda: done == 30)
    assert most == 3


@on_a_loop
async def test_messages_come_in_batches_of_one_queue(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    await fill(cluster.name_server_addr, topic, 64, queues=1)
    sizes: list[int] = []

    def note(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        sizes.append(len(messages))
        assert {message.queue for message in messages} == {context.queue}

    listener = Remembers(note)
    config = replace(QUICK, batch_max=10)
    async with AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=config) as consumer:
        consumer.subscribe(topic)
        await listener.until(64)
    assert max(sizes) == 10
    assert sum(sizes) == 64


@on_a_loop
async def test_pausing_stops_deliveries_and_resuming_goes_on(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr, listener = cluster.name_server_addr, Remembers()
    await fill(addr, topic, 4, queues=1)
    config = replace(QUICK, hold_ms=200)
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=config) as consumer:
        consumer.subscribe(topic)
        await listener.until(4)
        consumer.pause()
        await asyncio.sleep(0.5)  # pulls that were held before the pause end
        await send(addr, topic, range(4, 8))
        await asyncio.sleep(0.5)
        assert len(listener.messages) == 4
        consumer.resume()
        await listener.until(8)


@on_a_loop
async def test_a_slow_listener_is_not_flooded(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: no more is held than the window allows, and everything comes in the end."""
    await fill(cluster.name_server_addr, topic, 200, queues=1)
    held: list[int] = []

    async def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        held.append(max(one.held_count for one in consumer.health()["assignment"].values()))
        await asyncio.sleep(0.001)

    config = replace(QUICK, workers=2, window=PullWindow(count_max=20), pull_batch_max=10)
    consumer = AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=config)
    consumer.subscribe(topic)
    async with consumer:
        await until(lambda: len(held) == 200)
    assert max(held) <= 30


@on_a_loop
async def test_closing_waits_for_listeners_and_commits_what_they_did(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    await fill(cluster.name_server_addr, topic, 1, queues=1)
    begun, ended = threading.Event(), threading.Event()

    def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        begun.set()
        time.sleep(0.3)
        ended.set()

    consumer = AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=QUICK)
    consumer.subscribe(topic)
    async with consumer:
        await until(begun.is_set)
    assert ended.is_set()
    assert await committed(cluster, group, topic) == 1


@on_a_loop
async def test_closing_does_not_wait_for_ever(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: a stuck listener's message is not committed; the next member gets it."""
    await fill(cluster.name_server_addr, topic, 1, queues=1)
    begun, release = threading.Event(), threading.Event()

    def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        begun.set()
        release.wait(20)

    config = replace(QUICK, shutdown_wait_ms=100)
    consumer = AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=config)
    consumer.subscribe(topic)
    async with consumer:
        await until(begun.is_set)
    again = Remembers()
    async with AsyncPushConsumer(group, again, name_servers=cluster.name_server_addr, config=QUICK) as second:
        second.subscribe(topic)
        await again.until(1)
    release.set()


@on_a_loop
async def test_broadcasting_gives_everybody_everything_and_keeps_offsets_in_a_file(
    cluster: EmbeddedCluster, topic: str, group: str, tmp_path: Path
) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 10)
    one, other = Remembers(), Remembers()
    configs = [replace(BROADCAST, offset_dir=tmp_path / name) for name in ("a", "b")]
    async with (
        AsyncPushConsumer(group, one, name_servers=addr, config=configs[0]) as first,
        AsyncPushConsumer(group, other, name_servers=addr, config=configs[1]) as second,
    ):
        first.subscribe(topic)
        second.subscribe(topic)
        await one.until(10)
        await other.until(10)
    assert (tmp_path / "a" / group / "offsets.json").exists()
    await send(addr, topic, range(10, 12))
    later = Remembers()
    async with AsyncPushConsumer(group, later, name_servers=addr, config=configs[0]) as again:
        again.subscribe(topic)
        await later.until(2)
    assert set(later.bodies) == numbers(10, 12)


@on_a_loop
async def test_broadcasting_keeps_offsets_under_the_home_folder(
    cluster: EmbeddedCluster, topic: str, group: str, home: Path
) -> None:
    """Goal: messages sent while a broadcasting consumer is down are not lost for it, with default settings."""
    addr = cluster.name_server_addr
    await fill(addr, topic, 2)
    listener, later = Remembers(), Remembers()
    async with AsyncPushConsumer(group, listener, topics=[topic], name_servers=addr, config=BROADCAST):
        await listener.until(2)
        second = AsyncPushConsumer(group, later, topics=[topic], name_servers=addr, config=BROADCAST)
        with pytest.raises(OffsetFileError, match="another consumer uses it; set another"):
            await second.start()
        await second.close()
    await send(addr, topic, range(2, 6))
    async with AsyncPushConsumer(group, later, topics=[topic], name_servers=addr, config=BROADCAST):
        await later.until(4)
    assert set(later.bodies) == numbers(2, 6)
    (kept,) = home.glob(f".rocketq/offsets/*@DEFAULT/{group}/offsets.json")
    assert kept.stat().st_size


@on_a_loop
async def test_a_topic_that_does_not_exist_is_logged_once_at_warning(
    cluster: EmbeddedCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a mistyped topic is visible in the log, without filling it."""
    config = replace(QUICK, rebalance_interval_ms=50)
    async with AsyncPushConsumer(
        group, Remembers(), topics=topic, name_servers=cluster.name_server_addr, config=config
    ) as consumer:
        await until(lambda: "does not exist" in caplog.text)
        assert consumer._engine is not None
        rebalancer = consumer._engine.rebalancer
        later = rebalancer.rounds + 3
        await until(lambda: rebalancer.rounds >= later)
    found = [one for one in caplog.records if "does not exist" in one.message and one.levelname == "WARNING"]
    assert len(found) == 1
    assert topic in found[0].message


@on_a_loop
async def test_a_body_that_compression_enlarges_is_sent_as_it_is(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: the limit of 4 MiB is that of the body."""
    addr, body = cluster.name_server_addr, os.urandom(4 << 20)
    await fill(addr, topic, 0)
    listener = Remembers()
    async with (
        AsyncProducer("p", name_servers=addr) as producer,
        AsyncPushConsumer(group, listener, topics=topic, start="earliest", name_servers=addr, config=QUICK),
    ):
        await producer.send(Message(topic, body), timeout_ms=20_000)
        await listener.until(1)
    assert listener.bodies == [body]


@on_a_loop
async def test_a_store_of_ones_own_decides_where_to_start(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    await fill(cluster.name_server_addr, topic, 20, queues=1)

    class Store:
        def __init__(self) -> None:
            self.saved: dict[MessageQueue, int] = {}

        async def load(self, group: str, queue: MessageQueue) -> int | None:
            return 7 if queue.topic == topic else None

        async def save(self, group: str, offsets: dict[MessageQueue, int]) -> None:
            self.saved.update(offsets)

    store, listener = Store(), Remembers()
    async with AsyncPushConsumer(
        group, listener, name_servers=cluster.name_server_addr, config=QUICK, offset_store=store
    ) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(listener.messages) == 20 - 2 * 7, otherwise=lambda: listener.by_queue)
    assert all(offsets[0] == 7 for offsets in listener.by_queue.values())
    assert {queue.topic for queue in store.saved} >= {topic}
    assert await committed(cluster, group, topic) == 0


@on_a_loop
async def test_brokers_may_assign_the_queues(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: two members that ask brokers share as members do that work it out themselves."""
    addr, config = cluster.name_server_addr, replace(QUICK, broker_assigns=True)
    await fill(addr, topic, 16)
    one, other = Remembers(), Remembers()
    async with (
        AsyncPushConsumer(group, one, name_servers=addr, config=config) as first,
        AsyncPushConsumer(group, other, name_servers=addr, config=config) as second,
    ):
        first.subscribe(topic)
        second.subscribe(topic)
        await until(lambda: len(first.assignment()) == 4 and len(second.assignment()) == 4)
        assert not set(first.assignment()) & set(second.assignment())
        await until(lambda: set(one.bodies) | set(other.bodies) == numbers(0, 16))


@on_a_loop
async def test_a_strategy_brokers_do_not_know_keeps_nobody_from_consuming(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    await fill(cluster.name_server_addr, topic, 16)
    listener, config = Remembers(), replace(QUICK, strategy=ByConsistentHash())
    async with AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=config) as consumer:
        consumer.subscribe(topic)
        await listener.until(16)


@on_a_loop
async def test_hooks_hear_of_every_call_and_filters_keep_messages_back(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    await fill(cluster.name_server_addr, topic, 10, queues=1)
    outcomes: list[ConsumeOutcome | None] = []

    class Hook:
        def before_consume(self, event: ConsumeEvent) -> None:
            assert event.outcome is None
            event.notes[self] = len(event.messages)

        def after_consume(self, event: ConsumeEvent) -> None:
            assert event.notes[self] == 1
            outcomes.append(event.outcome)
            raise ValueError("an observer's fault")

    class OddOnes:
        def keep(self, group: str, queue: MessageQueue, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
            return [message for message in messages if int(message.body) % 2]

    listener = Remembers()
    config = replace(QUICK, hooks=[Hook()], filters=[OddOnes()])
    async with AsyncPushConsumer(group, listener, name_servers=cluster.name_server_addr, config=config) as consumer:
        consumer.subscribe(topic)
        await listener.until(5)
    assert outcomes == [ConsumeOutcome.SUCCESS] * 5
    assert {int(body) % 2 for body in listener.bodies} == {1}


@on_a_loop
async def test_a_reset_through_the_broker_moves_a_running_consumer(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    addr, listener = cluster.name_server_addr, Remembers()
    await fill(addr, topic, 12)
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK) as consumer:
        consumer.subscribe(topic)
        await listener.until(12)
        await consumer.commit()
        async with AsyncAdmin(addr) as admin:
            await admin.offsets.reset(group, topic, ResetTo.earliest())
        await until(lambda: len(listener.messages) == 24, otherwise=lambda: len(listener.messages))
        async with AsyncAdmin(addr) as admin:
            running = await admin.groups.running(group, consumer.session.client_id)
            assert running.rates[topic].consume_ok_tps > 0
            assert {queue.topic for queue in running.queues} >= {topic}
            assert running.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"


@on_a_loop
async def test_an_offset_that_is_not_there_is_corrected(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: an offset beyond the end is brought back to it; what comes then is delivered."""
    addr, listener = cluster.name_server_addr, Remembers()
    await fill(addr, topic, 4, queues=1)
    async with AsyncAdmin(addr) as admin:
        for broker_name in ("broker-0", "broker-1"):
            queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=0)
            await admin.offsets.set(group, {queue: 1_000})
    config = replace(QUICK, reset_wait_ms=100)
    async with AsyncPushConsumer(group, listener, name_servers=addr, config=config) as consumer:
        consumer.subscribe(topic)
        await until(
            lambda: (
                consumer.health()["assignment"]
                and all((one.committed or 0) < 1_000 for one in consumer.health()["assignment"].values())
            )
        )
        await send(addr, topic, range(4, 8))
        await listener.until(4)
    assert set(listener.bodies) == numbers(4, 8)


@on_a_loop
async def test_orderly_keeps_the_order_of_every_queue(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    await fill(cluster.name_server_addr, topic, 60)
    failures = {b"7", b"20", b"33"}

    def fails_once(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        context.suspend_ms = 10
        if messages[0].body in failures:
            failures.discard(messages[0].body)
            return ConsumeResult.LATER
        return None

    listener = Remembers(fails_once)
    async with AsyncPushConsumer(
        group, listener, name_servers=cluster.name_server_addr, config=QUICK, orderly=True
    ) as consumer:
        consumer.subscribe(topic)
        await listener.until(60)
    for offsets in listener.by_queue.values():
        assert sorted(offsets) == offsets
    assert len(listener.messages) == 63
    assert sum(message.reconsume_times == 1 for message in listener.messages) == 3
    assert await committed(cluster, group, topic) == 60


@on_a_loop
async def test_orderly_commits_and_rolls_back_by_hand(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    await fill(cluster.name_server_addr, topic, 6, queues=1)
    rolled_back: set[MessageQueue] = set()

    def by_hand(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        context.auto_commit, context.suspend_ms = False, 10
        last = messages[-1].queue_offset == 2
        if last and context.queue not in rolled_back:
            rolled_back.add(context.queue)
            return ConsumeResult.ROLLBACK
        return ConsumeResult.COMMIT if last else ConsumeResult.SUCCESS

    listener = Remembers(by_hand)
    async with AsyncPushConsumer(
        group, listener, name_servers=cluster.name_server_addr, config=QUICK, orderly=True
    ) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(listener.messages) == 12, otherwise=lambda: listener.by_queue)
    assert all(offsets == [0, 1, 2, 0, 1, 2] for offsets in listener.by_queue.values())
    assert await committed(cluster, group, topic) == 6


@on_a_loop
async def test_orderly_members_never_have_one_queue_together(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: when a member comes, a busy queue is given away only when its listener is done with it."""
    addr = cluster.name_server_addr
    await fill(addr, topic, 200, queues=2)
    busy: dict[MessageQueue, str] = {}
    clashes: list[MessageQueue] = []
    seen: set[bytes] = set()

    def make(name: str) -> AsyncPushConsumer:
        async def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            if busy.setdefault(context.queue, name) != name:
                clashes.append(context.queue)
            await asyncio.sleep(0.005)
            busy.pop(context.queue, None)
            seen.update(message.body for message in messages)

        consumer = AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK, orderly=True)
        consumer.subscribe(topic)
        return consumer

    async with make("one") as first:
        await until(lambda: len(seen) > 20)
        async with make("two") as second:
            await until(lambda: len(second.assignment()) == 2, otherwise=second.assignment)
            await until(lambda: len(seen) > 150)
        await until(lambda: len(seen) == 200)
        await until(lambda: len(first.assignment()) == 4)
    assert clashes == []


@on_a_loop
async def test_one_session_takes_one_consumer_of_a_group(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with Session(cluster.name_server_addr) as session:
        async with AsyncPushConsumer(group, Remembers(), session=session):
            with pytest.raises(GroupTakenError):
                await AsyncPushConsumer(group, Remembers(), session=session).start()
        async with AsyncPushConsumer(group, Remembers(), session=session):
            pass


@on_a_loop
async def test_what_is_wrong_is_said_at_once(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    with pytest.raises(ConfigError, match="group"):
        AsyncPushConsumer("no blanks", Remembers(), name_servers=addr)
    with pytest.raises(ConfigError, match="reserved"):
        AsyncPushConsumer("DEFAULT_CONSUMER", Remembers(), name_servers=addr)
    with pytest.raises(ConfigError, match="listener"):
        AsyncPushConsumer(group, "no function", name_servers=addr)  # type: ignore[arg-type]
    for given in ({"workers": 0}, {"batch_max": 1025}, {"window": PullWindow(count_max=0)}, {"hold_ms": 60_000}):
        with pytest.raises(ConfigError):
            PushConfig(**given)  # type: ignore[arg-type]
    consumer = AsyncPushConsumer(group, Remembers(), name_servers=addr)
    for bad in ("", "no blanks", "SCHEDULE_TOPIC_XXXX", 7):
        with pytest.raises(ClientError):
            consumer.subscribe(bad)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="not both"):
        consumer.subscribe(topic, "a", sql="b > 5")
    await consumer.start()
    with pytest.raises(ClientError, match="already"):
        await consumer.start()
    await consumer.close()
    await consumer.close()
    with pytest.raises(ClientClosedError):
        await consumer.start()


@on_a_loop
async def test_a_new_group_starts_where_it_is_told(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    await fill(addr, topic, 10, queues=1)
    await asyncio.sleep(0.05)
    middle_ms = int(time.time() * 1000)
    await asyncio.sleep(0.05)
    await send(addr, topic, range(10, 20))
    from_time = replace(QUICK, from_where=FIRST.__class__.CONSUME_FROM_TIMESTAMP, from_time_ms=middle_ms)

    class Nothing:
        async def load(self, group: str, queue: MessageQueue) -> int | None:
            return None

        async def save(self, group: str, offsets: dict[MessageQueue, int]) -> None: ...

    listener = Remembers()
    async with AsyncPushConsumer(
        group, listener, name_servers=addr, config=from_time, offset_store=Nothing()
    ) as consumer:
        consumer.subscribe(topic)
        await listener.until(10)
    assert set(listener.bodies) == numbers(10, 20)


@on_a_loop
async def test_a_hidden_coroutine_is_told_and_its_message_comes_again(
    cluster: EmbeddedCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a message is never taken for done because nobody awaited its listener."""
    await fill(cluster.name_server_addr, topic, 1, queues=1)
    inner, calls = Remembers(), []

    def hides(messages: Sequence[StoredMessage], context: ConsumeContext) -> object:
        calls.append(messages[0].body)
        return inner(messages, context)

    config = replace(QUICK, suspend_ms=10)
    consumer = AsyncPushConsumer(
        group,
        hides,  # type: ignore[arg-type]
        name_servers=cluster.name_server_addr,
        config=config,
        orderly=True,
    )
    consumer.subscribe(topic)
    async with consumer:
        await until(lambda: len(calls) >= 2)
    assert inner.messages == []
    assert any("async def" in str(record.exc_info) for record in caplog.records)


@on_a_loop
async def test_operators_see_what_a_consumer_does(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: request 307: its queues with their offsets, its subscriptions, and rates by topic, failures counted."""
    addr = cluster.name_server_addr
    await fill(addr, topic, 40)
    listener = Remembers(lambda messages, _: ConsumeResult.LATER if messages[0].body == b"7" else None)
    async with (
        AsyncPushConsumer(group, listener, name_servers=addr, config=QUICK) as consumer,
        AsyncAdmin(addr) as admin,
    ):
        consumer.subscribe(topic, "*")
        await listener.until(40)
        told = await admin.groups.running(group, consumer.session.client_id)
    mine = {queue: one for queue, one in told.queues.items() if queue.topic == topic}
    assert set(mine) == set(consumer_queues(cluster, topic))
    assert sum(one.commit_offset for one in mine.values()) >= 39
    assert all(one.last_pull_ms > 0 and not one.dropped for one in mine.values())
    assert {one.topic for one in told.subscriptions} == {topic, f"%RETRY%{group}"}
    assert told.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    rates = told.rates[topic]
    assert rates.pull_tps > 0
    assert rates.consume_ok_tps > 0
    assert rates.consume_failed_count == 1


def consumer_queues(cluster: EmbeddedCluster, topic: str) -> list[MessageQueue]:
    names = [broker.config.name for broker in cluster.brokers]
    return [MessageQueue(topic=topic, broker_name=name, queue_id=number) for name in names for number in range(4)]


@on_a_loop
async def test_locks_are_renewed_as_long_as_a_member_lives_and_given_back_when_it_leaves(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str, group: str
) -> None:
    """Goal: a broker forgets a lock that is not renewed in time; nobody else gets it before, and at once afterwards."""
    cluster = make_rocketq_cluster(settings={"rebalanceLockMaxLiveTime": "1500"})
    addr, listener = cluster.name_server_addr, Remembers()
    await fill(addr, topic, 8)
    config = replace(QUICK, lock_interval_ms=300)
    async with Session(addr) as other:
        locks = QueueLocks(other, group)
        queues = consumer_queues(cluster, topic)
        async with AsyncPushConsumer(group, listener, name_servers=addr, config=config, orderly=True) as consumer:
            consumer.subscribe(topic)
            await listener.until(8)
            for _ in range(12):
                assert (await locks.lock(queues)).locked == frozenset()
                await asyncio.sleep(0.3)
        assert (await locks.lock(queues)).locked == frozenset(queues)
        await locks.unlock(queues)


@on_a_loop
async def test_a_lock_that_somebody_else_got_meanwhile_stops_a_queue_until_it_is_free(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str, group: str
) -> None:
    """Goal: a member that was not heard of for long does not go on with a queue that is another's."""
    cluster = make_rocketq_cluster()
    addr, listener = cluster.name_server_addr, Remembers()
    await fill(addr, topic, 8)
    config = replace(QUICK, lock_interval_ms=200)
    async with Session(addr) as other:
        locks, queues = QueueLocks(other, group), consumer_queues(cluster, topic)
        async with AsyncPushConsumer(group, listener, name_servers=addr, config=config, orderly=True) as consumer:
            consumer.subscribe(topic)
            await listener.until(8)
            engine = consumer._engine
            assert engine is not None
            for held in engine.queues.held():  # as if it had slept for longer than any lock lives
                assert isinstance(held, OrderlyQueue)
                held.set_lock(False, 0)
                held.last_lock_ms -= 61_000
            broker = cluster.brokers[0].parts.groups.locks
            for queue in queues:
                broker.unlock(group, consumer.session.client_id, [queue])
            assert (await locks.lock(queues)).locked == frozenset(queues)
            await send(addr, topic, range(8, 16))
            await asyncio.sleep(1)
            assert set(listener.bodies) == numbers(0, 8)
            await locks.unlock(queues)
            await listener.until(16)
    for offsets in listener.by_queue.values():
        assert offsets == sorted(offsets)
