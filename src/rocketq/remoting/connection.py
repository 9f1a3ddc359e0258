"""One TCP connection, at either end: bytes in to the feed, answers out, and requests of our own to the peer.

Only the thread of its event loop may touch a connection. All methods but `call` and `wait_writable` return at once.
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

from rocketq.errors import ConnectionClosedError, RemoteProtocolError, RocketQError
from rocketq.model import Host
from rocketq.protocol.command import Command
from rocketq.protocol.flags import CommandFlag, Language
from rocketq.protocol.frame import encode_command
from rocketq.remoting.address import join_addr
from rocketq.remoting.calls import Calls
from rocketq.remoting.dispatch import Dispatcher, Hook, failure_answer, run_after
from rocketq.remoting.feed import Feed, feed_frames
from rocketq.remoting.limits import Limits
from rocketq.remoting.room import ConnectionRoom
from rocketq.remoting.tls import HANDSHAKE_BYTE, ServerTls, TlsMode, TlsSession

log = logging.getLogger(__name__)

_GATHERED_BYTES_MAX = 64 * 1024
_GONE = ("0.0.0.0", 0)  # a peer that left before it could be asked who it is; what it sent still counts
_WHOLE_READ_BYTES = 64 * 1024  # with less there was no more to read, and all others have their turn anyway
_TURN_S = 0.005  # a read that took longer than this is the connection's last before all others had their turn

CloseCallback = Callable[["Connection"], None]


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """What all connections of one server, or of one pool, share."""

    dispatcher: Dispatcher
    feed: Feed = feed_frames
    limits: Limits = field(default_factory=Limits)
    tls: ServerTls | None = None
    """None: the bytes are frames from the first on."""
    holds_back: bool = False
    """Whether a peer that does not read its answers is not read from either. A server does; a client must not, or
    both would wait for each other."""
    call_hooks: list[Hook] = field(default_factory=list)
    connections: set[Connection] = field(default_factory=set)
    close_callbacks: list[CloseCallback] = field(default_factory=list)
    draining: bool = False
    unfinished_bytes: int = 0
    room: ConnectionRoom | None = None
    """None: as many as there are."""

    def takes_another(self) -> bool:
        """One that was accepted while the server stopped is not: it would wait for its end for ever."""
        return not self.draining and (self.room is None or self.room.is_for(len(self.connections)))


class Link(Protocol):
    """A feed's own protocol at a transport, in front of a connection."""

    active: bool
    """Something was read or written since it was last said that nothing was."""

    def attach(self, transport: asyncio.Transport, fd: int) -> None: ...

    def send_deferred(self) -> None:
        """Something else is about to be written: send first what was kept for the end of the turn."""
        ...


class Connection(asyncio.Protocol):
    """Its public attributes are facts about the peer; `client_id` and `feed_state` are slots for the owner's use."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.limits = endpoint.limits
        self._feed = endpoint.feed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tls: TlsSession | None = None
        self._link: Link | None = None
        self._receive: Callable[[bytes], None] = self._receive_plain if endpoint.tls is None else self._receive_first
        self.writes_paused = False
        """The peer is behind with reading; what can wait should not be written now."""
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
        self.feed_state: Any = None
        self.feed_waits = False
        """The feed has kept frames to itself: it is called again once what it gave before is handled and written."""
        self.unfinished_bytes = 0

    # facts

    @property
    def peer_addr(self) -> str:
        return join_addr(self.peer_host, self.peer_port)

    @property
    def peer(self) -> Host:
        """The peer's address as records hold it."""
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
    def is_draining(self) -> bool:
        """Whether the server is about to stop and takes no requests any more."""
        return self._endpoint.draining

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def calls_count(self) -> int:
        """Requests of ours that the peer has not answered yet."""
        return len(self._calls)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    def idle_ms(self) -> int:
        """What passes by a link is only noticed here, so that it may seem to have been later than it was."""
        if self._link is not None and self._link.active:
            self._link.active = False
            self._active_s = self._loop.time()
        return int((self._loop.time() - self._active_s) * 1000)

    # out

    def write(self, data: bytes) -> None:
        """Hand bytes to the peer; without effect on a closed connection."""
        if self._gathered is None:
            self._write_now(data)
            return
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= _GATHERED_BYTES_MAX:
            self._write_gathered()

    def send(self, command: Command) -> None:
        """LocalProtocolError when it is too large for a frame."""
        self.write(encode_command(command, frame_bytes_max=self.limits.frame_bytes_max))

    def answer(self, request: Command, response: Command) -> None:
        """The one way a handled request is answered, at once or later; a oneway request gets nothing."""
        if hooks := self._endpoint.dispatcher.hooks:
            run_after(hooks, self, request, response)
        if request.is_oneway:
            return
        try:
            self.send(response)
        except Exception as error:  # an answer that cannot be written is the handler's failure
            self.send(failure_answer(request, error))

    async def call(self, command: Command, timeout_ms: int) -> Command:
        """Send a request under a fresh opaque and wait for its answer.

        RequestTimeoutError, ConnectionClosedError or TooManyRequestsError when none comes.
        """
        return await self._calls.call(command, timeout_ms)

    def begin_call(self, code: int, timeout_ms: int, encode: Callable[[int], bytes]) -> asyncio.Future[Command]:
        """As `call`, for a frame that the caller makes when it is told the opaque; it passes no hook."""
        return self._calls.begin(code, timeout_ms, encode)

    def post_oneway(self, encode: Callable[[int], bytes]) -> None:
        """As `call_oneway`, for a frame that the caller makes."""
        self._calls.post(encode)

    def call_oneway(self, command: Command) -> None:
        """Send a request that wants no answer."""
        self._calls.notify(replace(command, flag=command.flag | CommandFlag.ONEWAY))

    async def wait_writable(self) -> None:
        """Return when the peer is not behind with reading; ConnectionClosedError when it is gone."""
        while self.writes_paused and not self.is_closed:
            waiter = self._loop.create_future()
            self._writable.append(waiter)
            await waiter
        if self.is_closed:
            raise ConnectionClosedError(self.peer_addr, "the connection is closed")

    def hold(self, unfinished_bytes: int) -> None:
        """The feed keeps this much of a frame whose end has not come; all of a server's may not be too much."""
        self._endpoint.unfinished_bytes += unfinished_bytes - self.unfinished_bytes
        self.unfinished_bytes = unfinished_bytes
        if self._endpoint.unfinished_bytes > self.limits.unfinished_bytes_max:
            self.abort(f"more than {self.limits.unfinished_bytes_max} bytes of unfinished frames are held")
            self.feed_state = None
            self.hold(0)

    def hand_over(self, link: Link) -> None:
        """Let the loop call `link` instead, which gives us what it cannot do itself. Not what is encrypted."""
        if self._tls is None and self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            link.attach(self._transport, -1 if sock is None else sock.fileno())
            self._link = link

    # the end

    def add_close_callback(self, callback: CloseCallback) -> None:
        """Called once, after the connection is gone."""
        self._close_callbacks.append(callback)

    def finish(self, reason: str) -> None:
        """Close after the commands of this read are handled, because what follows them is no frame."""
        self._loop.call_soon(self.close, reason)

    def close(self, reason: str = "") -> None:
        """Close; what is written so far is still sent."""
        if self.is_closed or self._transport is None:
            return
        if reason:
            log.info("closing %s: %s", self.peer_addr, reason)
        if self._link is not None:
            self._link.send_deferred()
        self._write_gathered()
        if self._tls is not None:
            self._transport.write(self._tls.close())
        self._transport.close()

    def abort(self, reason: str = "") -> None:
        """Close at once; what is unsent is lost."""
        if self._transport is not None and not self._closed:
            if reason:
                log.warning("dropping %s: %s", self.peer_addr, reason)
            self._transport.abort()

    # called by the event loop

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, base)  # uvloop's are no subclasses of it
        transport.set_write_buffer_limits(high=self.limits.write_high_bytes)
        self.peer_host, self.peer_port = (transport.get_extra_info("peername") or _GONE)[:2]
        self.local_host, self.local_port = (transport.get_extra_info("sockname") or ("", 0))[:2]
        self._endpoint.connections.add(self)
        if not self._endpoint.takes_another():
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._active_s = self._loop.time()
        if len(data) < _WHOLE_READ_BYTES or not self._endpoint.holds_back:
            self._guarded(self._receive, data)
            return
        began_s = time.perf_counter()  # the loop's own time may stand still while it reads
        self._guarded(self._receive, data)
        if time.perf_counter() - began_s > _TURN_S and not self.is_closed and self._transport is not None:
            self._transport.pause_reading()  # uvloop would read on, up to 2 MiB of requests, before it looks elsewhere
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self.writes_paused and not self.is_closed and self._transport is not None:
            self._transport.resume_reading()

    def _guarded(self, receive: Callable[[bytes], None], data: bytes) -> None:
        try:
            receive(data)
        except RemoteProtocolError as error:
            self.close(str(error))
        except (ssl.SSLError, RocketQError) as error:
            self._farewell(error)
        except Exception:  # a fault in a feed ends its connection, not the process
            self.fail()

    def fail(self) -> None:
        """The feed or a link has raised what nobody foresaw."""
        log.exception("reading from %s failed", self.peer_addr)
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._closed = True
        self._transport = self._link = None
        self._receive = _ignore  # ends the reference of this object to itself
        self._backlog.clear()
        self.feed_state = None
        self.hold(0)
        self._endpoint.connections.discard(self)
        self._calls.close(str(error) if error is not None else "the connection was closed")
        self._wake_writers()
        for callback in (*self._endpoint.close_callbacks, *self._close_callbacks):
            try:
                callback(self)
            except Exception:  # one owner's fault must not keep the others from hearing of it
                log.exception("a close callback failed")

    def pause_writing(self) -> None:
        self.writes_paused = True
        if self._endpoint.holds_back and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._active_s = self._loop.time()
        self.writes_paused = False
        self._wake_writers()
        while self._backlog and not self.writes_paused:
            self._handle(self._backlog.popleft())
        if self.feed_waits and not self.writes_paused:
            self._guarded(self._receive_plain, b"")
        if self._endpoint.holds_back and not self.writes_paused and not self.is_closed and self._transport is not None:
            self._transport.resume_reading()

    # in

    def _receive_first(self, data: bytes) -> None:
        """The first byte says whether this is TLS."""
        tls = self._endpoint.tls
        assert tls is not None
        if data[0] == HANDSHAKE_BYTE and tls.mode is not TlsMode.DISABLED:
            self._tls = tls.session()
            self._receive = self._receive_encrypted
        elif data[0] == HANDSHAKE_BYTE or tls.mode is TlsMode.ENFORCING:
            self.close(
                "TLS is disabled here" if data[0] == HANDSHAKE_BYTE else "plain connections are not allowed here"
            )
            return
        else:
            self._receive = self._receive_plain
        self._receive(data)

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
        self.feed_waits = False
        out, commands = self._feed(self, data)
        if not commands and not self.feed_waits:
            if out:
                self.write(out)
        elif not self.feed_waits and len(commands) == 1 and not out:
            self._take_each(commands)
        else:
            self._take(out, commands)

    def _take(self, out: bytes, commands: Sequence[Command]) -> None:
        """Handle what a read brought, in its order; what is answered at once goes out in one write."""
        self._gathered = []
        try:
            self._take_turns(out, commands)
        finally:
            self._write_gathered()
            self._gathered = None

    def _take_turns(self, out: bytes, commands: Sequence[Command]) -> None:
        while True:
            if out:
                self.write(out)
            self._take_each(commands)
            if not self.feed_waits or self.is_closed:
                return
            if self._endpoint.holds_back and (self.writes_paused or self._backlog):
                return
            self.feed_waits = False
            out, commands = self._feed(self, b"")

    def _take_each(self, commands: Sequence[Command]) -> None:
        holds_back = self._endpoint.holds_back
        for command in commands:
            if command.is_response:
                self._calls.complete(command)
            elif holds_back and (self.writes_paused or self._backlog):
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
        if transport is None or transport.is_closing():  # None from the end on
            return
        self._active_s = self._loop.time()
        if self._link is not None:
            self._link.send_deferred()
        if self._tls is not None:
            data = self._encrypt(self._tls, data)
        transport.write(data)
        if self.writes_paused and transport.get_write_buffer_size() > self.limits.write_bytes_max:
            self.abort(f"the peer does not read: more than {self.limits.write_bytes_max} bytes are unsent")

    def _handle(self, request: Command) -> None:
        if not self._endpoint.draining:
            self._endpoint.dispatcher.dispatch(request, self)

    def _encrypt(self, tls: TlsSession, data: bytes) -> bytes:
        try:
            return tls.send(data)
        except ssl.SSLError as error:
            self._farewell(error)
            return b""

    def _farewell(self, error: Exception) -> None:
        """A failed handshake or a damaged stream: the alert is sent, then it is over."""
        if self._tls is not None and self._transport is not None:
            self._transport.write(self._tls.take_outgoing())
        log.info("closing %s: %s", self.peer_addr, error)
        if self._transport is not None:
            self._transport.close()

    def _wake_writers(self) -> None:
        waiters, self._writable = self._writable, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _ignore(data: bytes) -> None:
    """Bytes after the end."""
