"""Calls of a listener: how many at a time, and when what they did counts."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from rocketq.client.consume import ConcurrentService, SendBacks, ServicePorts
from rocketq.client.core.config import PushConfig
from rocketq.client.core.consume_results import ConsumeContext, retry_copy
from rocketq.client.core.consumer_stats import ConsumerStats
from rocketq.client.core.offsets import OffsetTable
from rocketq.client.core.process_queue import ProcessQueue
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.listener import ListenerRunner, TaskCalls
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.runtime.clock import ManualClock

from .stored import run_of

AsyncListener = Callable[[Sequence[StoredMessage], ConsumeContext], Awaitable[None]]
WORKERS = 6
QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)


class Consuming:
    """A service with its ports in reach, and a queue that holds some messages."""

    def __init__(self, listener: AsyncListener, count: int) -> None:
        clock = ManualClock()
        self.offsets = OffsetTable()
        self.stats = ConsumerStats()
        self.freed: list[ProcessQueue] = []
        runner = ListenerRunner(listener, clock, (), 900_000)  # type: ignore[arg-type]
        self.service = ConcurrentService(
            ServicePorts(
                group="g",
                config=PushConfig(workers=WORKERS),
                clock=clock,
                runner=runner,
                send_backs=cast(SendBacks, None),
                offsets=self.offsets,
                stats=self.stats,
                freed=self.freed.append,
            )
        )
        self.held = ProcessQueue(QUEUE, 0)
        self.service.submit(self.held, self.held.put(run_of(0, count)))

    @property
    def workers(self) -> int:
        calls = self.service._calls
        assert isinstance(calls, TaskCalls)
        return len(calls._tasks)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_listeners_that_wait_run_side_by_side() -> None:
    """Goal: as many as there are workers, within a few turns of the loop, and no more."""

    async def run() -> None:
        running, most, release = 0, 0, asyncio.Event()

        async def waits(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await release.wait()
            running -= 1

        consuming = Consuming(waits, 40)
        await turns(10)
        assert (running, consuming.workers) == (WORKERS, WORKERS)
        release.set()
        await turns(40)
        assert (running, most) == (0, WORKERS)
        assert consuming.offsets.get(QUEUE) == 40
        await consuming.service.stop(1_000)

    asyncio.run(run())


def test_a_listener_that_never_waits_needs_few_workers() -> None:
    async def run() -> None:
        seen: list[int] = []

        async def at_once(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            seen.extend(message.queue_offset for message in messages)

        consuming = Consuming(at_once, 40)
        await turns(10)
        assert seen == list(range(40))
        assert consuming.workers == 1
        await consuming.service.stop(1_000)

    asyncio.run(run())


def test_what_went_well_is_settled_in_one_heap() -> None:
    """Goal: one offset for many calls; stats count each call; nothing of it is lost by a stop in the same turn."""

    async def run() -> None:
        done = asyncio.Event()

        async def at_once(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            if messages[0].queue_offset == 29:
                done.set()

        consuming = Consuming(at_once, 30)
        await done.wait()
        await consuming.service.stop(1_000)
        assert consuming.offsets.get(QUEUE) == 30
        assert len(consuming.freed) == 1
        assert (consuming.held.count, consuming.held.calls) == (0, 0)
        stats = consuming.stats.of(QUEUE.topic, 0)
        assert stats.done_total == 30
        assert stats.rates(0).consume_rt == 0.0

    asyncio.run(run())


def test_what_comes_after_a_queue_was_given_away_does_not_count() -> None:
    async def run() -> None:
        async def at_once(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            if messages[0].queue_offset == 4:
                consuming.service.flush_completed()
                consuming.held.dropped = True

        consuming = Consuming(at_once, 30)
        await turns(10)
        assert consuming.offsets.get(QUEUE) == 4
        await consuming.service.stop(1_000)
        assert consuming.offsets.get(QUEUE) == 4

    asyncio.run(run())


def test_messages_given_to_a_listener_have_the_start_of_their_consumption() -> None:
    """Goal: CONSUME_START_TIME is the wall time of the call, whether the properties were read before or not."""

    async def run() -> None:
        seen: list[StoredMessage] = []

        async def keeps(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            seen.extend(messages)

        consuming = Consuming(keeps, 0)
        unread, read = run_of(0, 2)
        plain = read.properties
        consuming.service.submit(consuming.held, consuming.held.put([unread, read]))
        await turns(10)
        await consuming.service.stop(1_000)
        start_ms = str(ManualClock().now_ms())
        assert seen == [unread, read] == run_of(0, 2)
        for message in (*seen, *pickle.loads(pickle.dumps(seen))):
            assert message.properties == {
                "UNIQ_KEY": f"U{message.queue_offset}",
                "CONSUME_START_TIME": start_ms,
            }
        assert plain == {"UNIQ_KEY": "U1"}
        later = retry_copy(unread, "g", 3, 16, "T")
        assert "CONSUME_START_TIME" not in later.properties

    asyncio.run(run())
