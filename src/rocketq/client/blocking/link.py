"""One connection, used by one thread: requests out, answers in, several in flight."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rocketq.errors import ConnectionClosedError, RemoteProtocolError, RequestTimeoutError, UnreachableError
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FRAME_BYTES_MAX, decode_command, encode_command
from rocketq.remoting.address import split_addr

CONNECT_TIMEOUT_MS: Final = 3_000
IDLE_S_MAX: Final = 60.0
"""Servers close what nobody used for two minutes: a connection that is older than this may be closed on its way."""
SEND_TIMEOUT_MS: Final = 10_000
_PIECE_BYTES: Final = 1 << 18
_KERNEL_WAITS: Final = sys.platform == "linux"
"""There one call takes in a whole answer: the kernel waits for all of it, and has a timeout of its own."""
_START: Final = struct.Struct(">i4s")

ReadInto = Callable[[memoryview], None]
"""Fills a piece of memory with the bytes that come next."""
BodyTaker = Callable[[Command, int, ReadInto], bool]
"""Told of an answer without its body, how many bytes that has and how they are had. It takes all of them, or says False
and takes none."""


class Link:
    """Answers are matched by their opaque; requests of the peer are none of our business and dropped."""

    def __init__(self, addr: str, *, tls: ssl.SSLContext | None = None, timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        self.addr = addr
        host, port = split_addr(addr)
        try:
            plain = socket.create_connection((host, port), timeout_ms / 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = tls.wrap_socket(plain) if tls is not None else plain
            self.is_local = self._socket.getsockname()[0] == self._socket.getpeername()[0]
            """Whether both ends have one address: the same machine, or what it lends its address to."""
            self._kernel_waits = _KERNEL_WAITS and tls is None
            if self._kernel_waits:
                plain.settimeout(None)
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SEND_TIMEOUT_MS / 1000))
        except OSError as error:
            raise UnreachableError(addr, error.strerror or str(error) or type(error).__name__) from None
        self._opaque = 0
        self._early: dict[int, Command] = {}
        self._used_s = time.monotonic()
        self._is_cut = False

    @property
    def is_stale(self) -> bool:
        """Not used for so long that a new one is safer, or left in the middle of an answer."""
        return self._is_cut or time.monotonic() - self._used_s > IDLE_S_MAX

    def send(self, command: Command) -> int:
        """Hand a request to the network; its opaque is what receive() gives back with the answer."""
        return self.post(lambda opaque: encode_command(replace(command, opaque=opaque)))

    def post(self, frame_of: Callable[[int], bytes]) -> int:
        """As send(), of a frame that is made for its opaque."""
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        self._used_s = time.monotonic()
        try:
            if not self._kernel_waits:
                self._socket.settimeout(SEND_TIMEOUT_MS / 1000)
            self._socket.sendall(frame_of(self._opaque))
        except OSError as error:
            raise ConnectionClosedError(self.addr, str(error)) from None
        return self._opaque

    def exchange(self, command: Command, timeout_ms: int) -> Command:
        opaque, deadline_s = self.send(command), time.monotonic() + timeout_ms / 1000
        while (answer := self._early.pop(opaque, None)) is None:
            other = self._read(command.code, timeout_ms, deadline_s)
            if other.is_response:
                self._early[other.opaque] = other
        return answer

    def receive(self, code: int, timeout_ms: int, take: BodyTaker | None = None) -> Command:
        """The next answer to any request that was sent; without its body if `take` has it."""
        if self._early:
            return self._early.pop(next(iter(self._early)))
        deadline_s = time.monotonic() + timeout_ms / 1000
        while True:
            command = self._read(code, timeout_ms, deadline_s, take)
            if command.is_response:
                return command

    def close(self) -> None:
        self._socket.close()

    def _read(self, code: int, timeout_ms: int, deadline_s: float, take: BodyTaker | None = None) -> Command:
        try:
            size, mark = _START.unpack(self._exactly(_START.size, deadline_s))
            if not 4 < size <= FRAME_BYTES_MAX - 4:
                raise RemoteProtocolError(f"{self.addr} announces a frame of {size} bytes")
            header_bytes = min(size - 4, int.from_bytes(mark[1:], "big"))
            command = decode_command(mark + self._exactly(header_bytes, deadline_s))
            left = size - 4 - header_bytes
            taker = take if command.is_response else None
            if left > 0 and (taker is None or not self._hand_over(command, left, deadline_s, taker)):
                command = replace(command, body=self._exactly(left, deadline_s))  # megabytes: never copied
            self._used_s = time.monotonic()
            return command
        except TimeoutError:
            raise RequestTimeoutError(self.addr, code, timeout_ms) from None
        except OSError as error:
            raise ConnectionClosedError(self.addr, str(error)) from None

    def _hand_over(self, command: Command, size: int, deadline_s: float, take: BodyTaker) -> bool:
        left = size

        def into(piece: memoryview) -> None:
            nonlocal left
            at = 0
            while at < len(piece):
                got = self._some_into(piece[at:], deadline_s - time.monotonic())
                if not got:
                    raise ConnectionClosedError(self.addr, "the peer closed the connection")
                at += got
            left -= at

        self._is_cut = True
        is_taken = take(command, size, into)
        if left != (0 if is_taken else size):
            raise RemoteProtocolError(f"{size - left} of {size} bytes of an answer were taken")
        self._is_cut = False
        return is_taken

    def _exactly(self, count: int, deadline_s: float) -> bytes:
        parts: list[bytes] = []
        while count > 0:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            part = self._some(count, left_s)
            if not part:
                raise ConnectionClosedError(self.addr, "the peer closed the connection")
            parts.append(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _some(self, count: int, timeout_s: float) -> bytes:
        """The next bytes; all of them, unless the time is over or this system or TLS hands them out in pieces."""
        if not self._kernel_waits:
            self._socket.settimeout(timeout_s)
            return self._socket.recv(min(count, _PIECE_BYTES))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout_s))
        try:
            return self._socket.recv(count, socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError from None

    def _some_into(self, piece: memoryview, timeout_s: float) -> int:
        """As _some(), to where the bytes belong."""
        if timeout_s <= 0:
            raise TimeoutError
        if not self._kernel_waits:
            self._socket.settimeout(timeout_s)
            return self._socket.recv_into(piece)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout_s))
        try:
            return self._socket.recv_into(piece, 0, socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError from None


def _timeval(seconds: float) -> bytes:
    """As the kernel takes it; 0 would mean to wait forever."""
    return struct.pack("ll", int(seconds), max(1, int(seconds % 1 * 1_000_000)))
