"""Long polling: wakes held pulls on new messages, at deadlines and at periodic rechecks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic

from rocketq.broker.pull.held_pulls import HeldPull, HeldPulls, HoldLimits, Payload, QueueKey
from rocketq.remoting import Connection
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import collect

RECHECK_MS: Final = 5_000
SLICE_MS: Final = 10  # per turn of the loop, if very many pulls wake together

Serve = Callable[[HeldPull[Payload], bool], bool]
"""Answer a pull; False keeps it held (ignored if `last`)."""


class LongPolling(Generic[Payload]):
    """Holds and wakes pulls. Any thread may call `on_queue_grown`; all else runs on the loop."""

    def __init__(
        self,
        clock: Clock,
        end_of: Callable[[QueueKey], int],
        serve: Serve[Payload],
        *,
        limits: Callable[[], HoldLimits],
    ) -> None:
        self._clock = clock
        self._end_of = end_of
        self._serve = serve
        self._limits = limits
        self._held: HeldPulls[Payload] = HeldPulls()
        self._woken: deque[tuple[HeldPull[Payload], bool]] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._grown: dict[QueueKey, int] = {}
        self._grown_lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held) + len(self._woken)

    def hold(self, pull: HeldPull[Payload]) -> str | None:
        """Hold a pull; returns which limit forbids it, or None."""
        if (fault := self._held.limit_fault(pull, self._limits(), len(self._woken))) is not None:
            return fault
        self._held.hold(pull)
        if self._end_of(pull.queue) > pull.scan_offset:  # a message arrived between the read and the hold
            self._loop.call_soon(self._wake, pull.queue, self._end_of(pull.queue))
        self._arm()
        return None

    def on_queue_grown(self, topic: str, queue_id: int, end: int) -> None:
        queue = (topic, queue_id)
        if not self._held.waits_for(queue):
            return
        with self._grown_lock:
            first = not self._grown
            self._grown[queue] = end
        if first:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake_grown)

    def forget(self, connection: Connection) -> None:
        self._held.on_disconnect(connection)

    async def recheck(self) -> None:
        """Answer pulls whose queue has grown, matching or not."""
        await collect(self._recheck_each())

    def _recheck_each(self) -> Iterator[None]:
        for pulls in self._held.on_recheck(self._end_of):
            self._serve_each(pulls, last=True)
            yield

    def expire(self) -> None:
        """Answer pulls whose deadline has passed."""
        self._serve_each(self._held.on_deadline(self._clock.monotonic_ms()), last=True)

    def stop(self) -> None:
        """Answer all held pulls."""
        if self._timer is not None:
            self._timer.cancel()
        woken, self._woken = self._woken, deque()
        for pull in [*(pull for pull, _ in woken), *self._held.release_all()]:
            self._serve(pull, True)

    def _wake_grown(self) -> None:
        with self._grown_lock:
            grown, self._grown = self._grown, {}
        for queue, end in grown.items():
            self._wake(queue, end)

    def _wake(self, queue: QueueKey, end: int) -> None:
        self._serve_each(self._held.on_append(queue, end), last=False)

    def _serve_each(self, pulls: Iterable[HeldPull[Payload]], *, last: bool) -> None:
        waits = bool(self._woken)  # a slice is scheduled already
        self._woken.extend((pull, last) for pull in pulls)
        if not waits:
            self._serve_slice()

    def _serve_slice(self) -> None:
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        try:
            while self._woken:
                pull, last = self._woken.popleft()
                if not self._serve(pull, last) and not _is_gone(pull.connection):
                    self._held.hold(pull)
                if self._clock.monotonic_ms() >= until_ms:
                    return
        finally:
            if self._woken:
                self._loop.call_soon(self._serve_slice)

    def _arm(self) -> None:
        """Arm the timer for the earliest deadline."""
        deadline_ms = self._held.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        wait_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(wait_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.expire()
        self._arm()


def _is_gone(connection: object) -> bool:
    """Whether the connection closed while its pull was being served; such a pull must not be held again."""
    return isinstance(connection, Connection) and connection.is_closed
