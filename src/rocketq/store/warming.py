"""Prefaults pages of the log and the index ahead of the writer.

The system allocates and zeroes a page of a new file at its first write, while the writer and all requests behind it
wait. This thread faults pages in before they are needed, as far ahead as the log grew recently, so that an idle store
keeps none. Prefaulted pages are dirty: a sync writes them twice, so that a store with SYNC_FLUSH does not prefault.
With dataReadAheadEnable=false pages are read instead, and become dirty only when they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import HEADER_BYTES, SLOT_BYTES
from rocketq.runtime.service import Service
from rocketq.store.commit_log import CommitLog
from rocketq.store.config import FlushType, StoreConfig

BUSY_INTERVAL_MS: Final = 50
IDLE_INTERVAL_MS: Final = 250
GROWTH_BYTES_PER_S_MIN: Final = 2 << 20  # with less, pages are made when they are needed
AHEAD_TURNS: Final = 2  # more would be written twice by a sync
AHEAD_BYTES_MAX: Final = 128 << 20
STEP_BYTES: Final = 1 << 20  # per system call, so that a stop does not wait
INDEX_AHEAD_BYTES: Final = 4 << 20


def ahead_of(grown_bytes: int, turn_ms: int) -> int:
    """How far to look ahead after a turn in which the log grew by so much; 0: not at all."""
    if grown_bytes * 1000 < GROWTH_BYTES_PER_S_MIN * turn_ms:
        return 0
    return min(AHEAD_TURNS * grown_bytes * BUSY_INTERVAL_MS // turn_ms, AHEAD_BYTES_MAX)


class WarmFile:
    """How far the pages of the file being written are ready."""

    def __init__(self) -> None:
        self._buffer: MappedBuffer | None = None
        self._ready_to = 0

    def warm(
        self, buffer: MappedBuffer, position: int, ahead: int, ready: Callable[[int, int], bool] | None = None
    ) -> None:
        """Have `ahead` bytes behind `position` ready, once half of that is used up; by `ready`, or populated."""
        ready = ready or buffer.populate
        if buffer is not self._buffer:
            self._buffer, self._ready_to = buffer, position
        self._ready_to = max(self._ready_to, position)
        if self._ready_to - position > ahead // 2:
            return
        stop = min(position + ahead, buffer.size)
        while self._ready_to < stop:
            count = min(STEP_BYTES, stop - self._ready_to)
            if not ready(self._ready_to, count):
                return
            self._ready_to += count

    def forget(self) -> None:
        """The mapping may go."""
        self._buffer = None


class Warmer:
    """One turn: see how much was written since the last, and have the pages for more of that ready."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog) -> None:
        self._config = config
        self._log = commit_log
        self._service = Service("warm", IDLE_INTERVAL_MS, self.step)
        self._seen_end = -1
        self._segment, self._units, self._slots = WarmFile(), WarmFile(), WarmFile()

    def start(self) -> None:
        self._service.start()

    def stop(self) -> None:
        self._service.stop()
        self._forget()

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config

    def step(self) -> None:
        end = self._log.end
        grown, self._seen_end = end - self._seen_end if self._seen_end >= 0 else 0, end
        ahead = ahead_of(grown, self._service.interval_ms) if self._is_wanted else 0
        self._service.interval_ms = BUSY_INTERVAL_MS if ahead else IDLE_INTERVAL_MS
        if ahead:
            self._warm(ahead)
        else:
            self._forget()

    def _forget(self) -> None:
        """Mappings that are not needed any more must not be kept by us."""
        for file in (self._segment, self._units, self._slots):
            file.forget()

    @property
    def _is_wanted(self) -> bool:
        config = self._config
        return not config.transient_buffer and (config.flush_type is FlushType.ASYNC_FLUSH or not config.read_ahead)

    def _warm(self, ahead: int) -> None:
        appender = self._log.appender
        segment, index = appender.segment, appender.index
        if segment is not None:
            position = max(0, min(self._log.end - segment.base, segment.size))
            self._segment.warm(segment, position, ahead, self._fetching(segment.base))
        if index is not None:  # its slots are hit all over, so all are wanted; its units follow one another
            slots_bytes = HEADER_BYTES + self._config.index_slots * SLOT_BYTES
            self._slots.warm(index.file, 0, min(slots_bytes, index.file.size))
            self._units.warm(index.file, min(index.end_at, index.file.size), INDEX_AHEAD_BYTES)

    def _fetching(self, base: int) -> Callable[[int, int], bool] | None:
        if self._config.flush_type is FlushType.ASYNC_FLUSH:
            return None
        return lambda at, count: self._log.fetch(base, at, count)
