"""Requests of real clients, damaged in many ways: each is answered, none is a surprise, and the broker goes on."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import struct
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest

from rocketq.errors import LocalProtocolError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.requests import HEADERS
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import connected, hold, letters, make_topic, over_loopback, send, send_fields

FRAMES = Path(__file__).parents[2] / "golden" / "frames"
ROUNDS, REQUESTS = 25, 40
RELAYED = (
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
)
"""They wait for clients, and ours do not answer."""

VALUES = (
    ["", "0", "-1", "1", "true", "x" * 300, "GoldenTopic", "%RETRY%g", "a b", "\0", "*", "||", "1e5", "SQL92", "../.."]
    + [str(number) for power in (31, 63, 70) for number in (1 << power, -(1 << power), (1 << power) - 1)]
    + ["\U0001f600", "TBW102", "broker-a"]
)
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"topic":null}',
    b'{"a":',
    b"\xff" * 20,
    b'{"clientID":"x","consumerDataSet":[{}]}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","brokerName":"b","queueId":-5}]}',
    b'{"groupName":"g","retryQueueNums":-5,"retryMaxTimes":99999999999}',
]


def captured() -> list[Command]:
    index = json.loads((FRAMES / "index.json").read_text())["frames"]
    data = b"".join((FRAMES / entry["request_file"]).read_bytes() for entry in index if "broker" in entry["to"])
    return [request for request in FrameDecoder().feed(data) if request.code not in RELAYED]


def made_up() -> list[Command]:
    """Every code with a typed header, with a number in each field."""
    return [
        Command(code=int(code), ext_fields={item.metadata["names"][0]: "1" for item in fields(cast(Any, header))})
        for code, header in HEADERS.items()
        if code not in RELAYED
    ]


def damage(request: Command, chance: random.Random) -> Command:
    ext_fields, body = dict(request.ext_fields), bytearray(request.body)
    for name in chance.sample(sorted(ext_fields), min(len(ext_fields), chance.randrange(3))):
        if chance.random() < 0.3:
            del ext_fields[name]
        else:
            ext_fields[name] = chance.choice(VALUES)
    if chance.random() < 0.2:
        body = bytearray(chance.choice(BODIES))
    elif body and chance.random() < 0.3:
        for _ in range(chance.randrange(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
    return replace(request, ext_fields=ext_fields, body=bytes(body), flag=0)


@pytest.mark.parametrize("seed", [1, 2])
@over_loopback
async def test_damaged_requests_are_answered(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance, requests = random.Random(seed), captured() + made_up()
    with EmbeddedCluster(settings={"brokerName": "broker-a"}) as cluster, caplog.at_level(logging.WARNING):
        for _ in range(ROUNDS):
            await one_round(cluster.broker_addr, chance, requests)
        async with connected(cluster.broker_addr) as (peer,):
            assert (await send(peer, "StillHere")).code == 0
    surprises = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in surprises] == []


async def one_round(addr: str, chance: random.Random, requests: list[Command]) -> None:
    async with connected(addr) as (peer,):
        waiting = []
        for opaque in range(REQUESTS):
            request = replace(damage(chance.choice(requests), chance), opaque=opaque)
            try:
                frame = encode_command(request)
            except LocalProtocolError:
                continue
            if request.code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
                frame = encode_command(replace(request, ext_fields={**request.ext_fields, "sysFlag": "4"}))
            answer = peer._waiting[opaque] = asyncio.get_running_loop().create_future()
            waiting.append(answer)
            peer.write(frame)
        await asyncio.wait_for(asyncio.gather(*waiting), 20)


@over_loopback
async def test_thousands_of_connections_cost_little(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 400) as peers:
        await make_topic(peers[0], topic)
        held = [hold(peer, topic, suspendTimeoutMillis=60_000) for peer in peers]
        assert (await peers[0].ask(RequestCode.GET_MIN_OFFSET, {"topic": topic, "queueId": 0})).code == 0
        await asyncio.gather(*(peer.ask(RequestCode.GET_MIN_OFFSET, {"topic": topic, "queueId": 0}) for peer in peers))
        await send(peers[0], topic, b"for all")
        answers = await asyncio.wait_for(asyncio.gather(*held), 10)
        assert {answer.code for answer in answers} == {0}


@over_loopback
async def test_a_client_that_does_not_read_does_not_hurt_others(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    host, _, port = rocketq_cluster.broker_addr.rpartition(":")
    async with connected(rocketq_cluster.broker_addr) as (good,):
        await send(good, topic, bytes(200_000))
        _, lazy = await asyncio.open_connection(host, int(port), limit=1)
        asked = {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "1",
            "sysFlag": "4",
        }
        pulls = b"".join(encode_command(Command(code=11, opaque=n, ext_fields=asked)) for n in range(500))
        lazy.write(pulls)  # 100 MB of answers nobody takes
        for _ in range(20):
            assert (await send(good, topic)).code == 0
        lazy.transport.abort()


@over_loopback
async def test_who_is_gone_before_it_is_accepted_is_no_fault(
    rocketq_cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a peer whose address cannot be asked for any more is served or dropped without an error in the log."""
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        frame = encode_command(Command(code=310, ext_fields=_texts(letters(send_fields(topic))), body=b"left"))
        host, _, port = rocketq_cluster.broker_addr.rpartition(":")
        busy = asyncio.create_task(asyncio.to_thread(rocketq_cluster.thread.run, _keep_loop_busy()))
        await asyncio.sleep(0.1)
        for _ in range(20):
            gone = socket.create_connection((host, int(port)))
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.sendall(frame)
            gone.close()
        await busy
        assert (await send(peer, topic)).code == 0
        await asyncio.sleep(0.1)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def _keep_loop_busy() -> None:
    time.sleep(0.5)  # nobody is accepted meanwhile


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items()}
