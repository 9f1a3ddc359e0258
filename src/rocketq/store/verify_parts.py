"""Verification of a directory in independent parts, and their combination, with the result of a single pass.

A part of the log checks its records and their queue units, and reports the offsets it saw of each queue; the
combination finds what is missing between parts. Queue files and index files are parts too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from rocketq.errors import StoreError
from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.records import BLANK, MESSAGE
from rocketq.store.commit_log import LogRange
from rocketq.store.config import DEFAULT_DELAY_LEVELS
from rocketq.store.log_reader import ChainedFile, next_good_record
from rocketq.store.recovery_point import FILE_NAME
from rocketq.store.verify import STEP_BYTES, CheckedQueue, Finding, Severity, Verifier, VerifyReport

QueueName = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """What all parts have in common."""

    root: Path
    log_dir: Path | None = None
    index_shape: tuple[int, int] | None = None
    delay_levels: str = DEFAULT_DELAY_LEVELS
    queue_file_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogTask:
    """Records that start in [start, stop) of the file at log offset `base`."""

    base: int
    start: int
    stop: int


@dataclass(slots=True, kw_only=True)
class QueueSeen:
    """A queue in a part of the log: its first record there and where it stood behind the last."""

    topic: str
    queue_id: int
    first_offset: int
    first_log_offset: int
    next_offset: int
    log_end: int
    lacking: int
    first_fits: bool
    lives_begun: int
    """How often the queue began again behind its first record; what is lacking is of its last life there."""


@dataclass(slots=True, kw_only=True)
class PartReport:
    """What a part found; holes and findings as lists, so that it can be JSON."""

    findings: list[tuple[str, str, str]] = field(default_factory=list)
    records: int = 0
    bad_crc: int = 0
    bad_crc_offset: int = -1
    doubtful: int = 0
    settles: bool = False
    end: int = -1
    keys: int = 0
    keyed_from: int = -1
    last_store_ms: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    queues: list[QueueSeen] = field(default_factory=list)
    queue_units: int = 0
    index_units: int = 0
    index_first_offset: int | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PartReport:
        body: dict[str, Any] = json.loads(text)
        queues = [QueueSeen(**each) for each in body.pop("queues")]
        return cls(queues=queues, **body)


class PartVerifier(Verifier):
    """One part, wherever it runs."""

    def __init__(self, plan: VerifyPlan) -> None:
        super().__init__(plan.root, log_dir=plan.log_dir, index_shape=plan.index_shape, delay_levels=plan.delay_levels)
        self._look_at_log_files()
        self.report.findings.clear()  # findings about whole files are reported once, by the combination
        self._queue_bytes = plan.queue_file_bytes
        self._firsts: dict[QueueName, tuple[int, int]] = {}
        self._part = PartReport()

    def check_log(self, task: LogTask) -> PartReport:
        chained = ChainedFile(self._files.path_of(task.base), task.base)
        self._map.attach(chained.buffer)
        at: int | None = 0
        if task.start:
            at = chained.chain_at(task.start) if chained.data_from(task.start) is not None else None
        stop = min(task.stop, chained.size)
        while at is not None and at < stop:
            at = self._step(chained, at, stop)
        scanner, part = self._scanner, self._part
        part.records, part.keys, part.keyed_from = scanner.records, scanner.keys, scanner.keyed_from
        part.bad_crc, part.doubtful, part.bad_crc_offset = scanner.bad_crc, scanner.doubtful, scanner.bad_crc_offset
        part.last_store_ms = scanner.last_store_ms
        part.holes = [(hole.start, hole.end) for hole in self._holes]
        part.queues = [self._seen(queue) for queue in self._queues.values() if queue.first_seen is not None]
        return self._told()

    def _step(self, chained: ChainedFile, at: int, stop: int) -> int | None:
        """The next position in this file, or None."""
        scanner, part, base = self._scanner, self._part, chained.buffer.base
        state = scanner.scan(chained.buffer, at, min(at + STEP_BYTES, stop))
        if scanner.good_end >= 0:
            part.settles, part.end = True, base + scanner.good_end
        if state == BLANK or (state == MESSAGE and scanner.at >= chained.size):
            part.settles = part.settles or state == BLANK
            if state == BLANK or chained.size == self._files.file_bytes:
                part.end = base + self._files.file_bytes
            return None
        if state == MESSAGE:
            return scanner.at
        following = next_good_record(self._files, self._segment, base + scanner.at)
        if following is None:
            return None
        self._holes.append(LogRange(base + scanner.at, following))
        return following - base if following - base < chained.size else None

    def _misfit(self, tail: QueueTail, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        queue = cast(CheckedQueue, tail.owner)
        if queue.first_seen is None:
            self._firsts[queue.topic, queue.queue_id] = queue_offset, log_offset
        super()._misfit(tail, queue_offset, log_offset, size, tags_code)

    def _seen(self, queue: CheckedQueue) -> QueueSeen:
        first_offset, first_log_offset = self._firsts[queue.topic, queue.queue_id]
        return QueueSeen(
            topic=queue.topic,
            queue_id=queue.queue_id,
            first_offset=first_offset,
            first_log_offset=first_log_offset,
            next_offset=queue.tail.next_offset,
            log_end=queue.tail.log_end,
            lacking=queue.lacking,
            first_fits=queue.first_fits,
            lives_begun=queue.lives_begun,
        )

    def check_queues(
        self, names: Iterable[QueueName], seen: Iterable[QueueSeen], log_start: int, holes: Iterable[tuple[int, int]]
    ) -> PartReport:
        """The ends of queues: units before the log's first record and behind its last."""
        self.report.log_start = log_start
        self._holes = [LogRange(low, high) for low, high in holes]
        by_name = {(each.topic, each.queue_id): each for each in seen}
        for topic, queue_id in names:
            path = self.root / "consumequeue" / topic / str(queue_id)
            queue = CheckedQueue(topic, queue_id, path, self._queue_bytes, self._disk)
            if (found := by_name.get((topic, queue_id))) is not None:
                queue.first_seen, queue.lacking = found.first_offset, found.lacking
                queue.tail.next_offset, queue.tail.log_end = found.next_offset, found.log_end
            self._check_queue_ends(queue)
        self._part.queue_units = self.report.queue_units
        return self._told()

    def check_index_file(
        self, path: Path, before: Iterable[Path], log_start: int, log_end: int, holes: Iterable[tuple[int, int]]
    ) -> PartReport:
        """`before` are the files before it: its first unit's time is counted from the end of the last that opens."""
        self.report.log_start, self.report.log_end = log_start, log_end
        self._holes = [LogRange(low, high) for low, high in holes]
        before_ms = next((tail.end_ms for each in reversed(list(before)) if (tail := self._open_index(each))), -1)
        self.report.findings.clear()
        tail = self._open_index(path)
        if tail is not None:
            wrong = tail.check(log_end)
            if wrong is None and not self._is_zero(tail.file, path, tail.end_at):
                wrong = "there is something behind the last unit"
            if wrong is not None:
                self._lagging(f"index/{path.name}", wrong)
            else:
                self._check_index_units(path, tail, before_ms)
            self._part.index_units = tail.count - 1
            self._part.index_first_offset = tail.begin_offset if tail.count > 1 else None
        return self._told()

    def _told(self) -> PartReport:
        self._part.findings = [(each.severity.value, each.where, each.what) for each in self.report.findings]
        return self._part


@dataclass(slots=True)
class _Totals:
    """The final findings of a single pass."""

    records: int = 0
    bad_crc: int = 0
    bad_crc_offset: int = -1
    doubtful: int = 0
    keys: int = 0
    keyed_from: int = -1
    last_store_ms: int = 0


class SumVerifier(Verifier):
    """The plan of the parts, and the report made of them: log first, then queues and index, then the rest."""

    def __init__(self, plan: VerifyPlan) -> None:
        super().__init__(plan.root, log_dir=plan.log_dir, index_shape=plan.index_shape, delay_levels=plan.delay_levels)
        if not self.root.is_dir():
            raise StoreError(f"{self.root} is not a directory")
        if not self._log_dir.is_dir():
            raise StoreError(f"{self._log_dir} is not there: {self.root} is not a store")
        if self._point is None and (self.root / FILE_NAME).exists():
            self._error(FILE_NAME, "the recovery point is damaged (the next opening walks the whole log)")
        self._look_at_log_files()
        self._look_at_queue_files()
        self._seen: dict[QueueName, QueueSeen] = {}

    @property
    def queue_file_bytes(self) -> int:
        return self._queue_bytes

    @property
    def holes(self) -> list[tuple[int, int]]:
        return [(hole.start, hole.end) for hole in self._holes]

    def log_tasks(self, range_bytes: int) -> list[LogTask]:
        return [
            LogTask(base, start, min(start + range_bytes, size))
            for base in self._files
            for size in [self._files.size_of(base)]
            for start in range(0, size, range_bytes)
        ]

    def take_log(self, parts: Iterable[PartReport]) -> None:
        """The parts of the log, in its order."""
        ordered, totals = list(parts), _Totals()
        first = self._files.first or 0
        self.report.log_start = self.report.log_end = first
        self._take_holes(sorted(hole for part in ordered for hole in part.holes))
        for part in ordered:
            self._take_findings(part)
            _add(totals, part)
            self.report.log_end = max(self.report.log_end, part.end)
            for queue in part.queues:
                self._take_queue(queue)
        self._scanner = cast(Any, totals)
        self.report.records = totals.records
        if len(self._files):
            self._report_bodies(self.report.log_end)
            self._check_tail(self.report.log_end)
            self._check_digests()

    def _take_holes(self, found: list[tuple[int, int]]) -> None:
        """A hole that reaches into the next file is seen from both sides; one between files only from here."""
        together: list[tuple[int, int]] = []
        for low, high in found:
            if together and low < together[-1][1]:
                together[-1] = (together[-1][0], max(together[-1][1], high))
            else:
                together.append((low, high))
        for low, high in together:
            self._error(f"log offset {low}", f"{high - low} bytes are no record")
        there = [base for base in self._files if self._files.size_of(base)]
        for base, following in itertools.pairwise(there):
            gap = (base + self._files.file_bytes, following)
            if gap[0] < gap[1] and not any(low <= gap[0] and gap[1] <= high for low, high in together):
                self._error(f"log offset {gap[0]}", f"log files up to {following} are missing")
                together.append(gap)
        self._holes = [LogRange(low, high) for low, high in sorted(together)]

    def _take_queue(self, queue: QueueSeen) -> None:
        name = f"queue {queue.topic}/{queue.queue_id}"
        before = self._seen.get((queue.topic, queue.queue_id))
        if before is None:
            first = 0 if queue.lives_begun else queue.first_offset
            self._seen[queue.topic, queue.queue_id] = replace(queue, first_offset=first)
            return
        expected, first, at = before.next_offset, queue.first_offset, queue.first_log_offset
        begins_again = first == 0 < expected and queue.first_fits
        if first > expected and not self._may_have_lost(before.log_end, at):
            self._error(name, f"offset {expected} is missing in the log, {first} follows (log offset {at})")
        elif first < expected and not begins_again:
            self._error(name, f"offset {first} was given twice (log offset {at})")
        if begins_again or queue.lives_begun:
            before.first_offset = before.lacking = 0
        before.next_offset, before.log_end = queue.next_offset, queue.log_end
        before.lacking += queue.lacking

    def queue_tasks(self, count: int) -> list[list[QueueName]]:
        """All queues, those with files and those that only the log knows, dealt out."""
        names = sorted({*self._queues, *self._seen})
        return [part for part in (names[number::count] for number in range(max(count, 1))) if part]

    def seen(self, names: Iterable[QueueName]) -> list[QueueSeen]:
        return [self._seen[name] for name in names if name in self._seen]

    def take_queues(self, parts: Iterable[PartReport]) -> None:
        for part in parts:
            self._take_findings(part)
            self.report.queue_units += part.queue_units
        self._check_extensions()

    def index_files(self) -> list[Path]:
        path = self.root / "index"
        return sorted(each for each in path.iterdir() if each.name.isdigit()) if path.is_dir() else []

    def take_index(self, parts: Iterable[PartReport]) -> VerifyReport:
        """The index files' parts, in their order; the report is complete then."""
        ordered = list(parts)
        for part in ordered:
            self._take_findings(part)
        self.report.index_files = len(ordered)
        self.report.index_units = sum(part.index_units for part in ordered)
        firsts = [part.index_first_offset for part in ordered if part.index_first_offset is not None]
        self._check_index_coverage(self.report.index_units, firsts[0] if firsts else None, bool(ordered))
        self._check_checkpoint()
        return self.report

    def _take_findings(self, part: PartReport) -> None:
        for severity, where, what in part.findings:
            found = Finding(Severity(severity), where, what)
            self._add(found.severity, found.where, found.what)


def _add(totals: _Totals, part: PartReport) -> None:
    totals.records += part.records
    totals.keys += part.keys
    if totals.keyed_from < 0:
        totals.keyed_from = part.keyed_from
    if part.settles:
        totals.last_store_ms = part.last_store_ms or totals.last_store_ms
        totals.bad_crc += totals.doubtful + part.bad_crc
        totals.doubtful = part.doubtful
    else:
        totals.doubtful += part.doubtful
    totals.bad_crc_offset = max(totals.bad_crc_offset, part.bad_crc_offset)
