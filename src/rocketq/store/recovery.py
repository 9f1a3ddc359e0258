"""Recovery at opening: finds the log's end, and makes queues and index agree with the log.

The log is authoritative. A record is good if it is complete, has its own log offset, and its body matches its CRC.
Damage between good records is a hole that reads skip; only a tail without good records behind it is cut, and the cut
range is zeroed, so that it cannot reappear.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rocketq.errors import StoreError
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.records import BAD_CRC, BLANK, MESSAGE, RecordView
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import UNIT_BYTES, StoreConfig
from rocketq.store.consume_queue import UNKNOWN, ConsumeQueue, QueueTable
from rocketq.store.dispatch import Dispatcher
from rocketq.store.index import Index, IndexFile, IndexState
from rocketq.store.log_reader import next_good_record
from rocketq.store.recovery_point import FILE_NAME, QueueState, RecoveryPoint

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
STEP_BYTES = 32 << 20
NEVER = (1 << 63) - 1


class Recovery:
    """One opening. Works on the store's own parts, before anybody else may."""

    def __init__(
        self, config: StoreConfig, commit_log: CommitLog, queues: QueueTable, index: Index, dispatcher: Dispatcher
    ) -> None:
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._scanner = dispatcher.scanner
        self._scanner.check_crc = config.check_crc_on_recovery
        self._index_gaps: list[LogRange] = []
        self._end_hints: dict[ConsumeQueue, int] = {}
        self.report = RecoveryReport()
        self._trust = PointTrust(config, commit_log, queues, index, self.report)

    def run(self, point: RecoveryPoint | None, *, clean: bool, progress: Progress) -> RecoveryReport:
        """Make log, queues and index consistent; the report lists the repairs."""
        self._repair_log_files()
        self._repair_queue_files()
        report = self.report
        doubt = "there is no recovery point" if point is None else self._trust.doubt(point, clean=clean)
        if point is not None and doubt is None:
            self._trust.restore(point, clean=clean)
            report.from_point, report.walked_from = True, point.log_end
            report.last_record = point.last_record
        else:
            if len(self._log.files):
                log.info("recovery: %s: the whole log is walked", doubt)
            for queue in self._queues:
                queue.tail.next_offset = UNKNOWN
            self._keep_sound_index()
            report.walked_from = self._log.start if len(self._log.files) else 0
        end = self._walk(report.walked_from, progress)
        report.log_start, report.log_end = self._log.start if len(self._log.files) else end, end
        self._tell_losses(point)
        untouched = clean and report.from_point and end == report.walked_from
        self._settle_log(end)
        self._settle_queues(end, untouched=untouched)
        self._settle_index(end)
        report.holes = list(self._log.holes)
        return report

    # Files

    def _repair_log_files(self) -> None:
        files, wanted = self._log.files, self._config.segment_bytes
        files.load()
        sizes = {start: files.size_of(start) for start in files}
        self._refuse_other_sizes(sizes)
        for start, size in sizes.items():
            if size == 0 and start == files.last:
                self.report.note(f"the empty log file {files.path_of(start).name} is removed")
                files.remove(start)
            elif size < wanted:
                self.report.note(
                    f"log file {files.path_of(start).name} has {size} of {wanted} bytes: what it holds is kept"
                )
                files.disk.extend(files.path_of(start), wanted)

    def _refuse_other_sizes(self, sizes: dict[int, int]) -> None:
        """Reject a log with another file size instead of repairing it as damage."""
        wanted = self._config.segment_bytes
        whole = {size for start, size in sizes.items() if size and start != max(sizes)}
        other = any(start % wanted for start in sizes) or any(size > wanted for size in sizes.values())
        if other or (len(whole) == 1 and wanted not in whole and len(sizes) > 2):
            found = max(sizes.values())
            raise StoreError(f"{self._log.files.path} was written with files of {found} bytes, "
                             f"mappedFileSizeCommitLog is {wanted}: open it with the size it has")  # fmt: skip

    def _repair_queue_files(self) -> None:
        """A queue with a file of the wrong size is rebuilt; how far it went is kept: no offset is given twice."""
        for queue in self._queues:
            files = queue.files
            if all(start % files.file_bytes == 0 and files.size_of(start) == files.file_bytes for start in files):
                continue
            self.report.note(
                f"queue {queue!r} has a file of another size than {files.file_bytes}: it is rebuilt from the log"
            )
            self._end_hints[queue] = max((_written_end(queue, start) for start in files), default=0)
            for start in list(files):
                files.remove(start)

    # The index

    def _keep_sound_index(self) -> None:
        """Without a recovery point every index file is checked, and rebuilt from the first bad one on."""
        last = self._log.files.last
        log_end = last + self._config.segment_bytes if last is not None else 0
        for file in [file for file in self._index.files if file.tail.count <= 1]:
            self._index.drop(file)  # holds nothing, and may be one that was never finished
        for at, file in enumerate(list(self._index.files)):
            wrong = file.tail.check(log_end)
            if wrong is not None:
                self.report.note(f"index file {file.path.name} is damaged ({wrong}): it and later ones are built again")
                for later in list(self._index.files)[at:]:
                    self._index.drop(later)
                break
        self._watch_index_gaps([file.tail for file in self._index.files if file.tail.count > 1])

    def _watch_index_gaps(self, tails: list[IndexTail]) -> None:
        """The first record with keys behind each index file must be the next file's first. A file that is not full
        although another follows may have lost its last keys: records between the two are indexed again.
        """
        for tail, following in pairwise(tails):
            if not tail.full:
                self._index_gaps.append(LogRange(tail.end_offset, following.begin_offset + 1))
        begins = [tail.begin_offset for tail in tails[1:]]
        ends = [tail.end_offset for tail in tails[:-1]]
        scanner = self._scanner

        def cross(log_offset: int) -> None:
            end, begin = ends.pop(0), begins.pop(0)
            if log_offset < begin:  # the keys of the records at both ends may be split over files
                self._index_gaps.append(LogRange(end, begin + 1))
            scanner.boundary = ends[0] if ends else NEVER
            if log_offset > scanner.boundary:
                cross(log_offset)

        scanner.cross = cross
        scanner.boundary = ends[0] if ends else NEVER

    # The walk

    def _walk(self, start: int, progress: Progress) -> int:
        """Dispatch every good record from `start` on; the end of the last one."""
        files, scanner, config = self._log.files, self._scanner, self._config
        if config.index_enabled and len(files):
            scanner.index = self._index.current()
        position = good_end = start
        total = (files.last or 0) + config.segment_bytes - start
        while len(files):
            base = files.start_of(position)
            if base not in files:
                following = files.after(base)
                if following is None:
                    break
                self._add_hole(LogRange(position, following), "the log file is missing")
                position = following
                continue
            segment = self._log.segment(base)
            # Only what a power cut may have torn is suspect: data behind the recovery point, or in the last files
            # (one that was prepared, the one being written, and the one before it, which may not be synced yet).
            scanner.distrust = self.report.from_point or base >= (files.last or 0) - 2 * config.segment_bytes
            state = scanner.scan(segment, position - base, min(position - base + STEP_BYTES, config.segment_bytes))
            position = base + scanner.at
            if scanner.last_at >= 0:
                self.report.last_record = base + scanner.last_at
                good_end = base + scanner.good_end
            progress(position - start, total)
            if state == MESSAGE:
                continue
            if state == BLANK:
                position = good_end = base + config.segment_bytes
                continue
            following = next_good_record(files, self._log.segment, position)
            if following is None:
                break
            self._add_hole(LogRange(position, following), "the bytes there are no record")
            position = following
        self.report.records = scanner.records
        self.report.bad_bodies = scanner.bad_crc
        self.report.last_store_ms = scanner.last_store_ms
        if scanner.bad_crc:
            self.report.note(f"{scanner.bad_crc} record(s) have a damaged body, the last at {scanner.bad_crc_offset}: "
                             "they are kept and never served")  # fmt: skip
        return good_end

    def _add_hole(self, hole: LogRange, why: str) -> None:
        if hole.size <= 0:
            return
        self._log.holes.append(hole)
        self.report.note(
            f"the log is damaged from {hole.start} to {hole.end} ({hole.size} bytes): {why}; the rest is served"
        )

    def _tell_losses(self, point: RecoveryPoint | None) -> None:
        """Compare the files with the recovery point."""
        start, end = self.report.log_start, self.report.log_end
        if point is not None and end < point.log_end:
            self.report.note(
                f"the log ended at {point.log_end} and ends at {end} now: {point.log_end - end} bytes are lost"
            )
        if point is not None and point.log_start < start:
            self.report.note(f"the log started at {point.log_start} and starts at {start} now: what was before is gone")

    # Settling

    def _settle_log(self, end: int) -> None:
        if not len(self._log.files):
            return
        last = self._log.files.last
        cut = self._log.truncate(end)
        if cut > 0:
            self.report.cut_bytes = cut
            self.report.note(f"{cut} bytes behind the last good record, at {end}, were cut")
        elif last is not None and last > end:
            log.info("recovery: prepared log files behind %d were removed", end)

    def _settle_queues(self, end: int, *, untouched: bool) -> None:
        for queue in self._queues:
            if untouched and queue not in self._end_hints:
                continue
            if queue.tail.next_offset == UNKNOWN and not self._find_end(queue, end):
                self._queues.remove(queue)
                continue
            queue.fill_to(queue.keeps_beyond(queue.end_offset, self._log.holes))
            dropped = queue.truncate(end)
            if dropped:
                log.info("recovery: queue %r: %d units behind the log's end were dropped", queue, dropped)
            queue.cut_at(queue.end_offset)
            queue.correct_min(self._log.start if len(self._log.files) else end)
            if not self.report.from_point:
                queue.flushed_offset = 0

    def _find_end(self, queue: ConsumeQueue, log_end: int) -> bool:
        """Restore the end of a queue without messages in the log from its files; False if it never had any."""
        written, hint = queue.count_written(), self._end_hints.get(queue, 0)
        if written == UNKNOWN and hint == 0:
            return False
        if written == UNKNOWN:
            queue.begin_at(hint)
            return True
        first = (queue.files.first or 0) // UNIT_BYTES
        queue.tail.next_offset = written
        queue.min_offset = first
        last = queue.last_unit() if written > first else None
        queue.tail.log_end = 0 if last is None else last[0] + (0 if last[1] == 0x7FFFFFFF else last[1])
        queue.truncate(log_end)
        return queue.end_offset > 0

    def _settle_index(self, end: int) -> None:
        self._index.truncate(end, self._log.stamp_at)
        first = next((file.tail for file in self._index.files if file.tail.count > 1), None)
        keyed_from = self._scanner.keyed_from
        if self.report.from_point or first is None:
            return
        gaps = self._index_gaps
        if 0 <= keyed_from < first.begin_offset:
            gaps = [LogRange(keyed_from, first.begin_offset + 1), *gaps]
        if gaps:
            self.report.lack_index(LogRange(min(gap.start for gap in gaps), max(gap.end for gap in gaps)))


def _written_end(queue: ConsumeQueue, start: int) -> int:
    """Queue offset behind the last unit in a file whose size is wrong, read without mapping it."""
    data = queue.files.path_of(start).read_bytes()
    whole = len(data) // UNIT_BYTES
    written = [
        n
        for n in range(whole)
        if int.from_bytes(data[n * UNIT_BYTES + 8 : n * UNIT_BYTES + 12], "big", signed=True) > 0
    ]
    return start // UNIT_BYTES + written[-1] + 1 if written else 0


@dataclass(slots=True)
class RecoveryReport:
    """What opening found and did."""

    log_start: int = 0
    log_end: int = 0
    walked_from: int = 0
    from_point: bool = False
    records: int = 0
    bad_bodies: int = 0
    cut_bytes: int = 0
    last_record: int = -1
    last_store_ms: int = 0
    holes: list[LogRange] = field(default_factory=list)
    missing_index: LogRange | None = None
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Something an operator should know."""
        self.notes.append(text)
        log.warning("recovery: %s", text)

    def lack_index(self, missing: LogRange) -> None:
        """Keys of this part of the log are to be indexed in the background."""
        self.missing_index = missing
        self.note(f"the index lacks the log from {missing.start} to {missing.end}: it is built in the background")


class PointTrust:
    """Compares a recovery point with the files, and makes log, queues and index what they were at it."""

    def __init__(
        self, config: StoreConfig, commit_log: CommitLog, queues: QueueTable, index: Index, report: RecoveryReport
    ) -> None:
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._report = report

    def doubt(self, point: RecoveryPoint, *, clean: bool) -> str | None:
        """Why the point does not fit these files, or None when it does."""
        files, config = self._log.files, self._config
        if (point.segment_bytes, point.queue_file_bytes) != (config.segment_bytes, config.queue_file_bytes):
            return "file sizes were changed"
        if self._report.notes:
            return "files were damaged"
        if files.first is None or files.last is None:
            return "the log is gone" if point.log_end > 0 else None
        if not files.first <= point.log_end <= files.last + config.segment_bytes:
            return f"the log has [{files.first}, {files.last + config.segment_bytes}), the point is at {point.log_end}"
        missing = self._missing_files(point.log_end)
        if any(gap not in [LogRange(*hole) for hole in point.holes] for gap in missing):
            return f"log files are missing at {missing[0].start}"
        if point.last_record >= files.first and not self._is_last_record(point):
            return "the log's last record is not the one of the recovery point"
        if clean and (changed := self._changed_since_point()) is not None:
            return f"{changed} was changed after the store was closed"
        return self._doubt_queues(point, clean=clean)

    def _changed_since_point(self) -> Path | None:
        """A file modified after the recovery point of a closed store, which only manual changes cause."""
        closed_ns = (self._config.root / FILE_NAME).stat().st_mtime_ns
        logs = [self._log.files.path_of(start) for start in self._log.files]
        queues = [queue.files.path_of(start) for queue in self._queues for start in queue.files]
        index = [file.path for file in self._index.files]
        return next((path for path in [*logs, *queues, *index] if path.stat().st_mtime_ns > closed_ns), None)

    def _missing_files(self, end: int) -> list[LogRange]:
        starts = [start for start in self._log.files if start < end]
        size = self._config.segment_bytes
        return [LogRange(low + size, high) for low, high in pairwise(starts) if low + size != high]

    def _is_last_record(self, point: RecoveryPoint) -> bool:
        segment, view = self._log.segment(point.last_record), RecordView()
        at = point.last_record - segment.base
        if view.parse_at(segment, at, False) not in (MESSAGE, BAD_CRC):
            return False
        return zlib.crc32(segment.bytes_at(at, view.size)) == point.last_record_crc

    def _doubt_queues(self, point: RecoveryPoint, *, clean: bool) -> str | None:
        for state in point.queues:
            queue = self._queues.get(state.topic, state.queue_id)
            if queue is None:
                return f"queue {state.topic}/{state.queue_id} is gone"
            if state.end_offset == 0 or (len(queue.files) == 0 and state.min_offset == state.end_offset):
                continue
            queue.tail.next_offset = state.end_offset
            if not _is_contiguous(queue, state) or (queue.last_unit() or ())[:2] != (
                state.last_log_offset,
                state.last_size,
            ):
                return f"queue {queue!r} does not end as the recovery point says"
            if not clean and not queue.matches(state.digests):
                return f"queue {queue!r} is not what it was at the recovery point"
        return None

    def restore(self, point: RecoveryPoint, *, clean: bool) -> None:
        known = {(state.topic, state.queue_id): state for state in point.queues}
        for queue in self._queues:
            state = known.get((queue.topic, queue.queue_id))
            if state is None:
                queue.tail.next_offset = UNKNOWN
                continue
            queue.tail.next_offset = queue.flushed_offset = state.end_offset
            queue.min_offset = state.min_offset
            queue.trust(state.digests)
            queue.tail.log_end = (
                state.last_log_offset + state.last_size if state.last_size < 0x7FFFFFFF else state.last_log_offset
            )
            if point.log_start != self._log.start:
                queue.correct_min(self._log.start)
        self._log.holes = [LogRange(*hole) for hole in point.holes if hole[1] > self._log.start]
        self._restore_index(point, clean=clean)

    def _restore_index(self, point: RecoveryPoint, *, clean: bool) -> None:
        """Bring the index files back to what they held at the point; what is missing is built again later."""
        if not self._config.index_enabled:
            return
        files = {file.path.name: file for file in self._index.files}
        missing = LogRange(*point.index_missing) if point.index_missing else None
        for state in point.index:
            file = files.get(state.name)
            if file is None and state.end_offset < self._log.start:
                continue
            if file is None or not self._bring_back(file, state, point, clean=clean):
                missing = LogRange(state.begin_offset if missing is None else missing.start, point.log_end)
                break
            del files[state.name]
        for file in files.values():
            self._index.drop(file)
        if missing is not None:
            self._report.lack_index(LogRange(max(missing.start, self._log.start), missing.end))
            if missing.end == point.log_end:
                self._index.add_file_from(point.log_end)

    def _bring_back(self, file: IndexFile, state: IndexState, point: RecoveryPoint, *, clean: bool) -> bool:
        """Cut an index file back to its state at the point; False when it does not hold that."""
        tail = file.tail
        if tail.count < state.count or point.index_shape != (self._config.index_slots, self._config.index_units):
            return False
        if clean and tail.count == state.count and tail.end_offset == state.end_offset:
            return True
        tail.cut_to(state.count, state.begin_ms, state.begin_offset, state.end_ms, state.end_offset)
        return tail.check(point.log_end) is None


def _is_contiguous(queue: ConsumeQueue, state: QueueState) -> bool:
    """Whether there is a file for every unit from the first that exists to the last."""
    files = queue.files
    first = files.start_of(min(state.min_offset, state.end_offset - 1) * UNIT_BYTES)
    last = files.start_of((state.end_offset - 1) * UNIT_BYTES)
    return all(start in files for start in range(first, last + 1, files.file_bytes))


PROGRESS_INTERVAL_S = 2


def log_progress() -> Progress:
    """A line every few seconds while the log is walked."""
    began = last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_INTERVAL_S:
            last = now
            log.info("recovery: %d of %d MiB walked (%.0f %%, %.0f MiB/s)", done >> 20, total >> 20,
                     100 * done / max(total, 1), (done >> 20) / (now - began))  # fmt: skip

    return progress
