"""Routes, remembered for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from rocketq.errors import RemotingError
from rocketq.protocol.bodies.routes import TopicRoute
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

    async def get(self, topic: str) -> TopicRoute:
        """A route that is not older than its life. While no NameServer answers an old one is better than none."""
        kept = self._kept.get(topic)
        if kept is not None and self._clock.monotonic_ms() - kept.asked_ms < self._life_ms:
            return kept.route
        try:
            return await self.refresh(topic)
        except RemotingError:
            if kept is None:
                raise
            return kept.route

    async def refresh(self, topic: str) -> TopicRoute:
        """What the NameServer says now; a topic it does not know is forgotten."""
        task = self._under_way.get(topic)
        if task is None:
            task = self._under_way[topic] = asyncio.create_task(self._ask(topic))
            task.add_done_callback(lambda done: self._finished(topic, done))
        return await asyncio.shield(task)  # others may wait for the same one

    def forget(self, topic: str) -> None:
        self._kept.pop(topic, None)

    async def close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, topic: str) -> TopicRoute:
        try:
            route = await self._lookup(topic)
        except RemotingError:
            raise
        except BaseException:
            self.forget(topic)
            raise
        self._kept[topic] = _Kept(route, self._clock.monotonic_ms())
        return route

    def _finished(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._under_way.pop(topic, None)
        if not task.cancelled():
            task.exception()  # asked for, so that it counts as seen when all who waited are gone
