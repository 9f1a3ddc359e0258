"""The store: the one object that brokers, tools and tests open."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from rocketq.errors import StoreClosedError, StoreError
from rocketq.kernel.appender import (
    APPENDED,
    BATCH_ITEM_TOO_LARGE,
    NO_QUEUE_ROOM,
    PROPERTIES_BYTES_MAX,
    SEGMENT_FULL,
)
from rocketq.kernel.properties import hash_text
from rocketq.kernel.records import BLANK, FIXED_BYTES, MESSAGE, RecordView
from rocketq.model import NewMessage, Record, SysFlag
from rocketq.runtime.clock import Clock, SystemClock
from rocketq.runtime.service import Service
from rocketq.store.checkpoint import Checkpoint, DirectoryLock
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import FlushType, StoreConfig
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.digests import LogDigests
from rocketq.store.disk import Disk
from rocketq.store.flush import FlushGate
from rocketq.store.index import Index
from rocketq.store.index_rebuild import IndexRebuild
from rocketq.store.queries import Queries, RecordFilter, UnitFilter
from rocketq.store.queue_table import QUEUE_ID_MAX, QueueTable
from rocketq.store.recovery import Dispatcher, Progress, Recovery, RecoveryReport
from rocketq.store.recovery_point import QueueState, RecoveryPoint
from rocketq.store.results import AppendResult, AppendStatus, QueryResult, ReadResult
from rocketq.store.retention import Retention

log = logging.getLogger(__name__)

TOPIC_BYTES_MAX = 127
TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]+")
UPKEEP_INTERVAL_MS = 500
QueueListener = Callable[[str, int, int], None]


class Store:
    """Append, read, flush, recover, delete. Its interface blocks; callers decide on threads.

    One lock orders everything that writes. Reads take none. Three positions matter: `log_end` (written),
    `acknowledged_to` (as safe as the configuration asks) and `visible_to` (readers see no further).
    """

    def __init__(self, config: StoreConfig, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.disk = disk or Disk()
        self.log = CommitLog(config, self.disk)
        self.queues = QueueTable(config, self.disk)
        self.index = Index(config, self.disk, self.clock.now_ms)
        self.gate = FlushGate()
        self.dispatcher = Dispatcher(config, self.log, self.queues, self.index)
        self.queries = Queries(config, self.log, self.queues, self.index, lambda: self.visible_to)
        self.retention = Retention(config, self.disk, self.log, self._after_deletion)
        self.report = RecoveryReport()
        self._digests = LogDigests()
        self._lock = threading.RLock()
        self._locked_since_ms = 0
        self._point_lock = threading.Lock()
        self._directory_lock: DirectoryLock | None = None
        self._listeners: list[QueueListener] = []
        self._confirmed_to: int | None = None
        self._refusal: str | None = "the store is not open yet"
        self._disk_refusal: str | None = None
        self._read_only: str | None = None
        self._last_record = -1
        self._missing_index: LogRange | None = None
        self._rebuild: IndexRebuild | None = None
        self._rebuild_thread: threading.Thread | None = None
        self._services: list[Service] = []
        self._flusher: Service | None = None
        self._due: dict[str, int] = {}
        self._queues_ms = 0
        self._closed = False

    # Opening and closing

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        progress: Progress | None = None,
        services: bool = True,
    ) -> Self:
        """Lock the directory, recover it, start the background services (unless told not to)."""
        store = cls(config, clock=clock, disk=disk)
        config.root.mkdir(parents=True, exist_ok=True)
        store._directory_lock = DirectoryLock(config.root / "lock")
        try:
            store._recover(progress or _log_progress())
            store._begin()
        except BaseException:
            store._directory_lock.release()
            raise
        if services:
            store._start_services()
        return store

    def _recover(self, progress: Progress) -> None:
        root = self.config.root
        _raise_file_limit()
        checkpoint = Checkpoint.load(root / "checkpoint")
        clean = not self._abort_file.exists()
        self.queues.load()
        if self.config.index_enabled:
            self.index.load()
        point = RecoveryPoint.load(root)
        recovery = Recovery(self.config, self.log, self.queues, self.index, self.dispatcher)
        started_ms = self.clock.monotonic_ms()
        self.report = report = recovery.run(point, clean=clean, progress=progress)
        if point is not None and report.from_point:
            self._digests.restore(point.digests)
        self._digests.begin(self.log, report.log_end)
        self._last_record = report.last_record
        self._missing_index = report.missing_index
        self._queues_ms = report.last_store_ms or checkpoint.queues_ms
        if 0 < report.last_store_ms < checkpoint.log_ms - 1:
            report.note(f"the checkpoint says that messages up to {checkpoint.log_ms} were on disk, "
                        f"the log ends at {report.last_store_ms}: flushed messages were lost")  # fmt: skip
        log.info("recovered %s in %d ms: log [%d, %d), %d queues, %d records walked", root,
                 self.clock.monotonic_ms() - started_ms, report.log_start, report.log_end, len(self.queues), report.records)  # fmt: skip

    def _begin(self) -> None:
        self.log.open_for_append(self.report.log_end)
        self.gate.release(self.report.log_end)
        appender = self.log.appender
        appender.delays_ms = self.config.delays_ms
        appender.roll_index = self.index.roll
        if self.config.index_enabled:
            appender.index = self.index.current()
        self._drain_touched()
        self._abort_file.write_text(str(os.getpid()))
        self.disk.sync_directory(self.config.root)
        self._check_disk()
        self._refusal = None
        if self._missing_index is not None and self.config.index_enabled:
            self._rebuild = IndexRebuild(self.config, self.log, self.index, self._missing_index)

    def _start_services(self) -> None:
        config = self.config
        interval_ms = config.commit_interval_ms if config.transient_buffer else config.flush_interval_ms
        self._flusher = Service("flush", interval_ms, self.flush_step)
        self._services = [self._flusher, Service("upkeep", UPKEEP_INTERVAL_MS, self.upkeep_step)]
        for service in self._services:
            service.start()
        if self._rebuild is not None:
            rebuild = self._rebuild
            self._rebuild_thread = threading.Thread(
                target=lambda: rebuild.run(self._index_is_whole), name="rocketq-index-rebuild", daemon=True
            )
            self._rebuild_thread.start()

    def _index_is_whole(self) -> None:
        self._missing_index = None

    def close(self) -> None:
        """Flush everything, leave a recovery point, remove the abort mark, release the directory."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            self._refusal = "the store is shutting down"
        for service in self._services:
            service.stop()
        if self._rebuild is not None and self._rebuild_thread is not None:
            self._rebuild.stop()
            self._rebuild_thread.join()
        try:
            self.flush()
            self.save_recovery_point()
            if self._read_only is None:
                self._abort_file.unlink(missing_ok=True)
        finally:
            self.gate.shut()
            if self._directory_lock is not None:
                self._directory_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _abort_file(self) -> Path:
        return self.config.root / "abort"

    # Positions

    @property
    def log_start(self) -> int:
        return self.log.start

    @property
    def log_end(self) -> int:
        return self.log.end

    @property
    def durable_to(self) -> int:
        """As far as this broker's own configuration calls safe: flushed, or merely written."""
        return self.gate.position if self.config.flush_type is FlushType.SYNC_FLUSH else self.log.readable_end

    @property
    def acknowledged_to(self) -> int:
        """Appends that end at or before this position may be answered."""
        durable = self.durable_to
        return durable if self._confirmed_to is None else min(durable, self._confirmed_to)

    @property
    def visible_to(self) -> int:
        """Readers see records that end at or before this position; without replicas the same as acknowledged_to."""
        return self.acknowledged_to

    def confirm(self, log_offset: int | None) -> None:
        """Replicas have the log this far (None: there are none to wait for)."""
        self._confirmed_to = log_offset
        self._announce()

    # Appending

    def append(self, message: NewMessage, *, wait: bool = True) -> AppendResult:
        """Store one message. With SYNC_FLUSH and `wait` it returns when the message is on disk."""
        return self._append(message, None, wait)

    def append_batch(self, message: NewMessage, *, wait: bool = True) -> AppendResult:
        """Store a batch: `message.body` holds the packed inner messages, `message.properties` go to each of them that
        has none of that name. All of it lands in one log file, or nothing."""
        if message.sys_flag & SysFlag.TRANSACTION_MASK:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, "a batch cannot be transactional")
        appender = self.log.appender
        sys_flag = (message.sys_flag & ~0x30) | (0x10 if message.born_host.is_ipv6 else 0)
        sys_flag |= 0x20 if self.config.store_host.is_ipv6 else 0
        with self._lock:
            count, total = appender.measure_batch(
                message.body, len(message.topic.encode()), message.properties, sys_flag, self.config.message_bytes_max
            )
        if count == BATCH_ITEM_TOO_LARGE:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"the batch's message at byte {total} is too large")
        if count <= 0:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"the batch cannot be unpacked at byte {total}")
        if total + 8 > self.config.segment_bytes:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"the batch needs {total} bytes, more than a log file has")
        return self._append(message, (count, total), wait)

    def _append(self, message: NewMessage, batch: tuple[int, int] | None, wait: bool) -> AppendResult:
        refused = self._refuse(message)
        if refused is not None:
            return refused
        with self._lock:
            self._locked_since_ms = self.clock.monotonic_ms() or 1
            try:
                result = self._append_locked(message, batch)
            except OSError as error:
                return AppendResult(AppendStatus.CREATE_FILE_FAILED, f"no room for the message: {error}")
            finally:
                self._locked_since_ms = 0
        return self._settle(result, wait)

    def _settle(self, result: AppendResult, wait: bool) -> AppendResult:
        if self.config.flush_type is FlushType.ASYNC_FLUSH:
            self._announce()
        elif self._flusher is not None:
            self._flusher.wake()
            if wait and not self.gate.wait(result.end, self.config.sync_flush_timeout_ms):
                result.status = AppendStatus.FLUSH_DISK_TIMEOUT
                result.reason = self._read_only or "the disk did not take the message in time"
        elif wait:
            self.flush()
        return result

    def _append_locked(self, message: NewMessage, batch: tuple[int, int] | None) -> AppendResult:
        if self._refusal is not None:
            return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, self._refusal)
        appender = self.log.appender
        queue = self.queues.find_or_make(message.topic, message.queue_id)
        now_ms = self.clock.now_ms()
        born_host = message.born_host.packed()
        while True:
            if batch is None:
                state = appender.append(
                    queue.tail,
                    message.body,
                    message.properties,
                    message.flag,
                    message.sys_flag,
                    message.born_ms,
                    born_host,
                    now_ms,
                    message.reconsume_times,
                    message.prepared_offset,
                )
            else:
                state = appender.append_batch(
                    queue.tail,
                    message.body,
                    message.properties,
                    batch[0],
                    batch[1],
                    message.sys_flag,
                    message.born_ms,
                    born_host,
                    now_ms,
                    message.reconsume_times,
                )
            if state == APPENDED:
                break
            if state == SEGMENT_FULL:
                self._roll()
            elif state == NO_QUEUE_ROOM:
                queue.make_room(1 if batch is None else batch[0])
        if appender.index is None and self.config.index_enabled:
            self._stop_writing(self.index.failure or "the index is gone")
        offsets = (appender.log_offset,) if batch is None else tuple(appender.batch_offsets)
        self._last_record = offsets[-1]
        return AppendResult(
            AppendStatus.OK,
            log_offset=appender.log_offset,
            queue_offset=appender.queue_offset,
            size=appender.size,
            store_ms=now_ms,
            log_offsets=offsets,
            store_host=self.config.store_host,
        )

    def _roll(self) -> None:
        self.log.roll()
        self.gate.release(self.log.positions.flushed)

    def _refuse(self, message: NewMessage) -> AppendResult | None:
        """Why a message cannot be taken, before anything is touched."""
        reason = self._refusal or self._read_only or self._disk_refusal
        if reason is not None:
            return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason)
        held_since = self._locked_since_ms
        if held_since and self.clock.monotonic_ms() - held_since > self.config.page_cache_busy_ms:
            return AppendResult(AppendStatus.PAGE_CACHE_BUSY, "an append has been held up for too long; try again")
        topic = message.topic
        if not TOPIC_PATTERN.fullmatch(topic):
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"topic {topic!r} may hold letters, digits, _ - % and | only")
        if len(topic) > TOPIC_BYTES_MAX:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"the topic has {len(topic)} characters, more than {TOPIC_BYTES_MAX}")
        if not 0 <= message.queue_id <= QUEUE_ID_MAX:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"queue id {message.queue_id} is outside 0..{QUEUE_ID_MAX}")
        if len(message.properties) > PROPERTIES_BYTES_MAX:
            return AppendResult(AppendStatus.PROPERTIES_SIZE_EXCEEDED,
                                f"the properties have {len(message.properties)} bytes, more than {PROPERTIES_BYTES_MAX}")  # fmt: skip
        size = len(message.body)
        if size > self.config.message_bytes_max:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"the body has {size} bytes, more than {self.config.message_bytes_max}")
        if FIXED_BYTES + 24 + size + len(topic) + len(message.properties) + 8 > self.config.segment_bytes:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"a body of {size} bytes does not fit in a log file")
        return None

    def _stop_writing(self, reason: str) -> None:
        if self._read_only is None:
            self._read_only = reason
            log.error("the store takes no more messages: %s", reason)

    @property
    def refusal(self) -> str | None:
        """Why messages are refused right now, or None."""
        return self._refusal or self._read_only or self._disk_refusal

    # Replication

    def append_raw(self, log_offset: int, data: bytes) -> int:
        """Whole records that another broker wrote for exactly `log_offset`; the new end of the log. They are copied as
        they are and dispatched to queues and index. Bytes that are no records are refused before anything is written."""
        with self._lock:
            self._require_open()
            if log_offset != self.log.end:
                raise StoreError(f"records for {log_offset} cannot be appended: the log ends at {self.log.end}")
            self.log.roll_if_full()
            if len(data) > self.config.segment_bytes - self.log.appender.position:
                raise StoreError(f"{len(data)} bytes at {log_offset} would cross the end of a log file")
            last = _check_raw(data, log_offset, self.config.segment_bytes)
            self.log.appender.copy_raw(data)
            if last >= 0:
                self._last_record = last
            self._dispatch_raw(log_offset)
            self.log.roll_if_full()
            self.gate.release(self.log.positions.flushed)
            end = self.log.end
        self._announce()
        return end

    def _dispatch_raw(self, start: int) -> None:
        scanner, appender = self.dispatcher.scanner, self.log.appender
        scanner.index, scanner.touched, scanner.check_crc = appender.index, appender.touched, False
        scanner.scan(appender.segment, start - appender.base, appender.position)
        appender.index = scanner.index

    def truncate_to(self, log_offset: int) -> int:
        """Cut the open store back to a record boundary at or before `log_offset`; the new end. Queues first, then the
        index, then the log: whatever moment a crash picks, the log still holds what the others may point to."""
        with self._lock:
            self._require_open()
            if log_offset < self.log.start:
                raise StoreError(f"cannot cut to {log_offset}: the log starts at {self.log.start}")
            end, last = self._boundary_at_or_before(min(log_offset, self.log.end))
            self.flush()
            for queue in self.queues:
                queue.truncate(end)
                if queue.end_offset == 0:
                    self.queues.remove(queue)
            self.dispatcher.scanner.forget_queues()
            self.log.appender.index = None
            self.index.truncate(end, self.log.store_ms_at)
            self.log.truncate(end)
            self.log.open_for_append(end)
            self._last_record = last
            self._digests.begin(self.log, end)
            self.gate = FlushGate(end)
            if self.config.index_enabled:
                self.log.appender.index = self.index.current()
            self.save_recovery_point()
            return end

    def _boundary_at_or_before(self, log_offset: int) -> tuple[int, int]:
        """The last record boundary that is not behind an offset, and the start of the record before it."""
        base = self.log.files.start_of(log_offset)
        if base == log_offset:
            return log_offset, self._last_record_below(log_offset)
        segment, view = self.log.segment(base), RecordView()
        at, last = 0, -1
        while at < log_offset - base:
            state = view.parse_at(segment, at, False)
            size = view.size
            if state == BLANK or size <= 0 or base + at + size > log_offset:
                break
            at, last = at + size, at
        return base + at, base + last if last >= 0 else self._last_record_below(base)

    def _last_record_below(self, base: int) -> int:
        """Start of the last record of the file before `base`; -1 without one."""
        before = base - self.config.segment_bytes
        if before not in self.log.files:
            return -1
        segment, view = self.log.segment(before), RecordView()
        at, last = 0, -1
        while at < segment.size and view.parse_at(segment, at, False) == MESSAGE:
            at, last = at + view.size, at
        return before + last if last >= 0 else -1

    # Telling those who wait

    def add_listener(self, listener: QueueListener) -> None:
        """Called with (topic, queue id, new end offset) when a queue has new visible messages."""
        self._listeners.append(listener)

    def _drain_touched(self) -> list[ConsumeQueue]:
        """Queues that grew and are visible to their end; the others wait for their turn."""
        visible_to = self.visible_to
        touched = cast(list[object], self.log.appender.touched) + self.dispatcher.scanner.touched
        self.log.appender.touched, self.dispatcher.scanner.touched = [], []
        ready: list[ConsumeQueue] = []
        for tail in dict.fromkeys(touched):
            if tail.log_end <= visible_to:  # type: ignore[attr-defined]
                tail.touched = False  # type: ignore[attr-defined]
            else:
                self.log.appender.touched.append(tail)
            ready.append(tail.owner)  # type: ignore[attr-defined]
        return ready

    def _announce(self) -> None:
        if not self._listeners:
            if len(self.log.appender.touched) > 0:
                with self._lock:
                    self._drain_touched()
            return
        with self._lock:
            ready = self._drain_touched()
        for queue in ready:
            end = self.queries.max_offset_of(queue)
            for listener in self._listeners:
                listener(queue.topic, queue.queue_id, end)

    # Flushing

    def flush(self) -> int:
        """Make everything appended so far durable; the flushed position."""
        try:
            position = self.log.flush()
        except OSError as error:
            self._stop_writing(f"the log could not be flushed: {error}")
            self.gate.shut()
            raise
        self.gate.release(position)
        self._announce()
        return position

    def flush_step(self) -> None:
        """One turn of the flush service."""
        config, now_ms = self.config, self.clock.monotonic_ms()
        if config.flush_type is FlushType.SYNC_FLUSH:
            self.flush()
            return
        if config.transient_buffer:
            thorough = self._is_due("commit", config.commit_thorough_interval_ms, now_ms)
            if self.log.commit(pages_min=0 if thorough else config.commit_pages_min):
                self._announce()
            if not self._is_due("flush", config.flush_interval_ms, now_ms):
                return
        thorough = self._is_due("thorough", config.flush_thorough_interval_ms, now_ms)
        if thorough:
            self.flush()
        else:
            self.gate.release(self.log.flush(pages_min=config.flush_pages_min))

    def upkeep_step(self) -> None:
        """One turn of the upkeep service: queue files, recovery point, deletion, idle mappings."""
        config, now_ms = self.config, self.clock.monotonic_ms()
        if self._is_due("queues", config.queue_flush_interval_ms, now_ms):
            for queue in self.queues:
                queue.flush(pages_min=config.queue_flush_pages_min)
        if self._is_due("point", config.queue_flush_thorough_interval_ms, now_ms):
            self.save_recovery_point()
        if self._is_due("clean", config.clean_interval_ms, now_ms):
            self.retention.run_once(self.clock.now_ms(), self._check_disk())
        if self._is_due("idle", config.idle_mapping_ms, now_ms):
            self.drop_idle_mappings()

    def _is_due(self, name: str, interval_ms: int, now_ms: int) -> bool:
        if now_ms - self._due.setdefault(name, now_ms) < interval_ms:
            return False
        self._due[name] = now_ms
        return True

    def drop_idle_mappings(self) -> None:
        """Let go of mappings nobody used since the last call."""
        with self._lock:
            self.log.drop_idle_mappings()
            self.index.drop_idle_mappings()
            for queue in self.queues:
                queue.drop_idle_mappings()

    def save_recovery_point(self) -> None:
        """Flush log, queues and index as they are now, and write down how far that is."""
        with self._point_lock:
            with self._lock:
                point = self._recovery_point()
                last_store_ms = self.log.store_ms_at(point.last_record) if point.last_record >= 0 else None
                queues, index_files = list(self.queues), list(self.index.files)
            self.log.flush()
            self.gate.release(self.log.positions.flushed)
            digests = self._digests.extend(self.log, point.log_end)
            for queue in queues:
                queue.flush(pages_min=0)
            for file in index_files:
                if file.path.exists():
                    file.flush()
            replace(point, digests=digests).save(self.config.root, self.disk)
            self._queues_ms = last_store_ms or self._queues_ms
            full = [file.tail.end_ms for file in index_files if file.tail.full]
            Checkpoint(
                log_ms=self._queues_ms, queues_ms=self._queues_ms, index_ms=max(full, default=0)
            ).save(self.config.root / "checkpoint", self.disk)

    def _recovery_point(self) -> RecoveryPoint:
        last_crc = 0
        if self._last_record >= self.log.start and self._last_record >= 0:
            self.log.commit()
            segment, view = self.log.segment(self._last_record), RecordView()
            view.parse_at(segment, self._last_record - segment.base, False)
            last_crc = zlib.crc32(segment.bytes_at(self._last_record - segment.base, view.size))
        missing = self._missing_index
        return RecoveryPoint(
            log_start=self.log.start,
            log_end=self.log.end,
            last_record=self._last_record,
            last_record_crc=last_crc,
            segment_bytes=self.config.segment_bytes,
            queue_file_bytes=self.config.queue_file_bytes,
            queues=tuple(_queue_state(queue) for queue in self.queues if queue.end_offset > 0),
            index=tuple(self.index.states()),
            index_missing=(missing.start, missing.end) if missing else None,
            holes=tuple((hole.start, hole.end) for hole in self.log.holes),
            index_shape=(self.config.index_slots, self.config.index_units),
        )

    # Deleting

    def _check_disk(self):  # type: ignore[no-untyped-def]
        state = self.retention.disk_state()
        self._disk_refusal = state.refuse
        return state

    def _after_deletion(self, gone: LogRange) -> None:
        with self._lock:
            for queue in self.queues:
                queue.delete_before(self.log.start)
                queue.correct_min(self.log.start)
            self.index.delete_before(self.log.start)

    def clean(self) -> list[LogRange]:
        """Delete expired files now, whatever the hour."""
        self.retention.request()
        return self.retention.run_once(self.clock.now_ms(), self._check_disk())

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues; its messages stay in the log until that expires. How many queues went."""
        with self._lock:
            queues = self.queues.of_topic(topic)
            for queue in queues:
                self.queues.remove(queue)
            self.dispatcher.scanner.forget_queues()
        if queues:
            self.save_recovery_point()
        return len(queues)

    # Reading

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count_max: int = 32,
        bytes_max: int | None = None,
        tag_codes: frozenset[int] | None = None,
        unit_filter: UnitFilter | None = None,
        record_filter: RecordFilter | None = None,
        correct_offset: bool = True,
    ) -> ReadResult:
        """Messages of a queue from an offset on. `bytes_max` given: it replaces the configured limits of count and
        bytes. `tag_codes` are hashes of wanted tags (see tag_code)."""
        self._require_open()
        return self.queries.read(
            topic,
            queue_id,
            queue_offset,
            count_max=count_max,
            bytes_max=bytes_max,
            tag_codes=tag_codes,
            unit_filter=unit_filter,
            record_filter=record_filter,
            correct_offset=correct_offset,
        )

    def message_at(self, log_offset: int) -> Record | None:
        self._require_open()
        return self.queries.record_at(log_offset)

    def message_by_id(self, message_id: str) -> Record | None:
        self._require_open()
        return self.queries.record_by_id(message_id)

    def query(self, topic: str, key: str, *, count_max: int = 32, begin_ms: int = 0, end_ms: int = 1 << 62) -> QueryResult:
        self._require_open()
        return self.queries.by_key(topic, key, count_max, begin_ms, end_ms)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, *, upper: bool = False) -> int:
        """0 for a queue that does not exist."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else self.queries.offset_by_time(queue, time_ms, upper=upper)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """-1 for a queue that does not exist."""
        queue = self.queues.get(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else self.queries.max_offset_of(queue)

    def store_ms_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a queue's message; -1 when it is not there."""
        queue = self.queues.get(topic, queue_id)
        found = None if queue is None else self.queries.store_ms_of(queue, queue_offset)
        return -1 if found is None else found

    def earliest_store_ms(self) -> int:
        return self.queries.earliest_store_ms()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store was closed")


def tag_code(tag: str) -> int:
    """What a queue unit holds for a tag."""
    return cast(int, hash_text(tag))


def _queue_state(queue: ConsumeQueue) -> QueueState:
    log_offset, size, _ = queue.last_unit() or (0, 0, 0)
    return QueueState(queue.topic, queue.queue_id, queue.min_offset, queue.end_offset, log_offset, size)


def _check_raw(data: bytes, log_offset: int, segment_bytes: int) -> int:
    """Whole records only; the log offset of the last one, -1 for none."""
    from rocketq.kernel.buffers import MappedBuffer

    buffer, view = MappedBuffer(data, log_offset), RecordView()
    at, last = 0, -1
    while at < len(data):
        state = view.parse_at(buffer, at, True)
        if state == BLANK and (log_offset + at + view.size) % segment_bytes == 0:
            return log_offset + last if last >= 0 else -1
        if state != MESSAGE:
            raise StoreError(f"the bytes for {log_offset + at} are not a whole, good record")
        at, last = at + view.size, at
    return log_offset + last


def _log_progress() -> Progress:
    """A line every few seconds while the log is walked."""
    began = last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 2:
            last = now
            rate = done / max(now - began, 0.001)
            log.info("recovery: %d of %d MiB walked (%.0f %%, %.0f MiB/s)", done >> 20, total >> 20,
                     100 * done / max(total, 1), rate / (1 << 20))  # fmt: skip

    return progress


def _raise_file_limit() -> None:
    """Every mapping holds a descriptor: ask for as many as this process may have."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 20), hard))
