"""Delay levels: which queue of the schedule topic is looked at when, and how far each is delivered. Pure.

Queue n - 1 holds the messages of level n in the order they came, which is the order they are due in. Each is delivered
when its unit says; between looks nothing needs to be remembered but the next offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

LOOK_MS: Final = 50
"""A queue without messages is looked at again after this long; the shortest delay is a second."""
RETRY_MS: Final = 1_000
"""After a delivery the store refused."""
_FOREVER_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Look:
    """Deliver messages of a level from an offset on that are due by a time, to `stop_offset` at most."""

    level: int
    offset: int
    due_to_ms: int
    stop_offset: int | None = None


@dataclass(slots=True)
class _Cursor:
    offset: int
    look_ms: int = 0
    early: tuple[int, int] | None = None
    """(offset, time): messages before the offset are delivered at the time, since their own lies too far ahead."""


class DelayCursors:
    """`delays_ms[n - 1]` is the delay of level n. Levels may be looked at that the table does not have (any more)."""

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
        """A queue is there for a level the table does not have: what waits in it is delivered all the same."""
        self._cursors.setdefault(level, _Cursor(0))

    def looks(self, now_ms: int) -> list[Look]:
        """What to look at now."""
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
        """A look came as far as `next_offset`; the message there is due at `due_ms`, None when there is none."""
        cursor = self._cursors[level]
        cursor.offset = next_offset
        cursor.look_ms = now_ms + LOOK_MS if due_ms is None else due_ms
        delay_ms = self._delay_ms(level)
        if due_ms is not None and due_ms > now_ms + delay_ms:
            # No message can be due that late: the clock was set back since, or the table has shorter delays now.
            # Whatever waits is delivered a full delay from here, which is never too early.
            if cursor.early is None:
                cursor.early = (end_offset, now_ms + delay_ms)
            cursor.look_ms = min(due_ms, cursor.early[1])

    def failed(self, level: int, next_offset: int, now_ms: int) -> None:
        cursor = self._cursors[level]
        cursor.offset = next_offset
        cursor.look_ms = now_ms + RETRY_MS

    def next_look_ms(self, now_ms: int) -> int:
        """Not later than this the next look is due."""
        return min((cursor.look_ms for cursor in self._cursors.values()), default=now_ms + LOOK_MS)

    def _delay_ms(self, level: int) -> int:
        return self._delays_ms[level - 1] if level <= len(self._delays_ms) else _FOREVER_MS // 2
