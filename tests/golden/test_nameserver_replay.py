"""Captured exchanges with Apache's NameServers, replayed against a live one of ours."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.protocol.bodies.registration import Registration
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.fastjson import loads
from rocketq.protocol.frame import FrameDecoder, encode_command

FOLDER = Path(__file__).parent / "frames"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())["frames"]
EXCHANGES = [entry for entry in INDEX if "NameServer" in entry["to"]]


def read(name: str) -> Command:
    (command,) = FrameDecoder().feed((FOLDER / name).read_bytes())
    return command


def registration(release: str) -> bytes:
    entry = next(one for one in EXCHANGES if one["name"] == f"register-broker-{release}")
    return (FOLDER / entry["request_file"]).read_bytes()


def created_topic(release: str) -> bytes:
    """The registration that followed the creation of GoldenTopic, which was not captured: one topic more."""
    (command,) = FrameDecoder().feed(registration(release))
    body = Registration.decode(command.body)
    topic = TopicConfig(topic="GoldenTopic", read_queue_count=2, write_queue_count=2)
    table = replace(
        body.topics,
        data_version=body.topics.data_version.next(body.topics.data_version.timestamp_ms + 1),
        topics={**body.topics.topics, "GoldenTopic": topic},
    )
    ext_fields = {**command.ext_fields, "bodyCrc32": "0"}
    return encode_command(replace(command, ext_fields=ext_fields, body=replace(body, topics=table).encode()))


async def exchange(frames: list[bytes], config: NameServerConfig) -> Command:
    """Send frames one by one; the answer to the last."""
    server = NameServer(config)
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for frame in frames:
            writer.write(frame)
            size = await asyncio.wait_for(reader.readexactly(4), 10)
            rest = await reader.readexactly(int.from_bytes(size, "big"))
        writer.close()
        await writer.wait_closed()
    finally:
        await server.stop()
    (command,) = FrameDecoder().feed(size + rest)
    return command


def without_twins(value: Any) -> Any:
    """We write the topic's flag under both its names; captured routes have one."""
    if isinstance(value, dict):
        return {key: without_twins(item) for key, item in value.items() if key != "topicSynFlag"}
    return [without_twins(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("entry", EXCHANGES, ids=lambda entry: entry["name"])
def test_a_captured_exchange_gets_an_equal_answer(entry: dict[str, Any], tmp_path: Path) -> None:
    """Goal: same code, same ext fields, a body with the same meaning, in the form that was asked in."""
    request, expected = read(entry["request_file"]), read(entry["response_file"])
    release = entry["name"].rpartition("-")[2]
    frames = [registration(release), created_topic(release)] if request.code != RequestCode.REGISTER_BROKER else []
    if request.code == RequestCode.GET_KVLIST_BY_NAMESPACE:
        frames.append((FOLDER / f"{'006' if release == '4.9.7' else '071'}-put-kv-{release}.req.bin").read_bytes())
    frames.append((FOLDER / entry["request_file"]).read_bytes())
    config = NameServerConfig(port=0, kv_path=tmp_path / "kvConfig.json", config_path=tmp_path / "namesrv.properties")
    answer = asyncio.run(exchange(frames, config))
    assert (answer.code, answer.opaque, answer.flag, answer.form) == (
        expected.code,
        request.opaque,
        expected.flag,
        request.form,
    )
    assert answer.ext_fields == expected.ext_fields
    assert bool(answer.remark) == bool(expected.remark)
    assert bool(answer.body) == bool(expected.body)
    if expected.body:
        assert without_twins(loads(answer.body)) == loads(expected.body)


def test_all_captured_exchanges_are_here() -> None:
    assert len(EXCHANGES) == 18
    assert {entry["request_code"] for entry in EXCHANGES} == {100, 103, 105, 106, 219}
