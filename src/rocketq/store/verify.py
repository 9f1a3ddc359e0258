"""The offline verifier: reads every record, queue unit and index unit of a store directory and compares them.

It changes nothing and needs no broker.
"""

from __future__ import annotations

import enum
import json
import mmap
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from rocketq.errors import StoreError
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.queue_units import FILLER_SIZE, QueueTail, unit_at
from rocketq.kernel.reader import LogMap
from rocketq.kernel.records import BLANK, MESSAGE, RecordView, first_nonzero
from rocketq.kernel.scanner import Scanner, check_index_units
from rocketq.store.checkpoint import Checkpoint
from rocketq.store.commit_log import LogRange
from rocketq.store.config import DEFAULT_DELAY_LEVELS, UNIT_BYTES, parse_delay_levels
from rocketq.store.disk import Disk
from rocketq.store.dispatch import safe_topic
from rocketq.store.index import find_index_shape
from rocketq.store.log_reader import next_good_record
from rocketq.store.queue_extensions import END_MARK, FOLDER, QueueExtensions, decode_extension, is_address, position_of
from rocketq.store.recovery_point import FILE_NAME, RecoveryPoint
from rocketq.store.segments import SegmentDirectory


class Severity(enum.Enum):
    """ERROR is damage. REPAIR is fixed automatically by the next opening, as after a crash."""

    ERROR = "error"
    REPAIR = "repair"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    where: str
    what: str


@dataclass(slots=True)
class VerifyReport:
    """What was checked, and the findings."""

    root: str
    cleanly_stopped: bool = True
    log_start: int = 0
    log_end: int = 0
    segments: int = 0
    records: int = 0
    queues: int = 0
    queue_units: int = 0
    extension_units: int = 0
    index_files: int = 0
    index_units: int = 0
    findings: list[Finding] = field(default_factory=list)
    findings_left_out: int = 0

    @property
    def ok(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        body = asdict(self)
        body["findings"] = [{**asdict(item), "severity": item.severity.value} for item in self.findings]
        return {"ok": self.ok, **body}


STEP_BYTES = 8 << 20
FINDINGS_MAX = 1000


class Verifier:
    """One pass over a directory, as its files are. A running broker's directory may look unfinished at its tail."""

    def __init__(
        self,
        root: Path,
        *,
        log_dir: Path | None = None,
        index_shape: tuple[int, int] | None = None,
        delay_levels: str = DEFAULT_DELAY_LEVELS,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.root = root
        self._disk = Disk()
        self._log_dir = log_dir or root / "commitlog"
        self._given_shape = index_shape
        self._progress = progress
        self._point = RecoveryPoint.load(root) if root.is_dir() else None
        self.report = VerifyReport(str(root), cleanly_stopped=not (root / "abort").exists())
        self._former_lives = FormerLives(root, self._point, cleanly_stopped=self.report.cleanly_stopped)
        self._files = SegmentDirectory(self._log_dir, 1, self._disk)
        self._queues: dict[tuple[str, int], CheckedQueue] = {}
        self._queue_bytes = 0
        self._holes: list[LogRange] = []
        self._last_store_ms = 0
        self._map = LogMap(1)
        self._scanner = Scanner(self._resolve, self._misfit, None)
        self._scanner.compare_only = self._scanner.distrust = True
        self._scanner.delays_ms = list(parse_delay_levels(delay_levels))
        self._keys_before: dict[int, int] = {}

    def run(self) -> VerifyReport:
        if not self.root.is_dir():
            raise StoreError(f"{self.root} is not a directory")
        if not self._log_dir.is_dir():
            raise StoreError(f"{self._log_dir} is not there: {self.root} is not a store")
        if self._point is None and (self.root / FILE_NAME).exists():
            self._error(FILE_NAME, "the recovery point is damaged (the next opening walks the whole log)")
        self._look_at_log_files()
        self._look_at_queue_files()
        if len(self._files):
            self._walk_log()
            self._check_digests()
        for queue in self._queues.values():
            self._check_queue_ends(queue)
        self._check_extensions()
        self._check_index()
        self._check_checkpoint()
        return self.report

    # Findings

    def _add(self, severity: Severity, where: str, what: str) -> None:
        if len(self.report.findings) < FINDINGS_MAX:
            self.report.findings.append(Finding(severity, where, what))
        else:
            self.report.findings_left_out += 1

    def _error(self, where: str, what: str) -> None:
        self._add(Severity.ERROR, where, what)

    def _lagging(self, where: str, what: str) -> None:
        """Derived files may be behind the log after a crash; after a clean stop they may not."""
        self._add(Severity.ERROR if self.report.cleanly_stopped else Severity.REPAIR, where, what)

    # The log

    def _look_at_log_files(self) -> None:
        self._files.load()
        sizes = [self._files.size_of(start) for start in self._files]
        if not sizes:
            return
        size = max(set(sizes), key=lambda each: (sizes.count(each), each))
        self._files = SegmentDirectory(self._log_dir, size, self._disk)
        self._files.load()
        self._map = LogMap(size)
        self.report.segments = len(sizes)
        for start in self._files:
            if self._files.size_of(start) != size:
                self._error(self._file(start), f"has {self._files.size_of(start)} bytes, the others {size}")

    def _file(self, start: int) -> str:
        return f"commitlog/{self._files.path_of(start).name}"

    def _segment(self, base: int) -> MappedBuffer:
        found: MappedBuffer | None = self._map.segment_of(base)
        if found is None:
            there = base in self._files and self._files.size_of(base) > 0
            found = MappedBuffer(self._disk.map(self._files.path_of(base), writable=False) if there else b"", base)
            self._map.attach(found)
        return found

    def _walk_log(self) -> None:
        files, scanner = self._files, self._scanner
        first, last, size = files.first or 0, files.last or 0, files.file_bytes
        self.report.log_start = first
        position = end = first
        while position < last + size:
            base = files.start_of(position)
            segment = self._segment(base)
            if segment.size == 0:
                following = files.after(base)
                if following is None:
                    break
                self._error(f"log offset {position}", f"log files up to {following} are missing")
                self._holes.append(LogRange(position, following))
                position = following
                continue
            state = scanner.scan(segment, position - base, min(position - base + STEP_BYTES, segment.size))
            position = base + scanner.at
            if scanner.good_end >= 0:
                end = base + scanner.good_end
            self._progress(position - first, last + size - first)
            if state == MESSAGE and scanner.at < segment.size:
                continue
            if state in (MESSAGE, BLANK):
                position = base + size
                end = position if state == BLANK or segment.size == size else end
                continue
            following = next_good_record(files, self._segment, position)
            if following is None:
                break
            self._error(f"log offset {position}", f"{following - position} bytes are no record")
            self._holes.append(LogRange(position, following))
            position = following
        self._report_bodies(end)
        self._check_tail(end)
        self.report.log_end, self.report.records = end, scanner.records
        self._progress(1, 1)

    def _report_bodies(self, end: int) -> None:
        scanner = self._scanner
        if scanner.bad_crc:
            self._error(
                f"log offset {scanner.bad_crc_offset}",
                f"{scanner.bad_crc} record(s) have a damaged body, this the last",
            )
        if scanner.doubtful:
            self._lagging(f"log offset {end}", "the last record(s) have a damaged body")

    def _check_tail(self, end: int) -> None:
        """Behind the last record there is nothing but zeros."""
        base = self._files.start_of(end)
        for start in [start for start in self._files if start >= base]:
            segment = self._segment(start)
            for low, high in self._disk.data_ranges(self._files.path_of(start), max(end - start, 0)):
                at = first_nonzero(segment, low, min(high, segment.size))
                if at < min(high, segment.size):
                    self._lagging(f"log offset {start + at}", "there is something behind the last good record")
                    break

    def _check_digests(self) -> None:
        if self._point is None or self._point.segment_bytes != self._files.file_bytes:
            return
        if self._point.log_start < self.report.log_start:
            self._error(f"log offset {self._point.log_start}", f"log files up to {self.report.log_start} are gone")
        if self._point.log_end > self.report.log_end:
            self._error(f"log offset {self.report.log_end}", f"the log ended at {self._point.log_end}: its end is lost")
        for start, upto, wanted in self._point.digests:
            if start not in self._files:
                continue
            if upto > self.report.log_end:
                self._error(
                    self._file(start), f"was written up to {upto}, its good records end at {self.report.log_end}"
                )
            segment = self._segment(start)
            if segment.size >= upto - start and segment.crc32(0, upto - start, 0) != wanted:
                self._error(self._file(start), f"differs from its checksum, within [{start}, {upto})")

    # Queues

    def _look_at_queue_files(self) -> None:
        path = self.root / "consumequeue"
        directories = [each for each in sorted(path.glob("*/*")) if each.is_dir() and each.name.isdigit()]
        sizes = [file.stat().st_size for each in directories for file in each.iterdir()]
        self._queue_bytes = (
            max(set(sizes), key=lambda each: (sizes.count(each), each)) if sizes else 300_000 * UNIT_BYTES
        )
        for each in directories:
            queue = CheckedQueue(each.parent.name, int(each.name), each, self._queue_bytes, self._disk)
            self._queues[queue.topic, queue.queue_id] = queue
            for start in queue.files:
                if queue.files.size_of(start) != self._queue_bytes or start % self._queue_bytes:
                    self._error(
                        f"queue {queue}",
                        f"file {queue.files.path_of(start).name} has another size than {self._queue_bytes}",
                    )
        self.report.queues = len(self._queues)

    def _resolve(self, topic: bytes, queue_id: int) -> QueueTail | None:
        name = safe_topic(topic)
        if name is None or queue_id < 0:
            self._error(f"log offset {self._scanner.view.log_offset}", f"topic {topic!r} or queue {queue_id} cannot be")
            return None
        queue = self._queues.get((name, queue_id))
        if queue is None:
            queue = CheckedQueue(
                name, queue_id, self.root / "consumequeue" / name / str(queue_id), self._queue_bytes, self._disk
            )
            self._queues[name, queue_id] = queue
        return queue.tail

    def _misfit(self, tail: QueueTail, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        """A record whose unit is not the next, or differs: continue after the record's queue offset."""
        queue = cast(CheckedQueue, tail.owner)
        expected, found = tail.next_offset, queue.unit(queue_offset)
        lacks = found is None or found[1:] == (0, 0)
        wrong = None if lacks or found is None else self._differs(queue, found, (log_offset, size, tags_code))
        if wrong is not None and found is not None and self._is_later_life(queue, queue_offset, found, log_offset):
            wrong = None
        if queue.first_seen is None:
            queue.first_seen, queue.first_fits = queue_offset, wrong is None
        elif queue_offset == 0 < expected and wrong is None:
            queue.begin_again()
        elif queue_offset > expected and not self._may_have_lost(tail.log_end, log_offset):
            self._error(
                f"queue {queue}",
                f"offset {expected} is missing in the log, {queue_offset} follows (log offset {log_offset})",
            )
        elif queue_offset < expected:
            self._error(f"queue {queue}", f"offset {queue_offset} was given twice (log offset {log_offset})")
        queue.lacking += lacks
        if wrong is not None:
            self._error(f"queue {queue}", f"unit {queue_offset} is {found}, {wrong}")
        if queue_offset < expected:
            tail.detach()  # the next unit may be in a file before this one
        tail.log_end = log_offset + size
        tail.next_offset = queue_offset + 1

    def _is_later_life(self, queue: CheckedQueue, queue_offset: int, unit: tuple[int, int, int], than: int) -> bool:
        """Whether a later record of the unit claims this queue offset too: the queue was deleted and recreated."""
        log_offset, size, _ = unit
        if log_offset <= than:
            return False
        segment, view = self._segment(self._files.start_of(log_offset)), RecordView()
        if view.parse_at(segment, log_offset - segment.base, False) != MESSAGE:
            return False
        says = (segment.bytes_at(view.topic_at, view.topic_len), view.queue_id, view.queue_offset, view.size)
        return says == (queue.tail.topic, queue.queue_id, queue_offset, size)

    def _differs(self, queue: CheckedQueue, found: tuple[int, int, int], wanted: tuple[int, int, int]) -> str | None:
        """How a unit differs from its record, if it does. It may hold the address of an extension."""
        extensions = queue.tail.extensions
        if found == wanted:
            return None
        if found[:2] != wanted[:2] or not is_address(found[2]):
            return f"its record says {wanted}"
        unit = None if extensions is None else extensions.get(found[2])
        if unit is None:
            return f"but there is no extension at {position_of(found[2])}"
        said = (unit.tags_code, unit.store_ms)
        record = (wanted[2], self._scanner.view.store_ms)
        return None if said == record else f"its extension says {said}, its record {record}"

    def _may_have_lost(self, low: int, high: int) -> bool:
        return any(hole.start < high and hole.end > low for hole in self._holes)

    def _check_queue_ends(self, queue: CheckedQueue) -> None:
        if self._former_lives.are_all_of(queue):
            self._add(Severity.NOTE, f"queue {queue}", "was deleted; the log still has messages of it")
            queue.first_seen, queue.lacking = None, 0
        end = max(queue.tail.next_offset, 0) if queue.first_seen is not None else None
        if queue.is_missing and queue.first_seen is not None:
            self._lagging(f"queue {queue}", f"has {queue.lacking} messages in the log and no directory")
        elif queue.lacking:
            self._lagging(f"queue {queue}", f"lacks {queue.lacking} units of messages that are in the log")
        for start in queue.files:
            self._check_queue_file(queue, start, end)

    def _check_queue_file(self, queue: CheckedQueue, start: int, end: int | None) -> None:
        """Units of messages that the walk did not pass: those before the first (expired) and behind the last."""
        units, first = queue.file_at(start // UNIT_BYTES), start // UNIT_BYTES
        if units is None:
            return
        count = units.size // UNIT_BYTES
        for index in range(count):
            offset = first + index
            if end is not None and queue.first_seen is not None and queue.first_seen <= offset < end:
                continue
            log_offset, size, _ = unit_at(units, index)
            if size == 0 and log_offset in (0, (1 << 63) - 1):
                if end is not None and offset < end:
                    continue
                behind = (index if log_offset == 0 else index + 1) * UNIT_BYTES
                if not self._is_zero(units, queue.files.path_of(start), behind):
                    self._lagging(f"queue {queue}", f"there is something behind unit {offset}")
                break
            expired = log_offset < self.report.log_start or size == FILLER_SIZE
            if not expired and not any(log_offset in hole for hole in self._holes):
                self._lagging(
                    f"queue {queue}", f"unit {offset} points to log offset {log_offset}, where no message of it is"
                )
                break
            self.report.queue_units += 1
        if end is not None and queue.first_seen is not None:
            self.report.queue_units += max(min(end, first + count) - max(queue.first_seen, first), 0)

    def _check_extensions(self) -> None:
        for file in look_at_extensions(self.root, self._disk):
            self.report.extension_units += file.units
            if file.wrong is not None:
                self._lagging(file.where, file.wrong)

    # Index

    def _check_index(self) -> None:
        path = self.root / "index"
        files = sorted(each for each in path.iterdir() if each.name.isdigit()) if path.is_dir() else []
        self.report.index_files = len(files)
        units, first_offset, before_ms = 0, None, -1
        for each in files:
            tail = self._open_index(each)
            if tail is None:
                continue
            wrong = tail.check(self.report.log_end)
            if wrong is None and not self._is_zero(tail.file, each, tail.end_at):
                wrong = "there is something behind the last unit"
            if wrong is not None:
                self._lagging(f"index/{each.name}", wrong)
            else:
                self._check_index_units(each, tail, before_ms)
            before_ms = tail.end_ms
            units += tail.count - 1
            if first_offset is None and tail.count > 1:
                first_offset = tail.begin_offset
        self.report.index_units = units
        self._check_index_coverage(units, first_offset, bool(files))

    def _open_index(self, path: Path) -> IndexTail | None:
        size = path.stat().st_size
        shape = self._given_shape or (self._point.index_shape if self._point is not None else None)
        if shape is None or 40 + 4 * shape[0] + 20 * shape[1] != size:
            shape = find_index_shape(path)
        if shape is None:
            self._error(
                f"index/{path.name}",
                f"{size} bytes fit no number of slots and units (give --index-slots and --index-units)",
            )
            return None
        return IndexTail(MappedBuffer(self._disk.map(path, writable=False), 0), *shape)

    def _is_zero(self, file: MappedBuffer, path: Path, behind: int) -> bool:
        """Ranges that were never written are not read: some systems would allocate memory or disk for them."""
        return all(first_nonzero(file, low, high) == high for low, high in self._disk.data_ranges(path, behind))

    def _check_index_units(self, path: Path, tail: IndexTail, before_ms: int) -> None:
        number, need = check_index_units(tail, self._map, 1, self.report.log_start, before_ms)
        while need >= 0:
            self._segment(self._files.start_of(need))
            number, need = check_index_units(tail, self._map, number, self.report.log_start, before_ms)
        if number and not any(tail.unit(number)[1] in hole for hole in self._holes):
            self._lagging(
                f"index/{path.name}", f"unit {number} is {tail.unit(number)}, the record it points to says otherwise"
            )

    def _check_index_coverage(self, units: int, first_offset: int | None, present: bool) -> None:
        keys, keyed_from = self._scanner.keys, self._scanner.keyed_from
        if self._point is not None and self._point.index_missing is not None:
            start, end = self._point.index_missing
            self._add(Severity.REPAIR, "index", f"keys of the log from {start} to {end} are still to be indexed")
            return
        if keys and not present:
            self._add(Severity.REPAIR, "index", f"there is none; {keys} keys can only be found after it is built again")
        elif keys > units and (first_offset is None or first_offset <= keyed_from):
            self._lagging("index", f"{keys} keys are in the log, {units} in the index")
        elif first_offset is not None and 0 <= keyed_from < first_offset:
            self._add(Severity.REPAIR, "index", f"keys before log offset {first_offset} are not indexed")

    # Checkpoint

    def _check_checkpoint(self) -> None:
        path = self.root / "checkpoint"
        if not path.exists():
            return
        data, point = path.read_bytes(), Checkpoint.load(path)
        if len(data) < 40 or any(data[40:]):
            self._error("checkpoint", f"{len(data)} bytes with something behind the fields")
        last_ms = self._scanner.last_store_ms
        times = {"log": point.log_ms, "queues": point.queues_ms, "index": point.index_ms}
        for name, time_ms in times.items():
            if time_ms < 0 or (last_ms and time_ms > last_ms):
                self._lagging(
                    "checkpoint", f"{name} time {time_ms} is later than the last message's store time {last_ms}"
                )
        if point.confirm_offset > self.report.log_end or point.confirm_offset < 0 or point.master_flushed_offset < 0:
            self._error("checkpoint", f"confirm offset {point.confirm_offset} is outside the log")


class CheckedQueue:
    """A queue's files, read only, behind the same tail that the scanner compares with."""

    def __init__(self, topic: str, queue_id: int, path: Path, file_bytes: int, disk: Disk) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = SegmentDirectory(path, file_bytes, disk)
        self.files.load()
        self.is_missing = not path.is_dir()
        self._disk = disk
        self._mapped: dict[int, MappedBuffer] = {}
        self.tail = QueueTail(topic.encode(), queue_id, self)
        self.tail.next_offset = -1
        extensions = path.parents[2] / FOLDER / topic / str(queue_id)
        if extensions.is_dir():
            self.tail.extensions = QueueExtensions(extensions, 1, disk, writable=False)
        self.first_seen: int | None = None
        self.first_fits = False
        """Whether a queue may start with this record: its unit is its own, a later one's, or missing."""
        self.lacking = 0
        self.lives_begun = 0

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    def file_at(self, queue_offset: int) -> MappedBuffer | None:
        start = self.files.start_of(queue_offset * UNIT_BYTES)
        if start not in self.files:
            return None
        if start not in self._mapped:
            if self.files.size_of(start) != self.files.file_bytes:
                return None
            self._mapped = {
                start: MappedBuffer(self._disk.map(self.files.path_of(start), writable=False), start // UNIT_BYTES)
            }
        return self._mapped[start]

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        units = self.file_at(queue_offset)
        return None if units is None else unit_at(units, queue_offset - units.base)

    def begin_again(self) -> None:
        """Its topic was deleted and made again: what was passed so far counts no more."""
        self.first_seen = self.lacking = 0
        self.lives_begun += 1

    def make_room(self, count: int) -> None:
        self.tail.room_end = 1 << 60

    def attach_file(self) -> None:
        """The file of the next unit, or an empty stand-in where it is missing."""
        offset = self.tail.next_offset
        units = self.file_at(offset)
        if units is None:
            first = self.files.start_of(offset * UNIT_BYTES) // UNIT_BYTES
            units = MappedBuffer(mmap.mmap(-1, self.files.file_bytes), first)
        self.tail.attach(units, 1 << 60)


@dataclass(frozen=True, slots=True)
class ExtensionFile:
    """`wrong` describes the fault, if any."""

    where: str
    units: int
    wrong: str | None


def look_at_extensions(root: Path, disk: Disk) -> Iterator[ExtensionFile]:
    """Every extension file of a store."""
    folders = [each for each in sorted((root / FOLDER).glob("*/*")) if each.is_dir() and each.name.isdigit()]
    for folder in folders:
        files = SegmentDirectory(folder, 1, disk)
        files.load()
        for start in files:
            units, wrong = _look_at(files.path_of(start), disk)
            yield ExtensionFile(f"{FOLDER}/{folder.parent.name}/{folder.name}/{start:020d}", units, wrong)


def _look_at(path: Path, disk: Disk) -> tuple[int, str | None]:
    if path.stat().st_size == 0:
        return 0, "is empty"
    data, at, units = disk.map(path, writable=False), 0, 0
    while (unit := decode_extension(data, at)) is not None:
        at += unit.size
        units += 1
    if data[at : at + 2] == END_MARK:
        return units, None
    mapped = MappedBuffer(data, 0)
    behind = [
        max(low, at) for low, high in disk.data_ranges(path, at) if first_nonzero(mapped, max(low, at), high) < high
    ]
    return units, f"there is something behind the unit that ends at {at}" if behind else None


class FormerLives:
    """Which queues the log has messages of, and the store no more. The recovery point knows what was there at its log
    position; a directory without one that was stopped cleanly has a table of its topics."""

    def __init__(self, root: Path, point: RecoveryPoint | None, *, cleanly_stopped: bool) -> None:
        self._point = point
        self._ends = {(each.topic, each.queue_id): each.end_offset for each in point.queues} if point else {}
        self._topics = _topics_of(root) if cleanly_stopped else None

    def are_all_of(self, queue: CheckedQueue) -> bool:
        """Whether everything that the log has of a queue is from before its topic was deleted."""
        if queue.first_seen is None:
            return False
        if self._point is not None:
            is_known = queue.tail.log_end <= self._point.log_end
            return is_known and self._ends.get((queue.topic, queue.queue_id), 0) == 0
        return queue.is_missing and self._topics is not None and queue.topic not in self._topics


def _topics_of(root: Path) -> set[str] | None:
    try:
        table = json.loads((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
        return set(table)
    except (OSError, ValueError, KeyError, TypeError):
        return None
