"""One TCP connection, at either end: it reads requests, writes answers, and sends requests to the peer.

Only the thread of its event loop may use a connection. No method blocks; only `call` and `wait_writable` await.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from rocketq.errors import ConnectionClosedError, RemoteProtocolError, RocketQError, TlsError
from rocketq.model import Host
from rocketq.protocol.command import Command
from rocketq.protocol.flags import CommandFlag, Language
from rocketq.protocol.frame import encode_command
from rocketq.remoting.address import join_addr
from rocketq.remoting.calls import Calls
from rocketq.remoting.dispatch import Dispatcher, Hook, failure_answer, run_after
from rocketq.remoting.frame_reader import FrameReader, read_frames
from rocketq.remoting.limits import ConnectionLimit, Holdings, Limits
from rocketq.remoting.tls import HANDSHAKE_BYTE, ServerTls, TlsMode, TlsSession

log = logging.getLogger(__name__)

_GATHERED_BYTES_MAX = 64 * 1024
_UNKNOWN_PEER = ("0.0.0.0", 0)  # the peer disconnected before its address was read; its bytes are still processed
_PRESSURE_HIGH_BYTES = 64 * 1024  # unsent bytes of a peer that count as slow while all peers together hold many
_FULL_READ_BYTES = 64 * 1024  # a shorter read emptied the socket, so other connections are served next anyway
_TURN_S = 0.005  # after a read that took longer, all other connections are served before the next read

CloseCallback = Callable[["Connection"], None]


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """State shared by all connections of one server or one pool."""

    dispatcher: Dispatcher
    frame_reader: FrameReader = read_frames
    limits: Limits = field(default_factory=Limits)
    tls: ServerTls | None = None
    """None: the transport delivers plain frames (asyncio may have decrypted them)."""
    backpressure: bool = False
    """Stop reading from a peer that does not read its answers. Only servers do: if both ends did, they would wait for
    each other forever."""
    call_hooks: list[Hook] = field(default_factory=list)
    connections: set[Connection] = field(default_factory=set)
    close_callbacks: list[CloseCallback] = field(default_factory=list)
    draining: bool = False
    unfinished: Holdings[Connection] = field(default_factory=Holdings)
    unsent: Holdings[Connection] = field(default_factory=Holdings)
    _unsent_check_bytes: int = 0
    """The next check is made above this sum, because a check costs time for every holder."""
    connection_limit: ConnectionLimit | None = None
    """None: unlimited."""

    def accepts_another(self) -> bool:
        """False while draining: a connection accepted during the stop would delay it."""
        return not self.draining and (
            self.connection_limit is None or self.connection_limit.allows(len(self.connections))
        )

    def limit_unfinished(self, now_ms: int) -> None:
        """Drop the connections that hold most of the unfinished frames, if those exceed a limit."""
        limits = self.limits
        if self.unfinished.total <= min(limits.unfinished_bytes_max, limits.address_unfinished_bytes_max):
            return
        for connection in self.unfinished.excess(
            limits.unfinished_bytes_max, limits.address_unfinished_bytes_max, now_ms
        ):
            connection.abort(f"unfinished frames exceed a limit, this peer holds {connection.unfinished_bytes} bytes")
            connection.drop_unfinished()

    def limit_unsent(self, now_ms: int) -> None:
        """Pause slow peers early when many bytes are unsent; beyond the limit, drop those that hold most."""
        limits = self.limits
        if self.unsent.total <= max(limits.pressure_bytes, self._unsent_check_bytes):
            return
        self.unsent.refresh(_unsent_bytes_of, now_ms)
        self._unsent_check_bytes = min(self.unsent.total + limits.pressure_bytes // 16, limits.unsent_bytes_max)
        if self.unsent.total <= limits.pressure_bytes:
            return
        for connection in self.unsent.excess(limits.unsent_bytes_max, limits.unsent_bytes_max, now_ms):
            held = connection.unsent_bytes
            connection.abort(f"unsent bytes exceed {limits.unsent_bytes_max}, this peer has not read {held} of them")
            self.unsent.set(connection, connection.peer_host, 0, now_ms)
        for connection in self.unsent.holders:
            connection.pause_early()


class FrontProtocol(Protocol):
    """The protocol of a frame reader that the transport calls instead of the connection."""

    active: bool
    """Whether bytes were read or written since the flag was last cleared."""

    def attach(self, transport: asyncio.Transport, fd: int) -> None: ...

    def send_deferred(self) -> None:
        """Send the answers kept for the end of the loop's turn, because other bytes are about to be written."""
        ...


class Connection(asyncio.Protocol):
    """Public attributes describe the peer; `client_id` and `reader_state` are for the owner and the frame reader."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.limits = endpoint.limits
        self._read_frames = endpoint.frame_reader
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tls: TlsSession | None = None
        self._paused_early = False
        self._preparing: asyncio.Task[None] | None = None  # the loop keeps no reference to a task
        self._front: FrontProtocol | None = None
        self._receive: Callable[[bytes], None] = self._receive_plain if endpoint.tls is None else self._receive_first
        self.writes_paused = False
        """The peer reads too slowly: more than `write_high_bytes` are unsent."""
        self._gathered: list[bytes] | None = None
        self._gathered_bytes = 0
        self._backlog: deque[Command] = deque()
        self._writable: list[asyncio.Future[None]] = []
        self._calls = Calls(self, endpoint.call_hooks)
        self._close_callbacks: list[CloseCallback] = []
        self._closed = False
        self._active_s = self._loop.time()
        self.peer_host, self.peer_port = "", 0
        self.local_host, self.local_port = "", 0
        self._peer: Host | None = None
        self.language = Language.OTHER
        self.version = 0
        self.client_id: str | None = None
        self.reader_state: Any = None
        self.has_unread_frames = False
        """The frame reader keeps whole frames; it is called again after its commands are handled and written."""
        self.unfinished_bytes = 0

    # state

    @property
    def peer_addr(self) -> str:
        return join_addr(self.peer_host, self.peer_port)

    @property
    def peer(self) -> Host:
        """The peer's address in the form that records store."""
        if self._peer is None:
            self._peer = Host.of(self.peer_host, self.peer_port)
        return self._peer

    @property
    def is_closed(self) -> bool:
        return self._closed or self._transport is None or self._transport.is_closing()

    @property
    def is_encrypted(self) -> bool:
        return self._tls is not None

    @property
    def certificate_name(self) -> str | None:
        """The common name of the peer's verified client certificate; None without one."""
        return None if self._tls is None else self._tls.peer_name()

    @property
    def is_draining(self) -> bool:
        """Whether the server is stopping and handles no further requests."""
        return self._endpoint.draining

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def calls_count(self) -> int:
        """Requests to the peer that are not answered yet."""
        return len(self._calls)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    def idle_ms(self) -> int:
        """Time since the last read or write. Activity of a front protocol is dated when this is called."""
        if self._front is not None and self._front.active:
            self._front.active = False
            self._active_s = self._loop.time()
        return int((self._loop.time() - self._active_s) * 1000)

    # out

    def write(self, data: bytes) -> None:
        """Send bytes; no effect on a closed connection."""
        if self._gathered is None:
            self._write_now(data)
            return
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= _GATHERED_BYTES_MAX:
            self._write_gathered()

    def send(self, command: Command) -> None:
        """Send a command; LocalProtocolError when it exceeds the frame limit."""
        self.write(encode_command(command, frame_bytes_max=self.limits.frame_bytes_max))

    def answer(self, request: Command, response: Command) -> None:
        """Send the answer to a request, immediately or later; a oneway request gets none."""
        if hooks := self._endpoint.dispatcher.hooks:
            run_after(hooks, self, request, response)
        self._endpoint.dispatcher.answered(request, response.code, is_closed=self.is_closed)
        if request.is_oneway:
            return
        try:
            self.send(response)
        except Exception as error:  # an answer that cannot be encoded is a failure of its handler
            self.send(failure_answer(request, error))

    async def call(self, command: Command, timeout_ms: int) -> Command:
        """Send a request under a new opaque and return the answer.

        Raises RequestTimeoutError, ConnectionClosedError or TooManyRequestsError.
        """
        return await self._calls.call(command, timeout_ms)

    def start_call(self, code: int, timeout_ms: int, encode: Callable[[int], bytes]) -> asyncio.Future[Command]:
        """As `call`, for a frame that `encode(opaque)` returns; hooks are not called."""
        return self._calls.start(code, timeout_ms, encode)

    def post_oneway(self, encode: Callable[[int], bytes]) -> None:
        """As `call_oneway`, for a frame that `encode(opaque)` returns."""
        self._calls.post(encode)

    def call_oneway(self, command: Command) -> None:
        """Send a oneway request."""
        self._calls.notify(replace(command, flag=command.flag | CommandFlag.ONEWAY))

    async def wait_writable(self) -> None:
        """Return when the peer reads again; ConnectionClosedError when the connection is closed."""
        while self.writes_paused and not self.is_closed:
            waiter = self._loop.create_future()
            self._writable.append(waiter)
            await waiter
        if self.is_closed:
            raise ConnectionClosedError(self.peer_addr, "the connection is closed")

    def set_unfinished_bytes(self, unfinished_bytes: int) -> None:
        """Account for the bytes that the frame reader keeps of an unfinished frame."""
        now_ms = self._now_ms()
        grows = unfinished_bytes > self.unfinished_bytes
        self.unfinished_bytes = unfinished_bytes
        self._endpoint.unfinished.set(self, self.peer_host, unfinished_bytes, now_ms)
        if grows and self._endpoint.backpressure:
            self._endpoint.limit_unfinished(now_ms)

    def drop_unfinished(self) -> None:
        """Release the bytes of an unfinished frame; the connection must be aborted."""
        self.reader_state = None
        self._receive = _ignore
        self.set_unfinished_bytes(0)

    def note_unsent(self) -> None:
        """Account for the bytes that the transport keeps because the peer does not read them."""
        now_ms = self._now_ms()
        self._endpoint.unsent.set(self, self.peer_host, self.unsent_bytes, now_ms)
        if self._endpoint.backpressure:
            self._endpoint.limit_unsent(now_ms)

    def pause_early(self) -> None:
        """Treat the peer as slow at fewer unsent bytes, until it has read most of them."""
        if not self._paused_early and self._transport is not None and not self._transport.is_closing():
            self._paused_early = True
            self._transport.set_write_buffer_limits(high=_PRESSURE_HIGH_BYTES)

    def install_front(self, front: FrontProtocol) -> None:
        """Have the transport call `front`, which passes on what it does not serve; no effect with TLS."""
        if self._tls is None and self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            front.attach(self._transport, -1 if sock is None else sock.fileno())
            self._front = front

    # close

    def add_close_callback(self, callback: CloseCallback) -> None:
        """Called once, after the connection is closed."""
        self._close_callbacks.append(callback)

    def close_after_read(self, reason: str) -> None:
        """Close after the commands of this read are handled, because the bytes after them are no frame."""
        self._loop.call_soon(self.close, reason)

    def close(self, reason: str = "") -> None:
        """Close after the bytes written so far are sent."""
        if self.is_closed or self._transport is None:
            return
        if reason:
            log.info("closing %s: %s", self.peer_addr, reason)
        if self._front is not None:
            self._front.send_deferred()
        self._write_gathered()
        if self._tls is not None:
            self._transport.write(self._tls.close())
        self._transport.close()

    def abort(self, reason: str = "") -> None:
        """Close immediately; unsent bytes are lost."""
        if self._transport is not None and not self._closed:
            if reason:
                log.warning("dropping %s: %s", self.peer_addr, reason)
            self._transport.abort()

    # called by the event loop

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, base)  # uvloop's are no subclasses of it
        transport.set_write_buffer_limits(high=self.limits.write_high_bytes)
        self.peer_host, self.peer_port = (transport.get_extra_info("peername") or _UNKNOWN_PEER)[:2]
        self.local_host, self.local_port = (transport.get_extra_info("sockname") or ("", 0))[:2]
        self._endpoint.connections.add(self)
        if not self._endpoint.accepts_another():
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._active_s = self._loop.time()
        if len(data) < _FULL_READ_BYTES or not self._endpoint.backpressure:
            self._guarded(self._receive, data)
            return
        start_s = time.perf_counter()  # uvloop does not update loop.time() between reads
        self._guarded(self._receive, data)
        if time.perf_counter() - start_s > _TURN_S and not self.is_closed and self._transport is not None:
            self._transport.pause_reading()  # uvloop would read up to 2 MiB before it serves another connection
            self._loop.call_soon(self._resume_reading)

    def _resume_reading(self) -> None:
        if not self.writes_paused and not self.is_closed and self._transport is not None:
            self._transport.resume_reading()

    def _guarded(self, receive: Callable[[bytes], None], data: bytes) -> None:
        try:
            receive(data)
        except RemoteProtocolError as error:
            self.close(str(error))
        except (ssl.SSLError, RocketQError) as error:
            self._close_with_alert(error)
        except Exception:  # an unexpected error in a frame reader closes its connection only
            self.fail()

    def fail(self) -> None:
        """Abort after an unexpected error in the frame reader or front protocol."""
        log.exception("reading from %s failed", self.peer_addr)
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._closed = True
        self._transport = self._front = None
        self._receive = _ignore  # ends the reference of this object to itself
        self._backlog.clear()
        self.reader_state = None
        self.set_unfinished_bytes(0)
        self._endpoint.unsent.set(self, self.peer_host, 0, 0)
        self._endpoint.connections.discard(self)
        self._calls.close(str(error) if error is not None else "the connection was closed")
        self._wake_writers()
        for callback in (*self._endpoint.close_callbacks, *self._close_callbacks):
            try:
                callback(self)
            except Exception:  # the other callbacks must still be called
                log.exception("a close callback failed")

    def pause_writing(self) -> None:
        self.writes_paused = True
        if self._endpoint.backpressure and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._active_s = self._loop.time()
        self.writes_paused = False
        self._endpoint.unsent.set(self, self.peer_host, self.unsent_bytes, self._now_ms())
        if self._paused_early and self._transport is not None:
            self._paused_early = False
            self._transport.set_write_buffer_limits(high=self.limits.write_high_bytes)
        self._wake_writers()
        while self._backlog and not self.writes_paused:
            self._handle(self._backlog.popleft())
        if self.has_unread_frames and not self.writes_paused:
            self._guarded(self._receive_plain, b"")
        if (
            self._endpoint.backpressure
            and not self.writes_paused
            and not self.is_closed
            and self._transport is not None
        ):
            self._transport.resume_reading()

    # in

    def _receive_first(self, data: bytes) -> None:
        """Decide by the first byte: TLS or plain."""
        tls = self._endpoint.tls
        assert tls is not None
        if data[0] == HANDSHAKE_BYTE and tls.mode is not TlsMode.DISABLED:
            if not tls.is_ready and self._transport is not None:
                self._transport.pause_reading()
                self._preparing = self._loop.create_task(self._prepare_tls(tls, data))
                return
            self._tls = tls.session()
            self._receive = self._receive_encrypted
        elif data[0] == HANDSHAKE_BYTE or tls.mode is TlsMode.ENFORCING:
            self.close(
                "tls.server.mode is disabled, the peer uses TLS"
                if data[0] == HANDSHAKE_BYTE
                else "tls.server.mode is enforcing, the peer does not use TLS"
            )
            return
        else:
            self._receive = self._receive_plain
        self._receive(data)

    async def _prepare_tls(self, tls: ServerTls, data: bytes) -> None:
        """Generate the temporary certificate on another thread, then process the first read."""
        try:
            await asyncio.to_thread(tls.load)
        except TlsError as error:
            self.abort(str(error))
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._guarded(self._receive, data)

    def _receive_encrypted(self, data: bytes) -> None:
        assert self._tls is not None
        plain = self._tls.receive(data)
        if (out := self._tls.take_outgoing()) and self._transport is not None:
            self._transport.write(out)
        if plain:
            self._receive_plain(plain)
        if self._tls.closed_by_peer:
            self.close()

    def _receive_plain(self, data: bytes) -> None:
        self.has_unread_frames = False
        out, commands = self._read_frames(self, data)
        if not commands and not self.has_unread_frames:
            if out:
                self.write(out)
        elif not self.has_unread_frames and len(commands) == 1 and not out:
            self._handle_each(commands)
        else:
            self._handle_read(out, commands)

    def _handle_read(self, out: bytes, commands: Sequence[Command]) -> None:
        """Handle the commands of a read in order; immediate answers go out in one write."""
        self._gathered = []
        try:
            self._handle_rounds(out, commands)
        finally:
            self._write_gathered()
            self._gathered = None

    def _handle_rounds(self, out: bytes, commands: Sequence[Command]) -> None:
        while True:
            if out:
                self.write(out)
            self._handle_each(commands)
            if not self.has_unread_frames or self.is_closed:
                return
            if self._endpoint.backpressure and (self.writes_paused or self._backlog):
                return
            self.has_unread_frames = False
            out, commands = self._read_frames(self, b"")

    def _handle_each(self, commands: Sequence[Command]) -> None:
        backpressure = self._endpoint.backpressure
        for command in commands:
            if command.is_response:
                self._calls.complete(command)
            elif backpressure and (self.writes_paused or self._backlog):
                self._backlog.append(command)
            else:
                self._handle(command)

    def _write_gathered(self) -> None:
        if self._gathered:
            data = b"".join(self._gathered)
            self._gathered.clear()
            self._gathered_bytes = 0
            self._write_now(data)

    def _write_now(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._active_s = self._loop.time()
        if self._front is not None:
            self._front.send_deferred()
        if self._tls is not None:
            data = self._encrypt(self._tls, data)
        transport.write(data)
        if self.writes_paused and transport.get_write_buffer_size() > self.limits.write_bytes_max:
            self.abort(f"the peer does not read: unsent bytes exceed {self.limits.write_bytes_max}")
        elif transport.get_write_buffer_size():
            self.note_unsent()

    def _handle(self, request: Command) -> None:
        if not self._endpoint.draining:
            self._endpoint.dispatcher.dispatch(request, self)

    def _encrypt(self, tls: TlsSession, data: bytes) -> bytes:
        try:
            return tls.send(data)
        except ssl.SSLError as error:
            self._close_with_alert(error)
            return b""

    def _close_with_alert(self, error: Exception) -> None:
        """Send the TLS alert of a failed handshake or damaged stream, then close."""
        if self._tls is not None and self._transport is not None:
            self._transport.write(self._tls.take_outgoing())
        log.info("closing %s: %s", self.peer_addr, error)
        if self._transport is not None:
            self._transport.close()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _wake_writers(self) -> None:
        waiters, self._writable = self._writable, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _unsent_bytes_of(connection: Connection) -> int:
    return connection.unsent_bytes


def _ignore(data: bytes) -> None:
    """Ignore bytes that arrive after the connection is closed."""
