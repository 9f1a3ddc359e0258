"""Answers of the kernel over real sockets: to peers that read slowly, leave in the middle, or are many."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.testing import EmbeddedCluster, loop_thread
from tests.contract.broker.kit import (
    WAIT_S,
    connected,
    letters,
    make_topic,
    over_loopback,
    pull_fields,
    send_fields,
)

BODY = b"x" * 2_000


def sends(topic: str, count: int, body: bytes = BODY) -> bytes:
    fields = {name: str(value) for name, value in letters(send_fields(topic, 0)).items()}
    return b"".join(
        encode_command(Command(code=RequestCode.SEND_MESSAGE_V2, opaque=opaque, ext_fields=fields, body=body))
        for opaque in range(count)
    )


def pulls(topic: str, count: int) -> bytes:
    fields = {name: str(value) for name, value in pull_fields(topic, 0, maxMsgNums=32).items()}
    return b"".join(
        encode_command(Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, ext_fields=fields))
        for opaque in range(count)
    )


async def prepare(cluster: EmbeddedCluster, topic: str, count: int = 64) -> None:
    """Messages to pull, from a queue and with a route that the kernel knows."""
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=1)
        for _ in range(count):
            assert (await peer.ask(RequestCode.SEND_MESSAGE_V2, letters(send_fields(topic, 0)), BODY)).code == 0
        for _ in range(2):
            assert (await peer.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, 0, maxMsgNums=32))).code == 0


def open_socket(cluster: EmbeddedCluster, receive_bytes: int = 4_096) -> socket.socket:
    """Of a peer with little room for what it has not read."""
    host, _, port = cluster.broker_addr.rpartition(":")
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    peer.settimeout(WAIT_S)
    peer.connect((host, int(port)))
    return peer


def read_answers(peer: socket.socket, count: int, step_bytes: int = 5_000) -> list[Command]:
    decoder, answers = FrameDecoder(), list[Command]()
    while len(answers) < count:
        data = peer.recv(step_bytes)
        assert data, f"the connection ended after {len(answers)} of {count} answers"
        answers += decoder.feed(data)
    return answers


def mixed(topic: str, count: int) -> bytes:
    """Pulls for the kernel, and between them requests that it leaves to the handlers."""
    fields = {name: str(value) for name, value in pull_fields(topic, 0, maxMsgNums=32).items()}
    slow = {"topic": topic, "queueId": "0"}
    return b"".join(
        encode_command(
            Command(code=RequestCode.GET_MAX_OFFSET, opaque=opaque, ext_fields=slow)
            if opaque % 3 == 2
            else Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, ext_fields=fields)
        )
        for opaque in range(count)
    )


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@over_loopback
async def test_a_peer_that_reads_slowly_gets_every_answer_whole_and_in_order(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """Goal: answers that the socket takes in part, that wait in the transport, that wait to be asked for again, and
    those of the handlers between them."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setattr(loop_thread, "loop_factory", lambda: None)
    cluster = make_rocketq_cluster()
    await prepare(cluster, "Slow")
    fast_path, count = cluster.brokers[0].fast_paths[0], 300
    assert type(cast(Any, fast_path)._loop).__module__.startswith(loop)
    before = fast_path.pulls_taken
    with open_socket(cluster) as peer:
        asked = asyncio.get_running_loop().run_in_executor(None, peer.sendall, mixed("Slow", count))
        answers = await asyncio.to_thread(read_answers, peer, count)
        await asked
    assert [answer.opaque for answer in answers] == list(range(count))
    assert {answer.code for answer in answers} == {0}
    assert len({answer.body for answer in answers if answer.opaque % 3 != 2}) == 1
    assert fast_path.pulls_taken - before == count // 3 * 2


@over_loopback
async def test_peers_that_leave_in_the_middle_of_answers_hurt_nobody(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    """Goal: a reset while answers are under way ends that connection only, in whatever state it is."""
    await prepare(rocketq_cluster, topic)
    for read_bytes in (0, 1, 10_000):
        with open_socket(rocketq_cluster) as peer:
            peer.sendall(pulls(topic, 20) + sends(topic, 20)[: -len(BODY) // 2])
            if read_bytes:
                await asyncio.to_thread(peer.recv, read_bytes)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        assert (await peer.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, 0, maxMsgNums=32))).code == 0


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@over_loopback
async def test_many_peers_at_once_get_their_own_answers(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], flush: str
) -> None:
    """Goal: answers are kept for the end of a turn, or until the disk has the messages, and none goes astray; some of
    the peers are gone by then."""
    cluster = make_rocketq_cluster(settings={"flushDiskType": flush})
    await prepare(cluster, "Many")
    fast_path = cluster.brokers[0].fast_paths[0]
    before = fast_path.taken
    leaving = [open_socket(cluster) for _ in range(10)]
    async with connected(*[cluster.broker_addr] * 40) as peers:
        for round_number in range(20):
            waiting = [
                peer.start(RequestCode.SEND_MESSAGE_V2, letters(send_fields("Many", 0)), b"%d" % round_number)
                for peer in peers
            ]
            if round_number == 10:
                for gone in leaving:
                    gone.sendall(sends("Many", 3, b"gone"))
                    gone.close()
            answers = await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
            assert {answer.code for answer in answers} == {0}
            assert len({answer.ext_fields["queueOffset"] for answer in answers}) == len(peers)
    assert fast_path.taken - before > 15 * 40  # but for those that needed more room in their queue's file


@over_loopback
async def test_peers_that_send_no_more_still_get_what_they_asked_for(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    """Goal: the end of what a peer sends comes with its request, before the turn is over; the answer is sent first."""
    await prepare(rocketq_cluster, topic)
    peers = [open_socket(rocketq_cluster) for _ in range(20)]
    for peer in peers:
        peer.sendall(sends(topic, 1))
        peer.shutdown(socket.SHUT_WR)
    for peer in peers:
        with peer:
            assert [answer.code for answer in await asyncio.to_thread(read_answers, peer, 1)] == [0]
            assert await asyncio.to_thread(peer.recv, 1) == b""


@over_loopback
async def test_answers_that_wait_count_before_the_next_request_begins(
    make_rocketq_cluster: Callable[..., EmbeddedCluster],
) -> None:
    """Goal: of fourteen sends in one read ten may wait for the disk; the others are refused, not begun as well."""
    cluster = make_rocketq_cluster(settings={"flushDiskType": "SYNC_FLUSH", "sendThreadPoolQueueCapacity": "10"})
    await prepare(cluster, "Full", 4)
    store = cluster.brokers[0].parts.store
    store.log.flush = lambda **given: store.gate.position  # type: ignore[method-assign]
    with open_socket(cluster) as peer:
        peer.sendall(sends("Full", 14, b"x"))
        refused = await asyncio.to_thread(read_answers, peer, 4)
        assert [(answer.opaque, answer.code) for answer in refused] == [(opaque, 2) for opaque in range(10, 14)]
        del store.log.flush
        store.flush()
        stored = await asyncio.to_thread(read_answers, peer, 10)
    assert [(answer.opaque, answer.code) for answer in stored] == [(opaque, 0) for opaque in range(10)]
