"""Watches the event loop: how late its timers are, how busy its thread is, and whether it is stuck.

A stuck loop cannot answer `/livez`. So a thread looks at the time of the loop's last beat; when that is older than
`STUCK_S`, the thread accepts connections of the listening socket itself, and answers them with 503 and the stack of
the loop's thread, until the loop beats again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Final

from rocketq.remoting.http_server import HEAD_BYTES_MAX, HttpResponse
from rocketq.runtime.metrics import Counters, Histograms, Snapshot, counter, histogram

log = logging.getLogger(__name__)

BEAT_S: Final = 0.1
STUCK_S: Final = 5.0
_LOOK_S: Final = 1.0
_PEER_S_MAX: Final = 1.0
LOOP_DELAY: Final = histogram(
    "rocketq_event_loop_delay_seconds",
    "How late a timer of the event loop ran that is set every 100 ms.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
)
LOOP_BUSY: Final = counter("rocketq_event_loop_busy_seconds_total", "CPU seconds of the event loop's thread.")


class LoopWatch:
    """Belongs to the loop it is started on."""

    def __init__(self) -> None:
        self._delays = Histograms(LOOP_DELAY)
        self._busy = Counters(LOOP_BUSY)
        self._beat_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._sockets: Sequence[socket.socket] = ()
        self._thread_id = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, sockets: Sequence[socket.socket] = ()) -> None:
        """`sockets` listen; the thread accepts their connections while the loop is stuck."""
        self._sockets = [one.dup() for one in sockets]
        self._thread_id = threading.get_ident()
        self._stopped.clear()
        self._beat(time.monotonic())
        self._thread = threading.Thread(target=self._watch, name="rocketq-loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for one in self._sockets:
            one.close()
        self._sockets = ()

    @property
    def silent_s(self) -> float:
        """Seconds since the loop last ran a timer."""
        return time.monotonic() - self._beat_s

    def collect(self, snapshot: Snapshot) -> Iterator[None]:
        self._busy.values[()] = time.thread_time()
        yield from self._delays.collect(snapshot)
        yield from self._busy.collect(snapshot)

    def _beat(self, due_s: float) -> None:
        now_s = time.monotonic()
        self._delays.observe((), max(0.0, now_s - due_s))
        self._beat_s = now_s
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat, now_s + BEAT_S)

    # in the thread

    def _watch(self) -> None:
        reported = False
        while not self._stopped.wait(_LOOK_S):
            if self.silent_s < STUCK_S:
                reported = False
                continue
            if not reported:
                reported = True
                log.error("the event loop is stuck for %.1f s\n%s", self.silent_s, self._stack())
            self._answer_instead()

    def _answer_instead(self) -> None:
        while self.silent_s >= STUCK_S and not self._stopped.is_set():
            if not self._sockets:
                return
            ready, _, _ = select.select(self._sockets, [], [], BEAT_S)
            for listening in ready if self.silent_s >= STUCK_S else ():
                with contextlib.suppress(OSError):
                    peer, _ = listening.accept()
                    with peer:
                        self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        peer.settimeout(_PEER_S_MAX)
        peer.recv(HEAD_BYTES_MAX)
        text = f"the event loop is stuck for {self.silent_s:.1f} s\n\n{self._stack()}"
        response = HttpResponse.text(503, text)
        peer.sendall(response.head(keep_alive=False) + b"".join(response.body))
        peer.shutdown(socket.SHUT_WR)

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread_id)
        return "" if frame is None else "".join(traceback.format_stack(frame))
