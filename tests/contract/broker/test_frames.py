"""interop.md, section A: each line by its number, with raw bytes against a live broker and a live NameServer.

The remoting tests have the same lines for the server alone; here the kernel's way of plain sends is in between.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketq.broker import Broker, BrokerConfig
from rocketq.errors import TlsError
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.remoting import ClientTls, TlsConfig, TlsMode
from rocketq.remoting.certificates import write_self_signed
from rocketq.store import StoreConfig
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    ONEWAY,
    beat,
    connected,
    letters,
    make_topic,
    over_loopback,
    pull,
    pull_fields,
    records,
    send,
    send_fields,
)

WAIT_S = 10
FRAME_BYTES_MAX = 16 * 1024 * 1024
UNKNOWN = 29_999
Fields = dict[str, Any]


class Line:
    """One connection; frames go in and come out as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def write(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))

    async def frame(self) -> bytes:
        """What comes next, without the four bytes of its length."""
        async with asyncio.timeout(WAIT_S):
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(length)

    async def exchange(self, *frames: bytes) -> bytes:
        self.write(*frames)
        return await self.frame()

    async def is_closed_by_peer(self) -> bool:
        async with asyncio.timeout(WAIT_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def line(addr: str, context: ssl.SSLContext | None = None) -> AsyncIterator[Line]:
    host, _, port = addr.rpartition(":")
    made = Line(*await asyncio.open_connection(host, int(port), ssl=context))
    try:
        yield made
    finally:
        made.close()


def header(frame: bytes) -> dict[str, Any]:
    """The JSON header of a frame, as a strict parser reads it."""
    length = int.from_bytes(frame[:4], "big")
    parsed = json.loads(frame[4 : 4 + length])
    assert isinstance(parsed, dict)
    return parsed


def json_frame(text: str, body: bytes = b"") -> bytes:
    """A frame with a header of any text."""
    head = text.encode()
    return (4 + len(head) + len(body)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + body


@dataclass(frozen=True)
class Server:
    """Where to ask, a request it has an answer for, and requests it must refuse."""

    addr: str
    code: int
    fields: Fields

    def question(self, opaque: int, **members: Any) -> bytes:
        return request(self.code, self.fields, opaque=opaque, **members)


def request(code: int, fields: Fields | None = None, **members: Any) -> bytes:
    texts = {name: str(value) for name, value in (fields or {}).items()}
    return encode_command(Command(code=code, ext_fields=texts, **members))


@pytest.fixture(params=["broker", "nameserver"])
def server(request: pytest.FixtureRequest, rocketq_cluster: EmbeddedCluster) -> Server:
    if request.param == "broker":
        return Server(rocketq_cluster.broker_addr, RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": 0})
    return Server(rocketq_cluster.name_server_addr, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})


@pytest.mark.parametrize("opaque", [0, 1, 0x7FFFFFFF, -1, -0x80000000])
@over_loopback
async def test_001_an_answer_repeats_the_opaque_and_is_marked(server: Server, opaque: int) -> None:
    async with line(server.addr) as peer:
        for asked in (server.question(opaque), request(UNKNOWN, opaque=opaque), request(server.code, opaque=opaque)):
            answer = header(await peer.exchange(asked))
            assert (answer["opaque"], answer["flag"]) == (opaque, 1)


@pytest.mark.parametrize("opaque", [0, 0x7FFFFFFF, -1])
@over_loopback
async def test_001_a_plain_send_too(rocketq_cluster: EmbeddedCluster, topic: str, opaque: int) -> None:
    async with line(rocketq_cluster.broker_addr) as peer:
        for code, fields in ((10, send_fields(topic)), (310, letters(send_fields(topic)))):
            for _ in range(2):  # the second time the kernel knows the topic
                answer = header(await peer.exchange(request(code, fields, opaque=opaque, body=b"b")))
                assert (answer["code"], answer["opaque"], answer["flag"]) == (0, opaque, 1)


@over_loopback
async def test_003_a_oneway_request_gets_no_answer(server: Server) -> None:
    """Goal: neither when it is served, nor when it fails, nor when nobody knows its code."""
    numbers = itertools.count(1)
    async with line(server.addr) as peer:
        for code, fields in ((server.code, server.fields), (server.code, {}), (UNKNOWN, {}), (322, {}), (15, {})):
            opaque = next(numbers)
            peer.write(request(code, fields, opaque=opaque, flag=ONEWAY))
            assert header(await peer.exchange(server.question(-opaque)))["opaque"] == -opaque


@over_loopback
async def test_003_a_oneway_send_gets_none_stored_or_refused(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with line(rocketq_cluster.broker_addr) as peer, connected(rocketq_cluster.broker_addr) as (other,):
        await make_topic(other, topic)
        for fields in (send_fields(topic), send_fields(topic, queue_id=99), send_fields("bad name")):
            peer.write(request(310, letters(fields), opaque=1, flag=ONEWAY, body=b"b"))
            asked = request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}, opaque=2)
            answer = header(await peer.exchange(asked))
            assert (answer["opaque"], answer["extFields"]["offset"]) == (2, "1")


@over_loopback
async def test_004_commits_and_unlocks_that_do_not_say_oneway_are_answered(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with connected(rocketq_cluster.broker_addr) as (other,):
        await make_topic(other, topic)
    async with line(rocketq_cluster.broker_addr) as peer:
        commit = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 3}
        unlock = b'{"consumerGroup":"%s","clientId":"c","mqSet":[]}' % group.encode()
        for asked in (request(15, commit, opaque=4), request(42, opaque=4, body=unlock)):
            answer = header(await peer.exchange(asked))
            assert (answer["code"], answer["opaque"], answer["flag"]) == (0, 4, 1)


@pytest.mark.parametrize(("form", "first_byte"), [(HeaderForm.JSON, 0), (HeaderForm.BINARY, 1)])
@over_loopback
async def test_005_the_answer_has_the_form_of_the_request(
    server: Server, rocketq_cluster: EmbeddedCluster, topic: str, form: HeaderForm, first_byte: int
) -> None:
    async with line(server.addr) as peer:
        for asked in (server.question(1, form=form), request(UNKNOWN, form=form), request(server.code, form=form)):
            assert (await peer.exchange(asked))[0] == first_byte
    async with line(rocketq_cluster.broker_addr) as peer:
        fields = letters(send_fields(topic))
        for _ in range(2):
            assert (await peer.exchange(request(310, fields, form=form, body=b"b")))[0] == first_byte
        assert (await peer.exchange(request(11, pull_fields(topic), form=form)))[0] == first_byte


def broker_questions(topic: str, group: str) -> list[bytes]:
    """One of every kind of answer that carries ext fields, in both outcomes."""
    queue = {"topic": topic, "queueId": 0}
    member = {"consumerGroup": group, **queue}
    return [
        request(310, letters(send_fields(topic)), body=b"b"),
        request(310, letters(send_fields(topic)), body=b"b"),
        request(10, send_fields(topic, queue_id=77), body=b"b"),
        request(11, pull_fields(topic)),
        request(11, pull_fields(topic, 99)),
        request(11, pull_fields("nobody")),
        request(14, member),
        request(15, {**member, "commitOffset": 1}),
        *(request(code, {**queue, "timestamp": 1}) for code in (29, 30, 31, 32)),
        request(26),
        request(28),
        request(34, body=beat("c1", group, topic=topic)),
        request(12, {"topic": topic, "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}),
        request(UNKNOWN),
        request(30),
    ]


def name_server_questions(topic: str, group: str) -> list[bytes]:
    broker = {"brokerName": "b", "brokerAddr": "b:1", "clusterName": "C", "brokerId": 0}
    slave = {**broker, "brokerAddr": "b:2", "brokerId": 1}
    return [
        request(103, {**broker, "haServerAddr": "b:3"}),
        request(103, {**slave, "haServerAddr": "b:4"}),
        request(322, broker, body=b'{"counter":1,"timestamp":1}'),
        request(205, {"brokerName": "b"}),
        request(105, {"topic": "TBW102"}),
        request(105, {"topic": topic}),
        request(100, {"namespace": group, "key": "k", "value": "1"}),
        request(101, {"namespace": group, "key": "k"}),
        request(101, {"namespace": group, "key": "none"}),
        request(104, broker),
        request(UNKNOWN),
        request(100),
    ]


Questions = Callable[[str, str], list[bytes]]


@pytest.mark.parametrize(("which", "questions"), [("broker", broker_questions), ("names", name_server_questions)])
@over_loopback
async def test_006_007_014_what_the_headers_of_answers_hold(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str, which: str, questions: Questions
) -> None:
    """Goal: ext values are texts, code and version fit 16 bits with a sign, the version is 232 or more."""
    addr = rocketq_cluster.broker_addr if which == "broker" else rocketq_cluster.name_server_addr
    seen: set[str] = set()
    async with line(addr) as peer:
        for asked in questions(topic, group):
            answer = header(await peer.exchange(asked))
            values = answer.get("extFields", {})
            assert all(type(value) is str for value in values.values()), answer
            assert type(answer["code"]) is int
            assert -32768 <= answer["code"] <= 32767
            assert 232 <= answer["version"] <= 32767
            seen |= set(values)
    expected = {"queueOffset", "nextBeginOffset", "offset", "timestamp"}
    assert (expected if which == "broker" else {"masterAddr", "changed", "wipeTopicCount", "value"}) <= seen


ODD = '"language":"COBOL","version":1,"remark":"","serializeTypeCurrentRPC":"JSON","more":[{"a":null}]'


@over_loopback
async def test_008_009_numbers_booleans_and_unknown_members(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: plain sends, batches and pulls of the C++ and Node clients; `1` counts as true."""
    fields = '"a":"p","b":"%s","c":"TBW102","d":4,"e":2,"f":0,"g":1700000000123,"h":7,"i":"","j":0,"k":false,"zz":"x"'
    element = b"\0\0\0\x1e" + bytes(8) + b"\0\0\0\x05" + b"\0\0\0\x08inbatchN"
    element = (len(element) + 2).to_bytes(4, "big") + element[4:] + b"\0\0"
    async with line(rocketq_cluster.broker_addr) as peer:
        for opaque, more in enumerate(('"m":false', '"m":false', '"m":0')):
            text = f'{{"code":310,"flag":0,"opaque":{opaque},{ODD},"extFields":{{{fields % topic},{more}}}}}'
            answer = header(await peer.exchange(json_frame(text, b"plain")))
            assert (answer["code"], answer["opaque"]) == (0, opaque), answer
            assert (answer["extFields"]["queueId"], answer["extFields"]["queueOffset"]) == ("2", str(opaque))
        for more in ('"m":1', '"m":true', '"m":"1"', '"m":"true"'):
            text = f'{{"code":310,"flag":0,"opaque":9,{ODD},"extFields":{{{fields % topic},{more}}}}}'
            answer = header(await peer.exchange(json_frame(text, element * 2)))
            assert (answer["code"], answer["extFields"]["msgId"].count(",")) == (0, 1), answer
        pulling = '"consumerGroup":"g","queueId":2,"queueOffset":1,"maxMsgNums":32,"sysFlag":4,"commitOffset":0'
        text = f'{{"code":11,"flag":0,"opaque":1,{ODD},"extFields":{{"topic":"{topic}",{pulling},"subscription":"*"}}}}'
        frame = await peer.exchange(json_frame(text))
        assert header(frame)["extFields"]["nextBeginOffset"] == "11"
    (answer_with_body,) = FrameDecoder().feed(len(frame).to_bytes(4, "big") + frame)
    found = records(answer_with_body)
    assert [record.body for record in found] == [b"plain"] * 2 + [b"inbatchN"] * 8
    assert {record.flag for record in found[:2]} == {7}


@over_loopback
async def test_009_a_name_server_reads_them_too(rocketq_cluster: EmbeddedCluster) -> None:
    async with line(rocketq_cluster.name_server_addr) as peer:
        text = f'{{"code":105,"flag":0,"opaque":3,{ODD},"extFields":{{"topic":"TBW102","queueId":3,"k":false}}}}'
        answer = header(await peer.exchange(json_frame(text)))
        assert (answer["code"], answer["opaque"]) == (0, 3)


@over_loopback
async def test_010_the_largest_frame_is_taken_and_a_larger_one_closes(
    server: Server, rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    is_broker = server.addr == rocketq_cluster.broker_addr
    code, fields = (310, letters(send_fields(topic))) if is_broker else (UNKNOWN, {})
    async with line(server.addr) as peer:
        head = len(request(code, fields))
        frame = request(code, fields, opaque=5, body=bytes(FRAME_BYTES_MAX - head))
        assert len(frame) == FRAME_BYTES_MAX
        answer = header(await peer.exchange(frame))
        assert (answer["code"], answer["opaque"]) == (13 if is_broker else 3, 5)
        assert header(await peer.exchange(server.question(6)))["opaque"] == 6
    async with line(server.addr) as peer:
        peer.write((FRAME_BYTES_MAX - 3).to_bytes(4, "big"))
        assert await peer.is_closed_by_peer()


@over_loopback
async def test_011_frames_in_pieces_and_many_at_once(server: Server) -> None:
    async with line(server.addr) as peer:
        for at in server.question(1):
            peer.write(bytes([at]))
            await asyncio.sleep(0)
        assert header(await peer.frame())["opaque"] == 1
        peer.write(*(server.question(opaque) for opaque in range(500)))
        assert [header(await peer.frame())["opaque"] for _ in range(500)] == list(range(500))


@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000])
@over_loopback
async def test_011_sends_in_pieces_are_stored_once_each(
    rocketq_cluster: EmbeddedCluster, topic: str, piece_bytes: int
) -> None:
    async with line(rocketq_cluster.broker_addr) as peer, connected(rocketq_cluster.broker_addr) as (other,):
        await send(other, topic, b"first")
        fields = letters(send_fields(topic))
        data = b"".join(request(310, fields, opaque=number, body=b"%d" % number) for number in range(20))
        for at in range(0, len(data), piece_bytes):
            peer.write(data[at : at + piece_bytes])
            await asyncio.sleep(0)
        assert [header(await peer.frame())["extFields"]["queueOffset"] for _ in range(20)] == [
            str(number) for number in range(1, 21)
        ]
        assert [record.body for record in records(await pull(other, topic, 1))] == [b"%d" % n for n in range(20)]


@asynccontextmanager
async def live(which: str, folder: Path, tls: TlsConfig | None = None, **given: Any) -> AsyncIterator[str]:
    """The address of a broker or NameServer with settings of its own."""
    if which == "broker":
        store = StoreConfig.from_java({"mappedFileSizeCommitLog": str(16 << 20)}, root=folder / "store")
        broker = Broker(BrokerConfig(name="b", port=0, **given), store, tls=tls)
        await broker.start()
        addr, stop = broker.addr, broker.stop
    else:
        paths = {"kv_path": folder / "kv.json", "config_path": folder / "ns.properties"}
        names = NameServer(NameServerConfig(port=0, **paths, **given), tls=tls)
        await names.start()
        addr, stop = names.addr, names.stop
    try:
        yield addr
    finally:
        await stop()


@pytest.mark.parametrize("which", ["broker", "nameserver"])
@over_loopback
async def test_015_silence_closes_and_a_heartbeat_keeps(which: str, tmp_path: Path) -> None:
    """Goal: after 120 s unless told otherwise."""
    assert (BrokerConfig().idle_seconds, NameServerConfig().idle_seconds) == (120, 120)
    asked = request(34, body=beat("c")) if which == "broker" else request(206)
    async with live(which, tmp_path, idle_seconds=1) as addr, line(addr) as quiet, line(addr) as lively:
        closing = asyncio.create_task(quiet.is_closed_by_peer())
        for _ in range(6):
            assert header(await lively.exchange(asked))["code"] == 0
            await asyncio.sleep(0.3)
        assert await closing
        assert header(await lively.exchange(asked))["code"] == 0


@pytest.mark.parametrize(
    ("mode", "plain", "encrypted"),
    [(TlsMode.PERMISSIVE, True, True), (TlsMode.ENFORCING, False, True), (TlsMode.DISABLED, True, False)],
)
@pytest.mark.parametrize("which", ["broker", "nameserver"])
@over_loopback
async def test_016_tls_and_plain_clients_on_one_port(
    which: str, tmp_path: Path, mode: TlsMode, plain: bool, encrypted: bool
) -> None:
    try:
        cert, key = write_self_signed(tmp_path)
    except TlsError as reason:
        pytest.skip(str(reason))

    async def is_served(addr: str, context: ssl.SSLContext | None) -> bool:
        asked = request(34, opaque=8, body=beat("c")) if which == "broker" else request(206, opaque=8)
        try:
            async with line(addr, context) as peer:
                return header(await peer.exchange(asked))["opaque"] == 8
        except (OSError, asyncio.IncompleteReadError):  # closed, and nothing was said
            return False

    async with live(which, tmp_path, tls=TlsConfig(cert_path=cert, key_path=key, mode=mode)) as addr:
        outcomes = await asyncio.gather(*(is_served(addr, context) for context in (None, ClientTls().context())))
        assert outcomes == [plain, encrypted]
