"""Message search over all queues of a topic, as a stream without a limit."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from rocketq.client.core.routes import queue_order, subscribe_queues
from rocketq.client.core.search import (
    WINDOW,
    Direction,
    QueueScan,
    SearchProgress,
    SearchQuery,
    decode_cursor,
    encode_cursor,
    matcher,
    mergeable,
)
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import NotFoundError
from rocketq.client.fan_out import on_each, outcomes
from rocketq.client.fetcher import Puller, PullStatus
from rocketq.client.offsets import QueuePositions
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue

AT_ONCE_MAX: Final = 8
BATCH: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """Messages found since the last step, in the order of the search, and the progress so far."""

    messages: tuple[StoredMessage, ...]
    progress: SearchProgress


class AsyncSearch:
    """Reads with plain pulls: it joins no group and moves no offset."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._positions = QueuePositions(session)

    async def run(
        self, query: SearchQuery, *, found_max: int = sys.maxsize, window: int = WINDOW
    ) -> AsyncIterator[SearchStep]:
        """Steps until everything in the range was looked at or so many were found; stop iterating to stop the search.

        A queue that fails is named in the progress and the others go on. The cursor of the last step continues it.
        """
        wanted = matcher(query)
        queues, scans = await self._plan(query)
        puller = Puller(self._session)
        total = sum(scan.high - scan.low for scan in scans)
        found = 0
        gate = asyncio.Semaphore(AT_ONCE_MAX)

        async def read(scan: QueueScan) -> None:
            async with gate:
                bounds = scan.window(query.direction, window)
                try:
                    messages, edge_ms = await self._read(puller, queues[scan.name], bounds, query.tag)
                except RocketQError as error:
                    scan.failed = str(error)
                    return
            scan.passed(query.direction, bounds, [one for one in messages if wanted(one)], edge_ms)

        while True:
            behind = [scan for scan in scans if not scan.found and not scan.is_read]
            await asyncio.gather(*(read(scan) for scan in behind))
            ready = mergeable(scans, query.direction, found_max - found)
            found += len(ready)
            done = all(scan.is_read and not scan.found for scan in scans)
            yield SearchStep(messages=tuple(ready), progress=_progress(scans, query.direction, found, total, done))
            if done or found >= found_max:
                return

    async def tail(
        self, query: SearchQuery, *, hold_ms: int = 5_000, offsets: dict[str, int] | None = None
    ) -> AsyncIterator[tuple[StoredMessage, ...]]:
        """Matching messages as they are stored, from the present ends or from these offsets; until it is closed."""
        wanted = matcher(query)
        queues = await self._queues(query)
        ends = await on_each({name: self._positions.bounds(queue) for name, queue in queues.items()})
        ready: asyncio.Queue[tuple[StoredMessage, ...]] = asyncio.Queue(maxsize=64)

        async def follow(name: str, queue: MessageQueue) -> None:
            puller = Puller(self._session)
            offset = (offsets or {}).get(name, ends[name].max_offset)
            while True:
                try:
                    result = await puller.pull(queue, offset, expression=query.tag, hold_ms=hold_ms)
                except RocketQError:
                    await asyncio.sleep(1)
                    continue
                offset = result.next_offset
                if messages := tuple(one for one in result.messages if wanted(one)):
                    await ready.put(messages)

        tasks = [asyncio.create_task(follow(name, queue)) for name, queue in queues.items()]
        try:
            while True:
                yield await ready.get()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _queues(self, query: SearchQuery) -> dict[str, MessageQueue]:
        route = await self._session.routes.refresh(query.topic)
        queues = {
            f"{queue.broker_name}:{queue.queue_id}": queue
            for queue in sorted(subscribe_queues(query.topic, route), key=queue_order)
        }
        for name in query.queues:
            if name not in queues:
                raise NotFoundError("queue", f"{name} of {query.topic}")
        return {name: queue for name, queue in queues.items() if not query.queues or name in query.queues}

    async def _plan(self, query: SearchQuery) -> tuple[dict[str, MessageQueue], list[QueueScan]]:
        queues = await self._queues(query)
        if query.cursor is not None:
            places = decode_cursor(query.cursor)
            return queues, [QueueScan(name, *places[name]) for name in queues if name in places]
        bounds = await outcomes({name: self._range(queue, query) for name, queue in queues.items()})
        scans = [QueueScan(name, *found) for name, found in bounds.results.items()]
        scans += [QueueScan(name, 0, 0, failed=str(error)) for name, error in bounds.failures.items()]
        return queues, scans

    async def _range(self, queue: MessageQueue, query: SearchQuery) -> tuple[int, int]:
        bounds = await self._positions.bounds(queue)
        low, high = bounds.min_offset, bounds.max_offset
        if query.since_ms is not None:
            low = max(low, await self._positions.at_time(queue, query.since_ms))
        if query.until_ms is not None:
            high = min(high, await self._positions.at_time(queue, query.until_ms + 1))
        if query.from_offset is not None:
            if query.direction is Direction.OLDEST:
                low = max(low, query.from_offset)
            else:
                high = min(high, query.from_offset + 1)
        return low, max(low, high)

    async def _read(
        self, puller: Puller, queue: MessageQueue, bounds: tuple[int, int], tag: str
    ) -> tuple[list[StoredMessage], int | None]:
        """Messages of these offsets that have the tag, and a store time among them."""
        offset, end = bounds
        found: list[StoredMessage] = []
        while offset < end:
            result = await puller.pull(queue, offset, expression=tag, count_max=min(WINDOW, end - offset))
            found += [message for message in result.messages if message.queue_offset < end]
            if result.next_offset <= offset or result.status is PullStatus.NO_NEW_MESSAGE:
                break
            offset = result.next_offset
        return found, found[0].store_ms if found else None


def _progress(scans: list[QueueScan], direction: Direction, found: int, total: int, done: bool) -> SearchProgress:
    edges = [scan.edge_ms for scan in scans if scan.edge_ms is not None]
    pick = min if direction is Direction.NEWEST else max
    return SearchProgress(
        looked_at=sum(scan.looked_at for scan in scans),
        found=found,
        total=total,
        seen_ms=pick(edges) if edges else None,
        done=done,
        cursor=None if done else encode_cursor(scans, direction),
        failed={scan.name: scan.failed for scan in scans if scan.failed is not None},
    )
