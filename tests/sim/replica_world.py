"""A seeded world: time, a network that delays and cuts, a control store that may be away. Nothing in it is real."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from rocketq.replication.control import Group, LeaseLostError
from rocketq.replication.control_memory import ControlTable

from .replica_history import History

CONTROL = 0
GROUP = Group("c", "b")
LOST: Any = object()
"""An answer that never came."""


class Sleeper(Protocol):
    """Whose events wait while it is paused, and are gone when it is another process by then."""

    number: int
    life: int
    up: bool
    paused_to_ms: float


class World:
    """Events in order of time. `cuts` holds (from, to): nothing gets through that way; CONTROL is the control store."""

    def __init__(self, seed: int, history: History) -> None:
        self.rng = random.Random(seed)
        self.history = history
        self.now_ms = 0.0
        self.table = ControlTable()
        self.cuts: set[tuple[int, int]] = set()
        self.control_up = True
        self._events: list[tuple[float, int, Sleeper | None, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: float, do: Callable[[], None], who: Sleeper | None = None) -> None:
        """Do it then, unless `who` is another process by then; a paused one does it when it wakes up."""
        self._count += 1
        life = who.life if who is not None else 0
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, who, life, do))

    def run_to(self, end_ms: float) -> None:
        events = self._events
        while events and events[0][0] <= end_ms:
            at_ms, count, who, life, do = heapq.heappop(events)
            self.now_ms = max(self.now_ms, at_ms)
            if who is not None:
                if who.life != life or not who.up:
                    continue
                if who.paused_to_ms > self.now_ms:
                    heapq.heappush(events, (who.paused_to_ms, count, who, life, do))
                    continue
            do()
        self.now_ms = end_ms

    def latency_ms(self) -> float:
        draw = self.rng.random()
        return 1 + draw * 10 if draw < 0.9 else draw * 200

    # the control store

    def ask_control(
        self, who: Sleeper, call: Callable[[ControlTable, int], Any], answer: Callable[[Any], None]
    ) -> None:
        """The call may be lost, may be carried out much later than it is given up, its answer may be lost."""
        done = False

        def finish(result: Any) -> None:
            nonlocal done
            if not done:
                done = True
                answer(result)

        def carry_out() -> None:
            if not self.control_up or (who.number, CONTROL) in self.cuts:
                return
            try:
                result = call(self.table, int(self.now_ms))
            except LeaseLostError as error:
                result = error
            if (CONTROL, who.number) not in self.cuts:
                self.after(self.latency_ms(), lambda: finish(result), who)

        slow = self.rng.random() < 0.02
        self.after(self.rng.uniform(500, 4_000) if slow else self.latency_ms(), carry_out)
        self.after(1_500, lambda: finish(LOST), who)


@dataclass
class Line:
    """One connection between two processes: two directions, each in order. What is cut waits and is sent again."""

    world: World
    ends: tuple[Sleeper, Sleeper]
    deliver: tuple[Callable[[Any], None], Callable[[Any], None]]
    """What each end does with an item; None is the end of the connection."""
    open: bool = True
    _waiting: tuple[deque[Any], deque[Any]] = field(default_factory=lambda: (deque(), deque()))

    def send(self, to: int, item: Any) -> None:
        """To end 0 or 1."""
        if not self.open:
            return
        queue = self._waiting[to]
        queue.append(item)
        if len(queue) == 1:
            self.world.after(self.world.latency_ms(), lambda: self._pump(to))

    def _pump(self, to: int) -> None:
        queue = self._waiting[to]
        if not queue or not self.open:
            return
        route = (self.ends[1 - to].number, self.ends[to].number)
        if route in self.world.cuts:
            self.world.after(100, lambda: self._pump(to))
            return
        item = queue.popleft()
        self.world.after(0, lambda: self.deliver[to](item), self.ends[to])
        if queue:
            self.world.after(0.2, lambda: self._pump(to))

    def close(self) -> None:
        """Both ends hear of it, where the network lets them; silence tells the others."""
        if not self.open:
            return
        self.open = False
        for to in (0, 1):
            if (self.ends[1 - to].number, self.ends[to].number) not in self.world.cuts:
                self.world.after(self.world.latency_ms(), lambda to=to: self.deliver[to](None), self.ends[to])  # type: ignore[misc]
