"""A server with a few handlers, and a peer that speaks raw bytes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.headers.nameserver import GetConfigRequest
from rocketq.remoting import ClientTls, Connection, Dispatcher, RequestRejected, Server

ECHO, SLOW, BIG, SILENT, STRICT, BROKEN, REFUSED, LATE, TOO_BIG = range(9001, 9010)
UNKNOWN = 9999
BIG_BYTES = 256 * 1024
FRAME_BYTES = 16 * 1024 * 1024


def echo(request: Command, connection: Connection) -> Command:
    return request.answer(0, ext_fields=dict(request.ext_fields), body=request.body)


async def slow(request: Command, connection: Connection) -> Command:
    await asyncio.sleep(float(request.ext_fields["seconds"]))
    return request.answer(0, body=request.body)


def big(request: Command, connection: Connection) -> Command:
    return request.answer(0, body=bytes(BIG_BYTES))


def silent(request: Command, connection: Connection) -> None:
    return None


def strict(request: Command, connection: Connection) -> Command:
    return request.answer(0, remark=GetConfigRequest.decode(request.ext_fields).key)


def broken(request: Command, connection: Connection) -> Command:
    raise ZeroDivisionError("not foreseen")


def refused(request: Command, connection: Connection) -> Command:
    raise RequestRejected(16, "not for you", {"why": "test"})


def late(request: Command, connection: Connection) -> None:
    asyncio.get_running_loop().call_later(0.05, connection.answer, request, request.answer(0, body=b"late"))


def too_big(request: Command, connection: Connection) -> Command:
    return request.answer(0, body=bytes(FRAME_BYTES))


def make_dispatcher(**options: Any) -> Dispatcher:
    dispatcher = Dispatcher(**options)
    for code, handler in (
        (ECHO, echo),
        (SLOW, slow),
        (BIG, big),
        (SILENT, silent),
        (STRICT, strict),
        (BROKEN, broken),
        (REFUSED, refused),
        (LATE, late),
        (TOO_BIG, too_big),
    ):
        dispatcher.register(code, handler)
    return dispatcher


@asynccontextmanager
async def serving(dispatcher: Dispatcher | None = None, **options: Any) -> AsyncIterator[Server]:
    server = Server(dispatcher or make_dispatcher(), **options)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop(drain_ms=1_000)


class RawPeer:
    """Bytes in and out, with a decoder beside it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = FrameDecoder()
        self._commands: list[Command] = []

    @classmethod
    async def connect(cls, addr: str, *, tls: bool = False) -> RawPeer:
        host, _, port = addr.rpartition(":")
        context: ssl.SSLContext | None = ClientTls().context() if tls else None
        return cls(*await asyncio.open_connection(host, int(port), ssl=context))

    def send(self, *commands: Command) -> None:
        self.writer.write(b"".join(encode_command(command) for command in commands))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self, timeout_s: float = 10) -> Command:
        while not self._commands:
            data = await asyncio.wait_for(self.reader.read(1 << 20), timeout_s)
            if not data:
                raise EOFError
            self._commands += self._decoder.feed(data)
        return self._commands.pop(0)

    async def ask(self, command: Command) -> Command:
        self.send(command)
        return await self.receive()

    async def is_closed_by_peer(self, timeout_s: float = 10) -> bool:
        """Whether the end comes, and nothing before it."""
        try:
            return await asyncio.wait_for(self.reader.read(1), timeout_s) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


@asynccontextmanager
async def raw_peer(addr: str, *, tls: bool = False) -> AsyncIterator[RawPeer]:
    peer = await RawPeer.connect(addr, tls=tls)
    try:
        yield peer
    finally:
        await peer.close()
