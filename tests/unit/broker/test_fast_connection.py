"""The kernel's connection to a socket: what the system does not take at once is the transport's; all stays in order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rocketq.kernel.admission import Generation
from rocketq.kernel.answers import AnswerBuffer
from rocketq.kernel.appender import Appender
from rocketq.kernel.fast_frames import FastFrames
from rocketq.kernel.fast_path import NEVER_NS, FastConnection, FastPath
from rocketq.kernel.fast_pulls import FastPulls
from rocketq.kernel.fast_sends import FastSends
from rocketq.kernel.reader import LogMap


class Owner:
    """A connection, as far as a fast connection needs one."""

    def __init__(self) -> None:
        self.writes_paused = False
        self.written = b""
        self.read = b""
        self.events: list[str] = []

    def write(self, data: bytes) -> None:
        self.written += data

    def note_unsent(self) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        self.read += data

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Line:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.closing = False
        self.protocol: Any = None

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.kept))

    def write(self, data: bytes) -> None:
        self.kept.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol


def make_path(
    call_soon: Callable[..., object] = lambda *given: None,
    generation: Any = None,
    monotonic_ns: Callable[[], int] = lambda: 0,
) -> Any:
    sends = FastSends(Appender(b"\x7f\0\0\1\0\0\x2a\x9f"), b"", 0)
    pulls = FastPulls(AnswerBuffer(), LogMap(1 << 20), lambda: 0, None, 0, 0)
    clocks = (lambda: 0, monotonic_ns)
    store = SimpleNamespace(lock=threading.RLock(), stored=lambda: None, append_listeners=[])
    return FastPath(
        FastFrames(sends, pulls, 1 << 20),
        generation or Generation(),
        store,
        SimpleNamespace(room=0),
        clocks,
        call_soon,
        None,
        lambda: False,
    )


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def attached(ours: socket.socket) -> tuple[Any, Owner, Line]:
    owner, line = Owner(), Line()
    fast = FastConnection(make_path(), owner, None, b"\x7f\0\0\1\0\0\0\1", 1)
    fast.attach(line, ours.fileno())
    assert line.protocol is fast
    return fast, owner, line


def received(theirs: socket.socket) -> bytes:
    parts = []
    while True:
        try:
            part = theirs.recv(1 << 20)
        except BlockingIOError:
            return b"".join(parts)
        if not part:
            return b"".join(parts)
        parts.append(part)


def test_what_the_socket_does_not_take_goes_on_through_the_transport(pair: tuple[socket.socket, socket.socket]) -> None:
    """Goal: an answer that is sent in part is not sent twice, cut short, or overtaken by the next one."""
    ours, theirs = pair
    fast, _, line = attached(ours)
    large, small = bytes(range(256)) * 40_000, b"the next answer"
    fast.write(large)
    assert line.kept, "a socket does not take ten megabytes at once"
    fast.write(small)
    assert line.kept[-1] == small
    assert received(theirs) + b"".join(line.kept) == large + small


def test_nothing_is_sent_past_bytes_that_the_transport_has_not_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    """Goal: the socket may have room while the transport still has earlier answers."""
    ours, theirs = pair
    fast, _, line = attached(ours)
    line.kept.append(b"earlier")
    fast.write(b"later")
    assert (received(theirs), line.kept) == (b"", [b"earlier", b"later"])


def test_a_socket_that_fails_leaves_the_error_to_the_transport(pair: tuple[socket.socket, socket.socket]) -> None:
    """Goal: a peer that is gone is met by the transport, which ends the connection; nothing is raised here."""
    ours, theirs = pair
    fast, _, line = attached(ours)
    theirs.close()
    fast.write(b"too late")
    assert line.kept == [b"too late"]


def test_a_closed_or_paused_connection_sends_nothing_by_itself(pair: tuple[socket.socket, socket.socket]) -> None:
    """Goal: while the peer is behind the connection decides; once it closes nothing is written any more."""
    ours, theirs = pair
    fast, owner, line = attached(ours)
    fast.pause_writing()
    fast.write(b"a")
    fast.data_received(b"not looked at")
    assert (owner.written, owner.read, received(theirs), line.kept) == (b"a", b"not looked at", b"", [])
    fast.resume_writing()
    line.closing = True
    fast.write(b"b")
    line.closing = False
    fast.connection_lost(None)
    fast.write(b"c")
    assert (owner.written, received(theirs), line.kept) == (b"ac", b"", [])
    assert owner.events == ["pause", "resume", "lost"]


def test_the_kernel_executes_for_one_generation_and_until_a_time() -> None:
    """Goal: any change ends what was allowed, and a lease is not used a moment too long."""
    generation, now_ns = Generation(), [99]
    path = make_path(generation=generation, monotonic_ns=lambda: now_ns[0])
    assert not path.is_allowed(), "nothing was allowed yet"
    path.allow(generation.number, NEVER_NS)
    assert path.is_allowed()
    generation.bump()
    assert not path.is_allowed()
    path.allow(generation.number, 100)
    assert path.is_allowed()
    now_ns[0] = 100
    assert not path.is_allowed(), "its time is over"
    path.allow(0, NEVER_NS)
    assert not path.is_allowed()
