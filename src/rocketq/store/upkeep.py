"""What keeps a store in order while it runs: queue files, recovery points, old files, idle mappings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from rocketq.runtime.clock import Clock
from rocketq.runtime.service import Periodic, Service
from rocketq.store.admission import Health
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import ConsumeQueue, QueueTable
from rocketq.store.disk import Disk
from rocketq.store.flush import Flusher
from rocketq.store.index import Index
from rocketq.store.recovery_point import RecoveryPointWriter
from rocketq.store.writer import Writer

log = logging.getLogger(__name__)

INTERVAL_MS = 500
QUEUE_SYNCS_MAX = 200  # per turn: syncing thousands of queues at a time delayed appends


class Upkeep:
    """The upkeep service, and the parts of it that can be requested."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        commit_log: CommitLog,
        queues: QueueTable,
        index: Index,
        writer: Writer,
        flusher: Flusher,
        points: RecoveryPointWriter,
        health: Health,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._writer = writer
        self._flusher = flusher
        self._points = points
        self._health = health
        self.retention = Retention(config, commit_log.disk, commit_log, self._after_deletion)
        self._due = Periodic()
        self._round: Iterator[ConsumeQueue] | None = None
        self._service: Service | None = None

    def start(self) -> None:
        self._service = Service("upkeep", INTERVAL_MS, self.step)
        self._service.start()

    def stop(self) -> None:
        if self._service is not None:
            self._service.stop()

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config
        self.retention.reconfigure(config)
        self.check_disk()

    def step(self) -> None:
        """One turn of the service."""
        config, now_ms = self._config, self._clock.monotonic_ms()
        if self._due.is_due("queues", config.queue_flush_interval_ms, now_ms):
            self._flush_queues(config.queue_flush_pages_min)
        if self._due.is_due("point", config.queue_flush_thorough_interval_ms, now_ms):
            self.save_recovery_point()
        if self._due.is_due("clean", config.clean_interval_ms, now_ms):
            self.clean()
        if self._due.is_due("idle", config.idle_mapping_ms, now_ms):
            self.drop_idle_mappings()

    def _flush_queues(self, pages_min: int) -> None:
        """Flush queues that have grown, a limited number per turn. Correctness does not depend on it: all queues are
        flushed before a recovery point is written, and later units are rebuilt from the log."""
        left = QUEUE_SYNCS_MAX
        if self._round is None:
            self._round = iter(list(self._queues))
        for queue in self._round:
            left -= queue.flush(pages_min=pages_min)
            if left == 0:
                return
        self._round = None

    def save_recovery_point(self) -> None:
        """Flush log, queues and index as they are now, and write down how far that is."""
        self._flusher.flush()
        self._points.save()

    def drop_idle_mappings(self) -> None:
        """Release mappings unused since the last call."""
        with self._writer.lock:
            self._log.drop_idle_mappings()
            self._index.drop_idle_mappings()
            for queue in self._queues:
                queue.drop_idle_mappings()

    def drop_mappings(self) -> None:
        """All but those in use this moment: the second time nothing has been used since the first."""
        self.drop_idle_mappings()
        self.drop_idle_mappings()

    # Old files

    def check_disk(self) -> DiskState:
        state = self.retention.disk_state()
        self._health.disk_full = state.refuse
        return state

    def clean(self) -> list[LogRange]:
        """Delete what may and should go now; the ranges of the log that went."""
        deleted = self.retention.run_once(self._clock.now_ms(), self.check_disk())
        if deleted:
            self.check_disk()
            self.save_recovery_point()  # the old one names files that are gone
        return deleted

    def _after_deletion(self, gone: LogRange) -> None:
        with self._writer.lock:
            for queue in self._queues:
                queue.delete_before(gone.end)
                queue.correct_min(gone.end)
                queue.delete_old_extensions()
            self._index.delete_before(gone.end)


FILES_PER_PASS_MAX = 10
MANUAL_PASSES = 20


@dataclass(frozen=True, slots=True)
class DiskState:
    """What the fullest of the store's file systems calls for."""

    used_ratio: float
    refuse: str | None
    clean_now: bool
    above_limit: bool


def judge_disk(config: StoreConfig, ratios: dict[str, float]) -> DiskState:
    """Pure: used ratios by directory in, what follows out."""
    fullest = max(ratios, key=lambda name: ratios[name])
    ratio = ratios[fullest]
    refuse = None
    if ratio > config.disk_refuse_ratio:
        refuse = f"the disk of {fullest} is {ratio:.1%} full, writes are refused above {config.disk_refuse_ratio:.0%}"
    return DiskState(
        used_ratio=ratio,
        refuse=refuse,
        clean_now=ratio > config.disk_force_clean_ratio,
        above_limit=ratio > min(max(config.disk_used_percent_max, 10), 95) / 100,
    )


def expired(config: StoreConfig, modified_ms: int, now_ms: int) -> bool:
    return modified_ms + config.reserved_hours * 3_600_000 <= now_ms


class Retention:
    """Deletes expired log files, one pass at a time, independent of consumer progress: a group that is behind continues
    at the new minimum.

    `keep_from` is a log position that replicas still need: nothing at or behind it is deleted.
    """

    def __init__(
        self, config: StoreConfig, disk: Disk, commit_log: CommitLog, on_deleted: Callable[[LogRange], None]
    ) -> None:
        self._config = config
        self._disk = disk
        self._log = commit_log
        self._on_deleted = on_deleted
        self._manual_passes = 0
        self._keep_from: Callable[[], int | None] = lambda: None
        self.pause: Callable[[float], None] = time.sleep
        self._warned_full = False

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config

    def keep_from(self, position: Callable[[], int | None]) -> None:
        self._keep_from = position

    @property
    def kept_from(self) -> int | None:
        return self._keep_from()

    def request(self) -> None:
        """Request deletion of expired files, regardless of deleteWhen."""
        self._manual_passes = MANUAL_PASSES

    def disk_state(self) -> DiskState:
        paths = {str(path): path for path in (self._config.log_dir, self._config.root)}
        state = judge_disk(self._config, {name: self._disk.usage(path).used_ratio for name, path in paths.items()})
        if (state.refuse is not None) != self._warned_full:
            self._warned_full = state.refuse is not None
            log.error("%s", state.refuse) if state.refuse else log.info("the disk has room again: writes are accepted")
        return state

    def run_once(self, now_ms: int, disk: DiskState) -> list[LogRange]:
        """Delete expired files, oldest first; returns the deleted log ranges. Disk usage is checked after every
        file."""
        at_hour = datetime.fromtimestamp(now_ms / 1000).hour in self._config.delete_hours
        if not (at_hour or disk.above_limit or self._manual_passes > 0):
            return []
        self._manual_passes = max(self._manual_passes - 1, 0)
        force = disk.clean_now and self._config.force_clean_enabled
        deleted: list[LogRange] = []
        while len(deleted) < FILES_PER_PASS_MAX and self._first_may_go(now_ms, force=force):
            if deleted:
                self.pause(self._config.delete_pause_ms / 1000)
            gone = self._log.delete_first()
            deleted.append(gone)
            log.warning("retention: log range [%d, %d) deleted (%s); groups behind it continue at the new minimum",
                        gone.start, gone.end, "the disk is filling up" if force else "it expired")  # fmt: skip
            self._on_deleted(gone)
            force = force and self.disk_state().clean_now
        return deleted

    def _first_may_go(self, now_ms: int, *, force: bool) -> bool:
        files = self._log.files
        first, keep_from = files.first, self.kept_from
        if first is None or not self._log.is_finished(first):
            return False
        if first + self._config.segment_bytes > self._log.positions.flushed:
            return False
        if keep_from is not None and first + self._config.segment_bytes > keep_from:
            return False
        modified_ms = files.path_of(first).stat().st_mtime_ns // 1_000_000
        return force or expired(self._config, modified_ms, now_ms)
