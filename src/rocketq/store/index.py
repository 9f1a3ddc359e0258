"""The index: from a message key to the log offsets of its messages, in a row of hash files."""

from __future__ import annotations

import logging
import mmap
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from struct import Struct

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.properties import hash_text
from rocketq.kernel.records import BLANK, MESSAGE, RecordView, find_next_record
from rocketq.kernel.scanner import Scanner
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import StoreConfig
from rocketq.store.disk import Disk

log = logging.getLogger(__name__)

NAME_DIGITS = 17


@dataclass(frozen=True, slots=True)
class IndexState:
    """What one file held at some moment: enough to go back to it."""

    name: str
    count: int
    begin_ms: int
    begin_offset: int
    end_ms: int
    end_offset: int


class IndexFile:
    """One file and its mapping, which is made when it is needed."""

    def __init__(self, path: Path, config: StoreConfig, disk: Disk) -> None:
        self.path = path
        self._config = config
        self._disk = disk
        self._tail: IndexTail | None = None
        self.used = False
        self.flushed_count = 0

    @property
    def tail(self) -> IndexTail:
        self.used = True
        if self._tail is None:
            mapped = MappedBuffer(self._disk.map(self.path, writable=True), 0)
            self._tail = IndexTail(mapped, self._config.index_slots, self._config.index_units)
        return self._tail

    def drop_mapping(self) -> None:
        self._tail = None

    def state(self) -> IndexState:
        tail = self.tail
        return IndexState(self.path.name, tail.count, tail.begin_ms, tail.begin_offset, tail.end_ms, tail.end_offset)

    def flush(self) -> bool:
        """Sync the file if keys were added and it was not deleted."""
        count = self.tail.count
        if count <= self.flushed_count or not self.path.exists():
            return False
        self._disk.sync(self.path)
        self.flushed_count = count
        return True


class Index:
    """The files in order of time. The last one takes new keys, through the kernel.

    The files' names are local times of their making, so that they sort; a rebuilt file is named by its first message.
    """

    def __init__(self, config: StoreConfig, disk: Disk, now_ms: Callable[[], int]) -> None:
        self.path = config.root / "index"
        self._config = config
        self._disk = disk
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self.files: list[IndexFile] = []
        self.failure: str | None = None

    def load(self) -> None:
        """Find the files; one of another size than configured cannot be used and goes (it is derived data)."""
        self.files = []
        if not self.path.is_dir():
            return
        for path in sorted(
            path for path in self.path.iterdir() if path.name.isdigit() and len(path.name) == NAME_DIGITS
        ):
            if path.stat().st_size == self._config.index_file_bytes:
                self.files.append(IndexFile(path, self._config, self._disk))
            else:
                log.warning("index file %s has %d bytes, not %d: it is dropped and its keys are indexed again",
                            path.name, path.stat().st_size, self._config.index_file_bytes)  # fmt: skip
                self._disk.remove(path)

    # Writing

    def current(self) -> IndexTail:
        """The file that takes the next key, made when there is none."""
        if not self.files or self.files[-1].tail.full:
            self.add_file(self._now_ms())
        return self.files[-1].tail

    def roll(self, _full: IndexTail | None) -> IndexTail | None:
        """Called by the kernel when a file is full. None without disk space: indexing stops and the store reports
        why."""
        try:
            return self.current()
        except OSError as error:
            self.failure = f"no index file could be made: {error}"
            log.error("index: %s", self.failure)
            return None

    def add_file(self, time_ms: int) -> IndexFile:
        """A new last file, preset with the end of the one before it."""
        before = self.files[-1].state() if self.files else None
        file = self._create(time_ms)
        if before is not None:
            file.tail.preset(before.end_ms, before.end_offset)
        with self._lock:
            self.files.append(file)
        return file

    def add_file_from(self, log_offset: int) -> IndexFile:
        """A last file for records from `log_offset` on, when those before it are not indexed yet."""
        last = self.files[-1] if self.files else None
        file = last if last is not None and last.tail.count <= 1 else self.add_file(self._now_ms())
        file.tail.preset(file.tail.end_ms, log_offset)
        return file

    def _create(self, time_ms: int) -> IndexFile:
        newest = max((file.path.name for file in self.files), default="")
        if newest and _name_of(time_ms) <= newest:
            time_ms = _time_of(newest) + 1
        return self.create_in(self.path, time_ms)

    def create_in(self, directory: Path, time_ms: int) -> IndexFile:
        """A file named by a time, or by the first free millisecond behind it."""
        while (directory / _name_of(time_ms)).exists() or (self.path / _name_of(time_ms)).exists():
            time_ms += 1
        path = directory / _name_of(time_ms)
        self._disk.create(path, self._config.index_file_bytes, reserve=True)
        return IndexFile(path, self._config, self._disk)

    def take_in(self, file: IndexFile) -> None:
        """Move a file that a rebuild made elsewhere to its place among the others."""
        self.path.mkdir(parents=True, exist_ok=True)
        target = self.path / file.path.name
        file.path.rename(target)
        file.path = target
        self._disk.sync_directory(self.path)
        with self._lock:
            self.files = sorted([*self.files, file], key=lambda each: each.path.name)

    # Reading

    def search(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Log offsets of records whose key has this hash, newest first; times are exact to a second."""
        hashed = _key_hash(topic, key)
        found: list[int] = []
        with self._lock:
            files = list(self.files)
        for file in reversed(files):
            tail = file.tail
            if tail.count <= 1:
                continue
            if tail.begin_ms <= end_ms + 999 and begin_ms <= tail.end_ms + 999:
                found.extend(tail.search(hashed, count_max - len(found), begin_ms, end_ms))
            if len(found) >= count_max or tail.begin_ms < begin_ms:
                break
        return found

    @property
    def end_ms(self) -> int:
        return self.files[-1].tail.end_ms if self.files else 0

    @property
    def end_offset(self) -> int:
        return self.files[-1].tail.end_offset if self.files else 0

    # Cutting, deleting, flushing

    def drop(self, file: IndexFile) -> None:
        with self._lock:
            self.files.remove(file)
        file.drop_mapping()
        self._disk.remove(file.path)

    def truncate(self, log_end: int, store_ms_at: Callable[[int], int | None]) -> None:
        """Forget every key of a record at or behind `log_end`."""
        for file in list(self.files):
            tail = file.tail
            if tail.end_offset < log_end or (tail.end_offset == log_end and tail.count <= 1):
                continue
            if tail.count <= 1 or tail.begin_offset >= log_end:
                self.drop(file)
                continue
            count = _first_unit_from(tail, log_end)
            last_offset = tail.unit(count - 1)[1]
            last_ms = store_ms_at(last_offset)
            tail.cut_to(
                count, tail.begin_ms, tail.begin_offset, tail.end_ms if last_ms is None else last_ms, last_offset
            )
            file.flushed_count = 0
            file.flush()

    def delete_before(self, log_start: int) -> int:
        """Remove files whose messages are all gone, never the last; how many."""
        removed = 0
        while len(self.files) > 1 and self.files[0].tail.end_offset < log_start:
            self.drop(self.files[0])
            removed += 1
        return removed

    def flush(self) -> None:
        for file in list(self.files):
            file.flush()

    def drop_idle_mappings(self) -> None:
        for file in self.files[:-1]:
            if not file.used:
                file.drop_mapping()
            file.used = False

    def release(self) -> None:
        """The store is closed: let go of all mappings."""
        for file in self.files:
            file.drop_mapping()

    def states(self) -> list[IndexState]:
        return [file.state() for file in self.files]


def _key_hash(topic: str, key: str) -> int:
    return abs_hash(hash_text(f"{topic}#{key}"))


def abs_hash(signed: int) -> int:
    """A Java hash as index files hold it."""
    return 0 if signed == -0x80000000 else abs(signed)


def _first_unit_from(tail: IndexTail, log_offset: int) -> int:
    low, high = 1, tail.count
    while low < high:
        middle = (low + high) // 2
        if tail.unit(middle)[1] < log_offset:
            low = middle + 1
        else:
            high = middle
    return low


def _name_of(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000)
    return f"{moment:%Y%m%d%H%M%S}{time_ms % 1000:03d}"


def _time_of(name: str) -> int:
    moment = datetime.strptime(name[:14], "%Y%m%d%H%M%S")
    return int(moment.timestamp()) * 1000 + int(name[14:])


DEFAULT_SHAPE = (5_000_000, 20_000_000)
_HEADER = Struct(">qqqqii")
_UNIT = Struct(">iqii")


def find_index_shape(path: Path) -> tuple[int, int] | None:
    """The file shape for which the last unit holds the header's end offset."""
    size = path.stat().st_size
    if size == 40 + 4 * DEFAULT_SHAPE[0] + 20 * DEFAULT_SHAPE[1]:
        return DEFAULT_SHAPE
    if size < 64:
        return None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        _, _, begin_offset, end_offset, used_slots, count = _HEADER.unpack_from(data)
        number, wanted = max(count, 1) - 1, end_offset.to_bytes(8, "big", signed=True)
        at = data.find(wanted, 64)
        while at >= 0:
            slots, rest = divmod(at - 4 - 20 * number - 40, 4)
            units, odd = divmod(size - 40 - 4 * slots, 20)
            possible = rest == odd == 0 and slots >= max(used_slots, 1) and units >= max(count, 2)
            if possible and _fits(data, slots, number, begin_offset):
                return slots, units
            at = data.find(wanted, at + 1)
    return None


def _fits(data: mmap.mmap, slots: int, number: int, begin_offset: int) -> bool:
    """Whether the first unit holds the header's start offset, and the last one heads its slot's chain."""
    if number < 1:
        return True
    _, first_offset, _, before = _UNIT.unpack_from(data, 40 + 4 * slots + 20)
    hashed = _UNIT.unpack_from(data, 40 + 4 * slots + 20 * number)[0]
    head = int.from_bytes(data[40 + 4 * (hashed % slots) : 44 + 4 * (hashed % slots)], "big")
    return bool(first_offset == begin_offset and before == 0 and hashed >= 0 and head == number)


STEP_BYTES = 1 << 20
DIRECTORY = "index.rebuild"


class IndexRebuild:
    """Files are made beside the index and moved in when all are whole, the newest first: a rebuild that was cut off
    leaves a gap at the front, which the next opening finds."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog, index: Index, missing: LogRange) -> None:
        self._log = commit_log
        self._index = index
        self._missing = missing
        self._path = config.root / DIRECTORY
        self._files: list[IndexFile] = []
        self._scanner = Scanner(None, None, self._roll)
        self._scanner.to_queues = False
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> bool:
        """Build and move in; False, and nothing left behind, when it was stopped or failed before that."""
        shutil.rmtree(self._path, ignore_errors=True)
        try:
            if not self._build():
                return False
            for file in reversed(self._files):
                file.flush()
                self._index.take_in(file)
        except OSError as error:
            log.error(
                "index: log range [%d, %d) could not be indexed: %s", self._missing.start, self._missing.end, error
            )
            return False
        finally:
            shutil.rmtree(self._path, ignore_errors=True)
        log.info("index: log range [%d, %d) is indexed again", self._missing.start, self._missing.end)
        return True

    def _build(self) -> bool:
        position = self._missing.start
        while position < self._missing.end:
            if self._stopping.is_set():
                return False
            position = self._step(position)
        return True

    def _step(self, position: int) -> int:
        """Index one range of the log; returns the next position."""
        segment = self._log.segment(position)
        at = position - int(segment.base)
        segment_end = position - at + self._log.config.segment_bytes
        if segment.size == 0:
            return segment_end
        stop = min(at + STEP_BYTES, segment.size, self._missing.end - segment.base)
        if self._scanner.index is None:
            self._scanner.index = self._new_file(position)
        state = self._scanner.scan(segment, at, stop)
        if state == MESSAGE:
            return position - at + int(self._scanner.at)
        if state == BLANK:
            return segment_end
        found: int = find_next_record(segment, self._scanner.at + 1, segment.size, RecordView())
        return position - at + found if found >= 0 else segment_end

    def _roll(self, _full: IndexTail) -> IndexTail:
        return self._new_file(self._scanner.view.log_offset)

    def _new_file(self, log_offset: int) -> IndexTail:
        before = self._files[-1].state() if self._files else None
        time_ms = self._log.store_ms_at(log_offset) or self._scanner.last_store_ms or 0
        file = self._index.create_in(self._path, time_ms)
        self._files.append(file)
        if before is not None:
            file.tail.preset(before.end_ms, before.end_offset)
        return file.tail
