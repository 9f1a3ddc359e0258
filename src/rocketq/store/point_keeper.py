"""Writing recovery points (and Apache's checkpoint with them) while the store goes on."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from rocketq.kernel.records import RecordView
from rocketq.store.checkpoint import Checkpoint
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.digests import LogDigests
from rocketq.store.disk import Disk
from rocketq.store.index import Index
from rocketq.store.queue_table import QueueTable
from rocketq.store.recovery_point import FILE_NAME, QueueState, RecoveryPoint
from rocketq.store.writer import Writer

log = logging.getLogger(__name__)


class PointKeeper:
    """Takes a snapshot under the writer's lock, makes all of it durable without the lock, then writes it down."""

    def __init__(
        self, config: StoreConfig, disk: Disk, commit_log: CommitLog, queues: QueueTable, index: Index, writer: Writer
    ) -> None:
        self._config = config
        self._disk = disk
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._writer = writer
        self._lock = threading.Lock()
        self.digests = LogDigests()
        self.missing_index: LogRange | None = None
        self.last_store_ms = 0
        self._distrusted = False

    def distrust(self, reason: str) -> None:
        """Queues or index do not agree with the log: leave no recovery point, so that the next opening mends them."""
        if not self._distrusted:
            log.error("%s: the next start walks the whole log and mends it", reason)
            self._distrusted = True
            (self._config.root / FILE_NAME).unlink(missing_ok=True)

    def save(self) -> None:
        with self._lock:
            with self._writer.lock:
                point = self._snapshot()
                queues, index_files = list(self._queues), list(self._index.files)
            self._writer.gate.release(self._log.flush())
            digests = self.digests.extend(self._log, point.log_end)
            for queue in queues:
                queue.flush(pages_min=0)
            for file in index_files:
                file.flush()
            if not self._distrusted:
                replace(point, digests=digests).save(self._config.root, self._disk)
            self._save_checkpoint(point)

    def _save_checkpoint(self, point: RecoveryPoint) -> None:
        """For Apache's brokers: store times up to which everything was on disk just now."""
        if point.last_record >= 0:
            self.last_store_ms = self._log.store_ms_at(point.last_record) or self.last_store_ms
        full = [file.end_ms for file in point.index if file.count >= self._config.index_units]
        Checkpoint(self.last_store_ms, self.last_store_ms, max(full, default=0)).save(
            self._config.root / "checkpoint", self._disk
        )

    def _snapshot(self) -> RecoveryPoint:
        missing, last = self.missing_index, self._writer.last_record
        return RecoveryPoint(
            log_start=self._log.start,
            log_end=self._log.end,
            last_record=last,
            last_record_crc=self._record_crc(last) if last >= self._log.start else 0,
            segment_bytes=self._config.segment_bytes,
            queue_file_bytes=self._config.queue_file_bytes,
            queues=tuple(_state_of(queue) for queue in self._queues if queue.end_offset > 0),
            index=tuple(self._index.states()),
            index_missing=(missing.start, missing.end) if missing else None,
            holes=tuple((hole.start, hole.end) for hole in self._log.holes),
            index_shape=(self._config.index_slots, self._config.index_units),
        )

    def _record_crc(self, log_offset: int) -> int:
        self._log.commit()  # with a transient buffer the record may not be in the file yet
        segment, view = self._log.segment(log_offset), RecordView()
        at = log_offset - segment.base
        view.parse_at(segment, at, False)
        return int(segment.crc32(at, at + view.size, 0))


def _state_of(queue: ConsumeQueue) -> QueueState:
    log_offset, size, _ = queue.last_unit() or (0, 0, 0)
    return QueueState(queue.topic, queue.queue_id, queue.min_offset, queue.end_offset, log_offset, size, queue.digest())
