"""Extensions that a queue unit can refer to instead of its tags code: the code, the store time, and a bitmap of the
groups whose conditions the message met when it was stored. Same bytes as Apache's ConsumeQueueExt.

    file    := unit* [endMark] zero*          endMark := -1:i16, where the next unit would not leave 4 bytes
    unit    := size:i16 tagsCode:i64 storeTime:i64 bitmapBytes:i16 bitmap
    address := position in the endless file + the smallest i64
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from rocketq.errors import StoreError
from rocketq.store.config import StoreConfig
from rocketq.store.disk import Disk
from rocketq.store.segments import SegmentDirectory

log = logging.getLogger(__name__)

HEAD_BYTES: Final = 20
EXTENSION_BYTES_MAX: Final = 32_767
END_MARK: Final = b"\xff\xff"
END_BYTES: Final = 4

_HEAD: Final = Struct(">hqqh")
_FIRST_ADDRESS: Final = -(1 << 63)
_LAST_ADDRESS: Final = -(1 << 31) - 1
_SECTOR_BYTES: Final = 512

Mapped = bytes | bytearray | mmap.mmap


class Extension(NamedTuple):
    """One unit of a queue's extension; without a bitmap nothing is known about conditions."""

    tags_code: int
    store_ms: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        return HEAD_BYTES + len(self.bitmap)

    def encode(self) -> bytes:
        if self.size > EXTENSION_BYTES_MAX:
            raise ValueError(f"a bitmap of {len(self.bitmap)} bytes is too long")
        return _HEAD.pack(self.size, self.tags_code, self.store_ms, len(self.bitmap)) + self.bitmap


def decode_extension(data: Mapped, at: int) -> Extension | None:
    """The unit that starts there, or None."""
    room = len(data) - at
    if at < 0 or room < HEAD_BYTES:
        return None
    size, tags_code, store_ms, bitmap_bytes = _HEAD.unpack_from(data, at)
    if not HEAD_BYTES <= size <= room or size != HEAD_BYTES + bitmap_bytes:
        return None
    return Extension(tags_code, store_ms, bytes(data[at + HEAD_BYTES : at + size]))


def is_torn(data: Mapped, at: int, size: int) -> bool:
    """Whether a part of a unit may never have reached the disk: all zeros in one of its sectors. An empty bitmap looks
    the same, so this is for doubtful times only."""
    end = at + size
    while at < end:
        stop = min((at // _SECTOR_BYTES + 1) * _SECTOR_BYTES, end)
        if not any(data[at:stop]):
            return True
        at = stop
    return False


def is_address(tags_code: int) -> bool:
    """Whether a queue unit holds an address: those are below every hash and every time."""
    return tags_code <= _LAST_ADDRESS


def address_of(position: int) -> int:
    return position + _FIRST_ADDRESS


def position_of(address: int) -> int:
    return address - _FIRST_ADDRESS


FOLDER = "consumequeue_ext"
RESERVE_BYTES_MIN = 4096
RESERVE_BYTES_MAX = 256 << 10

BitmapOf = Callable[[str, bytes, int], bytes]  # topic, properties, store time
Address = int | None
NOTHING_NEAR = (0, b"")  # the file of the last lookup, and its start


class QueueExtensions:
    """Extensions by address. Lookups need no lock, writes the store's. `find_last()` is the last address among the
    queue's units: bytes behind its extension are unused.

    Extensions are optional: a unit without one, or with a missing one, is filtered by its record. If writing one fails,
    the unit gets its plain tags code.
    """

    def __init__(
        self,
        path: Path,
        file_bytes: int,
        disk: Disk,
        *,
        writable: bool = True,
        find_last: Callable[[], Address] = lambda: None,
        bitmap_of: Callable[[bytes, int], bytes] = lambda properties, store_ms: b"",
    ) -> None:
        self.files = SegmentDirectory(path, file_bytes, disk)
        self.files.load()
        self._disk = disk
        self._writable = writable
        self._find_last = find_last
        self._bitmap_of = bitmap_of
        self._end: int | None = None
        self._flushed = 0
        self._mapped: dict[int, mmap.mmap] = {}
        self._near: tuple[int, mmap.mmap | bytes] = NOTHING_NEAR
        self._used: set[int] = set()
        self._reserved: dict[int, int] = {}
        self._told = False
        self._other_size: int | None = None

    # Looking up

    def get(self, address: int) -> Extension | None:
        """The extension at an address, or None."""
        position, (start, data) = position_of(address), self._near
        if not 0 <= position - start < len(data):
            found = self.files.at_or_before(position)
            if found is None:
                return None
            try:
                start, data = self._near = (found, self._map(found))
            except (OSError, ValueError):  # gone this moment, or empty
                return None
        return decode_extension(data, position - start)

    def has_one_of(self, address: int, tag_codes: Container[int]) -> bool:
        """Whether the message may have one of these tags."""
        found = self.get(address)
        return found is None or found.tags_code in tag_codes

    def agrees(self, address: int, tags_code: int, store_ms: int, distrust: bool) -> bool:
        """Whether an address has an intact extension with this code and time."""
        found = self.get(address)
        if found is None or (found.tags_code, found.store_ms) != (tags_code, store_ms):
            return False
        if not distrust:
            return True
        start = self.files.at_or_before(position_of(address))
        return start is not None and not is_torn(self._map(start), position_of(address) - start, found.size)

    def _map(self, start: int) -> mmap.mmap:
        self._used.add(start)
        found = self._mapped.get(start)
        if found is None:
            found = self._disk.map(self.files.path_of(start), writable=self._writable)
            self._mapped[start] = found
        return found

    # Writing

    def extend(self, tags_code: int, store_ms: int, properties: bytes) -> int:
        """Write the extension of a message that is in the log already; its address, or the tags code itself when that
        is not possible."""
        try:
            return self.put(Extension(tags_code, store_ms, self._bitmap_of(properties, store_ms)))
        except Exception as error:  # the record is written: its unit must follow even if this fails
            if not self._told:
                self._told = True
                log.warning("%s: messages get plain tags codes: %s", self.files.path, error)
            return tags_code

    def put(self, unit: Extension) -> int:
        """Append a unit; its address."""
        data = unit.encode()
        if self._end is None:
            self.settle(self._find_last())
        assert self._end is not None
        if self._other_size is not None:
            raise StoreError(f"it was written with files of {self._other_size} bytes, "
                             f"mappedFileSizeConsumeQueueExt is {self.files.file_bytes}")  # fmt: skip
        start = self._make_room(len(data))
        mapped, at = self._map(start), self._end - start
        mapped[at + 2 : at + len(data)] = data[2:]
        mapped[at : at + 2] = data[:2]  # last: a unit without a size is none
        address = address_of(self._end)
        self._end += len(data)
        self._told = False
        return address

    def _make_room(self, count: int) -> int:
        """Start of the file that the next unit goes to, with blocks reserved for it; OSError when the disk is full."""
        assert self._end is not None
        file_bytes = self.files.file_bytes
        if count > file_bytes - END_BYTES:
            raise StoreError(f"files of {file_bytes} bytes are too small for an extension of {count}")
        start = self.files.start_of(self._end)
        if self._end - start + count > file_bytes - END_BYTES:
            self._finish_file(start)
            start += file_bytes
        if start not in self.files:
            self.files.create(start, reserve=False)
        self._end = max(self._end, start)
        self._reserve(start, self._end - start, count)
        return start

    def _finish_file(self, start: int) -> None:
        assert self._end is not None
        if start in self.files and self._end > start:
            at = self._end - start
            self._reserve(start, at, len(END_MARK))
            self._map(start)[at : at + len(END_MARK)] = END_MARK

    def _reserve(self, start: int, at: int, count: int) -> None:
        if self._reserved.get(start, 0) < at + count:
            step = min(max(at, RESERVE_BYTES_MIN), RESERVE_BYTES_MAX)
            reserved = min(max(at + count, at + step), self.files.file_bytes)
            self._disk.reserve(self.files.path_of(start), 0, reserved)
            self._reserved[start] = reserved

    # Cutting and deleting

    def settle(self, last: Address) -> None:
        """Continue behind the extension of the queue's last address; later bytes are removed. The address of a damaged
        extension is never reused: writing continues in the next file then."""
        unit = None if last is None else self.get(last)
        if last is None:
            end = 0
        elif unit is None:
            end = self.files.start_of(position_of(last)) + self.files.file_bytes
        else:
            end = position_of(last) + unit.size
        for start in list(self.files):
            if start >= end:
                self._remove(start)
        self._reserved.clear()
        self._end = self._flushed = end
        sizes = [self.files.size_of(start) for start in self.files]
        self._other_size = next((size for size in sizes if size != self.files.file_bytes), None)
        if self._other_size is not None:
            return  # looked up, never changed
        keep = self.files.start_of(end)
        if keep in self.files and self._disk.zero_from(self.files.path_of(keep), end - keep):
            self._disk.sync(self.files.path_of(keep))

    def delete_before(self, first: Address) -> int:
        """Remove files that end before the queue's first address (all but the last when it has none); how many."""
        last = self.files.last
        limit = position_of(first) if first is not None else (last or 0)
        old = [start for start in self.files if start != last and start + self.files.size_of(start) <= limit]
        for start in old:
            self._remove(start)
        return len(old)

    def _remove(self, start: int) -> None:
        self._reserved.pop(start, None)
        self._near = NOTHING_NEAR
        self._mapped.pop(start, None)
        self.files.remove(start)

    def remove(self) -> None:
        """Delete all of it from disk."""
        for start in list(self.files):
            self._remove(start)
        self._end = None
        path = self.files.path
        if path.is_dir():
            os.rmdir(path)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            os.rmdir(path.parent)

    # Upkeep

    def flush(self) -> None:
        """Sync what was written since the last flush."""
        end = self._end
        if end is None or end <= self._flushed:
            return
        for start in self.files:
            if start < end and start + self.files.file_bytes > self._flushed:
                self._disk.sync(self.files.path_of(start))
        self._flushed = end

    def drop_idle_mappings(self) -> None:
        """Forget mappings not used since the last call."""
        for start in [start for start in self._mapped if start not in self._used]:
            del self._mapped[start]
        self._near = NOTHING_NEAR
        self._used.clear()

    def release(self) -> None:
        """The store is closed: let go of all mappings."""
        self._near = NOTHING_NEAR
        self._mapped.clear()


class StoreExtensions:
    """The extensions of all queues: where they lie, whether new ones are written. Those there are can always be looked
    up. None are written while a store is opened: what groups want is not known then."""

    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self._enabled = config.queue_extensions
        self._file_bytes = config.extension_file_bytes
        self._disk = disk
        self._began = False
        self.path = config.root / FOLDER
        self._bitmap_of: BitmapOf = lambda topic, properties, store_ms: b""

    @property
    def are_written(self) -> bool:
        return self._enabled and self._began

    def calculate_bitmaps(self, bitmap_of: BitmapOf) -> None:
        self._bitmap_of = bitmap_of

    def begin(self) -> None:
        """The store is open."""
        self._began = True

    def of(self, topic: str, queue_id: int, find_last: Callable[[], Address]) -> QueueExtensions | None:
        """A queue's own; None where there are none and none will be."""
        path = self.path / topic / str(queue_id)
        if not self._enabled and not path.is_dir():
            return None
        return QueueExtensions(
            path, self._file_bytes, self._disk, find_last=find_last, bitmap_of=partial(self._bitmap, topic)
        )

    def _bitmap(self, topic: str, properties: bytes, store_ms: int) -> bytes:
        return self._bitmap_of(topic, properties, store_ms)
