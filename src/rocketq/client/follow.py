"""Read a topic as it grows, without a consumer group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from rocketq.client.core.offsets import ResetTo
from rocketq.client.core.routes import subscribe_queues
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscriptions import ALL
from rocketq.client.fan_out import on_each
from rocketq.client.fetcher import Puller, PullResult, PullStatus
from rocketq.client.offsets import QueuePositions
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue

log = logging.getLogger(__name__)

HOLD_MS: Final = 15_000
AHEAD_MAX: Final = 1_000
RETRY_S: Final = 1.0

_Found = asyncio.Queue[StoredMessage | Exception]


class Follower:
    """Messages of a topic in the order of each queue. It commits nothing and is no member of a group."""

    def __init__(self, session: Session, topic: str, *, expression: str = ALL) -> None:
        self._session = session
        self._topic = topic
        self._expression = expression
        self._puller = Puller(session)
        self._positions = QueuePositions(session)

    async def start_offsets(self, start: ResetTo) -> dict[MessageQueue, int]:
        """Where each queue is to be read from."""
        route = await self._session.routes.refresh(self._topic)
        queues = subscribe_queues(self._topic, route)
        found = await on_each({queue: self._positions.resolve(queue, start) for queue in queues})
        return {queue: target for queue, (_, target) in found.items()}

    async def read(self, offsets: dict[MessageQueue, int]) -> AsyncGenerator[StoredMessage, None]:
        """The current messages, queue by queue; ends at the current end of every queue."""
        for queue, start in offsets.items():
            offset, end = start, (await self._positions.bounds(queue)).max_offset
            while offset < end:
                result = await self._pull(queue, offset)
                for message in result.messages:
                    yield message
                if result.next_offset <= offset and result.status is not PullStatus.OFFSET_ILLEGAL:
                    break
                offset = result.next_offset

    async def follow(self, offsets: dict[MessageQueue, int]) -> AsyncGenerator[StoredMessage, None]:
        """Current and new messages, without end; survives restarts of brokers."""
        found: _Found = asyncio.Queue(AHEAD_MAX)
        tasks = [asyncio.create_task(self._follow_queue(queue, offset, found)) for queue, offset in offsets.items()]
        tasks.append(asyncio.create_task(self._follow_new_queues(set(offsets), found)))
        try:
            while True:
                item = await found.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_queue(self, queue: MessageQueue, offset: int, found: _Found) -> None:
        try:
            await self._pull_on(queue, offset, found)
        except Exception as error:  # raised to the reader, which would otherwise wait for this queue forever
            await found.put(error)

    async def _pull_on(self, queue: MessageQueue, offset: int, found: _Found) -> None:
        while True:
            try:
                result = await self._pull(queue, offset, hold_ms=HOLD_MS)
            except RocketQError as error:
                if not error.retriable:
                    raise
                log.warning("queue %d of %s on %s: %s", queue.queue_id, queue.topic, queue.broker_name, error)
                self._session.routes.expire(queue.topic)
                await asyncio.sleep(RETRY_S)
                continue
            for message in result.messages:
                await found.put(message)
            offset = result.next_offset

    async def _follow_new_queues(self, known: set[MessageQueue], found: _Found) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._session.config.route_life_ms / 1000)
                with suppress(RocketQError):
                    route = await self._session.routes.refresh(self._topic)
                    for queue in set(subscribe_queues(self._topic, route)) - known:
                        known.add(queue)
                        group.create_task(self._follow_queue(queue, 0, found))

    async def _pull(self, queue: MessageQueue, offset: int, hold_ms: int = 0) -> PullResult:
        return await self._puller.pull(queue, offset, expression=self._expression, hold_ms=hold_ms)
