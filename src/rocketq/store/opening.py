"""Around the opening of a store: telling how far it is."""

from __future__ import annotations

import logging
import time

from rocketq.store.recovery import Progress

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 2


def log_progress() -> Progress:
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
