"""Client connections: one per address, opened on first use and reopened after a loss."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from functools import partial

from rocketq.errors import ConnectionClosedError, RequestTimeoutError, UnreachableError
from rocketq.protocol.acl import Credentials
from rocketq.protocol.codes import request_text
from rocketq.protocol.command import Command
from rocketq.remoting.address import split_addr
from rocketq.remoting.connection import Connection, Endpoint
from rocketq.remoting.dispatch import Dispatcher, Hook
from rocketq.remoting.limits import IdleWatch, Limits
from rocketq.remoting.signing import sign_now
from rocketq.remoting.tls import ClientTls

_HEADER_BYTES_MAX = 4 << 20  # of answers: servers are trusted more than clients

PoolCallback = Callable[[str, Connection], None]


class ConnectionPool:
    """Sends requests to peers by address; the dispatcher handles the peers' requests. Belongs to one event loop."""

    def __init__(
        self,
        dispatcher: Dispatcher | None = None,
        *,
        limits: Limits | None = None,
        tls: ClientTls | None = None,
        hooks: Sequence[Hook] = (),
        credentials: Credentials | None = None,
    ) -> None:
        """With `credentials` every request is signed."""
        self._endpoint = Endpoint(
            dispatcher=dispatcher or Dispatcher(),
            limits=limits or Limits(header_bytes_max=_HEADER_BYTES_MAX),
            call_hooks=list(hooks),
        )
        self._tls: ssl.SSLContext | None = tls.context() if tls is not None else None
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._idle: IdleWatch | None = None
        self._open_callbacks: list[PoolCallback] = []
        self._close_callbacks: list[PoolCallback] = []
        self._closed = False
        self._credentials = credentials

    def add_open_callback(self, callback: PoolCallback) -> None:
        """Called with the address and the connection after it is opened."""
        self._open_callbacks.append(callback)

    def add_close_callback(self, callback: PoolCallback) -> None:
        """Called with the address and the connection after it is closed."""
        self._close_callbacks.append(callback)

    async def invoke(self, addr: str, command: Command, timeout_ms: int = 3_000) -> Command:
        """The answer of the peer with any code; RemotingError without an answer."""
        deadline_s = _now_s() + timeout_ms / 1000
        connection = await self.ready(addr, command.code, timeout_ms)
        if self._credentials is not None:
            command = sign_now(command, self._credentials)
        return await connection.call(command, max(1, int((deadline_s - _now_s()) * 1000)))

    async def invoke_oneway(self, addr: str, command: Command, timeout_ms: int = 3_000) -> None:
        """Return when the request is written to the transport."""
        connection = await self.ready(addr, command.code, timeout_ms)
        if self._credentials is not None:
            command = sign_now(command, self._credentials)
        connection.call_oneway(command)

    @property
    def addrs(self) -> frozenset[str]:
        """Addresses with an open connection."""
        return frozenset(addr for addr, connection in self._open.items() if not connection.is_closed)

    def opened(self, addr: str) -> Connection | None:
        """The open connection to this address, or None."""
        connection = self._open.get(addr)
        return None if connection is None or connection.is_closed else connection

    async def connection(self, addr: str, timeout_ms: int | None = None) -> Connection:
        """The connection to this address, opened if needed; UnreachableError on failure."""
        connection = self._open.get(addr)
        if connection is not None and not connection.is_closed:
            return connection
        connect_ms = self._endpoint.limits.connect_timeout_ms
        wait_ms = connect_ms if timeout_ms is None else min(timeout_ms, connect_ms)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await asyncio.shield(self._connect_task(addr))  # other callers may wait for the same task
        except TimeoutError:
            raise UnreachableError(addr, f"no connection within {wait_ms} ms") from None

    async def disconnect(self, addr: str) -> None:
        """Close the connection to this address, if any."""
        if (connection := self._open.pop(addr, None)) is not None:
            connection.close()

    async def close(self) -> None:
        """Close all connections; pending requests raise ConnectionClosedError."""
        self._closed = True
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        if self._idle is not None:
            self._idle.stop()
        for connection in list(self._endpoint.connections):
            connection.close()
        await self._endpoint.dispatcher.finish(timeout_ms=0)
        while self._endpoint.connections:
            await asyncio.sleep(0)

    async def ready(self, addr: str, code: int, timeout_ms: int) -> Connection:
        """A connection whose peer reads what is sent, for a request of this code."""
        deadline_s = _now_s() + timeout_ms / 1000
        connection = await self.connection(addr, timeout_ms)
        if connection.writes_paused:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await connection.wait_writable()
            except TimeoutError:
                raise RequestTimeoutError(addr, code, timeout_ms, request_text(code)) from None
        return connection

    def _connect_task(self, addr: str) -> asyncio.Task[Connection]:
        if self._closed:
            raise ConnectionClosedError(addr, "the pool is closed")
        task = self._opening.get(addr)
        if task is None:
            task = self._opening[addr] = asyncio.get_running_loop().create_task(self._connect(addr))
            task.add_done_callback(partial(self._connected, addr))
        return task

    async def _connect(self, addr: str) -> Connection:
        host, port = split_addr(addr)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._endpoint.limits.connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._endpoint), host, port, ssl=self._tls
                )
        except TimeoutError:
            raise UnreachableError(addr, "no connection in time") from None
        except OSError as error:  # ssl.SSLError is one
            raise UnreachableError(addr, error.strerror or str(error) or type(error).__name__) from None
        return connection

    def _connected(self, addr: str, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(addr, None)
        if task.cancelled() or task.exception() is not None:  # exception() also marks it as retrieved
            return
        connection = task.result()
        self._open[addr] = connection
        connection.add_close_callback(partial(self._lost, addr))
        if self._idle is None:
            self._idle = IdleWatch(self._endpoint.connections, self._endpoint.limits.idle_ms)
            self._idle.start()
        for callback in self._open_callbacks:
            callback(addr, connection)

    def _lost(self, addr: str, connection: Connection) -> None:
        if self._open.get(addr) is connection:
            del self._open[addr]
        for callback in self._close_callbacks:
            callback(addr, connection)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
