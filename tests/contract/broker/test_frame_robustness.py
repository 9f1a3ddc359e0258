"""Frames of the fast path over real sockets: cut, large, damaged, mixed, and of peers that do not read or leave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import FrameDecoder, encode_command
from tests.contract.broker.kit import (
    WAIT_S,
    Peer,
    connected,
    eventually,
    make_topic,
    over_loopback,
    records,
    running_broker,
)
from tests.contract.broker.test_guards import codes_of, prepare, pulls, sends, stored

FORMS = pytest.mark.parametrize("form", HeaderForm)


class Stream:
    """A connection whose writes arrive as they are cut."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._decoder = reader, writer, FrameDecoder()
        self._answers: list[Command] = []

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answers(self, count: int) -> list[Command]:
        async with asyncio.timeout(WAIT_S):
            while len(self._answers) < count:
                data = await self._reader.read(1 << 20)
                assert data, f"the connection ended after {len(self._answers)} of {count} answers"
                self._answers += self._decoder.feed(data)
        found, self._answers = self._answers[:count], self._answers[count:]
        return found

    async def is_closed(self) -> bool:
        async with asyncio.timeout(WAIT_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def stream(addr: str) -> AsyncIterator[Stream]:
    host, _, port = addr.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        yield Stream(reader, writer)
    finally:
        writer.close()


def encoded(*requests: Command, form: HeaderForm = HeaderForm.JSON) -> bytes:
    return b"".join(encode_command(replace(request, form=form)) for request in requests)


async def take_turn(peer: Peer) -> None:
    """The broker has read whatever was written on other connections before."""
    await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})


@FORMS
@over_loopback
async def test_frames_cut_at_every_byte_are_executed_once(tmp_path: Path, form: HeaderForm) -> None:
    """Goal: a send, a pull and a slow request, in two reads, wherever the first ends; then the next frame."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,), stream(broker.addr) as raw:
        await prepare(peer, "T")
        slow = peer.request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
        requests = [*sends(peer, count=1), *pulls(peer, count=1, maxMsgNums=1), slow]
        data, before = encoded(*requests, form=form), stored(broker)
        for cut in range(1, len(data)):
            await raw.write(data[:cut])
            await take_turn(peer)
            await raw.write(data[cut:])
            answers = await raw.answers(3)
            assert [(answer.opaque, answer.code) for answer in answers] == [(each.opaque, 0) for each in requests]
            assert len(records(answers[1])) == 1
        assert stored(broker) - before == len(data) - 1


@FORMS
@over_loopback
async def test_a_body_of_15_mib_is_stored_and_given(tmp_path: Path, form: HeaderForm) -> None:
    large = {"maxMessageSize": str(16 << 20), "mappedFileSizeCommitLog": str(20 << 20)}
    body = bytes(range(256)) * (15 << 12)
    async with (
        running_broker(tmp_path, **large) as broker,
        connected(broker.addr) as (peer,),
        stream(broker.addr) as raw,
    ):
        await prepare(peer, "T")
        (send,), end = sends(peer, count=1), stored(broker)
        (pull,) = pulls(peer, count=1, queueOffset=end)
        await raw.write(encoded(replace(send, body=body), pull, form=form))
        sent, pulled = await raw.answers(2)
        assert (sent.code, sent.ext_fields["queueOffset"]) == (0, str(end))
        assert records(pulled)[0].body == body


BAD = {
    "cut off": b'{"code":310,"opaque":9',
    "no JSON": b"hello",
    "not UTF-8": b'{"code":310,"remark":"\xff"}',
    "no object": b"[1,2]",
    "bad escape": b'{"code":310,"extFields":{"a":"\\u12"}}',
}


@pytest.mark.parametrize("bad", BAD)
@over_loopback
async def test_a_header_that_is_none_ends_its_connection_behind_the_answers(tmp_path: Path, bad: str) -> None:
    """Goal: what came before it is answered, nothing behind it is executed, others are served."""
    header = BAD[bad]
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,), stream(broker.addr) as raw:
        await prepare(peer, "T")
        before = stored(broker)
        await raw.write(encoded(*sends(peer, count=3)) + frame + encoded(*sends(peer, count=3)))
        assert [answer.code for answer in await raw.answers(3)] == [0] * 3
        assert await raw.is_closed()
        assert stored(broker) - before == 3
        assert await codes_of(peer, *sends(peer, count=3)) == [0] * 3


@over_loopback
async def test_a_member_of_a_wrong_kind_is_answered_in_its_turn(tmp_path: Path) -> None:
    header = b'{"code":"x","opaque":77,"flag":0}'
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,), stream(broker.addr) as raw:
        await prepare(peer, "T")
        first, last = sends(peer, count=2), sends(peer, count=2)
        await raw.write(encoded(*first) + frame + encoded(*last))
        opaques = [*(each.opaque for each in first), 77, *(each.opaque for each in last)]
        answers = await raw.answers(5)
        assert [(each.opaque, each.code) for each in answers] == list(zip(opaques, [0, 0, 1, 0, 0], strict=True))


@over_loopback
async def test_answers_of_both_paths_come_in_the_order_of_their_requests(tmp_path: Path) -> None:
    """Goal: fast, slow, fast and so on in one write, in both header forms; the messages in their queue too."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,), stream(broker.addr) as raw:
        await prepare(peer, "T")
        end = stored(broker)
        requests = []
        for number in range(60):
            given = {"properties": "KEYS\x01键"} if number % 3 == 0 else {}
            form = HeaderForm.BINARY if number % 4 == 0 else HeaderForm.JSON
            (send,) = sends(peer, count=1, **given)
            requests += [replace(send, body=b"%d" % number, form=form), *pulls(peer, count=number % 2)]
        await raw.write(b"".join(encode_command(each) for each in requests))
        answers = await raw.answers(len(requests))
        assert [(each.opaque, each.code) for each in answers] == [(each.opaque, 0) for each in requests]
        bodies: list[bytes] = []
        while len(bodies) < 60:
            (answer,) = await peer.ask_together(*pulls(peer, count=1, queueOffset=end + len(bodies)))
            bodies += [record.body for record in records(answer)]
        assert bodies == [b"%d" % number for number in range(60)]


@over_loopback
async def test_a_peer_that_leaves_while_its_sends_wait_for_the_disk_loses_none(tmp_path: Path) -> None:
    """Goal: what was stored stays, held answers are dropped without a fault, and others are answered."""
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T")
        store, before = broker.parts.store, stored(broker)
        store.log.flush = lambda **given: store.gate.position  # type: ignore[method-assign]
        async with stream(broker.addr) as raw:
            await raw.write(encoded(*sends(peer, count=10)))

            async def are_stored() -> bool:
                return stored(broker) - before == 10

            await eventually(are_stored)
        waiting = [peer.start(each.code, dict(each.ext_fields), each.body) for each in sends(peer, count=2)]

        async def are_held() -> bool:
            return stored(broker) - before == 12

        await eventually(are_held)
        del store.log.flush
        store.flush()
        answers = await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
        assert [answer.code for answer in answers] == [0, 0]
        assert broker._dispatchers[0].held_count == 0


@over_loopback
async def test_a_peer_that_does_not_read_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Goal: its pulls are answered as far as it reads, other connections are served, its sends are not lost."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        big = [replace(each, body=b"x" * 100_000) for each in sends(peer, count=20)]
        assert set(await codes_of(peer, *big)) == {0}
        assert set(await codes_of(peer, *pulls(peer, count=2))) == {0}
        host, _, port = broker.addr.rpartition(":")
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            lazy.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(lazy, (host, int(port)))
            asked, before = pulls(peer, count=60), broker.fast_paths[0].pulls_taken
            await loop.sock_sendall(lazy, encoded(*asked))
            assert set(await codes_of(peer, *sends(peer))) == {0}
            assert broker.fast_paths[0].pulls_taken - before < len(asked)
            decoder, answers = FrameDecoder(), list[Command]()
            async with asyncio.timeout(WAIT_S):
                while len(answers) < len(asked):
                    answers += decoder.feed(await loop.sock_recv(lazy, 1 << 20))
        assert [(each.opaque, each.code) for each in answers] == [(each.opaque, 0) for each in asked]
