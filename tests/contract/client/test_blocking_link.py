"""One connection of a blocking client, over real sockets: answers come whole, in pieces, late or not at all."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from rocketq.client.blocking import client as links
from rocketq.client.blocking.client import BlockingConnection, BodyReader, ReadInto
from rocketq.errors import ConnectionClosedError, RemoteProtocolError, RequestTimeoutError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.frame import encode_command

BODY = bytes(range(256)) * 8192
HANG_MS = 60_000
Served = Callable[[socket.socket], None]


def answer(opaque: int, body: bytes = BODY) -> bytes:
    return encode_command(Command(code=0, opaque=opaque, flag=1, body=body, ext_fields={"nextBeginOffset": "7"}))


@pytest.fixture(params=[True, False], ids=["kernel waits", "in pieces"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of receiving: the one of TLS and other systems too."""
    if request.param and not links._KERNEL_WAITS:
        pytest.skip("this system's kernel does not wait")
    monkeypatch.setattr(links, "_KERNEL_WAITS", request.param)


@contextmanager
def connected(serve: Served) -> Iterator[BlockingConnection]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            peer, _ = server.accept()
            with peer:
                serve(peer)

        thread = threading.Thread(target=accept)
        thread.start()
        link = BlockingConnection(f"127.0.0.1:{server.getsockname()[1]}")
        try:
            yield link
        finally:
            link.close()
            thread.join(HANG_MS / 1000)


def test_a_large_answer_comes_whole_whatever_the_pieces_it_is_sent_in() -> None:
    """Goal: two megabytes in odd pieces are one body, and the next answer begins where it ends."""

    def serve(peer: socket.socket) -> None:
        data = answer(1) + answer(2, b"short") + answer(3, b"")
        cuts = [0, 1, 5, 9, 40, 70_001, 1_500_003, len(data) - 30, len(data)]
        for low, high in itertools.pairwise(cuts):
            peer.sendall(data[low:high])

    with connected(serve) as link:
        received = [link.receive(RequestCode.PULL_MESSAGE, HANG_MS) for _ in range(3)]
    assert [each.opaque for each in received] == [1, 2, 3]
    assert [each.body for each in received] == [BODY, b"short", b""]
    assert received[0].ext_fields == {"nextBeginOffset": "7"}


def test_bodies_are_handed_over_while_they_come() -> None:
    """Goal: who wants a body takes it piece by piece, who does not gets it with its answer, and all stay in step."""

    def serve(peer: socket.socket) -> None:
        data = answer(1) + answer(2, b"not for you") + answer(3) + answer(4, b"")
        for low in range(0, len(data), 777_777):
            peer.sendall(data[low : low + 777_777])

    taken = bytearray()

    def take(command: Command, size: int, into: ReadInto) -> bool:
        if command.opaque == 2:
            return False
        for low in range(0, size, 100_003):
            piece = bytearray(min(100_003, size - low))
            into(memoryview(piece))
            taken.extend(piece)
        return True

    with connected(serve) as link:
        received = [link.receive(RequestCode.PULL_MESSAGE, HANG_MS, take) for _ in range(4)]
        assert not link.is_stale
    assert [(each.opaque, each.body) for each in received] == [(1, b""), (2, b"not for you"), (3, b""), (4, b"")]
    assert bytes(taken) == BODY + BODY


@pytest.mark.parametrize("error", [ValueError("no such record"), None])
def test_a_connection_whose_answer_was_left_in_the_middle_is_not_used_again(error: Exception | None) -> None:
    """Goal: what follows is no answer; whoever asks for this connection next gets a new one."""

    def take(command: Command, size: int, into: ReadInto) -> bool:
        into(memoryview(bytearray(10)))
        if error is not None:
            raise error
        return True

    def serve(peer: socket.socket) -> None:
        with suppress(OSError):  # it is left in the middle
            peer.sendall(answer(1))

    with connected(serve) as link:
        with pytest.raises(ValueError if error else RemoteProtocolError, match="no such" if error else "10 of 2097152"):
            link.receive(RequestCode.PULL_MESSAGE, HANG_MS, take)
        assert link.is_stale


def take_all(command: Command, size: int, into: ReadInto) -> bool:
    into(memoryview(bytearray(size)))
    return True


@pytest.mark.parametrize("take", [None, take_all], ids=["whole", "taken"])
def test_an_answer_that_stops_in_the_middle_is_a_timeout(take: BodyReader | None) -> None:
    """Goal: neither silence nor half an answer holds a task longer than it was told to wait."""
    done = threading.Event()

    def serve(peer: socket.socket) -> None:
        peer.sendall(answer(1)[:1000])
        done.wait(HANG_MS / 1000)

    with connected(serve) as link:
        with pytest.raises(RequestTimeoutError, match="300 ms"):
            link.receive(RequestCode.PULL_MESSAGE, 300, take)
        done.set()


@pytest.mark.parametrize("take", [None, take_all], ids=["whole", "taken"])
def test_a_peer_that_goes_in_the_middle_of_an_answer_is_told_of(take: BodyReader | None) -> None:
    """Goal: half an answer is never taken for a whole one."""
    with (
        connected(lambda peer: peer.sendall(answer(1)[:-1])) as link,
        pytest.raises(ConnectionClosedError, match="closed"),
    ):
        link.receive(RequestCode.PULL_MESSAGE, HANG_MS, take)


def test_a_frame_without_bounds_is_refused() -> None:
    """Goal: a size that no frame may have is no reason to make room for it."""
    with (
        connected(lambda peer: peer.sendall(b"\x7f\xff\xff\xff" + bytes(8))) as link,
        pytest.raises(RemoteProtocolError, match="2147483647"),
    ):
        link.receive(RequestCode.PULL_MESSAGE, HANG_MS)
