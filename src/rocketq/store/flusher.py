"""The one who syncs the log: by itself every so often, or when somebody waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketq.runtime.clock import Clock
from rocketq.runtime.service import Service
from rocketq.store.admission import Health
from rocketq.store.commit_log import CommitLog
from rocketq.store.config import FlushType, StoreConfig
from rocketq.store.disk import lacks_descriptors
from rocketq.store.due import Due
from rocketq.store.results import AppendResult, AppendStatus
from rocketq.store.writer import Writer

log = logging.getLogger(__name__)


class Flusher:
    """Releases the writer's gate and announces what has become visible. Without its service, appends that must be on
    disk are synced by their own thread."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        commit_log: CommitLog,
        writer: Writer,
        health: Health,
        announce: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = commit_log
        self._writer = writer
        self._health = health
        self._announce = announce
        self.append_listeners: list[Callable[[], None]] = []
        self.is_awaited: Callable[[], bool] = lambda: True
        self._due = Due()
        self._waits = False
        self._service: Service | None = None

    def start(self) -> None:
        self._service = Service("flush", _interval_ms(self._config), self.step)
        self._service.start()

    def stop(self) -> None:
        if self._service is not None:
            self._service.stop()

    def reconfigure(self, config: StoreConfig) -> None:
        """Count from now on; the caller has seen to it that everything is flushed when flushing becomes a must."""
        self._config = config
        if self._service is not None:
            self._service.interval_ms = _interval_ms(config)
            self._service.wake()  # it may be in the middle of a wait that is far too long now

    def announce_while(self, has_waiters: Callable[[], bool]) -> None:
        """Whether anybody waits to hear of queues that grow. Whoever begins to looks at its queue first, so that
        otherwise it is enough to announce them from time to time."""
        self.is_awaited = has_waiters

    def flush(self, *, pages_min: int = 0, in_passing: bool = False) -> int:
        """Make everything appended so far durable (or nothing, below `pages_min` pages); the flushed position. What was
        done in passing is announced only when somebody waits."""
        try:
            position = self._log.flush(pages_min=pages_min)
        except OSError as error:
            if not lacks_descriptors(error):
                self._health.stop_writing(f"the log could not be flushed: {error}")
                self._writer.gate.shut()
            raise
        self._writer.gate.release(position)
        if not in_passing or self.is_awaited():  # asked after the position has moved: who comes later sees it there
            self._announce()
        return position

    def settle(self, result: AppendResult, *, wait: bool) -> AppendResult:
        """What an append still needs: to be announced, or with SYNC_FLUSH to reach the disk."""
        if result.status is not AppendStatus.OK:
            return result
        self.appended()
        waits = wait and self._service is not None and self._config.flush_type is FlushType.SYNC_FLUSH
        if waits and not self._writer.gate.wait(result.end, self._config.sync_flush_timeout_ms):
            result.status = AppendStatus.FLUSH_DISK_TIMEOUT
            result.reason = self._health.broken or "the disk did not take the message in time"
        return result

    def appended(self) -> None:
        """There is more in the log: it is announced, or made durable soon where it must be."""
        self._tell_appended()
        if self._config.flush_type is FlushType.ASYNC_FLUSH:
            if self.is_awaited():
                self._announce()
        else:
            self.wake()

    def wake(self) -> None:
        """Something was written that should be on disk soon; without the service, at once."""
        if self._service is None:
            self.flush()
        else:
            self._service.wake()

    def _tell_appended(self) -> None:
        for listener in self.append_listeners:
            listener()

    def step(self) -> None:
        """One turn of the service. Where the process may open no more files, what is to be flushed waits."""
        try:
            self._step()
            self._waits = False
        except OSError as error:
            if not lacks_descriptors(error):
                raise
            if not self._waits:
                log.error("the log is not flushed for now: %s", error)
            self._waits = True
            self._log.disk.on_pressure()

    def _step(self) -> None:
        config, now_ms = self._config, self._clock.monotonic_ms()
        if config.flush_type is FlushType.SYNC_FLUSH:
            thorough = self._due.is_due("thorough", config.flush_thorough_interval_ms, now_ms)
            self.flush(in_passing=not thorough)
        else:
            self._step_lazily(config, now_ms)
        self._log.prepare()

    def _step_lazily(self, config: StoreConfig, now_ms: int) -> None:
        if config.transient_buffer:
            thorough = self._due.is_due("commit", config.commit_thorough_interval_ms, now_ms)
            if self._log.commit(pages_min=0 if thorough else config.commit_pages_min):
                self._announce()
                self._tell_appended()
            if not self._due.is_due("flush", config.flush_interval_ms, now_ms):
                return
        thorough = self._due.is_due("thorough", config.flush_thorough_interval_ms, now_ms)
        self.flush(pages_min=0 if thorough else config.flush_pages_min, in_passing=not thorough)


def _interval_ms(config: StoreConfig) -> int:
    return config.commit_interval_ms if config.transient_buffer else config.flush_interval_ms
