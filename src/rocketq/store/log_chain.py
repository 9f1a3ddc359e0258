"""A log file walked by several readers, each from a place of its own.

Records follow each other without a gap, so whoever knows where one starts knows all behind it. A reader that begins in
the middle looks for a record some way back and walks from there: what looks like a record inside a body is passed, as
it is by a reader that came from the file's start. Both agree where damage begins and where the chain goes on.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.records import BLANK, MESSAGE, RecordView, find_next_record, first_nonzero
from rocketq.kernel.scanner import walk_records
from rocketq.store.disk import Disk

LOOK_BACK_BYTES: Final = 16 << 20
SIZE_BYTES_BEFORE_MAGIC: Final = 7  # a record's size may start with zeros, which a file system need not keep
_WINDOW_BYTES: Final = 1 << 20


class ChainedFile:
    """One file of the log, mapped for reading only. It may be written to meanwhile, and it may lose its name."""

    def __init__(self, path: Path, base: int, *, disk: Disk | None = None) -> None:
        self.path = path
        self._disk = disk or Disk()
        size = path.stat().st_size
        mapped = self._disk.map(path, writable=False) if size else b""
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(mmap.MADV_SEQUENTIAL)
        self.buffer = MappedBuffer(mapped, base)
        self._view = RecordView()

    @property
    def size(self) -> int:
        return self.buffer.size

    def data_from(self, at: int) -> int | None:
        """The first byte at or behind `at` that is not zero; None when there is none."""
        for low, high in self._data_ranges(at):
            found = first_nonzero(self.buffer, low, high)
            if found < high:
                return found
        return None

    def next_good(self, at: int) -> int | None:
        """Where the next good record, or the blank at the file's end, starts behind `at`."""
        for data_at, high in self._data_ranges(at + 1):
            low, step = max(data_at - SIZE_BYTES_BEFORE_MAGIC, at + 1), _WINDOW_BYTES
            while low < high:
                stop = min(low + step, high)
                found = find_next_record(self.buffer, low, stop, self._view)
                if found >= 0:
                    return found
                low, step = stop, step * 2
        return None

    def chain_at(self, start: int, *, look_back_bytes: int = LOOK_BACK_BYTES) -> int | None:
        """The first place of the chain at or behind `start`: a record, or what stands where one should. None when the
        chain ends before."""
        at = self._known_before(start, look_back_bytes)
        while at < start:
            state, at, _, _ = walk_records(self.buffer, at, start, self._view, False)
            if state == BLANK:
                return None
            if state != MESSAGE:
                following = self.next_good(at)
                if following is None:
                    return None
                at = following
        return at

    def _known_before(self, start: int, look_back_bytes: int) -> int:
        """A good record before `start`, or the file's start, where every chain begins."""
        while look_back_bytes < start:
            found = find_next_record(self.buffer, start - look_back_bytes, start, self._view)
            if 0 <= found < start:
                return found
            look_back_bytes *= 4
        return 0

    def _data_ranges(self, start: int) -> list[tuple[int, int]]:
        """Parts that may hold something; all of it when the file has lost its name."""
        try:
            ranges = self._disk.data_ranges(self.path, start)
        except FileNotFoundError:
            ranges = [(start, self.size)] if start < self.size else []
        return [(low, min(high, self.size)) for low, high in ranges if low < self.size]
