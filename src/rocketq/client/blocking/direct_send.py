"""Sends on sockets of the calling threads: one request, one answer, no event loop and no other thread."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from typing import Final

from rocketq.errors import ConnectionClosedError, RemoteProtocolError, RequestTimeoutError, UnreachableError
from rocketq.kernel.request_view import RequestView
from rocketq.protocol.codes import request_text
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FRAME_BYTES_MAX, decode_command
from rocketq.remoting.address import split_addr

CONNECT_TIMEOUT_MS: Final = 3_000
IDLE_S_MAX: Final = 60.0
"""Servers close connections after two idle minutes: one that is idle for longer than this may already be closing."""
_READ_BYTES: Final = 64 << 10
_KERNEL_WAITS: Final = sys.platform == "linux"
"""On Linux the kernel applies the timeouts of a blocking socket: one system call for each read and write."""


class SendConnection:
    """Used by one thread at a time. After an error it must not be used again."""

    def __init__(self, addr: str, *, tls: ssl.SSLContext | None = None, timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        self.addr = addr
        host, port = split_addr(addr)
        limit_ms = max(1, min(timeout_ms, CONNECT_TIMEOUT_MS))
        try:
            plain = socket.create_connection((host, port), limit_ms / 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except TimeoutError:
            raise UnreachableError(addr, f"no connection within {limit_ms} ms") from None
        except OSError as error:  # ssl.SSLError is one
            raise UnreachableError(addr, error.strerror or str(error) or type(error).__name__) from None
        self._kernel_waits = _KERNEL_WAITS and tls is None
        if self._kernel_waits:
            plain.settimeout(None)
        self._timeout_ms = 0
        self._opaque = 0
        self._view = RequestView()
        self._used_s = time.monotonic()

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self._used_s > IDLE_S_MAX

    def exchange(self, frame_of: Callable[[int], bytes], code: int, timeout_ms: int) -> Command:
        """Send the frame that is made for an opaque, and return its answer; requests of the peer are dropped."""
        self._opaque = opaque = self._opaque + 1 & 0x7FFFFFFF
        start_s = time.monotonic()
        self._used_s = start_s
        try:
            self._limit(timeout_ms)
            self._socket.sendall(frame_of(opaque))
            data = b""
            while True:
                while (end := _frame_end(data)) is None or len(data) < end:
                    left_ms = timeout_ms - int((time.monotonic() - start_s) * 1000) if data else timeout_ms
                    if left_ms <= 0:
                        raise RequestTimeoutError(self.addr, code, timeout_ms, request_text(code))
                    self._limit(left_ms)
                    part = self._socket.recv(_READ_BYTES)
                    if not part:
                        raise ConnectionClosedError(self.addr, "the peer closed the connection")
                    data = data + part if data else part
                answer = decode_command(data[4:end], self._view)
                if answer.is_response and answer.opaque == opaque:
                    return answer
                data = data[end:]
        except (TimeoutError, BlockingIOError):
            raise RequestTimeoutError(self.addr, code, timeout_ms, request_text(code)) from None
        except OSError as error:
            raise ConnectionClosedError(self.addr, error.strerror or str(error)) from None

    def close(self) -> None:
        self._socket.close()

    def _limit(self, timeout_ms: int) -> None:
        if timeout_ms == self._timeout_ms:
            return
        self._timeout_ms = timeout_ms
        if self._kernel_waits:
            value = struct.pack("ll", timeout_ms // 1000, timeout_ms % 1000 * 1000)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        else:
            self._socket.settimeout(timeout_ms / 1000)


def _frame_end(data: bytes) -> int | None:
    """Where the first frame ends; None while that is unknown."""
    if len(data) < 4:
        return None
    size = int.from_bytes(data[:4], "big", signed=True)
    if not 4 < size <= FRAME_BYTES_MAX - 4:
        raise RemoteProtocolError(f"a frame announces {size} bytes, outside 5..{FRAME_BYTES_MAX - 4}")
    return 4 + size


class SendConnections:
    """Idle connections by address. A thread takes one for one exchange; a forked child has none of its parent's."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._idle: dict[str, list[SendConnection]] = {}
        self._process_id = os.getpid()
        self._closed = False

    def exchange(self, addr: str, frame_of: Callable[[int], bytes], code: int, timeout_ms: int) -> Command:
        """The answer; a RemotingError when there is none."""
        if os.getpid() != self._process_id:
            self._idle, self._process_id = {}, os.getpid()
        start_s = time.monotonic()
        connection = self._take(addr)
        if connection is None:
            connection = SendConnection(addr, tls=self._tls, timeout_ms=timeout_ms)
            timeout_ms = max(1, timeout_ms - int((time.monotonic() - start_s) * 1000))
        try:
            answer = connection.exchange(frame_of, code, timeout_ms)
        except BaseException:  # an interrupt, too, leaves an answer unread
            connection.close()
            raise
        self._give_back(addr, connection)
        return answer

    def close(self) -> None:
        self._closed = True
        for connections in list(self._idle.values()):
            while connections:
                connections.pop().close()

    def _give_back(self, addr: str, connection: SendConnection) -> None:
        idle = self._idle.setdefault(addr, [])
        idle.append(connection)
        if self._closed:
            self.close()
        elif idle and idle[0].is_stale:  # of more threads than there are now
            try:
                idle.pop(0).close()
            except IndexError:  # another thread was first
                return

    def _take(self, addr: str) -> SendConnection | None:
        idle = self._idle.get(addr)
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was first
                return None
            if not connection.is_stale:
                return connection
            connection.close()
        return None
