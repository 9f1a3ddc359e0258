"""One consume queue: where the messages of a queue lie in the log, in order."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.queue_units import (
    FILLER_SIZE,
    QueueTail,
    count_units,
    first_real_unit,
    first_unit_beyond,
    first_unit_from,
    put_unit_at,
    unit_at,
)
from rocketq.store.commit_log import LogRange
from rocketq.store.config import PAGE_BYTES, UNIT_BYTES, StoreConfig
from rocketq.store.disk import Disk
from rocketq.store.queue_extensions import QueueExtensions, StoreExtensions, is_address
from rocketq.store.segments import Digest, SegmentDirectory

RESERVE_BYTES_MIN = 4 * PAGE_BYTES  # each step is a detour for one message, so they must not be too small
RESERVE_BYTES_MAX = 256 << 10
UNKNOWN = -1

# Addresses stand where 32-bit hashes (first byte 0 or 255) and times (0) do.
_TAGS_CODE_AT = 12
_ADDRESS_HEAD = b"\x80"

# First unit of a new file until its first message: no size, so no unit for us; a log offset beyond any log, so that
# Apache's brokers drop the file when a crash left it empty (they would take zeros for a message).
NEVER_WRITTEN = b"\x7f" + b"\xff" * 7 + bytes(12)


class ConsumeQueue:
    """The files of one queue. Units are numbered by queue offset; `min_offset` is the first whose message exists.

    Files have their full length from the start, but blocks are reserved ahead of the writer in growing steps: many
    small queues stay small, and a full disk is an error before anything is written. The caller holds the store's lock
    for everything that writes.
    """

    def __init__(self, topic: str, queue_id: int, path: Path, file_bytes: int, disk: Disk) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = SegmentDirectory(path, file_bytes, disk)
        self.disk = disk
        self.tail = QueueTail(topic.encode(), queue_id, self)
        self.min_offset = 0
        self.flushed_offset = 0
        self.announced_offset = 0
        self._mapped: dict[int, MappedBuffer] = {}
        self._used: set[int] = set()
        self._reserved: dict[int, int] = {}
        self._swept_offset = UNKNOWN
        self._digests: dict[int, tuple[int, int]] = {}

    @property
    def extensions(self) -> QueueExtensions | None:
        """The extensions that units may refer to instead of tags codes."""
        return cast(QueueExtensions | None, self.tail.extensions)

    def __repr__(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    @property
    def units_per_file(self) -> int:
        return self.files.file_bytes // UNIT_BYTES

    @property
    def end_offset(self) -> int:
        """One past the last unit; the next message gets this offset."""
        return max(self.tail.next_offset, 0)

    # Files

    def _start_of(self, queue_offset: int) -> int:
        return self.files.start_of(queue_offset * UNIT_BYTES)

    def file_at(self, queue_offset: int) -> MappedBuffer | None:
        """The mapped file that holds a unit; None where there is none. Its base is the first unit's queue offset."""
        start = self._start_of(queue_offset)
        self._used.add(start)
        found = self._mapped.get(start)
        if found is None and start in self.files:
            found = MappedBuffer(self.disk.map(self.files.path_of(start), writable=True), start // UNIT_BYTES)
            self._mapped[start] = found
        return found

    def make_room(self, count: int) -> None:
        """Reserve blocks for `count` more units, in new files where needed; OSError when the disk is full."""
        position = self.tail.next_offset * UNIT_BYTES
        wanted = position + count * UNIT_BYTES
        start = self.files.start_of(position)
        while True:
            if start not in self.files:
                self.files.create(start, reserve=False, head=NEVER_WRITTEN)
            file_end = start + self.files.file_bytes
            reserved = self._reserved.get(start, start)
            if reserved < min(wanted, file_end):
                written = max(position - start, 0)
                step = min(max(written, RESERVE_BYTES_MIN), RESERVE_BYTES_MAX)
                reserved = min(max(wanted, max(position, start) + step), file_end)
                self.disk.reserve(self.files.path_of(start), 0, reserved - start)
                self._reserved[start] = reserved
            if wanted <= file_end:
                break
            start = file_end
        self.attach_file()
        self.tail.room_end = reserved // UNIT_BYTES

    def attach_file(self) -> None:
        """Point the kernel at the file of the next unit."""
        room_end = self.tail.room_end
        units = self.file_at(self.tail.next_offset)
        if units is None:
            raise FileNotFoundError(f"queue {self!r} has no file for offset {self.tail.next_offset}")
        _read_no_more_than_needed(units)
        self.tail.attach(units, room_end)

    def drop_idle_mappings(self) -> None:
        """Forget mappings not used since the last call; the writing end is asked for again at the next append."""
        if self.tail.next_offset != self._swept_offset:
            self._used.add(self._start_of(self.end_offset))
        for start in [start for start in self._mapped if start not in self._used]:
            if self.tail.units is self._mapped[start]:
                self.tail.detach()
            del self._mapped[start]
        if self.extensions is not None:
            self.extensions.drop_idle_mappings()
        self._used.clear()
        self._swept_offset = self.tail.next_offset

    def release(self) -> None:
        """The store is closed: let go of all mappings."""
        self.tail.detach()
        self._mapped.clear()
        if self.extensions is not None:
            self.extensions.release()

    def _forget(self, start: int) -> None:
        self._reserved.pop(start, None)
        dropped = self._mapped.pop(start, None)
        if dropped is not None and self.tail.units is dropped:
            self.tail.detach()

    # Units

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tags code) of a unit, written or not; None without a file."""
        units = self.file_at(queue_offset)
        return None if units is None else unit_at(units, queue_offset - units.base)

    def last_unit(self) -> tuple[int, int, int] | None:
        return self.unit(self.end_offset - 1) if self.end_offset > 0 else None

    def begin_at(self, queue_offset: int) -> None:
        """The queue's first known message has this offset. Empty units before it in its file become fillers, as other
        brokers take zeros for the end of the queue."""
        self.tail.detach()
        self._digests = {}
        self.tail.next_offset = queue_offset
        self.min_offset = queue_offset
        self.make_room(1)
        units = self.file_at(queue_offset)
        assert units is not None
        for index in range(queue_offset - units.base - 1, -1, -1):
            if unit_at(units, index)[1] > 0:
                break
            put_unit_at(units, index, 0, FILLER_SIZE, 0)

    def fill_to(self, queue_offset: int) -> None:
        """The messages before `queue_offset` are lost: fillers take their places, so that offsets stay."""
        while self.tail.next_offset < queue_offset:
            self.make_room(1)
            offset = self.tail.next_offset
            units = self.file_at(offset)
            assert units is not None
            put_unit_at(units, offset - units.base, self.tail.log_end, FILLER_SIZE, 0)
            self.tail.next_offset = offset + 1

    def put_at(self, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        """Overwrite a unit there is."""
        self._rewritten_from(queue_offset)
        units = self.file_at(queue_offset)
        assert units is not None
        put_unit_at(units, queue_offset - units.base, log_offset, size, tags_code)

    # Checksums

    def digest(self) -> tuple[Digest, ...]:
        """Start, covered end (both in bytes of the endless queue) and CRC-32 of every file, up to the last unit."""
        end = self.end_offset * UNIT_BYTES
        for start in self.files:
            upto, crc = self._digests.get(start, (start, 0))
            stop = min(end, start + self.files.file_bytes)
            units = self.file_at(start // UNIT_BYTES) if upto < stop else None
            if units is not None:
                self._digests[start] = (stop, units.crc32(upto - start, stop - start, crc))
        self._digests = {start: done for start, done in self._digests.items() if start in self.files}
        return tuple((start, *done) for start, done in sorted(self._digests.items()))

    def matches(self, digests: Sequence[Digest]) -> bool:
        """Whether the files hold what they held when the digests were taken; those that are gone are not missed."""
        for start, upto, crc in digests:
            units = self.file_at(start // UNIT_BYTES)
            if units is not None and units.crc32(0, upto - start, 0) != crc:
                return False
        return True

    def trust(self, digests: Sequence[Digest]) -> None:
        """Carry these checksums on."""
        self._digests = {start: (upto, crc) for start, upto, crc in digests if start in self.files}

    def _rewritten_from(self, queue_offset: int) -> None:
        """Reset the checksums of files whose units were changed."""
        self._digests = {start: done for start, done in self._digests.items() if done[0] <= queue_offset * UNIT_BYTES}

    # Bounds

    def correct_min(self, log_start: int) -> None:
        """Move `min_offset` to the first unit whose message still exists; to the end when none does."""
        for start in self.files:
            first = start // UNIT_BYTES
            stop = min(first + self.units_per_file, self.end_offset)
            units = self.file_at(first)
            if units is None or stop <= first:
                continue
            index = first_unit_from(units, 0, stop - first, log_start)
            index = first_real_unit(units, index, stop - first)
            if index < stop - first:
                self.min_offset = first + index
                return
        self.min_offset = self.end_offset

    def end_below(self, log_end: int) -> int:
        """Queue offset one past the last unit whose record ends at or before `log_end`."""
        if self.tail.log_end <= log_end:
            return self.end_offset
        for start in reversed(list(self.files)):
            first = start // UNIT_BYTES
            stop = min(first + self.units_per_file, self.end_offset)
            low = max(self.min_offset, first)
            units = self.file_at(first)
            if units is None or stop <= low:
                continue
            index = first_unit_beyond(units, low - first, stop - first, log_end)
            if index > low - first or first <= self.min_offset:
                return min(first + index, self.end_offset)  # the search may have seen zeros of a cut under way
        return self.min_offset

    def count_written(self) -> int:
        """End of the written units according to the files only; UNKNOWN without files."""
        end = UNKNOWN
        for start in self.files:
            first = start // UNIT_BYTES
            units = self.file_at(first)
            assert units is not None
            if end not in (UNKNOWN, first):
                break
            end = first + count_units(units, 0, self.units_per_file)
        return end

    # Cutting

    def cut_at(self, queue_offset: int) -> int:
        """End the queue at `queue_offset`: later files go, the rest of its file is zeroed and synced. Bytes cleared."""
        self.tail.detach()
        self._rewritten_from(queue_offset)
        self.tail.next_offset = queue_offset  # before anything is zeroed: another thread may be reading
        keep = self._start_of(queue_offset)
        cleared = 0
        for start in list(self.files):
            if start > keep or (start == keep and queue_offset * UNIT_BYTES == start and start != self.files.first):
                self._forget(start)
                self.files.remove(start)
        if keep in self.files:
            cleared = self.disk.zero_from(self.files.path_of(keep), queue_offset * UNIT_BYTES - keep)
            if cleared:
                self.disk.sync(self.files.path_of(keep))
            self._reserved.pop(keep, None)
        self.flushed_offset = min(self.flushed_offset, queue_offset)
        self.announced_offset = min(self.announced_offset, queue_offset)
        self.min_offset = min(self.min_offset, queue_offset)
        last = self.last_unit() if queue_offset > self.min_offset else None
        self.tail.log_end = _unit_end(last) if last is not None else 0
        if self.extensions is not None:
            self.extensions.settle(self.last_address())
        return cleared

    def truncate(self, log_end: int) -> int:
        """Drop every unit whose record ends behind `log_end`; how many went."""
        before = self.end_offset
        if self.tail.log_end <= log_end:
            return 0
        self.cut_at(self.end_below(log_end))
        return before - self.end_offset

    def keeps_beyond(self, queue_offset: int, holes: Sequence[LogRange]) -> int:
        """How far written units behind `queue_offset` point into damaged parts of the log: those offsets were given."""
        offset = queue_offset
        while (unit := self.unit(offset)) is not None and unit[1] > 0 and any(unit[0] in hole for hole in holes):
            offset += 1
        return offset

    def delete_before(self, log_start: int) -> int:
        """Remove files all of whose messages are gone, never the last; how many."""
        removed = 0
        for start in list(self.files)[:-1]:
            last = self.unit(start // UNIT_BYTES + self.units_per_file - 1)
            if last is None or last[0] >= log_start:
                break
            self._forget(start)
            self.files.remove(start)
            removed += 1
        return removed

    # Extensions

    def last_address(self) -> int | None:
        """The last extension address among the units."""
        for start in reversed(list(self.files)):
            first = start // UNIT_BYTES
            found = self._high_bytes(first, min(first + self.units_per_file, self.end_offset)).rfind(_ADDRESS_HEAD)
            if found >= 0:
                return self._tags_code(first + found)
        return None

    def first_address(self) -> int | None:
        """The first one of a message that exists."""
        for start in self.files:
            first = max(start // UNIT_BYTES, self.min_offset)
            stop = min(start // UNIT_BYTES + self.units_per_file, self.end_offset)
            found = self._high_bytes(first, stop).find(_ADDRESS_HEAD)
            if found >= 0:
                return self._tags_code(first + found)
        return None

    def _high_bytes(self, first: int, stop: int) -> bytes:
        """The first byte of the tags code of units [first, stop) of one file."""
        units = self.file_at(first) if first < stop else None
        if units is None:
            return b""
        start, end = first - units.base, stop - units.base
        return bytes(units.memory[start * UNIT_BYTES + _TAGS_CODE_AT : end * UNIT_BYTES : UNIT_BYTES])

    def _tags_code(self, queue_offset: int) -> int:
        unit = self.unit(queue_offset)
        assert unit is not None
        return unit[2]

    def delete_old_extensions(self) -> None:
        """After old messages went: remove the files of their extensions."""
        if self.extensions is not None:
            self.extensions.delete_before(self.first_address())

    def code_to_put(self, log_offset: int, size: int, tags_code: int, store_ms: int, *, distrust: bool) -> int:
        """The tags code, or the address that the next unit holds when it is this message's already."""
        unit = self.unit(self.tail.next_offset)
        if unit is None or unit[:2] != (log_offset, size) or self.extensions is None or not is_address(unit[2]):
            return tags_code
        return unit[2] if self.extensions.agrees(unit[2], tags_code, store_ms, distrust) else tags_code

    # Flush

    def flush(self, *, pages_min: int) -> bool:
        """Sync what was written since the last flush, unless it is less than `pages_min` pages."""
        end = self.end_offset
        if end <= self.flushed_offset:
            return False
        low, high = self.flushed_offset * UNIT_BYTES, end * UNIT_BYTES
        if pages_min > 0 and high // PAGE_BYTES - low // PAGE_BYTES < pages_min:
            return False
        if self.extensions is not None:
            self.extensions.flush()
        for start in self.files:
            if start < high and start + self.files.file_bytes > low:
                self.disk.sync(self.files.path_of(start))
        self.flushed_offset = end
        return True

    def remove(self) -> None:
        """Delete the queue from disk."""
        self.tail.detach()
        for start in list(self.files):
            self._forget(start)
            self.files.remove(start)
        if self.files.path.is_dir():
            os.rmdir(self.files.path)
        if self.extensions is not None:
            self.extensions.remove()


def _unit_end(unit: tuple[int, int, int]) -> int:
    return unit[0] + (0 if unit[1] == FILLER_SIZE else unit[1])


def _read_no_more_than_needed(units: MappedBuffer) -> None:
    """Behind the end of a file that is being written there is nothing, and with very many queues the system would fill
    its memory with that: a write to one page reads megabytes ahead where disks are set up so."""
    if isinstance(pages := units.memory.obj, mmap.mmap):
        pages.madvise(mmap.MADV_RANDOM)


QUEUE_ID_MAX = 0xFFFF  # a damaged record must not make a directory for every number there is


class QueueTable:
    """Queues by topic and id; new ones come to be with their first message. `removed` is called when one goes."""

    def __init__(self, config: StoreConfig, disk: Disk, removed: Callable[[], None] = lambda: None) -> None:
        self._config = config
        self._disk = disk
        self._removed = removed
        self.path = config.root / "consumequeue"
        self.extensions = StoreExtensions(config, disk)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.removed_count = 0
        """Counts removals, so that caches of queues can be invalidated."""

    def load(self) -> None:
        """Find the queues on disk; directories that are not numbers are not queues."""
        if not self.path.is_dir():
            return
        for topic_dir in sorted(path for path in self.path.iterdir() if path.is_dir()):
            for queue_dir in topic_dir.iterdir():
                if queue_dir.name.isdigit() and queue_dir.is_dir():
                    queue = self._make(topic_dir.name, int(queue_dir.name))
                    queue.files.load()

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def find_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues.get((topic, queue_id))
        return queue if queue is not None else self._make(topic, queue_id)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return sorted((queue for queue in self if queue.topic == topic), key=lambda queue: queue.queue_id)

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self})

    def remove(self, queue: ConsumeQueue) -> None:
        queue.remove()
        del self._queues[queue.topic, queue.queue_id]
        self.removed_count += 1
        self._removed()
        topic_dir = queue.files.path.parent
        if topic_dir.is_dir() and not any(topic_dir.iterdir()):
            os.rmdir(topic_dir)

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(topic, queue_id, self._path_of(topic, queue_id), self._config.queue_file_bytes, self._disk)
        queue.tail.extensions = self.extensions.of(topic, queue_id, queue.last_address)
        queue.tail.extends = self.extensions.are_written
        self._queues[topic, queue_id] = queue
        return queue

    def begin(self) -> None:
        """The store is open: from now on new units are extended, where that is wanted."""
        self.extensions.begin()
        for queue in self:
            queue.tail.extends = self.extensions.are_written

    def _path_of(self, topic: str, queue_id: int) -> Path:
        return self.path / topic / str(queue_id)
