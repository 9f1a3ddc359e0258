"""Requests without an answer yet, by opaque and deadline. Pure: time is an argument."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

_Waiter = TypeVar("_Waiter")

_OPAQUE_MAX = 0x7FFFFFFF
_SLACK = 64


class PendingCalls(Generic[_Waiter]):
    """Waiters by opaque, with a heap of their deadlines."""

    def __init__(self) -> None:
        self._waiters: dict[int, _Waiter] = {}
        self._deadlines: list[tuple[int, int]] = []  # a heap; finished calls stay in it until popped or swept
        self._opaque = 0

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None without pending calls."""
        while self._deadlines and self._deadlines[0][1] not in self._waiters:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def add(self, waiter: _Waiter, deadline_ms: int) -> int:
        """Add a waiter and return its opaque. Opaques start at 1: the Node client treats 0 as missing."""
        opaque = self.next_opaque()
        self._waiters[opaque] = waiter
        heapq.heappush(self._deadlines, (deadline_ms, opaque))
        if len(self._deadlines) > 2 * len(self._waiters) + _SLACK:
            self._sweep()
        return opaque

    def take(self, opaque: int) -> _Waiter | None:
        """Remove and return the waiter of this opaque; None without one."""
        return self._waiters.pop(opaque, None)

    def expire(self, now_ms: int) -> list[_Waiter]:
        """Remove and return the waiters whose deadline has passed."""
        expired = []
        while (deadline_ms := self.next_deadline_ms) is not None and deadline_ms <= now_ms:
            _, opaque = heapq.heappop(self._deadlines)
            expired.append(self._waiters.pop(opaque))
        return expired

    def drain(self) -> list[_Waiter]:
        """Remove and return all waiters."""
        waiters = list(self._waiters.values())
        self._waiters.clear()
        self._deadlines.clear()
        return waiters

    def next_opaque(self) -> int:
        """An opaque that no pending request uses."""
        while True:
            self._opaque = self._opaque + 1 if self._opaque < _OPAQUE_MAX else 1
            if self._opaque not in self._waiters:
                return self._opaque

    def _sweep(self) -> None:
        self._deadlines = [entry for entry in self._deadlines if entry[1] in self._waiters]
        heapq.heapify(self._deadlines)
