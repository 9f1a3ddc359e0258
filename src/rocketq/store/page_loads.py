"""Loads old records into the page cache, so that the next read does not wait for the disk.

A reader on an event loop reads resident records only. For the others a worker thread calls `PageLoads.load`: it reads
the queue's units with pread(2), requests the records' pages from the system (WILLNEED: many reads at a time), and reads
the first of them into a scratch buffer, which returns when they are in the page cache. No mapped page is touched, so no
page fault happens while the thread holds the interpreter lock.

The units also show the records after those; up to 1 MiB of them is requested and arrives while the first records are
answered. Records close to each other form one range: reading a small gap is cheaper than a second read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from struct import iter_unpack
from typing import Final

from rocketq.kernel.queue_units import FILLER_SIZE
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import UNIT_BYTES
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.queue_extensions import is_address

AHEAD_BYTES: Final = 1 << 20
GAP_BYTES: Final = 16 << 10
UNITS_MAX: Final = 1024
RECORD_BYTES_MAX: Final = 16 << 20  # a damaged unit may name any size


@dataclass(frozen=True, slots=True)
class Loaded:
    """The units below `stop` and their records are in the page cache; `size_bytes` were read, ahead included."""

    stop: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to read for the first `unit_count` units, and what to request for those behind them."""

    unit_count: int
    wanted: tuple[LogRange, ...]
    ahead: tuple[LogRange, ...]

    @property
    def size_bytes(self) -> int:
        return sum(part.size for part in (*self.wanted, *self.ahead))


class LogRanges:
    """Grows by records in log order; neighbours in one segment become one range."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._ranges: list[LogRange] = []
        self.size_bytes = 0

    def add(self, start: int, size: int) -> None:
        segment_end = start - start % self._segment_bytes + self._segment_bytes
        end = min(start + size, segment_end)
        last = self._ranges[-1] if self._ranges else None
        if last is not None and segment_end - self._segment_bytes < last.end <= start <= last.end + GAP_BYTES:
            self.size_bytes += end - last.end
            self._ranges[-1] = LogRange(last.start, end)
        else:
            self.size_bytes += end - start
            self._ranges.append(LogRange(start, end))

    def ranges(self) -> tuple[LogRange, ...]:
        return tuple(self._ranges)


def plan_load(
    units: bytes,
    *,
    count_max: int,
    bytes_max: int,
    gone_until: int,
    segment_bytes: int,
    tag_codes: frozenset[int] | None,
) -> LoadPlan:
    """Ranges of the records that a read of these units takes: one at least, within both limits; then those ahead."""
    wanted, ahead = LogRanges(segment_bytes), LogRanges(segment_bytes)
    unit_count = record_count = record_bytes = 0
    is_full = False
    for log_offset, given_bytes, code in iter_unpack(">qiq", units):
        if given_bytes == FILLER_SIZE or log_offset < gone_until or not _may_match(code, tag_codes):
            unit_count += not is_full
            continue
        size = min(max(given_bytes, 1), RECORD_BYTES_MAX)
        is_full = is_full or (record_count > 0 and (record_count >= count_max or record_bytes + size > bytes_max))
        if is_full:
            ahead.add(log_offset, size)
            if ahead.size_bytes >= AHEAD_BYTES:
                break
            continue
        wanted.add(log_offset, size)
        unit_count, record_count, record_bytes = unit_count + 1, record_count + 1, record_bytes + size
    return LoadPlan(unit_count, wanted.ranges(), ahead.ranges())


def _may_match(code: int, tag_codes: frozenset[int] | None) -> bool:
    return tag_codes is None or code in tag_codes or is_address(code)


class PageLoads:
    """Blocks for the disk: for worker threads. Does not take the store's lock; files may be deleted during a load."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log

    def load(
        self,
        queue: ConsumeQueue,
        first: int,
        stop: int,
        *,
        count_max: int,
        bytes_max: int,
        tag_codes: frozenset[int] | None,
    ) -> Loaded:
        """Load the records of units [first, stop) of one queue file, as many as the limits allow and one at least.

        OSError if the disk fails. Deleted files need no load: the next read reports them.
        """
        file_start = queue.files.start_of(first * UNIT_BYTES)
        stop = min(stop, file_start // UNIT_BYTES + queue.units_per_file, first + UNITS_MAX)
        try:
            units = self._log.disk.read(
                queue.files.path_of(file_start), first * UNIT_BYTES - file_start, (stop - first) * UNIT_BYTES
            )
        except FileNotFoundError:
            return Loaded(stop, 0)
        plan = plan_load(
            units[: len(units) // UNIT_BYTES * UNIT_BYTES],
            count_max=count_max,
            bytes_max=bytes_max,
            gone_until=self._log.start,
            segment_bytes=self._log.config.segment_bytes,
            tag_codes=tag_codes,
        )
        self._request((*plan.wanted, *plan.ahead))
        self._read(plan.wanted)
        return Loaded(first + plan.unit_count, plan.size_bytes)

    def _request(self, ranges: Iterable[LogRange]) -> None:
        for part in ranges:
            base = self._log.files.start_of(part.start)
            self._log.fetch(base, part.start - base, part.size)

    def _read(self, ranges: Iterable[LogRange]) -> None:
        for part in ranges:
            base = self._log.files.start_of(part.start)
            with contextlib.suppress(FileNotFoundError):
                self._log.disk.load(self._log.files.path_of(base), part.start - base, part.size)
