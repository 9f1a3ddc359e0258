"""Captured transactions of Apache's clients, replayed against a live broker of ours: halves, decisions, checks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from rocketq.model import decode_message_id
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.messages import decode_records
from rocketq.protocol.properties import decode_properties
from rocketq.testing import EmbeddedCluster

from .test_broker_replay import captured, read

SETTINGS = {"brokerName": "broker-a", "transactionTimeOut": "200", "transactionCheckInterval": "100"}
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
RELEASES = ["4.9.7", "5.3.3"]
ADDED = {"TRAN_PREPARED_QUEUE_OFFSET"}
"""Told by our copies, so that a later decision by any of them counts once."""
OF_5X = {"MSG_REGION", "TRACE_ON", "__transactionId__"}
"""Properties that 5.x brokers add to what they store."""


class Producer:
    """One connection that replays requests and keeps what the broker asks by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()
        self._received: list[Command] = []
        self._opaque = 5_000

    def tell(self, command: Command) -> None:
        self._writer.write(encode_command(command))

    async def ask(self, command: Command, **changes: Any) -> Command:
        self._opaque += 1
        self.tell(replace(command, opaque=self._opaque, flag=0, **changes))
        return await self.receive(lambda one: one.is_response and one.opaque == self._opaque)

    async def receive(self, wanted: Any) -> Command:
        while True:
            for at, command in enumerate(self._received):
                if wanted(command):
                    return self._received.pop(at)
            data = await asyncio.wait_for(self._reader.read(1 << 20), 15)
            assert data, "the broker closed the connection"
            self._received += self._decoder.feed(data)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def connect(cluster: EmbeddedCluster) -> Producer:
    host, _, port = cluster.broker_addr.rpartition(":")
    return Producer(*await asyncio.open_connection(host, int(port)))


async def send_half(producer: Producer, release: str, key: str) -> Command:
    """The captured half, with a unique key and a birth of its own."""
    request = captured("send-half", release)
    before = decode_properties(request.ext_fields["i"].encode())["UNIQ_KEY"]
    fields = {**request.ext_fields, "g": str(int(time.time() * 1000))}
    fields["i"] = fields["i"].replace(before, key)
    return await producer.ask(request, ext_fields=fields)


def decision(release: str, name: str, half: Command) -> Command:
    """A captured decision about this half."""
    request = captured(name, release)
    _, log_offset = decode_message_id(half.ext_fields["msgId"])
    places = {"commitLogOffset": str(log_offset), "tranStateTableOffset": half.ext_fields["queueOffset"]}
    return replace(request, ext_fields={**request.ext_fields, **places})


async def visible(producer: Producer, queue_id: str) -> list[bytes]:
    pull = {
        "consumerGroup": "g",
        "topic": "GoldenTopic",
        "queueId": queue_id,
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    answer = await producer.ask(Command(code=RequestCode.PULL_MESSAGE, ext_fields=pull))
    return [record.body for record in decode_records(answer.body)] if answer.code == 0 else []


@pytest.mark.parametrize("release", RELEASES)
def test_captured_halves_are_answered_as_apache_answers_them(release: str) -> None:
    """Goal: the same ext fields; the queue asked for, the offset among the halves."""

    async def play(cluster: EmbeddedCluster) -> None:
        producer = await connect(cluster)
        assert (await producer.ask(captured("create-topic", release))).code == 0
        request = captured("send-half", release)
        producer.tell(request)
        answer = await producer.receive(lambda one: one.is_response and one.opaque == request.opaque)
        expected = read(f"{'016' if release == '4.9.7' else '081'}-send-half-{release}.resp.bin")
        assert (answer.code, answer.flag, answer.form) == (expected.code, expected.flag, expected.form)
        assert set(answer.ext_fields) == set(expected.ext_fields)
        same = ("queueId", "queueOffset", "transactionId", "MSG_REGION", "TRACE_ON")
        assert [answer.ext_fields.get(name) for name in same] == [expected.ext_fields.get(name) for name in same]
        await producer.close()

    with EmbeddedCluster(settings={"brokerName": "broker-a", "transactionCheckInterval": "3600000"}) as cluster:
        asyncio.run(play(cluster))


@pytest.mark.parametrize("release", RELEASES)
def test_captured_decisions_are_taken(release: str) -> None:
    """Goal: a commit makes the message visible, a rollback does not; both are oneway and get no answer."""

    async def play(cluster: EmbeddedCluster) -> None:
        producer = await connect(cluster)
        assert (await producer.ask(captured("create-topic", release))).code == 0
        kept, dropped = [await send_half(producer, release, key) for key in ("K1", "K2")]
        for half, name in ((dropped, "end-transaction-rollback"), (kept, "end-transaction-commit")):
            command = decision(release, name, half)
            assert command.is_oneway
            producer.tell(command)
        queue_id = kept.ext_fields["queueId"]
        while not (bodies := await visible(producer, queue_id)):
            await asyncio.sleep(0.01)
        assert bodies == [b"commit me"]
        assert len(cluster.brokers[0].parts.transactions.service.ledger) == 0
        await producer.close()

    with EmbeddedCluster(settings={"brokerName": "broker-a", "transactionCheckInterval": "3600000"}) as cluster:
        asyncio.run(play(cluster))


@pytest.mark.parametrize("release", RELEASES)
def test_checks_are_as_apache_sends_them_and_captured_answers_count(release: str) -> None:
    """Goal: same ext names, same record but for places and times; the answer of the capture commits."""

    async def play(cluster: EmbeddedCluster) -> None:
        producer = await connect(cluster)
        assert (await producer.ask(captured("create-topic", release))).code == 0
        beat = captured("heartbeat-producer", release)
        assert b"GoldenTx" in beat.body or b"producerDataSet" in beat.body
        body = b'{"clientID":"127.0.0.1@tx","consumerDataSet":[],"producerDataSet":[{"groupName":"GoldenTx"}]}'
        assert (await producer.ask(beat, body=body)).code == 0
        half = await send_half(producer, release, "K1")
        check = await producer.receive(lambda one: one.code == RequestCode.CHECK_TRANSACTION_STATE)
        expected = captured("check-transaction", release)
        assert (check.flag, set(check.ext_fields)) == (expected.flag, set(expected.ext_fields))
        for name in ("bname", "topic"):
            assert check.ext_fields.get(name) == expected.ext_fields.get(name)
        compare(check, expected)
        answer = captured("end-transaction-after-check", release)
        places = {name: check.ext_fields[name] for name in ("commitLogOffset", "tranStateTableOffset")}
        producer.tell(replace(answer, ext_fields={**answer.ext_fields, **places}))
        while not (bodies := await visible(producer, half.ext_fields["queueId"])):
            await asyncio.sleep(0.01)
        assert bodies == [b"commit me"]
        await producer.close()

    with EmbeddedCluster(settings=SETTINGS) as cluster:
        asyncio.run(play(cluster))


def compare(check: Command, expected: Command) -> None:
    (mine,), (theirs,) = decode_records(check.body), decode_records(expected.body)
    assert (mine.topic, mine.sys_flag, mine.flag) == (theirs.topic, theirs.sys_flag, theirs.flag)
    assert (mine.prepared_offset, mine.reconsume_times) == (theirs.prepared_offset, theirs.reconsume_times)
    assert mine.log_offset == int(check.ext_fields["commitLogOffset"])
    mine_properties, their_properties = decode_properties(mine.properties), decode_properties(theirs.properties)
    assert set(mine_properties) - ADDED == set(their_properties) - OF_5X
    for name in ("TRANSACTION_CHECK_TIMES", "REAL_TOPIC", "TRAN_MSG", "PGROUP", "WAIT", "TAGS", "CLUSTER"):
        assert mine_properties[name] == their_properties[name]
