"""Who waits for the disk: appends that want to be durable, released by log position."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketq.runtime.clock import Clock
from rocketq.runtime.service import Periodic, Service
from rocketq.store.admission import Health
from rocketq.store.commit_log import CommitLog
from rocketq.store.config import FlushType, StoreConfig
from rocketq.store.disk import lacks_descriptors
from rocketq.store.results import AppendResult, AppendStatus

if TYPE_CHECKING:
    from rocketq.store.writer import Writer

log = logging.getLogger(__name__)


class FlushGate:
    """Positions reached, and those waiting for one. Threads wait(); event loops hold() a callback.

    A callback is called on the thread that releases it and gets True when its position was reached, False when the
    gate was shut because it never will be.
    """

    def __init__(self, position: int = 0) -> None:
        self._changed = threading.Condition()
        self._position = position
        self._shut = False
        self._held: list[tuple[int, int, Callable[[bool], None]]] = []
        self._order = itertools.count()

    @property
    def position(self) -> int:
        return self._position

    def wait(self, position: int, timeout_ms: int) -> bool:
        """True when the position was reached in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._position >= position or self._shut, timeout_ms / 1000)
            return self._position >= position

    def hold(self, position: int, callback: Callable[[bool], None]) -> None:
        """Call back once the position is reached, immediately if it is already."""
        with self._changed:
            if self._position < position and not self._shut:
                heapq.heappush(self._held, (position, next(self._order), callback))
                return
            reached = self._position >= position
        callback(reached)

    def release(self, position: int) -> None:
        """This far it is safe."""
        due = []
        with self._changed:
            self._position = max(self._position, position)
            while self._held and self._held[0][0] <= self._position:
                due.append(heapq.heappop(self._held)[2])
            self._changed.notify_all()
        for callback in due:
            callback(True)

    def shut(self) -> None:
        """Release all waiters: no further position will be reached."""
        with self._changed:
            self._shut = True
            due = [callback for _, _, callback in self._held]
            self._held.clear()
            self._changed.notify_all()
        for callback in due:
            callback(False)


class ReplicaGate(FlushGate):
    """Positions that replicas have reached, with what those who answer need to know about waiting for them."""

    def __init__(self, is_available: Callable[[int], bool], timeout_ms: Callable[[], int]) -> None:
        super().__init__(0)
        self.is_available = is_available
        """Whether there is anybody who may reach this position in time."""
        self._timeout_ms = timeout_ms

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms()


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
        self._due = Periodic()
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
        """Whether anything waits for new messages. A new waiter reads its queue first, so that without waiters periodic
        announcements are enough."""
        self.is_awaited = has_waiters

    def flush(self, *, pages_min: int = 0, in_passing: bool = False) -> int:
        """Flush everything appended so far (nothing below `pages_min` pages); returns the flushed position. Announces
        new messages only if something waits for them."""
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
        """Request a flush soon; without the flush thread, flush now."""
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
