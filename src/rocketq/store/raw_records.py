"""Bytes another broker wrote to its log: how far they are whole records that may be copied into ours.

The kernel walks them in one go. Nothing is dispatched here; that is done behind the copy, from the log itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from rocketq.errors import StoreError
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.records import BLANK, BLANK_BYTES_MIN, FIXED_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RecordView
from rocketq.kernel.scanner import Scanner, walk_records

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
        """The whole records `data` begins with; it may end within one. `data` crosses no file's end. Bodies are not
        checked."""
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
