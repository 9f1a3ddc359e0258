"""Limits of connections: the settings, the count of connections, and the idle timeout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketq.protocol.frame import FRAME_BYTES_MAX
from rocketq.runtime.file_limit import file_limit

if TYPE_CHECKING:
    from rocketq.remoting.connection import Connection

log = logging.getLogger(__name__)

_IDLE_CHECKS_PER_TIMEOUT = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits per connection; the first two are totals over all connections of a server or pool."""

    connections_max: int = 0
    """A server drops connections beyond this. 0: half of the files the process may open; the store needs the rest."""
    unfinished_bytes_max: int = 512 << 20
    """Bytes kept of unfinished frames; a connection that exceeds the limit is dropped."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    idle_ms: int = 120_000
    """A connection is closed after this time without a read or a write."""
    write_high_bytes: int = 1 << 20
    """With more unsent bytes, a server stops reading from the peer and answering it."""
    write_bytes_max: int = 64 << 20
    """With more unsent bytes, the connection is dropped."""
    calls_max: int = 65_535
    """Requests to the peer without an answer yet."""
    connect_timeout_ms: int = 3_000


class ConnectionLimit:
    """The number of connections a server accepts, so that the store keeps enough file descriptors."""

    def __init__(self, connections_max: int = 0, *, what: str = "connections") -> None:
        self._connections_max = connections_max or file_limit() // 2
        self._what = what
        self._exceeded = False

    def allows(self, count: int) -> bool:
        """Whether `count` connections, the new one included, are allowed. Logs once each time the limit is reached."""
        if count <= self._connections_max:
            self._exceeded = False
            return True
        if not self._exceeded:
            self._exceeded = True
            log.warning("limit of %s reached (%d): dropping new ones", self._what, self._connections_max)
        return False


class IdleWatch:
    """Closes connections without reads and writes for `idle_ms`; one timer checks all of them 24 times per timeout."""

    def __init__(self, connections: Iterable[Connection], idle_ms: int) -> None:
        self._connections = connections
        self._idle_ms = idle_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_ms / _IDLE_CHECKS_PER_TIMEOUT / 1000, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        idle = [connection for connection in self._connections if connection.idle_ms() >= self._idle_ms]
        for connection in idle:
            if connection.unsent_bytes:
                connection.abort(f"the peer read nothing for {self._idle_ms} ms")  # close() would wait for it forever
            else:
                connection.close(f"idle for {self._idle_ms} ms")
        self.start()
