"""Appending under one lock: messages, batches, and whole records from another broker; and cutting back."""

from __future__ import annotations

import threading
from typing import Final

from rocketq.errors import StoreError
from rocketq.kernel.appender import APPENDED, BATCH_ITEM_TOO_LARGE, NO_QUEUE_ROOM, SEGMENT_FULL
from rocketq.kernel.records import BAD_CRC, MESSAGE, RecordView
from rocketq.model import NewMessage, SysFlag
from rocketq.runtime.clock import Clock
from rocketq.store.admission import Health, find_fault
from rocketq.store.commit_log import CommitLog
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import ConsumeQueue, QueueTable
from rocketq.store.disk import lacks_descriptors
from rocketq.store.dispatch import Dispatcher
from rocketq.store.flush import FlushGate
from rocketq.store.index import Index
from rocketq.store.log_reader import RawRecords, RawWalk
from rocketq.store.results import AppendResult, AppendStatus

Batch = tuple[int, int]  # messages, bytes of their records
_BATCH_PROPERTIES_MAX: Final = 64  # of a batch itself: each is looked for in every one of its messages


class Writer:
    """The only writer of log, queues and index of an open store; `lock` serializes its callers."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        commit_log: CommitLog,
        queues: QueueTable,
        index: Index,
        dispatcher: Dispatcher,
        health: Health,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._health = health
        self.lock = threading.RLock()
        self.gate = FlushGate()
        self.last_record = -1
        self._locked_since_ms = 0
        self._unindexed_from = 0
        self._raw_walk = RawWalk(config.segment_bytes)
        self._undispatched_from = -1

    def begin(self, log_end: int, last_record: int) -> None:
        """Continue at the end that recovery found."""
        self._log.open_for_append(log_end)
        self.gate.release(log_end)
        self.last_record = last_record
        self._queues.begin()
        appender = self._log.appender
        appender.delays_ms = self._config.delays_ms
        appender.roll_index = self._index.roll
        if self._config.index_enabled:
            appender.index = self._index.current()

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config

    # Messages

    def append(self, message: NewMessage, batch: Batch | None = None) -> AppendResult:
        """Store a message, or a measured batch; returns its location or the failure."""
        refused = self._refuse() or find_fault(message, self._config)
        if refused is not None:
            return refused
        with self.lock:
            self._locked_since_ms = self._clock.monotonic_ms() or 1
            try:
                return self._append_with_descriptors(message, batch)
            except OSError as error:
                return self._failed(error)
            finally:
                self._locked_since_ms = 0

    def _append_with_descriptors(self, message: NewMessage, batch: Batch | None) -> AppendResult:
        """Files must be made and reserved, which needs descriptors: when none is left, idle mappings make room."""
        try:
            return self._append_locked(message, batch)
        except OSError as error:
            if not lacks_descriptors(error):
                raise
        self._log.disk.on_pressure()
        return self._append_locked(message, batch)

    def _failed(self, error: OSError) -> AppendResult:
        if self._log.sync_failure is not None:
            self._health.stop_writing(f"the log could not be flushed: {self._log.sync_failure}")
            return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, self._health.broken or "")
        return AppendResult(AppendStatus.CREATE_FILE_FAILED, f"no room for the message: {error}")

    def _refuse(self) -> AppendResult | None:
        reason = self._health.refusal
        if reason is not None:
            return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason)
        since_ms = self._locked_since_ms
        if since_ms and self._clock.monotonic_ms() - since_ms > self._config.page_cache_busy_ms:
            return AppendResult(AppendStatus.PAGE_CACHE_BUSY, "an append has been held up for too long; try again")
        return None

    def measure_batch(self, message: NewMessage) -> Batch | AppendResult:
        """How many messages a batch holds and what they take, or what is wrong with it."""
        if message.sys_flag & SysFlag.TRANSACTION_MASK:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, "a batch cannot be transactional")
        if message.properties.count(b"\x02") > _BATCH_PROPERTIES_MAX:
            return AppendResult(
                AppendStatus.MESSAGE_ILLEGAL, f"a batch has at most {_BATCH_PROPERTIES_MAX} properties of its own"
            )
        hosts = (SysFlag.BORN_HOST_V6 if message.born_host.is_ipv6 else 0) | (
            SysFlag.STORE_HOST_V6 if self._config.store_host.is_ipv6 else 0
        )
        with self.lock:  # measuring uses the appender's scratch
            count, total = self._log.appender.measure_batch(
                message.body, len(message.topic), message.properties, hosts, self._config.message_bytes_max
            )
        if count == BATCH_ITEM_TOO_LARGE:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"the batch's message at byte {total} is too large")
        if count <= 0:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"the batch cannot be unpacked at byte {total}")
        room = min(self._config.message_bytes_max, self._config.segment_bytes - 8)
        if total > room:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, f"the batch needs {total} bytes, more than {room}")
        return count, total

    def _append_locked(self, message: NewMessage, batch: Batch | None) -> AppendResult:
        if self._health.closed is not None:
            return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, self._health.closed)
        appender = self._log.appender
        if appender.index is None and self._config.index_enabled:
            self._resume_index()
        queue = self._queues.find_or_make(message.topic, message.queue_id)
        now_ms = self._clock.now_ms()
        while (state := self._try(queue, message, batch, now_ms)) != APPENDED:
            if state == SEGMENT_FULL:
                self.roll()
            elif state == NO_QUEUE_ROOM:
                queue.make_room(1 if batch is None else batch[0])
        if appender.index is None and self._config.index_enabled:
            self._unindexed_from = appender.log_offset
        offsets = (appender.log_offset,) if batch is None else tuple(appender.batch_offsets)
        self.last_record = offsets[-1]
        return AppendResult(
            AppendStatus.OK,
            log_offset=appender.log_offset,
            queue_offset=appender.queue_offset,
            size=appender.size,
            store_ms=now_ms,
            log_offsets=offsets,
            store_host=self._config.store_host,
        )

    def _resume_index(self) -> None:
        """The disk was full when the index needed a file. Appends are rejected (OSError) until there is room, so that
        only the last append lacks its keys."""
        index = self._index.roll(None)
        if index is None:
            raise OSError(self._index.failure)
        scanner, appender = self._dispatcher.scanner, self._log.appender
        assert appender.segment is not None
        scanner.index, scanner.to_queues, scanner.check_crc = index, False, False
        scanner.scan(appender.segment, self._unindexed_from - appender.base, appender.position)
        scanner.to_queues = True
        appender.index = scanner.index

    def ready_for_kernel(self) -> None:
        """Prepare the index before the fast path appends under `lock`; OSError if that fails."""
        if self._log.appender.index is None and self._config.index_enabled:
            self._resume_index()

    def stored_by_kernel(self) -> None:
        """Record the last append of the fast path, under `lock`."""
        appender = self._log.appender
        self.last_record = appender.last_offset
        if appender.index is None and self._config.index_enabled:
            self._unindexed_from = appender.log_offset

    def _try(self, queue: ConsumeQueue, message: NewMessage, batch: Batch | None, now_ms: int) -> int:
        appender, born_host = self._log.appender, message.born_host.packed()
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
        return state

    def roll(self) -> None:
        """Continue in a new log file; the next flush syncs the old one."""
        self._log.roll()
        self.gate.release(self._log.positions.flushed)

    # Records of another broker

    def append_raw(self, log_offset: int, data: bytes, *, check_crc: bool = True) -> int:
        """Copy whole records written for exactly `log_offset` and dispatch them; the new end of the log. Bytes that are
        no such records are refused before anything is written."""
        with self.lock:
            self._require_end(log_offset)
            self._log.roll_if_full()
            if len(data) > self._room:
                raise StoreError(f"{len(data)} bytes at {log_offset} would cross the end of a log file")
            self._copy(log_offset, data, self._raw_walk.all(data, log_offset, check_crc=check_crc))
            return self._log.end

    def append_stream(self, log_offset: int, data: bytes | memoryview) -> int:
        """Copy the whole records at the start of `data`, over as many files as needed; returns the new end of the log.
        The caller keeps an incomplete record at the end. StoreError for bytes that are no record; those before are
        copied. Bodies are not checked: reads do that, and a damaged one must not block all records behind it."""
        with self.lock:
            self._require_end(log_offset)
            at = 0
            while at < len(data):
                self._log.roll_if_full()
                piece = data if at == 0 and len(data) <= self._room else data[at : at + self._room]
                records = self._raw_walk.head(piece, log_offset + at)
                whole = piece if records.size_bytes == len(piece) else piece[: records.size_bytes]
                self._copy(log_offset + at, whole, records)
                at += len(whole)
                if len(whole) < len(piece):
                    self._raw_walk.require_beginning(piece[len(whole) :], log_offset + at)
                    break
            return self._log.end

    def _copy(self, log_offset: int, data: bytes | memoryview, records: RawRecords) -> None:
        self._log.appender.copy_raw(data)
        self.last_record = records.last if records.last >= 0 else self.last_record
        self._undispatched_from = log_offset
        self._finish_dispatch()
        self._log.roll_if_full()
        if self._log.positions.flushed > self.gate.position:
            self.gate.release(self._log.positions.flushed)

    def _require_end(self, log_offset: int) -> None:
        if log_offset != self._log.end:
            raise StoreError(f"records for {log_offset} cannot be appended: the log ends at {self._log.end}")
        if self._health.closed is not None or self._health.broken is not None:
            raise StoreError(self._health.closed or self._health.broken or "")
        self._finish_dispatch()

    def _finish_dispatch(self) -> None:
        """Dispatch copied records to queues and index. OSError if the disk is full: the next call retries before
        copying."""
        if self._undispatched_from < 0:
            return
        appender = self._log.appender
        if appender.index is None and self._config.index_enabled:
            appender.index = self._index.roll(None)
        if appender.index is not None or not self._config.index_enabled:
            self._dispatch_from(self._undispatched_from)
        if appender.index is None and self._config.index_enabled:
            raise OSError(self._index.failure)
        self._undispatched_from = -1

    @property
    def _room(self) -> int:
        """Bytes left in the file being written."""
        return self._config.segment_bytes - self._log.appender.position

    def start_at(self, log_offset: int) -> None:
        """Start an empty log at a file boundary other than 0, as the copy of another broker's log."""
        with self.lock:
            if log_offset % self._config.segment_bytes or log_offset < 0:
                raise StoreError(f"a log cannot begin at {log_offset}: files have {self._config.segment_bytes} bytes")
            if self._log.end != 0 or len(self._queues):
                raise StoreError(f"a log that ends at {self._log.end} cannot begin at {log_offset}")
            self._log.truncate(0)
            self.gate.shut()
            self.gate = FlushGate(log_offset)
            self.begin(log_offset, -1)

    def _dispatch_from(self, log_offset: int) -> None:
        scanner, appender = self._dispatcher.scanner, self._log.appender
        scanner.index, scanner.check_crc, scanner.distrust = appender.index, False, False
        assert appender.segment is not None
        self._dispatcher.copying = True
        try:
            scanner.scan(appender.segment, log_offset - appender.base, appender.position)
        finally:
            self._dispatcher.copying = False
        appender.index = scanner.index

    # Cutting back

    def truncate_to(self, log_offset: int) -> int:
        """Truncate to the record boundary at or before `log_offset`; returns the new end. Order: queues, index, log, so
        that after a crash the log still has everything that the others refer to."""
        with self.lock:
            if log_offset < self._log.start:
                raise StoreError(f"cannot cut to {log_offset}: the log starts at {self._log.start}")
            self._log.flush()  # data in a transient buffer must be in the file first
            end, last = self._boundary(min(log_offset, self._log.end))
            for queue in self._queues:
                queue.truncate(end)
                if queue.end_offset == 0:
                    self._queues.remove(queue)
            self._dispatcher.scanner.forget_queues()
            self._log.appender.index = None
            self._index.truncate(end, self._log.store_ms_at)
            self._log.truncate(end)
            self._undispatched_from = -1
            self.gate.shut()
            self.gate = FlushGate(end)
            self.begin(end, last)
            return end

    def _boundary(self, log_offset: int) -> tuple[int, int]:
        """The last record boundary at or before an offset, and where the record before it starts."""
        base = self._log.files.start_of(log_offset)
        at, last = self._step_records(base, log_offset)
        if last < 0:
            before = base - self._config.segment_bytes
            last = self._step_records(before, base)[1] if before in self._log.files else -1
        return at, last

    def _step_records(self, base: int, limit: int) -> tuple[int, int]:
        """From a file's start over whole records up to `limit`: where that ends, and the last record's start."""
        if base == limit:
            return base, -1
        segment, view = self._log.segment(base), RecordView()
        at, last = 0, -1
        while base + at < limit:
            state = view.parse_at(segment, at, False)
            if state not in (MESSAGE, BAD_CRC):
                at = self._step_hole(base, at, limit)
                if at < 0:
                    break
                continue
            if base + at + view.size > limit:
                break
            at, last = at + view.size, at
        return base + max(at, 0) if at >= 0 else self._end_of(base, last), base + last if last >= 0 else -1

    def _step_hole(self, base: int, at: int, limit: int) -> int:
        """Behind a known damaged part, when it starts here and ends before the limit; -1 otherwise."""
        for hole in self._log.holes:
            if hole.start == base + at and hole.end <= limit:
                return hole.end - base
        return -1

    def _end_of(self, base: int, last: int) -> int:
        if last < 0:
            return base
        segment, view = self._log.segment(base), RecordView()
        view.parse_at(segment, last, False)
        return base + last + view.size
