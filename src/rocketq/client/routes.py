"""The route cache of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from rocketq.errors import RocketQError
from rocketq.protocol.bodies.routes import BrokerData, TopicRoute
from rocketq.runtime.clock import Clock

Lookup = Callable[[str], Coroutine[Any, Any, TopicRoute]]


DOUBT_S: Final = 1.0
"""How long somebody whose route did not serve waits for a new one before the old one is tried again."""
AGAIN_MS: Final = 1_000
"""After a lookup that failed."""


@dataclass(slots=True)
class _Kept:
    route: TopicRoute
    asked_ms: int
    due_ms: int
    """From then on it is asked for again."""
    doubted: bool = False


class RouteCache:
    """Looked up when first needed, again when old or after a failure; several who wait share one lookup.

    A route that is remembered serves on while the NameServers are asked, do not answer, or do not know the topic: so
    NameServers that hang or start anew do not stop those who are at work.
    """

    def __init__(self, lookup: Lookup, clock: Clock, *, life_ms: int) -> None:
        self._lookup = lookup
        self._clock = clock
        self._life_ms = life_ms
        self._kept: dict[str, _Kept] = {}
        self._in_flight: dict[str, asyncio.Task[TopicRoute]] = {}

    def peek(self, topic: str) -> TopicRoute | None:
        """The route as it is remembered if it is not older than its life, and served."""
        kept = self._kept.get(topic)
        return kept.route if kept is not None and self._clock.monotonic_ms() < kept.due_ms else None

    async def get(self, topic: str) -> TopicRoute:
        """What is remembered; waits where there is nothing, and for a moment where what there is did not serve."""
        kept = self._kept.get(topic)
        if kept is None:
            return await self.refresh(topic)
        if self._clock.monotonic_ms() < kept.due_ms:
            return kept.route
        task = self._start(topic)
        if not kept.doubted:
            return kept.route
        try:
            async with asyncio.timeout(DOUBT_S):
                return await asyncio.shield(task)
        except (RocketQError, TimeoutError):
            return kept.route

    async def refresh(self, topic: str) -> TopicRoute:
        """What the NameServer says now. A failure is raised and what is remembered stays."""
        return await asyncio.shield(self._start(topic))  # others may wait for the same one

    def expire(self, topic: str) -> None:
        """It did not serve: the next who needs it asks again."""
        if (kept := self._kept.get(topic)) is not None:
            kept.due_ms, kept.doubted = self._clock.monotonic_ms(), True

    def forget(self, topic: str) -> None:
        self._kept.pop(topic, None)

    def age_ms(self, topic: str) -> int | None:
        """Since when it is remembered; None when it is not."""
        kept = self._kept.get(topic)
        return None if kept is None else self._clock.monotonic_ms() - kept.asked_ms

    def ages_ms(self) -> dict[str, int]:
        now_ms = self._clock.monotonic_ms()
        return {topic: now_ms - kept.asked_ms for topic, kept in sorted(self._kept.items())}

    def brokers(self, topics: Collection[str] | None = None) -> list[BrokerData]:
        """Of the remembered routes of these topics, or of all; one broker may be there several times."""
        chosen = self._kept if topics is None else topics
        return [broker for topic in chosen if topic in self._kept for broker in self._kept[topic].route.brokers]

    async def close(self) -> None:
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, topic: str) -> asyncio.Task[TopicRoute]:
        task = self._in_flight.get(topic)
        if task is None:
            task = self._in_flight[topic] = asyncio.create_task(self._ask(topic))
            task.add_done_callback(lambda done: self._finished(topic, done))
        return task

    async def _ask(self, topic: str) -> TopicRoute:
        try:
            route = await self._lookup(topic)
        except RocketQError:
            if (kept := self._kept.get(topic)) is not None:
                kept.due_ms, kept.doubted = self._clock.monotonic_ms() + AGAIN_MS, False
            raise
        kept = self._kept.get(topic)
        if kept is not None and kept.route == route:
            route = kept.route  # the same object, so that what was made of it need not be made again
        now_ms = self._clock.monotonic_ms()
        self._kept[topic] = _Kept(route, now_ms, now_ms + self._life_ms)
        return route

    def _finished(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._in_flight.pop(topic, None)
        if not task.cancelled():
            task.exception()  # asked for, so that it counts as seen when all who waited are gone
