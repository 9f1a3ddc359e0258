"""What is inside the captured frames: typed headers and bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketq.protocol.bodies import Body
from rocketq.protocol.bodies.assignment import LockAnswer, LockRequest
from rocketq.protocol.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerConnections,
    ConsumerList,
    Heartbeat,
    RunningConsumer,
)
from rocketq.protocol.bodies.offsets import ResetOffsets
from rocketq.protocol.bodies.queues import KeyValues, MessageQueue
from rocketq.protocol.bodies.registration import Registration, decode_registration
from rocketq.protocol.bodies.routes import ClusterTable, TopicRoute
from rocketq.protocol.bodies.stats import ConsumeStats
from rocketq.protocol.bodies.topics import TopicStats
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.compression import Compression, decompress
from rocketq.protocol.fastjson import dumps, loads
from rocketq.protocol.frame import FrameDecoder
from rocketq.protocol.headers import Header
from rocketq.protocol.headers.nameserver import RegisterBrokerRequest
from rocketq.protocol.headers.offsets import EarliestTimeResponse, OffsetResponse
from rocketq.protocol.headers.pull import PullResponse
from rocketq.protocol.headers.send import SendResponse, decode_send, encode_send
from rocketq.protocol.messages import body_crc, decode_batch, decode_records, encode_batch, encode_record
from rocketq.protocol.properties import decode_properties
from rocketq.protocol.requests import HEADERS

FOLDER = Path(__file__).parent / "frames"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())["frames"]

GENERIC_FIELDS = {"bname", "ns", "nsd", "oway", "lo", "ReqT"}

REQUEST_BODIES: dict[int, type[Body]] = {
    RequestCode.REGISTER_BROKER: Registration,
    RequestCode.HEART_BEAT: Heartbeat,
    RequestCode.LOCK_BATCH_MQ: LockRequest,
    RequestCode.UNLOCK_BATCH_MQ: LockRequest,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsets,
}
RESPONSE_BODIES: dict[int, type[Body]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: TopicRoute,
    RequestCode.GET_BROKER_CLUSTER_INFO: ClusterTable,
    RequestCode.GET_KVLIST_BY_NAMESPACE: KeyValues,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ConsumerList,
    RequestCode.LOCK_BATCH_MQ: LockAnswer,
    RequestCode.GET_TOPIC_STATS_INFO: TopicStats,
    RequestCode.GET_CONSUME_STATS: ConsumeStats,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: ConsumerConnections,
    RequestCode.GET_CONSUMER_RUNNING_INFO: RunningConsumer,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ConsumeDirectlyResult,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsets,
}
RESPONSE_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendResponse,
    RequestCode.SEND_MESSAGE_V2: SendResponse,
    RequestCode.SEND_BATCH_MESSAGE: SendResponse,
    RequestCode.PULL_MESSAGE: PullResponse,
    RequestCode.LITE_PULL_MESSAGE: PullResponse,
    RequestCode.GET_MAX_OFFSET: OffsetResponse,
    RequestCode.GET_MIN_OFFSET: OffsetResponse,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: OffsetResponse,
    RequestCode.QUERY_CONSUMER_OFFSET: OffsetResponse,
    RequestCode.GET_EARLIEST_MSG_STORETIME: EarliestTimeResponse,
}


def read(name: str) -> Command:
    (command,) = FrameDecoder().feed((FOLDER / name).read_bytes())
    return command


def named(name: str, side: str = "request") -> Command:
    return read(next(entry[f"{side}_file"] for entry in INDEX if entry["name"] == name))


def without_twins(value: Any) -> Any:
    """We write the topic's flag under both its names; captured routes have one."""
    if isinstance(value, dict):
        return {key: without_twins(item) for key, item in value.items() if key != "topicSynFlag"}
    return [without_twins(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["name"])
def test_request_header_reads_and_writes_back(entry: dict[str, Any]) -> None:
    """Goal: every ext field of a captured request is known by name and type, or generic."""
    request = read(entry["request_file"])
    if request.code not in HEADERS:
        assert set(request.ext_fields) <= GENERIC_FIELDS
        return
    if "a" in request.ext_fields or request.code == RequestCode.SEND_MESSAGE:
        written = encode_send(decode_send(request), RequestCode(request.code))
    else:
        written = HEADERS[RequestCode(request.code)].decode(request.ext_fields).encode()
    known = {name: text for name, text in request.ext_fields.items() if text and name not in GENERIC_FIELDS}
    assert known.items() <= written.items()


@pytest.mark.parametrize("entry", [e for e in INDEX if e["request_code"] in RESPONSE_HEADERS], ids=lambda e: e["name"])
def test_response_header_reads_and_writes_back(entry: dict[str, Any]) -> None:
    if "response_file" not in entry or read(entry["response_file"]).code not in (0, 19, 20, 21):
        return
    ext_fields = read(entry["response_file"]).ext_fields
    assert RESPONSE_HEADERS[entry["request_code"]].decode(ext_fields).encode() == ext_fields


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["name"])
def test_json_body_reads_and_writes_back(entry: dict[str, Any], side: str) -> None:
    """Goal: no member of a captured body is lost, and what we write means the same."""
    command = read(entry[f"{side}_file"]) if f"{side}_file" in entry else Command(code=0)
    if command.body[:1] != b"{":
        return
    kind = (REQUEST_BODIES if side == "request" else RESPONSE_BODIES)[entry["request_code"]]
    decoded = kind.decode(command.body)
    if isinstance(decoded, ResetOffsets) and b"[" in command.body:
        assert decoded.encode_list() == command.body
        return
    assert without_twins(loads(decoded.encode())) == loads(command.body)
    if kind is not TopicRoute:
        assert decoded.encode() == command.body.replace(b"{0:", b'{"0":')


def test_a_route_to_a_client_has_both_flags_and_no_whitespace() -> None:
    body = TopicRoute.decode(named("route-old-client-4.9.7", "response").body).encode()
    assert b'"topicSynFlag":0,"topicSysFlag":0' in body
    assert b'"filterServerTable":{}' in body
    assert b'"brokerAddrs":{"0":"127.0.0.1:31211"}' in body
    assert b" " not in body


@pytest.mark.parametrize("name", ["register-broker-4.9.7", "register-broker-5.3.3"])
def test_a_captured_registration_is_whole(name: str) -> None:
    command = named(name)
    header = RegisterBrokerRequest.decode(command.ext_fields)
    assert body_crc(command.body) == header.body_crc
    plain = decode_registration(command.body, compressed=False, version=command.version)
    packed = decode_registration(plain.encode_compressed(command.version), compressed=True, version=command.version)
    assert packed.topics.data_version == plain.topics.data_version
    assert packed.topics.topics == plain.topics.topics


def test_reset_offsets_are_written_as_java_and_as_cpp_write_them() -> None:
    java, cpp = named("reset-offset-push-4.9.7"), named("reset-offset-push-cpp-4.9.7")
    assert ResetOffsets.decode(java.body).encode() == java.body
    assert ResetOffsets.decode(cpp.body).encode_list() == cpp.body
    queue = MessageQueue(topic="GoldenTopic", broker_name="broker-a", queue_id=1)
    assert ResetOffsets.decode(java.body).offsets[queue] == 0
    assert ResetOffsets.decode(cpp.body).offsets[queue] == 1
    pairs = dumps({"offsetTable": [[queue.to_json(), 5]]})
    assert ResetOffsets.decode(pairs).offsets == {queue: 5}


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["name"])
def test_captured_records_read_and_write_back(entry: dict[str, Any]) -> None:
    """Goal: stored messages in answers and pushes are cut at the right bytes, and written again as they came."""
    sides = [read(entry[f"{side}_file"]) for side in ("request", "response") if f"{side}_file" in entry]
    for body in (command.body for command in sides if command.body[4:8] == bytes.fromhex("DAA320A7")):
        records = decode_records(body)
        assert b"".join(encode_record(record) for record in records) == body
        for record in records:
            assert record.topic.isascii()
            assert body_crc(record.body) == record.body_crc
            assert decode_properties(record.properties)


@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_a_captured_pull_holds_what_was_sent(release: str) -> None:
    records = decode_records(named(f"pull-found-{release}", "response").body)
    assert records[0].body == b"hello golden"
    assert decode_properties(records[0].properties)["TAGS"] == "TagA"
    assert [record.queue_offset for record in records] == list(range(len(records)))
    inflated = [decompress(record.body, record.sys_flag) for record in records]
    assert any(len(body) > len(record.body) for body, record in zip(inflated, records, strict=True))


@pytest.mark.parametrize("name", ["send-batch-4.9.7", "send-batch-5.3.3", "send-batch-binary-5.3.3"])
def test_a_captured_batch_reads_and_writes_back(name: str) -> None:
    body = named(name).body
    elements = decode_batch(body)
    assert len(elements) > 1
    assert encode_batch(elements) == body


@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_a_captured_compressed_send_inflates(release: str) -> None:
    command = named(f"send-v2-compressed-{release}")
    request = decode_send(command)
    assert request.sys_flag == Compression.ZLIB.sys_flag
    assert len(decompress(command.body, request.sys_flag)) >= 4096
