"""A client on plain sockets: connections, routes, and requests in flight."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from rocketq.client.core.routes import MASTER_ID, broker_addr
from rocketq.client.errors import NoQueueError, failure_to
from rocketq.client.name_servers import address_list, parse_name_servers
from rocketq.errors import (
    ConnectionClosedError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    UnreachableError,
)
from rocketq.protocol.acl import Credentials
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.codes import RequestCode, ResponseCode, request_text
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FRAME_BYTES_MAX, decode_command, encode_command
from rocketq.protocol.headers.nameserver import RouteRequest
from rocketq.protocol.headers.wire import Header
from rocketq.protocol.requests import make_request
from rocketq.remoting.address import split_addr
from rocketq.remoting.signing import sign_now
from rocketq.remoting.tls import ClientTls

CONNECT_TIMEOUT_MS: Final = 3_000
IDLE_S_MAX: Final = 60.0
"""Servers close connections after two idle minutes: one that is idle for longer than this may already be closing."""
SEND_TIMEOUT_MS: Final = 10_000
_PIECE_BYTES: Final = 1 << 18
_KERNEL_WAITS: Final = sys.platform == "linux"
"""On Linux one call receives a whole answer: the kernel waits for all bytes and applies the timeout."""
_START: Final = struct.Struct(">i4s")

ReadInto = Callable[[memoryview], None]
"""Fills a piece of memory with the bytes that come next."""
BodyReader = Callable[[Command, int, ReadInto], bool]
"""Called with an answer without its body, the size of the body, and a function that reads it. Reads all of it and
returns True, or reads nothing and returns False."""


class BlockingConnection:
    """Matches answers by their opaque; requests of the peer are dropped."""

    def __init__(self, addr: str, *, tls: ssl.SSLContext | None = None, timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        self.addr = addr
        host, port = split_addr(addr)
        try:
            plain = socket.create_connection((host, port), timeout_ms / 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = tls.wrap_socket(plain) if tls is not None else plain
            self.is_local = self._socket.getsockname()[0] == self._socket.getpeername()[0]
            """Whether both ends have one address: the same machine, or one behind its address (NAT)."""
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
        """Idle for too long, or closed in the middle of an answer: open a new connection instead."""
        return self._is_cut or time.monotonic() - self._used_s > IDLE_S_MAX

    def send(self, command: Command) -> int:
        """Send a request; receive() returns its opaque with the answer."""
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

    def receive(self, code: int, timeout_ms: int, take: BodyReader | None = None) -> Command:
        """The next answer to any request that was sent; without its body if `take` has read it."""
        if self._early:
            return self._early.pop(next(iter(self._early)))
        deadline_s = time.monotonic() + timeout_ms / 1000
        while True:
            command = self._read(code, timeout_ms, deadline_s, take)
            if command.is_response:
                return command

    def close(self) -> None:
        self._socket.close()

    def _read(self, code: int, timeout_ms: int, deadline_s: float, take: BodyReader | None = None) -> Command:
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
            raise RequestTimeoutError(self.addr, code, timeout_ms, request_text(code)) from None
        except OSError as error:
            raise ConnectionClosedError(self.addr, str(error)) from None

    def _hand_over(self, command: Command, size: int, deadline_s: float, take: BodyReader) -> bool:
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
        """The next bytes; all of them, unless the timeout expires or this system or TLS returns them in pieces."""
        if not self._kernel_waits:
            self._socket.settimeout(timeout_s)
            return self._socket.recv(min(count, _PIECE_BYTES))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout_s))
        try:
            return self._socket.recv(count, socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError from None

    def _some_into(self, piece: memoryview, timeout_s: float) -> int:
        """As _some(), into a buffer."""
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
    """A C timeval; 0 would mean no timeout."""
    return struct.pack("ll", int(seconds), max(1, int(seconds % 1 * 1_000_000)))


CONTROL_TIMEOUT_MS: Final = 3_000
_OK: Final = (ResponseCode.SUCCESS,)


class BlockingClient:
    """Belongs to one thread."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._address_list = address_list(name_servers, None)
        self._name_servers = [] if self._address_list else list(parse_name_servers(name_servers))
        self._credentials = credentials
        self._tls = tls.context() if tls is not None else None
        self._links: dict[str, BlockingConnection] = {}
        self._routes: dict[str, TopicRoute] = {}
        self._known: set[str] = set()

    def link(self, addr: str) -> BlockingConnection:
        link = self._links.get(addr)
        if link is not None and link.is_stale:
            self.drop(addr)
            link = None
        if link is None:
            link = self._links[addr] = BlockingConnection(addr, tls=self._tls)
        return link

    def drop(self, addr: str) -> None:
        """Forget a connection that failed; the next request makes a new one."""
        if (link := self._links.pop(addr, None)) is not None:
            link.close()

    def signed(self, command: Command) -> Command:
        return command if self._credentials is None else sign_now(command, self._credentials)

    def call(
        self,
        addr: str,
        header: Header | None,
        *,
        code: RequestCode | None = None,
        body: bytes = b"",
        timeout_ms: int = CONTROL_TIMEOUT_MS,
        accept: Collection[int] = _OK,
    ) -> Command:
        """The answer; one whose code is not accepted is raised as the error it stands for."""
        command = self.signed(make_request(header, opaque=0, code=code, body=body))
        try:
            answer = self.link(addr).exchange(command, timeout_ms)
        except RemotingError:
            self.drop(addr)
            raise
        if answer.code not in accept:
            raise failure_to(command, answer, addr)
        return answer

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        if fresh or topic not in self._routes:
            self._routes[topic] = TopicRoute.decode(
                self.call_name_server(RouteRequest(topic=topic, strict_json=True)).body
            )
            self._known.add(topic)
        return self._routes[topic]

    def knew(self, topic: str) -> bool:
        """Whether the topic existed before: if it has no route now, its brokers are down and may return."""
        return topic in self._known

    def forget_routes(self) -> None:
        """Ask for them again when they are next needed."""
        self._routes.clear()

    def broker(self, topic: str, broker_name: str, *, broker_id: int = MASTER_ID, fresh: bool = False) -> str:
        """The address of a broker of the topic, or of another replica of that name; NoQueueError if there is none."""
        addr = broker_addr(self.route(topic, fresh=fresh), broker_name, broker_id)
        if addr is None:
            raise NoQueueError(topic, f"broker {broker_name} is not in the route")
        return addr

    def master(self, topic: str, broker_name: str) -> str | None:
        """The address of the master; None if there is no master."""
        brokers = (each for each in self.route(topic).brokers if each.broker_name == broker_name)
        return next((each.addrs.get(MASTER_ID) for each in brokers), None)

    def close(self) -> None:
        for addr in list(self._links):
            self.drop(addr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call_name_server(self, header: Header | None = None, *, code: RequestCode | None = None) -> Command:
        """The answer of the first NameServer that gives one; UnreachableError when none does."""
        failures = []
        if self._address_list is not None:
            found = self._address_list.addrs_blocking()
            if set(found) != set(self._name_servers):
                self._name_servers = list(found)
        for addr in list(self._name_servers):
            try:
                return self._call_one(addr, header, code)
            except RemotingError as error:
                failures.append(error)
                self._name_servers.append(self._name_servers.pop(0))  # the next one is asked first from now on
        reasons = "; ".join(map(str, failures))
        raise UnreachableError(";".join(self._name_servers), f"no NameServer answered: {reasons}")

    def _call_one(self, addr: str, header: Header | None, code: RequestCode | None) -> Command:
        """Retries once on a new connection: an old one may be closed although the NameServer is up."""
        was_connected = addr in self._links
        try:
            return self.call(addr, header, code=code)
        except ConnectionClosedError:
            if not was_connected:
                raise
        return self.call(addr, header, code=code)


_Item = TypeVar("_Item")


@dataclass(slots=True)
class _Flight(Generic[_Item]):
    item: _Item
    code: int
    deadline_s: float


class RequestPipeline(Generic[_Item]):
    """Belongs to one thread, as its client does."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._flights: dict[tuple[str, int], _Flight[_Item]] = {}  # in the order they were sent
        self._lost: list[tuple[_Item, RemotingError]] = []

    def __len__(self) -> int:
        return len(self._flights) + len(self._lost)

    def post(self, addr: str, item: _Item, code: int, frame_of: Callable[[int], bytes], timeout_ms: int) -> None:
        """Send it; next() also returns failures."""
        try:
            opaque = self._client.link(addr).post(frame_of)
        except RemotingError as error:
            self._lost.append((item, error))
            self._lose(addr, error)
        else:
            self._flights[addr, opaque] = _Flight(item, code, time.monotonic() + timeout_ms / 1000)

    def next(self) -> tuple[str, _Item, Command | RemotingError]:
        """Wait for the next result: address (blank if the request was lost), item, and answer or error."""
        while not self._lost:
            addr, flight = next((addr, flight) for (addr, _), flight in self._flights.items())
            left_ms = max(1, round((flight.deadline_s - time.monotonic()) * 1000))
            try:
                answer = self._client.link(addr).receive(flight.code, left_ms)
            except RemotingError as error:
                self._lose(addr, error)
                continue
            answered = self._flights.pop((addr, answer.opaque), None)
            if answered is not None:
                return addr, answered.item, answer
        item, loss = self._lost.pop(0)
        return "", item, loss

    def abandon(self) -> None:
        """Drop all requests: connections with outstanding answers are closed."""
        for addr in {addr for addr, _ in self._flights}:
            self._client.drop(addr)
        self._flights.clear()
        self._lost.clear()

    def _lose(self, addr: str, error: RemotingError) -> None:
        """Fail every request that waits on a connection that failed."""
        self._client.drop(addr)
        gone = [key for key in self._flights if key[0] == addr]
        self._lost += [(self._flights.pop(key).item, error) for key in gone]
