"""Captured exchanges with Apache's brokers, replayed against a live one of ours."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from rocketq.protocol.bodies.clients import Heartbeat
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.fastjson import loads
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.messages import decode_records
from rocketq.protocol.properties import decode_properties
from rocketq.testing import EmbeddedCluster

FOLDER = Path(__file__).parent / "frames"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())["frames"]

NOT_YET: Final = ("send-half", "end-transaction")
"""What needs a transaction under way: replayed elsewhere."""

DIFFERENT: Final[dict[str, tuple[int, set[str], str]]] = {
    "send-bad-queue-5.3.3": (1, set(), "as 4.9.7 answers"),
    "reset-offset-4.9.7": (206, set(), "the group has committed here; the capture's had not, and nobody is connected"),
    "query-offset-none-5.3.3": (0, {"offset"}, "as 4.9.7 answers: who is told 22 skips what is stored meanwhile"),
}
"""Exchanges whose code differs, what they have besides, and why."""

HEARTBEAT_V2: Final = {"IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"}
"""Told by brokers that take heartbeats without subscriptions. We do not, so clients send them whole."""


def answered_by_a_broker(entry: dict[str, Any]) -> bool:
    return "broker" in entry["to"] and not entry["name"].startswith(NOT_YET)


EXCHANGES = [entry for entry in INDEX if answered_by_a_broker(entry)]


def read(name: str) -> Command:
    (command,) = FrameDecoder().feed((FOLDER / name).read_bytes())
    return command


def captured(name: str, release: str) -> Command:
    return read(next(entry for entry in INDEX if entry["name"] == f"{name}-{release}")["request_file"])


class Line:
    """One connection, one exchange at a time; what the broker asks meanwhile is answered as a consumer would."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, running_info: bytes) -> None:
        self._reader, self._writer = reader, writer
        self._running_info = running_info
        self._decoder = FrameDecoder()
        self._opaque = 1_000

    async def ask(self, command: Command) -> Command | None:
        self._writer.write(encode_command(command))
        if command.is_oneway:
            return None
        while True:
            data = await asyncio.wait_for(self._reader.read(1 << 20), 10)
            assert data, "the broker closed the connection"
            for received in self._decoder.feed(data):
                if received.is_response and received.opaque == command.opaque:
                    return received
                if received.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                    self._writer.write(encode_command(received.answer(0, body=self._running_info)))

    async def do(self, command: Command, **changes: Any) -> Command:
        self._opaque += 1
        answer = await self.ask(replace(command, opaque=self._opaque, flag=0, **changes))
        assert answer is not None
        return answer


async def prepare(line: Line, release: str, request: Command) -> None:
    """What had happened before the captured request: topic, messages, members, commits."""
    assert (await line.do(captured("create-topic", release))).code == 0
    for name in ("send-v2", "send-batch", "send-v2-compressed"):
        assert (await line.do(captured(name, release))).code == 0
    wanted = int(request.ext_fields.get("queueOffset", 0))
    while request.code in (11, 361) and 4 <= wanted < 100:
        answer = await line.do(captured("send-v2", release))
        if int(answer.ext_fields["queueOffset"]) + 1 >= wanted:
            break
    fields = {**captured("send-v2", release).ext_fields, "e": "1"}
    assert (await line.do(captured("send-v2", release), ext_fields=fields)).code == 0
    for name in ("heartbeat-consumer", "update-offset", "update-offset-oneway"):
        assert (await line.do(captured(name, release))).code == 0
    if request.code not in (14, 30, 31, 15):
        offsets = {**captured("update-offset", release).ext_fields, "consumerGroup": "GoldenConsumer"}
        assert (await line.do(captured("update-offset", release), ext_fields=offsets)).code == 0


def as_asked(request: Command) -> Command:
    """The request with what only the captured run could know put right."""
    ext = dict(request.ext_fields)
    if request.code == RequestCode.PULL_MESSAGE and "GoldenConsumer" in ext.values():
        ext["subVersion"] = "0"
    if request.code == RequestCode.VIEW_MESSAGE_BY_ID and ext["offset"] != "123456789":
        ext["offset"] = "0"
    if request.code == RequestCode.QUERY_MESSAGE:
        ext["beginTimestamp"], ext["endTimestamp"] = "0", str((1 << 63) - 1)
    if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        ext["clientId"] = "127.0.0.1@c1"
    return replace(request, ext_fields=ext)


async def exchange(cluster: EmbeddedCluster, entry: dict[str, Any]) -> Command | None:
    request, release = read(entry["request_file"]), entry["name"].rpartition("-")[2]
    running_info = read(next(one for one in INDEX if one["name"] == f"running-info-{release}")["response_file"]).body
    host, _, port = cluster.broker_addr.rpartition(":")
    line = Line(*await asyncio.open_connection(host, int(port)), running_info)
    try:
        await prepare(line, release, request)
        if request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            beat = captured("heartbeat-consumer", release)
            body = beat.body.replace(b"GoldenConsumer", b"GoldenPull")
            await line.do(beat, body=body)
        if "reset-offset-4" in entry["name"]:  # nobody is connected any more
            await line.do(captured("unregister-client", release))
        return await line.ask(as_asked(request))
    finally:
        line._writer.close()
        await line._writer.wait_closed()


# what counts as equal


def shape_of(value: Any) -> Any:
    """The members of a JSON value without the values that times, places and counts decide."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else "object": shape_of(item) for key, item in value.items()}
    return [shape_of(value[0])] if isinstance(value, list) and value else type(value).__name__


def same_messages(ours: bytes, theirs: bytes) -> None:
    """Messages both have are equal but for places, times and what 5.x adds; some captures hold only other messages."""
    assert decode_records(ours)
    mine = {decode_properties(record.properties).get("UNIQ_KEY"): record for record in decode_records(ours)}
    for record in decode_records(theirs):
        key = decode_properties(record.properties).get("UNIQ_KEY")
        other = mine.get(key)
        if other is None:
            continue
        assert (other.body, other.flag, other.sys_flag, other.topic) == (
            record.body,
            record.flag,
            record.sys_flag,
            record.topic,
        )
        added = {"MSG_REGION", "TRACE_ON", "WAIT"}
        wanted = {name: text for name, text in decode_properties(record.properties).items() if name not in added}
        got = {name: text for name, text in decode_properties(other.properties).items() if name not in added}
        assert got == wanted


@pytest.mark.parametrize("entry", EXCHANGES, ids=lambda entry: entry["name"])
def test_a_captured_exchange_gets_an_equivalent_answer(entry: dict[str, Any]) -> None:
    """Goal: same code, same ext names, equal values except hosts, times, offsets and ids; the form asked in."""
    request = read(entry["request_file"])
    settings = {"brokerName": "broker-a"}
    with EmbeddedCluster(settings=settings) as cluster:
        answer = asyncio.run(exchange(cluster, entry))
    if "response_file" not in entry:
        assert answer is None
        return
    expected = read(entry["response_file"])
    assert answer is not None
    code, besides, _ = DIFFERENT.get(entry["name"], (expected.code, set(), ""))
    assert (answer.code, answer.opaque, answer.flag, answer.form) == (code, request.opaque, 1, request.form)
    assert set(answer.ext_fields) == set(expected.ext_fields) - HEARTBEAT_V2 | besides
    for name in ("queueId", "MSG_REGION", "TRACE_ON", "suggestWhichBrokerId", "topicSysFlag", "groupSysFlag"):
        assert answer.ext_fields.get(name) == expected.ext_fields.get(name)
    if code != expected.code:
        assert answer.remark or code == 0
        return
    assert bool(answer.body) == bool(expected.body)
    if request.code in (11, 12, 33, 361) and expected.body:
        same_messages(answer.body, expected.body)
    elif expected.body:
        assert shape_of(loads(answer.body)) == shape_of(loads(expected.body))
    if code != 0 or request.code in (11, 361):
        assert answer.remark
    if request.code in (11, 361) and code != 24:
        assert answer.remark == expected.remark


def test_all_captured_exchanges_are_here() -> None:
    assert len(EXCHANGES) == 94
    assert sum(entry["name"].startswith(NOT_YET) for entry in INDEX) == 8


def test_captured_heartbeats_are_understood() -> None:
    for entry in EXCHANGES:
        if entry["request_code"] == RequestCode.HEART_BEAT:
            assert Heartbeat.decode(read(entry["request_file"]).body).client_id.startswith("127.0.0.1@")
