"""Which bytes of which file a task reads. Pure: equal files and options always give equal ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketq.spark.commitlog_files import LogFile

RANGE_BYTES: Final = 128 << 20
STORE_TIME_SLACK_MS: Final = 600_000
"""How far store times may run backwards between files: a clock that is set back must not hide messages."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The records of a file that start in [start, end)."""

    file: LogFile
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StoreTimes:
    """Half-open; None is without a bound."""

    from_ms: int | None = None
    before_ms: int | None = None


ANY_TIME: Final = StoreTimes()


def plan_ranges(
    files: Iterable[LogFile],
    *,
    range_bytes: int = RANGE_BYTES,
    times: StoreTimes = ANY_TIME,
    slack_ms: int = STORE_TIME_SLACK_MS,
) -> list[ByteRange]:
    """Every byte of every file that can hold a record of these times, in pieces of equal size."""
    return [
        ByteRange(file, start, min(start + step, file.size_bytes))
        for file in files
        if _can_hold(file, times, slack_ms)
        for step in [_even_step(file.size_bytes, range_bytes)]
        for start in range(0, file.size_bytes, step)
    ]


def _even_step(size_bytes: int, range_bytes: int) -> int:
    pieces = max(1, -(-size_bytes // range_bytes))
    return max(1, -(-size_bytes // pieces))


def _can_hold(file: LogFile, times: StoreTimes, slack_ms: int) -> bool:
    """A file holds what was stored between its first record and the first of the next one."""
    first, following = file.first_store_ms, file.next_store_ms
    if times.before_ms is not None and first is not None and first - slack_ms >= times.before_ms:
        return False
    return not (times.from_ms is not None and following is not None and following + slack_ms < times.from_ms)
