"""The commit log: one endless file of records, cut into segments."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import logging
import mmap
import threading
from dataclasses import dataclass

from rocketq.errors import StoreError
from rocketq.kernel.appender import Appender
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.reader import LogMap
from rocketq.kernel.records import BAD_CRC, BLANK, MAGIC_V2, MESSAGE, RecordView
from rocketq.kernel.scanner import walk_records
from rocketq.model import Host, Record
from rocketq.store.config import PAGE_BYTES, StoreConfig
from rocketq.store.disk import Disk, lacks_descriptors
from rocketq.store.segments import SegmentDirectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class LogRange:
    """A stretch of the log, [start, end)."""

    start: int
    end: int

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.start <= offset < self.end

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class LogPositions:
    """How far the log is written to memory, handed to the file, and safe on disk."""

    committed: int = 0
    flushed: int = 0


class CommitLog:
    """Owns the log's files and mappings; the kernel's Appender writes into the last one.

    Writing requires the store's lock. Reading requires none: a mapping stays valid while it is referenced.
    """

    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self.config = config
        self.disk = disk
        self.files = SegmentDirectory(config.log_dir, config.segment_bytes, disk)
        self.appender = Appender(config.store_host.packed())
        self.map = LogMap(config.segment_bytes)
        self.holes: list[LogRange] = []
        self.positions = LogPositions()
        self.sync_failure: OSError | None = None
        self._buffer: WriteBuffer | None = None
        self._unprepared = -1
        self._creation_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._mapping_lock = threading.Lock()

    # Where things are

    @property
    def start(self) -> int:
        first = self.files.first
        return self.end if first is None else first

    @property
    def end(self) -> int:
        return self.appender.end

    @property
    def readable_end(self) -> int:
        """With a transient buffer, what was not handed to the file yet cannot be read."""
        return self.positions.committed if self._buffer is not None else self.end

    def segment(self, log_offset: int) -> MappedBuffer:
        """The mapping that holds an offset; an empty one where the file is gone."""
        found: MappedBuffer | None = self.map.segment_of(log_offset)
        if found is not None:
            return found
        with self._mapping_lock:
            base = self.files.start_of(log_offset)
            found = self._map(base, writable=False) if base in self.files else MappedBuffer(b"", base)
            self.map.attach(found)
            return found

    def _map(self, base: int, *, writable: bool) -> MappedBuffer:
        pages = self.disk.map(self.files.path_of(base), writable=writable)
        if not self.config.read_ahead:
            pages.madvise(mmap.MADV_RANDOM)
        return MappedBuffer(pages, base)

    def fetch(self, base: int, at: int, count: int) -> bool:
        """Have pages of a file in memory that will be written soon, clean and one by one."""
        return self.disk.fetch(self.files.path_of(base), at, count)

    def reconfigure(self, config: StoreConfig) -> None:
        """Apply `config` to files that are mapped from now on; the one being written is not remapped."""
        before, self.config = self.config, config
        if before.read_ahead != config.read_ahead:
            for base in self.files:
                if base != self.appender.base:
                    self.map.detach(base)

    def drop_idle_mappings(self) -> None:
        """Release mappings unused since the last call, except the one being written."""
        writing = self.files.start_of(self.end)
        for base in self.map.idle():
            if base != writing:
                self.map.detach(base)

    # Writing

    def open_for_append(self, end: int) -> None:
        """Continue writing at `end`, in an existing segment or at the start of a new one."""
        base = self.files.start_of(end)
        self._create_missing(base)
        self.disk.reserve(self.files.path_of(base), 0, self.config.segment_bytes)
        self._attach(base, end - base)
        self.positions.committed = self.positions.flushed = end

    def roll(self) -> None:
        """Close the segment with a blank record and continue in the next. The flush syncs the old one before anything
        in the new one counts as flushed; at most one finished file is unsynced."""
        self._create_missing(self._following)
        self.appender.close_segment()
        self._go_on()

    def roll_if_full(self) -> None:
        """A replica's blank record, or one that fills the file to its last byte, ends the segment."""
        if self.appender.position >= self.config.segment_bytes:
            self._create_missing(self._following)
            self._go_on()

    def _go_on(self) -> None:
        if self.positions.flushed < self.appender.base:
            self.flush()
        else:
            self.commit()  # a transient buffer holds one segment: what is in it must be in the file
        self._attach(self._following, 0)

    def prepare(self) -> None:
        """Prepare the next file once this one is half full, so that appends do not wait at the roll."""
        base = self._following
        if self.appender.position * 2 < self.config.segment_bytes or base in self.files or base == self._unprepared:
            return
        try:
            self._create_missing(base)
        except OSError as error:  # the roll retries and reports the error
            self._unprepared = base
            log.warning("the next log file could not be prepared: %s", error)

    def drop_prepared(self) -> None:
        """Remove a file that was prepared and never used."""
        with self._creation_lock:
            for base in [base for base in self.files if base > self.end]:
                self.files.remove(base)

    @property
    def _following(self) -> int:
        """Where the segment behind the one being written starts."""
        return self.appender.base + self.config.segment_bytes

    def _create_missing(self, base: int) -> None:
        with self._creation_lock:
            if base not in self.files:
                self.files.create(base, reserve=True)

    def _attach(self, base: int, position: int) -> None:
        self.map.detach(base)
        mapped = self._map(base, writable=True)
        self.map.attach(mapped)
        if self.config.transient_buffer:
            self._buffer = WriteBuffer(self.config.segment_bytes, base, mapped.bytes_at(0, position))
            self.appender.attach_segment(self._buffer.memory, position)
        else:
            self.appender.attach_segment(mapped, position)

    def release(self) -> None:
        """The log is closed: let go of its mappings."""
        self.appender.detach_segment()
        self.map.clear()
        self._buffer = None

    # Commit (transient buffer only) and flush

    def commit(self, *, pages_min: int = 0) -> bool:
        """Hand buffered bytes to the file; False when there were fewer than `pages_min` pages."""
        if self._buffer is None:
            return False
        with self._flush_lock:
            return self._commit_locked(pages_min)

    def _commit_locked(self, pages_min: int) -> bool:
        buffer, end = self._buffer, self.end
        committed = self.positions.committed
        if buffer is None or committed >= end or not _pages_apart(committed, end, pages_min):
            return False
        base = buffer.base
        self.disk.write(self.files.path_of(base), committed - base, buffer.view(committed - base, end - base))
        self.positions.committed = end
        return True

    def flush(self, *, pages_min: int = 0) -> int:
        """Make the log safe on disk up to its end as of now, segment by segment; the new flushed position.

        A failed sync is final: the system has dropped the pages, and another sync would succeed without writing them. A
        sync that could not start (too many open files) can be retried.
        """
        with self._flush_lock:
            if self.sync_failure is not None:
                raise OSError(f"the log could not be flushed before: {self.sync_failure}")
            self._commit_locked(pages_min)
            target = self.readable_end
            while self.positions.flushed < target and _pages_apart(self.positions.flushed, target, pages_min):
                base = self.files.start_of(self.positions.flushed)
                upto = min(base + self.config.segment_bytes, target)
                if base in self.files:
                    self._sync(base)
                self.positions.flushed = upto
            return self.positions.flushed

    def _sync(self, base: int) -> None:
        try:
            self.disk.sync(self.files.path_of(base))
        except OSError as error:
            if not lacks_descriptors(error):
                self.sync_failure = error
            raise

    # Reading

    def record_at(self, log_offset: int, *, check_crc: bool) -> Record | None:
        """The record that starts at `log_offset`, or None when no good one does."""
        if not self.start <= log_offset < self.readable_end:
            return None
        segment, view = self.segment(log_offset), RecordView()
        if view.parse_at(segment, log_offset - segment.base, check_crc) != MESSAGE or self.is_damaged(log_offset):
            return None
        return _record(segment, view)

    def place_at(self, log_offset: int) -> tuple[bytes, int, int, int] | None:
        """Topic, queue id, queue offset and size in the record at `log_offset`, also behind the log's end."""
        if log_offset < 0:
            return None
        segment, view = self.segment(log_offset), RecordView()
        if view.parse_at(segment, log_offset - segment.base, False) != MESSAGE:
            return None
        return segment.bytes_at(view.topic_at, view.topic_len), view.queue_id, view.queue_offset, view.size

    def is_damaged(self, log_offset: int) -> bool:
        """Whether recovery found no good record here."""
        return any(log_offset in hole for hole in self.holes)

    def store_ms_at(self, log_offset: int) -> int | None:
        """Store time of the record at `log_offset`, without checking its body."""
        return self.stamp_at(log_offset) if self.start <= log_offset < self.readable_end else None

    def stamp_at(self, log_offset: int) -> int | None:
        """The same wherever the log ends: recovery asks before that is known."""
        segment, view = self.segment(log_offset), RecordView()
        if view.parse_at(segment, log_offset - segment.base, False) not in (MESSAGE, BAD_CRC):
            return None
        return view.store_ms

    def bytes_at(self, log_offset: int, count: int) -> bytes:
        """Raw bytes of one segment, for replicas and the recovery point."""
        segment = self.segment(log_offset)
        return segment.bytes_at(log_offset - segment.base, count)

    def view_of(self, log_offset: int, bytes_max: int) -> memoryview:
        """Bytes of one segment without a copy, up to the readable end; StoreError if the segment was deleted."""
        segment, at = self._readable(log_offset)
        stop = min(at + bytes_max, segment.size, self.readable_end - segment.base)
        return memoryview(segment.memory)[at : max(at, stop)].toreadonly()

    def records_view(self, log_offset: int, bytes_max: int) -> memoryview:
        """The same, cut behind the last whole record that fits (the first fits always); a blank is one."""
        segment, at = self._readable(log_offset)
        stop = min(segment.size, self.readable_end - segment.base)
        view, end = RecordView(), at
        if at < stop:
            state, end, _, last = walk_records(segment, at, min(at + bytes_max, stop), view, False)
            if state == BLANK:
                end = segment.size if end == at or segment.size - at <= bytes_max else end
            elif state != MESSAGE:
                raise StoreError(f"the log has no record at {segment.base + end}")
            elif end - at > bytes_max and last > at:
                end = last
        return memoryview(segment.memory)[at:end].toreadonly()

    def _readable(self, log_offset: int) -> tuple[MappedBuffer, int]:
        if not self.start <= log_offset <= self.readable_end:
            raise StoreError(f"{log_offset} is outside the log, which has [{self.start}, {self.readable_end})")
        segment = self.segment(log_offset)
        if not segment.size and log_offset < self.readable_end:
            raise StoreError(f"the log file that holds {log_offset} is gone")
        return segment, log_offset - segment.base

    # Cutting

    def truncate(self, end: int) -> int:
        """Cut everything from `end` on: later files go, the rest of its file is zeroed and synced. Bytes cleared."""
        base = self.files.start_of(end)
        with self._creation_lock:
            for start in [start for start in self.files if start > base or (start == base and end == base)]:
                self.map.detach(start)
                self.files.remove(start)
        cleared = 0
        if base in self.files:
            cleared = self.disk.zero_from(self.files.path_of(base), end - base)
            self.disk.sync(self.files.path_of(base))
        if self.files.path.is_dir():
            self.disk.sync_directory(self.files.path)
        self.holes = [hole for hole in self.holes if hole.end <= end]
        return cleared

    def is_finished(self, base: int) -> bool:
        """Whether the segment that starts here is behind us: nothing is written to it any more."""
        return base < self.appender.base

    def delete_first(self) -> LogRange:
        """Remove the oldest segment; readers that hold it are not disturbed."""
        first = self.files.first
        if first is None or not self.is_finished(first):
            raise ValueError("the active segment is never deleted")
        self.files.remove(first)
        self.map.detach(first)
        self.holes = [hole for hole in self.holes if hole.end > self.start]
        return LogRange(first, first + self.config.segment_bytes)


def _pages_apart(low: int, high: int, pages_min: int) -> bool:
    return high // PAGE_BYTES - low // PAGE_BYTES >= pages_min if pages_min > 0 else True


def _record(segment: MappedBuffer, view: RecordView) -> Record:
    take = segment.bytes_at
    return Record(
        size=view.size,
        version=2 if view.magic == MAGIC_V2 else 1,
        body_crc=view.crc,
        queue_id=view.queue_id,
        flag=view.flag,
        queue_offset=view.queue_offset,
        log_offset=view.log_offset,
        sys_flag=view.sys_flag,
        born_ms=view.born_ms,
        born_host=Host.unpack(take(view.born_host_at, view.born_host_len)),
        store_ms=view.store_ms,
        store_host=Host.unpack(take(view.store_host_at, view.store_host_len)),
        reconsume_times=view.reconsume_times,
        prepared_offset=view.prepared_offset,
        body=take(view.body_at, view.body_len),
        topic=take(view.topic_at, view.topic_len).decode("utf-8", "replace"),
        properties=take(view.properties_at, view.properties_len),
    )


class WriteBuffer:
    """Memory for one segment. What is in it and not yet committed is lost when the process dies."""

    def __init__(self, size_bytes: int, base: int, written: bytes) -> None:
        self.base = base
        self._pages = mmap.mmap(-1, size_bytes)
        self._pages[: len(written)] = written
        lock_memory(self._pages)
        self.memory = MappedBuffer(self._pages, base)

    def view(self, start: int, end: int) -> memoryview:
        return memoryview(self._pages)[start:end]


def lock_memory(pages: mmap.mmap) -> bool:
    """Keep pages out of swap. Limits are often small: failing is worth a warning, once, and nothing else."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(pages))) == 0:
        return True
    _warn_once(ctypes.get_errno())
    return False


@functools.cache
def _warn_once(reason: int) -> None:
    log.warning("the transient buffer could not be locked in memory (errno %d); it may be swapped", reason)
