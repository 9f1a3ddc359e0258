"""The recovery point: the flushed state of the store at a log position, which makes opening fast.

A clean stop writes one at the log's end, a running store one per minute. It is used only if the files agree with it;
without it the log is walked from its start.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rocketq.kernel.records import RecordView
from rocketq.store.checkpoint import Checkpoint
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import ConsumeQueue, QueueTable
from rocketq.store.disk import Disk
from rocketq.store.index import Index, IndexState
from rocketq.store.segments import Digest
from rocketq.store.writer import Writer

log = logging.getLogger(__name__)

FILE_NAME = "recovery.rocketq"
VERSION = 1


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue's bounds and its last unit."""

    topic: str
    queue_id: int
    min_offset: int
    end_offset: int
    last_log_offset: int
    last_size: int
    digests: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Everything below `log_end` was dispatched, and synced with all its queues and index files."""

    log_start: int
    log_end: int
    last_record: int
    last_record_crc: int
    segment_bytes: int
    queue_file_bytes: int
    queues: tuple[QueueState, ...]
    index: tuple[IndexState, ...]
    index_missing: tuple[int, int] | None
    holes: tuple[tuple[int, int], ...]
    index_shape: tuple[int, int]
    digests: tuple[Digest, ...] = ()

    def save(self, root: Path, disk: Disk) -> None:
        body = asdict(self)
        body["queues"] = [list(asdict(queue).values()) for queue in self.queues]
        body["index"] = [list(asdict(file).values()) for file in self.index]
        text = json.dumps({"version": VERSION, **body}, separators=(",", ":")).encode()
        disk.replace(root / FILE_NAME, text + b"\n%08x\n" % zlib.crc32(text))

    @classmethod
    def load(cls, root: Path) -> RecoveryPoint | None:
        """None when there is none, or one that cannot be read."""
        try:
            text, _, check = (root / FILE_NAME).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        try:
            if check.strip() != b"%08x" % zlib.crc32(text):
                raise ValueError("its checksum does not match")
            body: dict[str, Any] = json.loads(text)
            if body.pop("version") != VERSION:
                raise ValueError("it is of another version")
            body["queues"] = tuple(_queue_state(item) for item in body["queues"])
            body["index"] = tuple(IndexState(*item) for item in body["index"])
            body["holes"] = tuple((start, end) for start, end in body["holes"])
            body["index_shape"] = tuple(body["index_shape"])
            body["digests"] = tuple((start, upto, crc) for start, upto, crc in body["digests"])
            missing = body["index_missing"]
            body["index_missing"] = (missing[0], missing[1]) if missing else None
            return cls(**body)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the recovery point cannot be used (%s): the log is walked instead", error)
            return None


def _queue_state(item: list[Any]) -> QueueState:
    *plain, digests = item
    return replace(QueueState(*plain), digests=tuple((start, upto, crc) for start, upto, crc in digests))


STEP_BYTES = 4 << 20


class LogDigests:
    """Carried on as the log grows; a file is covered from its first byte or not at all."""

    def __init__(self) -> None:
        self._covered: dict[int, tuple[int, int]] = {}
        self._next = 0

    def restore(self, digests: tuple[Digest, ...]) -> None:
        self._covered = {start: (upto, crc) for start, upto, crc in digests}

    def begin(self, commit_log: CommitLog, end: int) -> None:
        """Drop everything at or behind `end`; the checksum of a file cut inside is reset."""
        base = commit_log.files.start_of(end)
        self._covered = {start: done for start, done in self._covered.items() if done[0] <= end and start <= base}
        size = commit_log.config.segment_bytes
        self._next = min([base, *(start for start, (upto, _) in self._covered.items() if upto < start + size)])

    def extend(self, commit_log: CommitLog, end: int) -> tuple[Digest, ...]:
        """Cover the log up to `end`; the digests of the files there are."""
        base = self._next
        while base < end:
            upto, crc = self._covered.get(base, (base, 0))
            segment, stop = commit_log.segment(base), min(end, base + commit_log.config.segment_bytes)
            while upto < stop and segment.size:
                step = min(upto + STEP_BYTES, stop)
                crc = segment.crc32(upto - base, step - base, crc)
                upto = step
            self._covered[base] = (upto, crc)
            if stop < base + commit_log.config.segment_bytes:
                break
            base += commit_log.config.segment_bytes
        self._next = base
        self._covered = {start: done for start, done in self._covered.items() if start in commit_log.files}
        return tuple((start, *done) for start, done in sorted(self._covered.items()))


class RecoveryPointWriter:
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
        """Remove the recovery point if queues or index disagree with the log, so that the next opening repairs them."""
        if not self._distrusted:
            log.error("%s: the next start walks the whole log and repairs it", reason)
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
