"""Background services: a thread that runs one bounded step per interval, and actions that are due periodically."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Periodic:
    """Named actions that are due once per interval, the first time one interval after the first question."""

    def __init__(self) -> None:
        self._last_ms: dict[str, int] = {}

    def is_due(self, name: str, interval_ms: int, now_ms: int) -> bool:
        if now_ms - self._last_ms.setdefault(name, now_ms) < interval_ms:
            return False
        self._last_ms[name] = now_ms
        return True


class Service:
    """Runs `step` every `interval_ms`, or sooner when woken; a failed step is logged and the next one is tried."""

    def __init__(self, name: str, interval_ms: int, step: Callable[[], None]) -> None:
        self._name = name
        self.interval_ms = interval_ms
        self._step = step
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"rocketq-{self._name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        """Ends after the step under way; returns when the thread is gone."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self.interval_ms / 1000)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self._step()
            except Exception:  # a service outlives a failed step; what failed is in the log
                log.exception("%s: a step failed", self._name)
