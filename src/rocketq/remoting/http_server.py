"""A small HTTP/1.1 server for pages that are read by machines: metrics and health.

It answers GET and HEAD, keeps connections alive, and is bounded everywhere: the number of connections, the size of a
request head, the time to send a request, and the time a peer may leave an answer unread. Request bodies are rejected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from rocketq.errors import UnreachableError
from rocketq.remoting.address import join_addr

log = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 8 << 10
_CONNECTIONS_MAX: Final = 64
_REQUEST_S_MAX: Final = 10.0
_IDLE_S_MAX: Final = 120.0
_UNREAD_S_MAX: Final = 30.0
_CHUNK_BYTES: Final = 64 << 10
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name; repeated ones are joined with commas."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """`body` is sent piece by piece."""

    status: int
    body: Sequence[bytes] = ()
    content_type: str = _TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, status: int, text: str, **headers: str) -> HttpResponse:
        return cls(status, (text.encode("utf-8", "replace"),), headers=headers)

    def head(self, *, keep_alive: bool) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {sum(map(len, self.body))}",
            "Cache-Control: no-store",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


Route = Callable[[HttpRequest], Awaitable[HttpResponse]]


class BadRequestError(Exception):
    """A request that cannot be answered: `response` says why, and the connection ends."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.response = HttpResponse.text(status, text + "\n")


def parse_head(head: bytes) -> tuple[HttpRequest, bool]:
    """A request line with its headers, and whether the connection stays; BadRequestError when it is malformed."""
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequestError(400, "this is not an HTTP/1.1 request")
    method, target, version = parts
    headers: dict[str, str] = {}
    for line in lines[1:]:
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequestError(400, "malformed header line")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(413, "request bodies are not accepted")
    try:
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True, max_num_fields=32))
    except ValueError:
        raise BadRequestError(400, "malformed request target") from None
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
    return HttpRequest(method, unquote(url.path), query, headers), keep_alive


class HttpServer:
    """Serves routes by exact path until it is stopped."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._routes = dict(routes)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.host, self.port = "", 0
        self.listening: socket.socket | None = None
        """The listening socket, while started."""

    @property
    def addr(self) -> str:
        return join_addr(self.host, self.port)

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 picks a free one, `port` has it then. UnreachableError when it is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self.listening = socket.create_server((host, port), family=family, backlog=_CONNECTIONS_MAX)
        except OSError as error:
            raise UnreachableError(join_addr(host, port), f"cannot listen here: {error.strerror or error}") from None
        self.host, self.port = host, self.listening.getsockname()[1]
        self.listening.setblocking(False)
        self._server = await asyncio.start_server(self._accept, sock=self.listening, limit=HEAD_BYTES_MAX)

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = self.listening = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) > _CONNECTIONS_MAX:
                response = HttpResponse.text(503, f"connection limit reached ({_CONNECTIONS_MAX})\n")
                await self._write(writer, response, with_body=True, keep_alive=False)
            else:
                writer.transport.set_write_buffer_limits(high=_CHUNK_BYTES)
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the peer has gone, does not read, or the server stops
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if _is_unsent(writer) else writer.close()
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(writer.wait_closed(), 1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wait_s = _REQUEST_S_MAX
        while True:
            try:
                request, keep_alive = await self._read(reader, wait_s)
            except BadRequestError as error:
                await self._write(writer, error.response, with_body=True, keep_alive=False)
                return
            response = await self._answer(request)
            await self._write(writer, response, with_body=request.method != "HEAD", keep_alive=keep_alive)
            if not keep_alive:
                return
            wait_s = _IDLE_S_MAX

    async def _read(self, reader: asyncio.StreamReader, wait_s: float) -> tuple[HttpRequest, bool]:
        try:
            async with asyncio.timeout(wait_s):
                first = await reader.readexactly(1)
            async with asyncio.timeout(_REQUEST_S_MAX):
                head = first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise BadRequestError(431, f"a request head has at most {HEAD_BYTES_MAX} bytes") from None
        return parse_head(head)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponse.text(405, f"{request.method[:20]} is not allowed here\n", Allow="GET, HEAD")
        route = self._routes.get(request.path)
        if route is None:
            return HttpResponse.text(404, f"not found; this server has {', '.join(sorted(self._routes))}\n")
        try:
            return await route(request)
        except Exception:  # the boundary: a page that fails must not end the server
            log.exception("page %s failed", request.path)
            return HttpResponse.text(500, "internal error, see the log\n")

    async def _write(
        self, writer: asyncio.StreamWriter, response: HttpResponse, *, with_body: bool, keep_alive: bool
    ) -> None:
        writer.write(response.head(keep_alive=keep_alive))
        for piece in response.body if with_body else ():
            for at in range(0, len(piece), _CHUNK_BYTES):
                writer.write(piece[at : at + _CHUNK_BYTES])
                async with asyncio.timeout(_UNREAD_S_MAX):
                    await writer.drain()
        async with asyncio.timeout(_UNREAD_S_MAX):
            await writer.drain()


def _is_unsent(writer: asyncio.StreamWriter) -> bool:
    return writer.transport.get_write_buffer_size() > 0 and writer.transport.is_closing()
