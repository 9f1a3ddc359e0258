"""Reads a log file in several independent parts.

Records follow each other without a gap, so that the start of one determines all later ones. A reader that starts in the
middle searches for a record some way back and walks from there, passing bytes inside a body that look like a record as
a reader from the file's start does. Both find the same damage and the same records after it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from rocketq.errors import StoreError
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.records import (
    BLANK,
    BLANK_BYTES_MIN,
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MESSAGE,
    RecordView,
    find_next_record,
    first_nonzero,
)
from rocketq.kernel.scanner import Scanner, walk_records
from rocketq.store.disk import Disk
from rocketq.store.segments import SegmentDirectory

LOOK_BACK_BYTES: Final = 16 << 20
SIZE_BYTES_BEFORE_MAGIC: Final = 7  # a record's size may start with zeros, which a file system need not keep
_WINDOW_BYTES: Final = 1 << 20


class ChainedFile:
    """One file of the log, mapped read-only. It may grow or be deleted while it is read."""

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
        """A good record before `start`, or the file's start."""
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


def next_good_record(files: SegmentDirectory, segment_at: Callable[[int], MappedBuffer], position: int) -> int | None:
    """Log offset of the next good record (or blank) behind `position`, in its file or a later one; None without any.

    Reads only ranges with data: the preallocated rest of the last file costs nothing.
    """
    view, base = RecordView(), cast(int | None, files.start_of(position))
    while base is not None:
        segment, first = segment_at(base), max(position + 1 - base, 0)
        ranges = files.disk.data_ranges(files.path_of(base), first) if base in files else []
        for low, high in ranges:
            found = find_next_record(segment, max(low - SIZE_BYTES_BEFORE_MAGIC, first), high, view)
            if found >= 0:
                return base + found
        base = files.after(base)
    return None


_HEAD: Final = struct.Struct(">ii")  # size, magic


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Whole records at the head of some bytes: how many bytes they take, and where the last one starts (a log offset;
    -1 when there is none but a blank)."""

    size_bytes: int
    last: int


class RawWalk:
    """Made once, used often; one thread at a time."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._view = RecordView()
        self._scanner = Scanner(None, None, None)
        self._scanner.to_queues = False

    def head(self, data: bytes | memoryview, log_offset: int) -> RawRecords:
        """The whole records at the start of `data`, which may end within one and does not cross a file's end. Bodies
        are not checked."""
        return self._walk(data, log_offset, check_crc=False)

    def require_beginning(self, data: bytes | memoryview, log_offset: int) -> None:
        """StoreError unless `data`, which is not a whole record, can be the first part of one that fits in its file."""
        if data and not self._may_go_on(data, log_offset):
            raise StoreError(f"the bytes for {log_offset} are no record")

    def all(self, data: bytes | memoryview, log_offset: int, *, check_crc: bool) -> RawRecords:
        """The same where nothing may be left over."""
        records = self._walk(data, log_offset, check_crc=check_crc)
        if records.size_bytes != len(data):
            raise StoreError(f"the bytes for {log_offset + records.size_bytes} are not a whole, good record")
        return records

    def _walk(self, data: bytes | memoryview, log_offset: int, *, check_crc: bool) -> RawRecords:
        if not data:
            return RawRecords(0, -1)
        buffer = MappedBuffer(data, log_offset)
        if check_crc:
            state, at, last = self._walk_checked(buffer)
        else:
            state, at, _, last = walk_records(buffer, 0, len(data), self._view, False)
        last = log_offset + last if last >= 0 else -1
        if state == BLANK and (log_offset + len(data)) % self._segment_bytes == 0:
            at = len(data)
        return RawRecords(at, last)

    def _walk_checked(self, buffer: MappedBuffer) -> tuple[int, int, int]:
        """How and where the walk stopped, and where the last record starts; StoreError for a body that is not whole."""
        scanner = self._scanner
        scanner.doubtful = scanner.bad_crc = 0
        state = scanner.scan(buffer, 0, buffer.size)
        if scanner.doubtful or scanner.bad_crc:
            raise StoreError(f"the record at {scanner.bad_crc_offset} has a body that does not match its CRC")
        return state, scanner.at, scanner.last_at

    def _may_go_on(self, data: bytes | memoryview, log_offset: int) -> bool:
        room, have = self._segment_bytes - log_offset % self._segment_bytes, len(data)
        if have < BLANK_BYTES_MIN:
            return have < room
        size, magic = _HEAD.unpack_from(data)
        if magic == MAGIC_BLANK:
            return bool(size == room > have)
        return magic in (MAGIC_V1, MAGIC_V2) and size >= FIXED_BYTES and have < size <= room
