"""Routes, remembered for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

from rocketq.errors import RocketQError
from rocketq.protocol.bodies.routes import BrokerData, TopicRoute
from rocketq.runtime.clock import Clock

Lookup = Callable[[str], Coroutine[Any, Any, TopicRoute]]


@dataclass(frozen=True, slots=True)
class _Kept:
    route: TopicRoute
    asked_ms: int


class RouteCache:
    """Looked up when first needed, again when old or after a failure; several who wait share one lookup."""

    def __init__(self, lookup: Lookup, clock: Clock, *, life_ms: int) -> None:
        self._lookup = lookup
        self._clock = clock
        self._life_ms = life_ms
        self._kept: dict[str, _Kept] = {}
        self._under_way: dict[str, asyncio.Task[TopicRoute]] = {}

    def peek(self, topic: str) -> TopicRoute | None:
        """The route as it is remembered if it is not older than its life."""
        kept = self._kept.get(topic)
        if kept is not None and self._clock.monotonic_ms() - kept.asked_ms < self._life_ms:
            return kept.route
        return None

    async def get(self, topic: str) -> TopicRoute:
        """A route that is not older than its life; an old one while no NameServer answers, or answers that it
        does not know the topic: so a NameServer that starts anew does not stop those who are at work."""
        route = self.peek(topic)
        if route is not None:
            return route
        kept = self._kept.get(topic)
        try:
            return await self.refresh(topic)
        except RocketQError:
            if kept is None or topic not in self._kept:
                raise
            return kept.route

    async def refresh(self, topic: str) -> TopicRoute:
        """What the NameServer says now. A failure is raised and what is remembered stays."""
        task = self._under_way.get(topic)
        if task is None:
            task = self._under_way[topic] = asyncio.create_task(self._ask(topic))
            task.add_done_callback(lambda done: self._finished(topic, done))
        return await asyncio.shield(task)  # others may wait for the same one

    def expire(self, topic: str) -> None:
        """It did not serve: the next who needs it asks again, and has it until there is an answer."""
        if (kept := self._kept.get(topic)) is not None:
            self._kept[topic] = _Kept(kept.route, kept.asked_ms - self._life_ms)

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
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, topic: str) -> TopicRoute:
        route = await self._lookup(topic)
        kept = self._kept.get(topic)
        if kept is not None and kept.route == route:
            route = kept.route  # the same object, so that what was made of it need not be made again
        self._kept[topic] = _Kept(route, self._clock.monotonic_ms())
        return route

    def _finished(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._under_way.pop(topic, None)
        if not task.cancelled():
            task.exception()  # asked for, so that it counts as seen when all who waited are gone
