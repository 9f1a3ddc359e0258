"""The store: the one object that brokers, tools and tests open."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketq.errors import ConfigError, StoreError
from rocketq.kernel.admission import Generation
from rocketq.kernel.properties import hash_text
from rocketq.model import NewMessage
from rocketq.runtime.clock import Clock, SystemClock
from rocketq.runtime.file_limit import raise_file_limit
from rocketq.store.admission import Health
from rocketq.store.announcer import Announcer, QueueListener
from rocketq.store.checkpoint import Checkpoint, DirectoryLock
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import FlushType, StoreConfig
from rocketq.store.consume_queue import QueueTable
from rocketq.store.delivery_progress import DeliveryProgress
from rocketq.store.disk import Disk
from rocketq.store.dispatch import Dispatcher
from rocketq.store.flush import Flusher, FlushGate, ReplicaGate
from rocketq.store.index import Index, IndexRebuild
from rocketq.store.interfaces import FastPathAccess
from rocketq.store.queries import Lookups, Queries
from rocketq.store.queue_extensions import BitmapOf
from rocketq.store.recovery import Progress, Recovery, RecoveryReport, log_progress
from rocketq.store.recovery_point import RecoveryPoint, RecoveryPointWriter
from rocketq.store.redelivery import Redeliverer
from rocketq.store.results import AppendResult
from rocketq.store.state_files import StateFiles
from rocketq.store.timers import Timers
from rocketq.store.upkeep import Retention, Upkeep
from rocketq.store.warming import Warmer
from rocketq.store.writer import Writer

log = logging.getLogger(__name__)


class Store(Lookups):
    """Append, read, flush, recover, delete. Its interface blocks; callers decide on threads.

    One lock orders everything that writes; reads take none. Three positions matter: `log_end` (written),
    `acknowledged_to` (as safe as the configuration asks) and `visible_to` (readers see no further).
    """

    def __init__(self, config: StoreConfig, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.disk = disk or Disk()
        self.generation = Generation()
        """Bumped by every change of the store that admission of requests depends on; its owner's changes count too."""
        self.health = Health(self.generation.bump)
        self.log = CommitLog(config, self.disk)
        self.queues = QueueTable(config, self.disk, self.generation.bump)
        self.index = Index(config, self.disk, self.clock.now_ms)
        self.dispatcher = Dispatcher(config, self.log, self.queues, self.index)
        self.writer = Writer(config, self.clock, self.log, self.queues, self.index, self.dispatcher, self.health)
        self.announcer = Announcer(self.writer, self.log, self.dispatcher, lambda: self.visible_to)
        self.points = RecoveryPointWriter(config, self.disk, self.log, self.queues, self.index, self.writer)
        queries = Queries(
            config, self.log, self.queues, self.index, lambda: self.visible_to, on_damaged_unit=self.points.distrust
        )
        super().__init__(queries, self.queues, self.index, self.disk)
        self.flusher = Flusher(config, self.clock, self.log, self.writer, self.health, self.announcer.announce)
        self.warmer = Warmer(config, self.log)
        self.upkeep = Upkeep(
            config,
            self.clock,
            self.log,
            self.queues,
            self.index,
            self.writer,
            self.flusher,
            self.points,
            self.health,
        )
        self.disk.relieve_with(self.upkeep.drop_mappings)
        self.report = RecoveryReport()
        self._directory_lock: DirectoryLock | None = None
        self._confirmed_to: int | None = None
        self._replica_gate: ReplicaGate | None = None
        self._rebuild: IndexRebuild | None = None
        self._rebuild_thread: threading.Thread | None = None
        self._reconfiguring = threading.Lock()

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
        """Lock the directory, recover the store, start the background services (optional)."""
        if not isinstance(config, StoreConfig):
            raise ConfigError(f"Store.open() takes a StoreConfig, not {config!r}: StoreConfig(root=…)")
        store = cls(config, clock=clock, disk=disk)
        store._directory_lock = DirectoryLock(config.root / "lock")
        try:
            store._recover(progress or log_progress())
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
        raise_file_limit()
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
        self.upkeep.check_disk()
        self.health.closed = None
        self.announcer.announce()
        if self.report.missing_index is not None and self.config.index_enabled:
            self._rebuild = IndexRebuild(self.config, self.log, self.index, self.report.missing_index)

    def _start_services(self) -> None:
        self.flusher.start()
        self.warmer.start()
        self.upkeep.start()
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
        self.flusher.stop()
        self.warmer.stop()
        self.upkeep.stop()
        if self._rebuild is not None and self._rebuild_thread is not None:
            self._rebuild.stop()
            self._rebuild_thread.join()
        try:
            self.log.drop_prepared()
            self.save_recovery_point()
            if self.health.broken is None:
                self._abort_file.unlink(missing_ok=True)
        finally:
            self.writer.gate.shut()
            self._release()

    def _release(self) -> None:
        """Release mappings and the directory now, not at garbage collection."""
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

    # Positions

    @property
    def log_start(self) -> int:
        return self.log.start

    @property
    def log_end(self) -> int:
        return self.log.end

    @property
    def gate(self) -> FlushGate:
        """The gate of waiters for a flushed position."""
        return self.writer.gate

    @property
    def replica_gate(self) -> ReplicaGate | None:
        """The gate of waiters for a replicated position; None if answers do not wait for replicas."""
        return self._replica_gate

    @property
    def durable_to(self) -> int:
        """The durable position of this store's configuration: flushed, or committed to the file."""
        return self.gate.position if self.config.flush_type is FlushType.SYNC_FLUSH else self.log.readable_end

    @property
    def flushed_to(self) -> int:
        """The log is flushed up to here, independent of the configured durability."""
        return self.gate.position

    @property
    def acknowledged_to(self) -> int:
        """Appends that end at or before this position may be answered."""
        visible, gate = self.visible_to, self.replica_gate
        return visible if gate is None else min(visible, gate.position)

    @property
    def visible_to(self) -> int:
        """Readers see records that end at or before this position."""
        durable = self.durable_to
        return durable if self._confirmed_to is None else min(durable, self._confirmed_to)

    def confirm(self, log_offset: int | None) -> None:
        """Replicas have the log this far (None: there are none to wait for)."""
        self._confirmed_to = log_offset
        self.announcer.announce()

    def wait_for_replicas(self, gate: ReplicaGate | None) -> None:
        """Answers to appends wait for this gate from now on."""
        self._replica_gate = gate
        self.generation.bump()

    @property
    def refusal(self) -> str | None:
        """Why messages are refused right now, or None."""
        return self.health.refusal

    @property
    def refusal_cause(self) -> str:
        return self.health.cause

    @property
    def disk_full(self) -> str | None:
        return self.health.disk_full

    @property
    def failure(self) -> str | None:
        """The error after which the store accepts no more messages, or None."""
        return self.health.broken

    def reject_appends(self, reason: str | None) -> None:
        """Reject appends of clients because another broker writes this log; None: accept them."""
        self.health.follows = reason

    @property
    def last_store_ms(self) -> int:
        """Store time of the newest message when the store was opened; 0 without any."""
        return self.points.last_store_ms

    @property
    def is_index_complete(self) -> bool:
        """Whether the key index covers the whole log."""
        return self.config.index_enabled and self.points.missing_index is None

    # Writing

    def append(self, message: NewMessage, *, wait: bool = True) -> AppendResult:
        """Store one message. With SYNC_FLUSH and `wait` it returns when the message is on disk."""
        return self.flusher.settle(self.writer.append(message), wait=wait)

    def append_batch(self, message: NewMessage, *, wait: bool = True) -> AppendResult:
        """Store a batch: `message.body` holds the packed inner messages, `message.properties` go to each of them that
        has none of that name. All of it lands in one log file, or nothing."""
        measured = self.writer.measure_batch(message)
        if isinstance(measured, AppendResult):
            return measured
        return self.flusher.settle(self.writer.append(message, measured), wait=wait)

    def append_raw(self, log_offset: int, data: bytes, *, check_crc: bool = True) -> int:
        """Whole records another broker wrote for exactly `log_offset`, copied and dispatched; the log's new end."""
        self._require_open()
        end = self.writer.append_raw(log_offset, data, check_crc=check_crc)
        self._appended_raw()
        return end

    def append_stream(self, log_offset: int, data: bytes | memoryview) -> int:
        """Append a range of another broker's log, which may end within a record or span several files: its whole
        records are copied. Returns the new end of the log; StoreError for bytes that are no record."""
        self._require_open()
        try:
            return self.writer.append_stream(log_offset, data)
        finally:
            self._appended_raw()

    def _appended_raw(self) -> None:
        if self.config.flush_type is FlushType.SYNC_FLUSH:
            self.flusher.wake()
        self.announcer.announce()

    def start_at(self, log_offset: int) -> None:
        """Start an empty store as the copy of a log from `log_offset` on."""
        self._require_open()
        with self.writer.lock:
            self.writer.start_at(log_offset)
            self.points.digests.begin(self.log, log_offset)
            self.points.save()

    def raw_range(self, log_offset: int, bytes_max: int) -> memoryview:
        """Bytes of the log from its mapping, without a copy: of one file, up to the readable end. StoreError if the
        file was deleted."""
        self._require_open()
        return self.log.view_of(log_offset, bytes_max)

    def whole_range(self, log_offset: int, bytes_max: int) -> memoryview:
        """The same from a record's start, with whole records only (a blank counts as one): at least one if there is
        any, else as many as `bytes_max` holds."""
        self._require_open()
        return self.log.records_view(log_offset, bytes_max)

    def truncate_to(self, log_offset: int) -> int:
        """Cut the open store back to the record boundary at or before `log_offset`; the log's new end."""
        self._require_open()
        with self.writer.lock:
            end = self.writer.truncate_to(log_offset)
            self.points.digests.begin(self.log, end)
            self.points.save()
            return end

    @property
    def last_file_start(self) -> int:
        """Start of the log file for the next record."""
        return self.log.files.start_of(self.log.end)

    def sync_last_files(self) -> None:
        """Sync the last two log files, which may hold bytes of an earlier process that are not on disk."""
        self.flush()
        last = self.last_file_start
        for base in (last - self.config.segment_bytes, last):
            if base in self.log.files:
                self.disk.sync(self.log.files.path_of(base))

    def save_file(self, path: Path, data: bytes) -> None:
        """Replace a small file beside the log, synced with its directory."""
        self.disk.replace(path, data)

    def add_append_listener(self, listener: Callable[[], None]) -> None:
        """Called when the log may have grown, by the thread that made it grow and with no lock held: be quick."""
        self.flusher.append_listeners.append(listener)

    def remove_append_listener(self, listener: Callable[[], None]) -> None:
        """Remove the listener."""
        self.flusher.append_listeners.remove(listener)

    def add_listener(self, listener: QueueListener) -> None:
        """Called with (topic, queue id, new end offset) when a queue has new visible messages."""
        self.announcer.listeners.append(listener)

    # Flushing and upkeep

    def flush(self) -> int:
        """Make everything appended so far durable; the flushed position."""
        return self.flusher.flush()

    def flush_step(self) -> None:
        """One turn of the flush service."""
        self.flusher.step()

    def upkeep_step(self) -> None:
        """One turn of the upkeep service: queue files, recovery point, deletion, idle mappings."""
        self.upkeep.step()

    def save_recovery_point(self) -> None:
        """Flush log, queues and index as they are now, and write down how far that is."""
        self.upkeep.save_recovery_point()

    def drop_idle_mappings(self) -> None:
        """Release mappings unused since the last call."""
        self.upkeep.drop_idle_mappings()

    def calculate_bitmaps(self, bitmap_of: BitmapOf) -> None:
        """From now on ask this for the bitmap of each new message that gets an extension."""
        self.queues.extensions.calculate_bitmaps(bitmap_of)

    # Changing settings

    def reconfigure(self, config: StoreConfig) -> None:
        """Count with these settings from now on. ConfigError when one differs that an open store cannot change, and
        then nothing is changed."""
        self._require_open()
        with self._reconfiguring:
            fixed = [key for key, live in self.config.changed_to(config).items() if not live]
            if fixed:
                raise ConfigError(f"{', '.join(fixed)} cannot be changed while the store is open")
            if config.flush_type is FlushType.SYNC_FLUSH:
                self.flush()  # most of it without the lock, which holds up every append
            with self.writer.lock:
                if config.flush_type is FlushType.SYNC_FLUSH:
                    self.flush()  # or what readers have seen would disappear until the next one
                self.config = config
                for part in (self.log, self.writer, self.queries, self.flusher, self.warmer):
                    part.reconfigure(config)
                self.generation.bump()
            self.upkeep.reconfigure(config)

    # Parts that work on an open store

    def state_files(self) -> StateFiles:
        """The tables that a broker keeps beside its log."""
        return StateFiles(self.config.root, self.disk)

    def redeliverer(self, *, may_deliver_to: Callable[[str], bool]) -> Redeliverer:
        """Moves messages of this store from a waiting queue to their own."""
        return Redeliverer(self, may_deliver_to=may_deliver_to)

    def delivery_progress(self) -> DeliveryProgress:
        """The progress page of the delay levels."""
        return DeliveryProgress(self)

    def timers(self, now_ms: int) -> Timers:
        """The timer files of this store."""
        return Timers(self, now_ms)

    def fast_path_access(self) -> FastPathAccess:
        """The internals that the broker's fast path works with; everything else uses the interfaces."""
        return FastPathAccess(
            appender=self.log.appender,
            log_map=self.log.map,
            lock=self.writer.lock,
            queues=self.queues,
            health=self.health,
            generation=self.generation,
            stored=self.writer.stored_by_kernel,
            append_listeners=self.flusher.append_listeners,
            appended=self.flusher.appended,
            announce_while=self.flusher.announce_while,
            first_file=lambda: self.log.files.first,
            memory_bytes=lambda: self.queries.memory_bytes,
        )

    # Deleting

    def keep_log_from(self, position: Callable[[], int | None]) -> None:
        """Retention deletes nothing at or behind this position."""
        self.retention.keep_from(position)

    @property
    def retention(self) -> Retention:
        return self.upkeep.retention

    def clean(self) -> list[LogRange]:
        """Delete expired files now, regardless of deleteWhen."""
        self.retention.request()
        return self.upkeep.clean()

    def delete_topic(self, topic: str, *, log_end: int | None = None) -> int:
        """Remove a topic's queues, or those of them whose messages all end there or before; the messages stay in the
        log until that expires. How many queues went."""
        with self.writer.lock:
            queues = self.queues.of_topic(topic)
            if log_end is not None:
                queues = [queue for queue in queues if queue.tail.log_end <= log_end]
            for queue in queues:
                self.queues.remove(queue)
            self.dispatcher.scanner.forget_queues()
        if queues:
            self.save_recovery_point()
        return len(queues)


def tag_code(tag: str) -> int:
    """What a queue unit holds for a tag."""
    return hash_text(tag)
