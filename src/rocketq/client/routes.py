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
"""How long a caller whose route failed waits for a new one before the old one is used again."""
AGAIN_MS: Final = 1_000
"""After a lookup that failed."""


@dataclass(slots=True)
class _Kept:
    route: TopicRoute
    asked_ms: int
    due_ms: int
    """When it is looked up again."""
    doubted: bool = False


class RouteCache:
    """Looks routes up when first needed, when expired or after a failure; concurrent callers share one lookup.

    A cached route stays in use while a lookup runs, fails, or does not find the topic: so
    NameServers that hang or restart do not stop running clients.
    """

    def __init__(self, lookup: Lookup, clock: Clock, *, life_ms: int) -> None:
        self._lookup = lookup
        self._clock = clock
        self._life_ms = life_ms
        self._kept: dict[str, _Kept] = {}
        self._in_flight: dict[str, asyncio.Task[TopicRoute]] = {}

    def peek(self, topic: str) -> TopicRoute | None:
        """The cached route if it is not expired."""
        kept = self._kept.get(topic)
        return kept.route if kept is not None and self._clock.monotonic_ms() < kept.due_ms else None

    async def get(self, topic: str) -> TopicRoute:
        """The cached route; waits for a lookup if there is none, and for a moment if it was expired by a failure."""
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
        """Ask the NameServer. On failure the error is raised and the cached route stays."""
        return await asyncio.shield(self._start(topic))  # other callers may wait for the same lookup

    def expire(self, topic: str) -> None:
        """A request by this route failed: the next caller looks it up again."""
        if (kept := self._kept.get(topic)) is not None:
            kept.due_ms, kept.doubted = self._clock.monotonic_ms(), True

    def assume(self, topic: str, route: TopicRoute) -> None:
        """The route of a topic that a send has just created, until a NameServer answers with the real one."""
        if topic not in self._kept:
            now_ms = self._clock.monotonic_ms()
            self._kept[topic] = _Kept(route, now_ms, now_ms)

    def forget(self, topic: str) -> None:
        self._kept.pop(topic, None)

    def age_ms(self, topic: str) -> int | None:
        """The age of the cached route; None if there is none."""
        kept = self._kept.get(topic)
        return None if kept is None else self._clock.monotonic_ms() - kept.asked_ms

    def ages_ms(self) -> dict[str, int]:
        now_ms = self._clock.monotonic_ms()
        return {topic: now_ms - kept.asked_ms for topic, kept in sorted(self._kept.items())}

    def brokers(self, topics: Collection[str] | None = None) -> list[BrokerData]:
        """Brokers of the cached routes of these topics, or of all; may contain duplicates."""
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
            route = kept.route  # the same object, so that values derived from it stay valid
        now_ms = self._clock.monotonic_ms()
        self._kept[topic] = _Kept(route, now_ms, now_ms + self._life_ms)
        return route

    def _finished(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._in_flight.pop(topic, None)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it if all callers are gone
