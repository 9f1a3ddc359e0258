"""How far a recovery point can be believed, and going back to it."""

from __future__ import annotations

import zlib
from itertools import pairwise
from pathlib import Path

from rocketq.kernel.records import BAD_CRC, MESSAGE, RecordView
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import UNIT_BYTES, StoreConfig
from rocketq.store.consume_queue import UNKNOWN, ConsumeQueue
from rocketq.store.index import Index, IndexFile, IndexState
from rocketq.store.queue_table import QueueTable
from rocketq.store.recovery_point import FILE_NAME, QueueState, RecoveryPoint
from rocketq.store.recovery_report import RecoveryReport


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
        """A file that was written to after the recovery point: nobody does that to a closed store but by hand."""
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
