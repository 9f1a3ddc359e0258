"""A listening port: accepts connections, limits them, and drains them on stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rocketq.errors import UnreachableError
from rocketq.remoting.address import join_addr
from rocketq.remoting.connection import CloseCallback, Connection, Endpoint
from rocketq.remoting.dispatch import Dispatcher
from rocketq.remoting.frame_reader import FrameReader, read_frames
from rocketq.remoting.limits import ConnectionLimit, IdleWatch, Limits
from rocketq.remoting.tls import ServerTls, TlsConfig

_BACKLOG = 1024
_FLUSH_POLL_S = 0.01
_TLS_CHECK_S = 5


class Server:
    """Accepts connections and serves their requests until it is stopped."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        limits: Limits | None = None,
        tls: TlsConfig | None = None,
        frame_reader: FrameReader = read_frames,
        draining: Callable[[], None] = lambda: None,
    ) -> None:
        """`draining` is called when the server stops handling new requests."""
        self._on_draining = draining
        self._endpoint = Endpoint(
            dispatcher=dispatcher,
            frame_reader=frame_reader,
            limits=limits or Limits(),
            tls=ServerTls(tls or TlsConfig()),
            backpressure=True,
        )
        self._idle = IdleWatch(self._endpoint.connections, self._endpoint.limits.idle_ms)
        self._server: asyncio.Server | None = None
        self._tls_timer: asyncio.TimerHandle | None = None
        self.host, self.port = "", 0

    @property
    def addr(self) -> str:
        return join_addr(self.host, self.port)

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset(self._endpoint.connections)

    def add_close_callback(self, callback: CloseCallback) -> None:
        """Called with every connection after it is closed."""
        self._endpoint.close_callbacks.append(callback)

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 picks a free port, which `port` then holds."""
        self._endpoint.connection_limit = ConnectionLimit(self._endpoint.limits.connections_max)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._accept, host, port, backlog=_BACKLOG, reuse_address=True)
        except OSError as error:
            raise UnreachableError(join_addr(host, port), f"cannot listen: {error.strerror or error}") from None
        self.host, self.port = host, self._server.sockets[0].getsockname()[1]
        self._idle.start()
        self._maintain_tls()

    async def stop(self, drain_ms: int = 3_000) -> None:
        """Stop accepting connections and requests; wait up to `drain_ms` for running handlers and unsent answers."""
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
            await asyncio.sleep(_FLUSH_POLL_S)
        await self._abort_all()
        self._idle.stop()
        if self._tls_timer is not None:
            self._tls_timer.cancel()
        await self._server.wait_closed()
        self._server = None

    @property
    def certificate_days_left(self) -> float | None:
        """Days until the configured certificate expires, for metrics; None without one."""
        return None if self._endpoint.tls is None else self._endpoint.tls.days_left(int(time.time() * 1000))

    def _maintain_tls(self) -> None:
        if self._endpoint.tls is not None:
            self._endpoint.tls.maintain(int(time.time() * 1000))
            self._tls_timer = asyncio.get_running_loop().call_later(_TLS_CHECK_S, self._maintain_tls)

    def _accept(self) -> Connection:
        return Connection(self._endpoint)

    def _close_all(self) -> None:
        for connection in self.connections:
            connection.close()

    async def _abort_all(self) -> None:
        for connection in self.connections:
            connection.abort("the peer did not read its answers before the server stopped")
        await asyncio.sleep(0)  # the loop calls connection_lost in its next turn
