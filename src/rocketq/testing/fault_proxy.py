"""A TCP proxy that fails on demand: cuts connections, holds bytes back, delays them, or closes one way only.

    with FaultProxy("127.0.0.1:9876") as proxy:
        client = Session(proxy.addr)
        proxy.cut()          # every open connection is gone, new ones work
        proxy.refuse()       # new ones are closed immediately
        proxy.restore()

It runs on a background thread, so that tests with and without an event loop can use it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from rocketq.testing.loop_thread import LoopThread

_READ_BYTES: Final = 64 * 1024


class FaultProxy:
    """Forwards bytes between clients of `addr` and the target, until a fault is switched on."""

    def __init__(self, target_addr: str, listen_addr: str = "127.0.0.1:0") -> None:
        self._target = _host_and_port(target_addr)
        self._listen = _host_and_port(listen_addr)
        self._thread: LoopThread | None = None
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._flows: asyncio.Event | None = None
        self._refusing = False
        self._delay_s = 0.0
        self.connections_count = 0
        """How many were accepted so far."""
        self.addr = ""

    # what can be done to connections

    def cut(self) -> None:
        """Close every open connection immediately, as in a crash."""
        self._do(lambda: self._each(_Link.abort))

    def refuse(self) -> None:
        """Close new connections immediately; open ones stay."""
        self._do(lambda: setattr(self, "_refusing", True))

    def freeze(self) -> None:
        """Stop forwarding without closing: a half-open connection."""
        self._do(self._flowing.clear)

    def delay(self, delay_ms: int) -> None:
        """Delay everything that is read from now on."""
        self._do(lambda: setattr(self, "_delay_s", delay_ms / 1000))

    def half_close(self) -> None:
        """Close the direction to the target; bytes from the target still pass."""
        self._do(lambda: self._each(_Link.half_close))

    def restore(self) -> None:
        """Everything passes again; connections that are gone stay gone."""

        def undo() -> None:
            self._refusing, self._delay_s = False, 0.0
            self._flowing.set()

        self._do(undo)

    @property
    def open_count(self) -> int:
        return len(self._links)

    # starting and stopping

    def start(self) -> Self:
        self._thread = LoopThread("rocketq-fault-proxy")
        self._thread.run(self._serve())
        return self

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.run(self._shut())
            self._thread.close()
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # on its own thread

    @property
    def _flowing(self) -> asyncio.Event:
        assert self._flows is not None, "the proxy is not started"
        return self._flows

    def _do(self, action: Callable[[], Any]) -> None:
        assert self._thread is not None, "the proxy is not started"

        async def act() -> None:
            action()

        self._thread.run(act())

    def _each(self, action: Callable[[_Link], None]) -> None:
        for link in list(self._links):
            action(link)

    async def _serve(self) -> None:
        self._flows = asyncio.Event()
        self._flows.set()
        self._server = await asyncio.start_server(self._accept, *self._listen)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.addr = f"{host}:{port}"

    async def _shut(self) -> None:
        assert self._server is not None
        self._server.close()
        links = list(self._links)
        for link in links:
            link.abort()
        await asyncio.gather(*(link.ended.wait() for link in links))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_count += 1
        if self._refusing:
            writer.transport.abort()
            return
        try:
            target = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), target)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            link.ended.set()

    async def _hold(self) -> None:
        """As long as a piece of bytes must wait."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        await self._flowing.wait()


def _host_and_port(addr: str) -> tuple[str, int]:
    host, _, port = addr.rpartition(":")
    return host, int(port)


class _Link:
    """One connection through the proxy, both ways."""

    def __init__(
        self,
        proxy: FaultProxy,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._near, self._far = near, far
        self._ways: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()

    async def run(self) -> None:
        self._ways = [
            asyncio.create_task(self._pass(self._near[0], self._far[1])),
            asyncio.create_task(self._pass(self._far[0], self._near[1])),
        ]
        await asyncio.wait(self._ways)
        for _, writer in (self._near, self._far):
            writer.transport.abort()

    def abort(self) -> None:
        for way in self._ways:
            way.cancel()
        for _, writer in (self._near, self._far):
            writer.transport.abort()

    def half_close(self) -> None:
        if self._ways:
            self._ways[0].cancel()
        with contextlib.suppress(OSError, RuntimeError):
            self._far[1].write_eof()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._proxy._hold()
                writer.write(data)
                await writer.drain()
            with contextlib.suppress(OSError, RuntimeError):
                writer.write_eof()
