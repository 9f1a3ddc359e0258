"""The listening side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketq.errors import UnreachableError
from rocketq.remoting.address import join_addr
from rocketq.remoting.connection import CloseCallback, Connection, Endpoint
from rocketq.remoting.dispatch import Dispatcher
from rocketq.remoting.feed import Feed, feed_frames
from rocketq.remoting.idle import IdleWatch
from rocketq.remoting.limits import Limits
from rocketq.remoting.room import ConnectionRoom
from rocketq.remoting.tls import ServerTls, TlsConfig

_BACKLOG = 1024
_FLUSH_LOOK_S = 0.01


class Server:
    """Accepts connections and has their requests answered until it is stopped."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        limits: Limits | None = None,
        tls: TlsConfig | None = None,
        feed: Feed = feed_frames,
        draining: Callable[[], None] = lambda: None,
    ) -> None:
        """`draining` is called when no more requests are taken."""
        self._on_draining = draining
        self._endpoint = Endpoint(
            dispatcher=dispatcher,
            feed=feed,
            limits=limits or Limits(),
            tls=ServerTls(tls or TlsConfig()),
            holds_back=True,
        )
        self._idle = IdleWatch(self._endpoint.connections, self._endpoint.limits.idle_ms)
        self._server: asyncio.Server | None = None
        self.host, self.port = "", 0

    @property
    def addr(self) -> str:
        return join_addr(self.host, self.port)

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset(self._endpoint.connections)

    def add_close_callback(self, callback: CloseCallback) -> None:
        """Called with every connection after it is gone."""
        self._endpoint.close_callbacks.append(callback)

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 picks a free one, which `port` then tells."""
        self._endpoint.room = ConnectionRoom(self._endpoint.limits.connections_max)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._accept, host, port, backlog=_BACKLOG, reuse_address=True)
        except OSError as error:
            raise UnreachableError(join_addr(host, port), f"cannot listen here: {error.strerror or error}") from None
        self.host, self.port = host, self._server.sockets[0].getsockname()[1]
        self._idle.start()

    async def stop(self, drain_ms: int = 3_000) -> None:
        """No new connections and requests; handlers under way finish and answers are sent, but no longer than this."""
        if self._server is None:
            return
        self._server.close()
        self._endpoint.draining = True
        self._on_draining()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + drain_ms / 1000
        await self._endpoint.dispatcher.finish(drain_ms)
        self._close_all()
        while self._endpoint.connections and loop.time() < deadline_s:
            await asyncio.sleep(_FLUSH_LOOK_S)
        await self._abort_all()
        self._idle.stop()
        await self._server.wait_closed()
        self._server = None

    def _accept(self) -> Connection:
        return Connection(self._endpoint)

    def _close_all(self) -> None:
        for connection in self.connections:
            connection.close()

    async def _abort_all(self) -> None:
        for connection in self.connections:
            connection.abort("it did not read its answers before the end")
        await asyncio.sleep(0)  # connection_lost comes in the next turn of the loop
