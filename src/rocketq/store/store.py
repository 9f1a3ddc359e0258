"""The store: the one object that brokers, tools and tests open."""

from __future__ import annotations

import errno
import logging
import os
import resource
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from rocketq.errors import ConfigError, StoreClosedError, StoreError
from rocketq.kernel.properties import hash_text
from rocketq.model import NewMessage, Record
from rocketq.runtime.clock import Clock, SystemClock
from rocketq.runtime.service import Service
from rocketq.store.admission import Health
from rocketq.store.announcer import Announcer, QueueListener
from rocketq.store.checkpoint import Checkpoint, DirectoryLock
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import FlushType, StoreConfig
from rocketq.store.disk import Disk
from rocketq.store.dispatch import Dispatcher
from rocketq.store.flush import FlushGate
from rocketq.store.index import Index
from rocketq.store.index_rebuild import IndexRebuild
from rocketq.store.point_keeper import PointKeeper
from rocketq.store.queries import Queries, RecordFilter, UnitFilter
from rocketq.store.queue_table import QueueTable
from rocketq.store.recovery import Progress, Recovery
from rocketq.store.recovery_point import RecoveryPoint
from rocketq.store.recovery_report import RecoveryReport
from rocketq.store.results import AppendResult, AppendStatus, QueryResult, ReadResult
from rocketq.store.retention import DiskState, Retention
from rocketq.store.writer import Writer

log = logging.getLogger(__name__)

UPKEEP_INTERVAL_MS = 500
PROGRESS_INTERVAL_S = 2


class Store:
    """Append, read, flush, recover, delete. Its interface blocks; callers decide on threads.

    One lock orders everything that writes; reads take none. Three positions matter: `log_end` (written),
    `acknowledged_to` (as safe as the configuration asks) and `visible_to` (readers see no further).
    """

    def __init__(self, config: StoreConfig, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.disk = disk or Disk()
        self.health = Health()
        self.log = CommitLog(config, self.disk)
        self.queues = QueueTable(config, self.disk)
        self.index = Index(config, self.disk, self.clock.now_ms)
        self.dispatcher = Dispatcher(config, self.log, self.queues, self.index)
        self.writer = Writer(config, self.clock, self.log, self.queues, self.index, self.dispatcher, self.health)
        self.queries = Queries(config, self.log, self.queues, self.index, lambda: self.visible_to)
        self.announcer = Announcer(self.writer, self.log, self.dispatcher, self.queries, lambda: self.visible_to)
        self.points = PointKeeper(config, self.disk, self.log, self.queues, self.index, self.writer)
        self.queries.on_damaged_unit = self.points.distrust
        self.disk.on_pressure = self._drop_mappings
        self.retention = Retention(config, self.disk, self.log, self._after_deletion)
        self.report = RecoveryReport()
        self._directory_lock: DirectoryLock | None = None
        self._confirmed_to: int | None = None
        self._services: list[Service] = []
        self._flusher: Service | None = None
        self._rebuild: IndexRebuild | None = None
        self._rebuild_thread: threading.Thread | None = None
        self._due: dict[str, int] = {}
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
        if not isinstance(config, StoreConfig):
            raise ConfigError(f"Store.open() takes a StoreConfig, not {config!r}: StoreConfig(root=…)")
        store = cls(config, clock=clock, disk=disk)
        store._directory_lock = DirectoryLock(config.root / "lock")
        try:
            store._recover(progress or _log_progress())
            store._begin()
        except OSError as error:
            store._release()
            if error.errno == errno.ENOSPC:
                raise StoreError(
                    f"no room to open the store: {error}. Log files take {config.segment_bytes} bytes each "
                    f"(mappedFileSizeCommitLog), index files {config.index_file_bytes} (maxHashSlotNum, maxIndexNum)"
                ) from error
            raise
        except BaseException:
            store._release()
            raise
        if services:
            store._start_services()
        return store

    def _recover(self, progress: Progress) -> None:
        root, started_ms = self.config.root, self.clock.monotonic_ms()
        _raise_file_limit()
        self.queues.load()
        if self.config.index_enabled:
            self.index.load()
        point, checkpoint = RecoveryPoint.load(root), Checkpoint.load(root / "checkpoint")
        recovery = Recovery(self.config, self.log, self.queues, self.index, self.dispatcher)
        self.report = report = recovery.run(point, clean=not self._abort_file.exists(), progress=progress)
        if point is not None and report.from_point:
            self.points.digests.restore(point.digests)
        self.points.digests.begin(self.log, report.log_end)
        self.points.missing_index = report.missing_index
        self.points.last_store_ms = report.last_store_ms or checkpoint.log_ms
        if 0 < report.last_store_ms < checkpoint.log_ms:
            report.note(f"the checkpoint says that messages up to {checkpoint.log_ms} were on disk, "
                        f"the log ends at {report.last_store_ms}: flushed messages were lost")  # fmt: skip
        took_ms = self.clock.monotonic_ms() - started_ms
        log.info("recovered %s in %d ms: log [%d, %d), %d queues, %d records walked", root, took_ms,
                 report.log_start, report.log_end, len(self.queues), report.records)  # fmt: skip

    def _begin(self) -> None:
        self.writer.begin(self.report.log_end, self.report.last_record)
        self._abort_file.write_text(str(os.getpid()))
        self.disk.sync_directory(self.config.root)
        self._check_disk()
        self.health.closed = None
        self.announcer.announce()
        if self.report.missing_index is not None and self.config.index_enabled:
            self._rebuild = IndexRebuild(self.config, self.log, self.index, self.report.missing_index)

    def _start_services(self) -> None:
        config = self.config
        interval_ms = config.commit_interval_ms if config.transient_buffer else config.flush_interval_ms
        self._flusher = Service("flush", interval_ms, self.flush_step)
        self._services = [self._flusher, Service("upkeep", UPKEEP_INTERVAL_MS, self.upkeep_step)]
        for service in self._services:
            service.start()
        if self._rebuild is not None:
            self._rebuild_thread = threading.Thread(
                target=self.rebuild_index, name="rocketq-index-rebuild", daemon=True
            )
            self._rebuild_thread.start()

    def rebuild_index(self) -> None:
        """Build what recovery found missing in the index; a background thread does this when services run."""
        if self._rebuild is not None and self._rebuild.run():
            self.points.missing_index = None

    def close(self) -> None:
        """Flush everything, leave a recovery point, remove the abort mark, release the directory."""
        if self._closed:
            return
        self._closed = True
        with self.writer.lock:
            self.health.closed = "the store is shut down"
        for service in self._services:
            service.stop()
        if self._rebuild is not None and self._rebuild_thread is not None:
            self._rebuild.stop()
            self._rebuild_thread.join()
        try:
            self.save_recovery_point()
            if self.health.broken is None:
                self._abort_file.unlink(missing_ok=True)
        finally:
            self.writer.gate.shut()
            self._release()

    def _release(self) -> None:
        """Mappings and the directory go back at once, not when the garbage collector gets to it."""
        with self.writer.lock:
            self.log.release()
            self.dispatcher.scanner.index = None
            self.index.release()
            for queue in self.queues:
                queue.release()
        if self._directory_lock is not None:
            self._directory_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _abort_file(self) -> Path:
        return self.config.root / "abort"

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store was closed")

    # Positions

    @property
    def log_start(self) -> int:
        return self.log.start

    @property
    def log_end(self) -> int:
        return self.log.end

    @property
    def gate(self) -> FlushGate:
        """Where those wait who want a position on disk."""
        return self.writer.gate

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
        self.announcer.announce()

    @property
    def refusal(self) -> str | None:
        """Why messages are refused right now, or None."""
        return self.health.refusal

    # Writing

    def append(self, message: NewMessage, *, wait: bool = True) -> AppendResult:
        """Store one message. With SYNC_FLUSH and `wait` it returns when the message is on disk."""
        return self._settle(self.writer.append(message), wait)

    def append_batch(self, message: NewMessage, *, wait: bool = True) -> AppendResult:
        """Store a batch: `message.body` holds the packed inner messages, `message.properties` go to each of them that
        has none of that name. All of it lands in one log file, or nothing."""
        measured = self.writer.measure_batch(message)
        if isinstance(measured, AppendResult):
            return measured
        return self._settle(self.writer.append(message, measured), wait)

    def _settle(self, result: AppendResult, wait: bool) -> AppendResult:
        if result.status is not AppendStatus.OK:
            return result
        if self.config.flush_type is FlushType.ASYNC_FLUSH:
            self.announcer.announce()
        elif self._flusher is None:
            self.flush()
        else:
            self._flusher.wake()
            if wait and not self.gate.wait(result.end, self.config.sync_flush_timeout_ms):
                result.status = AppendStatus.FLUSH_DISK_TIMEOUT
                result.reason = self.health.broken or "the disk did not take the message in time"
        return result

    def append_raw(self, log_offset: int, data: bytes) -> int:
        """Whole records another broker wrote for exactly `log_offset`, copied and dispatched; the log's new end."""
        self._require_open()
        end = self.writer.append_raw(log_offset, data)
        self.announcer.announce()
        return end

    def truncate_to(self, log_offset: int) -> int:
        """Cut the open store back to the record boundary at or before `log_offset`; the log's new end."""
        self._require_open()
        with self.writer.lock:
            end = self.writer.truncate_to(log_offset)
            self.points.digests.begin(self.log, end)
            self.points.save()
            return end

    def add_listener(self, listener: QueueListener) -> None:
        """Called with (topic, queue id, new end offset) when a queue has new visible messages."""
        self.announcer.listeners.append(listener)

    # Flushing and upkeep

    def flush(self) -> int:
        """Make everything appended so far durable; the flushed position."""
        return self._flush(pages_min=0)

    def _flush(self, *, pages_min: int) -> int:
        try:
            position = self.log.flush(pages_min=pages_min)
        except OSError as error:
            self.health.stop_writing(f"the log could not be flushed: {error}")
            self.gate.shut()
            raise
        self.gate.release(position)
        self.announcer.announce()
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
                self.announcer.announce()
            if not self._is_due("flush", config.flush_interval_ms, now_ms):
                return
        thorough = self._is_due("thorough", config.flush_thorough_interval_ms, now_ms)
        self._flush(pages_min=0 if thorough else config.flush_pages_min)

    def upkeep_step(self) -> None:
        """One turn of the upkeep service: queue files, recovery point, deletion, idle mappings."""
        config, now_ms = self.config, self.clock.monotonic_ms()
        if self._is_due("queues", config.queue_flush_interval_ms, now_ms):
            for queue in self.queues:
                queue.flush(pages_min=config.queue_flush_pages_min)
        if self._is_due("point", config.queue_flush_thorough_interval_ms, now_ms):
            self.save_recovery_point()
        if self._is_due("clean", config.clean_interval_ms, now_ms):
            self._clean()
        if self._is_due("idle", config.idle_mapping_ms, now_ms):
            self.drop_idle_mappings()

    def _is_due(self, name: str, interval_ms: int, now_ms: int) -> bool:
        if now_ms - self._due.setdefault(name, now_ms) < interval_ms:
            return False
        self._due[name] = now_ms
        return True

    def save_recovery_point(self) -> None:
        """Flush log, queues and index as they are now, and write down how far that is."""
        self.flush()
        self.points.save()

    def drop_idle_mappings(self) -> None:
        """Let go of mappings nobody used since the last call."""
        with self.writer.lock:
            self.log.drop_idle_mappings()
            self.index.drop_idle_mappings()
            for queue in self.queues:
                queue.drop_idle_mappings()

    def _drop_mappings(self) -> None:
        """All but those in use this moment: the second time nothing has been used since the first."""
        self.drop_idle_mappings()
        self.drop_idle_mappings()

    # Deleting

    def _check_disk(self) -> DiskState:
        state = self.retention.disk_state()
        self.health.disk_full = state.refuse
        return state

    def _after_deletion(self, gone: LogRange) -> None:
        with self.writer.lock:
            for queue in self.queues:
                queue.delete_before(gone.end)
                queue.correct_min(gone.end)
            self.index.delete_before(gone.end)

    def clean(self) -> list[LogRange]:
        """Delete expired files now, whatever the hour."""
        self.retention.request()
        return self._clean()

    def _clean(self) -> list[LogRange]:
        deleted = self.retention.run_once(self.clock.now_ms(), self._check_disk())
        if deleted:
            self._check_disk()
            self.save_recovery_point()  # the old one names files that are gone
        return deleted

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues; its messages stay in the log until that expires. How many queues went."""
        with self.writer.lock:
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
        """By offset message id; ValueError when the text is none."""
        self._require_open()
        return self.queries.record_by_id(message_id)

    def query(
        self, topic: str, key: str, *, count_max: int = 32, begin_ms: int = 0, end_ms: int = 1 << 62
    ) -> QueryResult:
        """Messages of a topic by key or unique key, stored within the times."""
        self._require_open()
        return self.queries.by_key(topic, key, count_max, begin_ms, end_ms)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after a time (`upper`: the last at or before it); 0 without such a queue."""
        self._require_open()
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else self.queries.offset_by_time(queue, time_ms, upper=upper)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """-1 for a queue that does not exist."""
        self._require_open()
        queue = self.queues.get(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last visible message; 0 for a queue that does not exist."""
        self._require_open()
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else self.queries.max_offset_of(queue)

    def store_ms_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a queue's message; -1 when it is not there."""
        self._require_open()
        queue = self.queues.get(topic, queue_id)
        found = None if queue is None else self.queries.store_ms_of(queue, queue_offset)
        return -1 if found is None else found

    def earliest_store_ms(self) -> int:
        """Store time of the oldest message; -1 without any."""
        self._require_open()
        return self.queries.earliest_store_ms()


def tag_code(tag: str) -> int:
    """What a queue unit holds for a tag."""
    return cast(int, hash_text(tag))


def _log_progress() -> Progress:
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


def _raise_file_limit() -> None:
    """Every mapping holds a descriptor: ask for as many as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 20), hard))
