"""Connections on which nothing moves are closed; one timer watches all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rocketq.remoting.connection import Connection

_LOOKS_PER_SPAN = 24


class IdleWatch:
    """Looks at all connections every 24th of `idle_ms`, that is every 5 s by default."""

    def __init__(self, connections: Iterable[Connection], idle_ms: int) -> None:
        self._connections = connections
        self._idle_ms = idle_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_ms / _LOOKS_PER_SPAN / 1000, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        idle = [connection for connection in self._connections if connection.idle_ms() >= self._idle_ms]
        for connection in idle:
            if connection.unsent_bytes:
                connection.abort(f"nothing was read for {self._idle_ms} ms")  # closing would wait for it for ever
            else:
                connection.close(f"idle for {self._idle_ms} ms")
        self.start()
