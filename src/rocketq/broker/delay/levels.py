"""Delay levels: when each queue of the schedule topic is read next, and its delivery offset. Pure.

Queue n - 1 holds the messages of level n in arrival order, which is also the order of their due times. The state of a
level is its next offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

LOOK_MS: Final = 50
"""Poll interval of an empty queue; the shortest delay is one second."""
RETRY_MS: Final = 1_000
"""Pause after a delivery that the store rejected."""
_FOREVER_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Look:
    """A delivery to run: messages of a level from `offset` up to `stop_offset`, due by `due_to_ms`."""

    level: int
    offset: int
    due_to_ms: int
    stop_offset: int | None = None


@dataclass(slots=True)
class _Cursor:
    offset: int
    look_ms: int = 0
    early: tuple[int, int] | None = None
    """(offset, time): messages before the offset are delivered at this time because their own is too far ahead."""


class DelayCursors:
    """Delivery offsets by level. `delays_ms[n - 1]` is the delay of level n; queues of removed levels are delivered
    too."""

    def __init__(self, delays_ms: Sequence[int], offsets: Mapping[int, int]) -> None:
        self._delays_ms = list(delays_ms)
        levels = {*range(1, len(delays_ms) + 1), *offsets}
        self._cursors = {level: _Cursor(offsets.get(level, 0)) for level in sorted(levels)}
        self._last_ms = 0

    @property
    def levels(self) -> int:
        return len(self._delays_ms)

    def offsets(self) -> dict[int, int]:
        return {level: cursor.offset for level, cursor in self._cursors.items() if cursor.offset}

    def add_level(self, level: int) -> None:
        """Deliver the queue of a level that the delay table does not have."""
        self._cursors.setdefault(level, _Cursor(0))

    def looks(self, now_ms: int) -> list[Look]:
        """The deliveries that are due now."""
        if now_ms < self._last_ms:  # the clock was set back: no time from before counts
            for cursor in self._cursors.values():
                cursor.look_ms = 0
        self._last_ms = now_ms
        return [
            self._look(level, cursor, now_ms) for level, cursor in self._cursors.items() if cursor.look_ms <= now_ms
        ]

    def _look(self, level: int, cursor: _Cursor, now_ms: int) -> Look:
        if cursor.early is not None and cursor.offset >= cursor.early[0]:
            cursor.early = None
        if cursor.early is not None and cursor.early[1] <= now_ms:
            return Look(level, cursor.offset, _FOREVER_MS, cursor.early[0])
        return Look(level, cursor.offset, now_ms)

    def delivered(self, level: int, next_offset: int, due_ms: int | None, end_offset: int, now_ms: int) -> None:
        """Record a delivery up to `next_offset`; the message there is due at `due_ms` (None: end of the queue)."""
        cursor = self._cursors[level]
        cursor.offset = next_offset
        cursor.look_ms = now_ms + LOOK_MS if due_ms is None else due_ms
        delay_ms = self._delay_ms(level)
        if due_ms is not None and due_ms > now_ms + delay_ms:
            # No message can be due that late: the clock was set back, or the delay of the level was shortened.
            # Deliver everything in the queue one full delay from now, which is never too early.
            if cursor.early is None:
                cursor.early = (end_offset, now_ms + delay_ms)
            cursor.look_ms = min(due_ms, cursor.early[1])

    def failed(self, level: int, next_offset: int, now_ms: int) -> None:
        cursor = self._cursors[level]
        cursor.offset = next_offset
        cursor.look_ms = now_ms + RETRY_MS

    def next_look_ms(self, now_ms: int) -> int:
        """Upper bound of the next delivery time."""
        return min((cursor.look_ms for cursor in self._cursors.values()), default=now_ms + LOOK_MS)

    def _delay_ms(self, level: int) -> int:
        return self._delays_ms[level - 1] if level <= len(self._delays_ms) else _FOREVER_MS // 2
