"""What keeps a store in order while it runs: queue files, recovery points, old files, idle mappings."""

from __future__ import annotations

from collections.abc import Iterator

from rocketq.runtime.clock import Clock
from rocketq.runtime.service import Service
from rocketq.store.admission import Health
from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.due import Due
from rocketq.store.flusher import Flusher
from rocketq.store.index import Index
from rocketq.store.point_keeper import PointKeeper
from rocketq.store.queue_table import QueueTable
from rocketq.store.retention import DiskState, Retention
from rocketq.store.writer import Writer

INTERVAL_MS = 500
QUEUE_SYNCS_MAX = 200  # in a turn: with thousands of queues that grow alike, syncing them held up everybody else


class Upkeep:
    """A service of its own, and what of it can be asked for at once."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        commit_log: CommitLog,
        queues: QueueTable,
        index: Index,
        writer: Writer,
        flusher: Flusher,
        points: PointKeeper,
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
        self._due = Due()
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
        """Those that have grown, some in a turn; the next one goes on behind them. Nothing rests on this: before a
        recovery point is written all queues are flushed, and what came after it is in the log."""
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
        """Let go of mappings nobody used since the last call."""
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
