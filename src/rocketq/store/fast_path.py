"""What the broker's fast path shares with an open store: the kernel objects that its compiled code writes and reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rocketq.kernel.admission import Generation
from rocketq.kernel.appender import Appender
from rocketq.kernel.reader import LogMap
from rocketq.store.admission import Health
from rocketq.store.queue_table import QueueTable


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPathAccess:
    """Made by `Store.fast_path_access`. Whoever writes with `appender` or to `queues` holds `lock`."""

    appender: Appender
    """Writes records, queue units and index entries."""
    log_map: LogMap
    """The mapped log files."""
    lock: threading.RLock
    queues: QueueTable
    health: Health
    generation: Generation
    """Bumped whenever the store's config, health, replicas or queues change."""
    stored: Callable[[], None]
    """To be called with the lock held once the kernel has appended, before anybody else gets the lock."""
    append_listeners: list[Callable[[], None]]
    """Called after every append; empty while nothing waits for appends."""
    appended: Callable[[], None]
    """To be called without the lock once the kernel has appended: announces it, or has it synced soon."""
    announce_while: Callable[[Callable[[], bool]], None]
    """Flushes announce queues that grew at once only while the given function returns True."""
    first_file: Callable[[], int | None]
    """Where the oldest log file begins; None without any."""
    memory_bytes: Callable[[], int]
    """How far behind the log's end a record counts as being in memory."""
