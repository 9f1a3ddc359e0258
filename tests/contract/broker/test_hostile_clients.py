"""Clients that send forged, huge or ruinous requests: each is rejected with a reason, and others are served."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.broker import BrokerConfig
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.clients import CheckClient, ConsumerData, Heartbeat, Subscription
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import ExpressionType
from rocketq.protocol.messages import encode_record
from rocketq.store import StoreConfig
from tests.contract.broker.kit import (
    beat,
    connected,
    heartbeat,
    hold,
    letters,
    make_topic,
    over_loopback,
    props,
    pull,
    records,
    running_broker,
    send,
    send_fields,
)


class Turns:
    """Counts turns of the event loop, which also runs the broker, while something else is done."""

    async def __aenter__(self) -> Turns:
        self.count = 0
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1


@over_loopback
async def test_a_record_forged_inside_a_body_is_no_message(tmp_path: Path) -> None:
    """Goal: it can be neither viewed, sent back nor committed, whatever queue and topic it claims."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        await heartbeat(peer, "c", "g", topic="T")
        await send(peer, "T", b"first")
        (real,) = records(await pull(peer, "T"))
        half = {"TRAN_MSG": "true", "PGROUP": "p", "REAL_TOPIC": "SCHEDULE_TOPIC_XXXX", "REAL_QID": "5000"}
        inner = broker.parts.store.log_end + 88  # where the body of the next message starts
        forged = replace(real, topic="RMQ_SYS_TRANS_HALF_TOPIC", log_offset=inner, properties=props(**half).encode())
        await send(peer, "T", encode_record(forged))
        end = broker.parts.store.log_end
        for log_offset in range(inner - 8, inner + 8):
            answer = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": log_offset})
            assert (answer.code, "no message starts" in (answer.remark or "")) == (1, True)
            fields = {"group": "g", "offset": log_offset, "delayLevel": 0, "originMsgId": "", "originTopic": "T"}
            assert (await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)).code == 1
            ends = {
                "producerGroup": "p",
                "tranStateTableOffset": 0,
                "commitLogOffset": log_offset,
                "commitOrRollback": 8,
            }
            assert (await peer.ask(RequestCode.END_TRANSACTION, ends)).code == 1
        assert broker.parts.store.log_end == end
        assert (await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": real.log_offset})).code == 0


@over_loopback
async def test_offsets_are_committed_for_existing_groups_topics_and_queues_only(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=2)
        await heartbeat(peer, "c", "g", topic="T")

        async def commit(group: str, topic: str, queue_id: int) -> int:
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": 7}
            return (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code

        assert await commit("g", "T", 1) == 0
        for group, topic, queue_id, code in (
            ("a b", "T", 0, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ("g" * 100_000, "T", 0, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ("g", "unknown", 0, ResponseCode.TOPIC_NOT_EXIST),
            ("g", "T", 2, ResponseCode.SYSTEM_ERROR),
            ("g", "T", -1, ResponseCode.SYSTEM_ERROR),
        ):
            assert await commit(group, topic, queue_id) == code
        clone = {"srcGroup": "g", "destGroup": "a b", "topic": "T", "offline": "true"}
        assert (await peer.ask(RequestCode.CLONE_GROUP_OFFSET, clone)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert dict(broker.parts.groups.offsets.body().offsets) == {"T@g": {1: 7}}


@over_loopback
async def test_topics_and_groups_are_limited(tmp_path: Path) -> None:
    """Goal: automatic creation and retry topics included, a clear rejection, and what exists goes on."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        count = len(broker.parts.topics.table) + 2
        limits = f"maxTopicNums={count}\nmaxSubscriptionGroupNums=12\n".encode()
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=limits)).code == 0
        await make_topic(peer, "T0")
        assert (await send(peer, "T1")).code == 0
        for answer in (
            await send(peer, "T2"),
            await peer.ask(RequestCode.HEART_BEAT, body=beat("c", "g", topic="T0")),
            await peer.ask(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                {"topic": "T3", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                 "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
            ),
        ):  # fmt: skip
            assert answer.code != 0
            assert f"topic limit reached (maxTopicNums={count})" in (answer.remark or "")
        assert len(broker.parts.topics.table) == count
        assert broker.parts.groups.table.get("g") is None
        assert (await send(peer, "T1")).code == 0
        more = f"maxTopicNums={count + 100}".encode()
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=more)).code == 0
        answers = [await peer.ask(RequestCode.HEART_BEAT, body=beat("c", f"g{n}", topic="T0")) for n in range(8)]
        assert {answer.code for answer in answers[:5]} == {0}
        assert "group limit reached (maxSubscriptionGroupNums=12)" in (answers[-1].remark or "")


@over_loopback
async def test_unknown_settings_cost_little_and_one_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        many = "".join(f"unknownSetting{n}=1\n" for n in range(40_000)).encode()
        answer = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=many)
        assert (answer.code, "are allowed" in (answer.remark or "")) == (1, True)
        some = "".join(f"unknownSetting{n}=1\n" for n in range(2_000)).encode()
        caplog.clear()
        async with Turns() as turns:
            assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=some)).code == 0
        assert turns.count > 2
        (line,) = [one for one in caplog.records if "unknown settings" in one.getMessage()]
        assert len(line.getMessage()) < 1_000
        assert "and 1995 more" in line.getMessage()


BAD = {
    "sendThreadPoolQueueCapacity": "0",
    "pullThreadPoolQueueCapacity": "0",
    "maxHeldPullsPerConnection": "0",
    "flushDelayOffsetInterval": "0",
    "flushConsumerOffsetInterval": "0",
    "channelExpiredTimeout": "0",
    "defaultTopicQueueNums": "100000",
    "maxMessageSize": "1",
    "regionId": "x" * 300,
    "msgTraceTopicName": "a b",
    "waitTimeMillsInSendQueue": "0",
    "cleanResourceInterval": "0",
    "quotas": "topic/*: 0.0000001 msg/s",
}


@over_loopback
async def test_settings_that_would_make_the_broker_unusable_are_rejected(tmp_path: Path) -> None:
    """Goal: the rejection names the setting, nothing is saved, and administration still works."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        for key, text in BAD.items():
            answer = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}={text}\n".encode())
            assert (answer.code, key in (answer.remark or "")) == (1, True), (key, answer.remark)
        assert not (tmp_path / "config" / "broker.properties").exists()
        answer = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"sendMessageThreadPoolNums=32\n")
        assert (answer.code, "no effect" in (answer.remark or "")) == (1, True)
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=false\n")).code == 0


@pytest.mark.parametrize("key", BAD)
def test_such_settings_are_rejected_at_start_too(key: str, tmp_path: Path) -> None:
    def read() -> None:
        BrokerConfig.from_java({key: BAD[key]})
        StoreConfig.from_java({key: BAD[key]}, root=tmp_path)

    with pytest.raises(ConfigError, match=key):
        read()


@over_loopback
async def test_held_pulls_are_limited_by_connection_and_address(tmp_path: Path) -> None:
    """Goal: the connection that holds most is rejected, the others are not."""
    limits = {"maxHeldPullsPerConnection": "5", "maxHeldPullsPerAddress": "8"}
    async with running_broker(tmp_path, **limits) as broker, connected(*[broker.addr] * 3) as (greedy, other, last):
        await make_topic(greedy, "T", queues=1)
        await heartbeat(greedy, "c", "g", topic="T")
        holds = [hold(greedy, "T") for _ in range(7)]
        rejected = [await answer for answer in holds[5:]]
        assert {(answer.code, "5 pulls of this connection" in (answer.remark or "")) for answer in rejected} == {
            (2, True)
        }
        holds += [hold(other, "T") for _ in range(3)]
        answer = await hold(last, "T")
        assert (answer.code, "8 pulls from this address" in (answer.remark or "")) == (2, True)
        await send(greedy, "T")
        woken = await asyncio.gather(*holds[:5], *holds[7:])
        assert {answer.code for answer in woken} == {0}
        assert len(broker.parts.pull.polling) == 0
        again = hold(last, "T", 1)
        await send(greedy, "T")
        assert (await again).code == 0


def sql(length: int, number: int = 0) -> str:
    terms = [f"a{at} = '{number}'" for at in range(32)]
    text = f"n = {number}"
    while len(text) < length:
        text += " OR " + terms[len(text) % 32]
    return text


@over_loopback
async def test_heartbeats_are_limited(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enablePropertyFilter="true") as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T")

        def consumer(*subscriptions: Subscription) -> bytes:
            data = ConsumerData(group="g", subscriptions=subscriptions)
            return Heartbeat(client_id="c", consumers=(data,)).encode()

        tags = tuple(f"tag{n}" for n in range(20_000))
        for body in (
            b'{"clientID":"' + b"c" * (1 << 20) + b'"}',
            consumer(Subscription(topic="T", expression="a || b", tags=tags)),
            consumer(*(Subscription(topic=f"T{n}") for n in range(1_001))),
            consumer(*(Subscription(topic=f"T{n}", expression="x" * 10_000) for n in range(20))),
            beat("c" * 2_000, "g"),
            beat("c", "g" * 10_000),
            beat("c", *(f"g{n}" for n in range(1_001))),
        ):
            answer = await peer.ask(RequestCode.HEART_BEAT, body=body)
            assert answer.code == 1, body[:80]
            assert (
                "more than" in (answer.remark or "")
                or "up to" in (answer.remark or "")
                or "may be in" in (answer.remark or "")
            )
        assert broker.parts.groups.consumers.members("g") == []
        await heartbeat(peer, "c", "g", topic="T")


@over_loopback
async def test_sql_is_compiled_in_slices(tmp_path: Path) -> None:
    """Goal: other requests are served between two tokens of a long expression, wherever it comes from."""
    async with running_broker(tmp_path, enablePropertyFilter="true") as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T")
        long = [Subscription(topic=f"T{n}", expression=sql(5_000, n), expression_type=ExpressionType.SQL92, version=1)
                for n in range(10)]  # fmt: skip
        beats = Heartbeat(client_id="c", consumers=(ConsumerData(group="g", subscriptions=tuple(long)),)).encode()
        async with Turns() as turns:
            assert (await peer.ask(RequestCode.HEART_BEAT, body=beats)).code == 0
        assert turns.count > 100
        assert broker.parts.pull.filters.get("g", "T9") is not None
        async with Turns() as turns:
            fields = {"expressionType": "SQL92", "subscription": sql(16_000, 77)}
            assert (await pull(peer, "T", sysFlag=4, **fields)).code in (0, 19)
        assert turns.count > 30
        check = CheckClient(
            subscription=Subscription(topic="T", expression=sql(16_000, 78), expression_type=ExpressionType.SQL92)
        )
        async with Turns() as turns:
            assert (await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=check.encode())).code == 0
        assert turns.count > 30


def element(body: bytes, properties: bytes) -> bytes:
    """One message of a batch."""
    size = 22 + len(body) + len(properties)
    return struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties


@over_loopback
async def test_a_batch_of_very_many_messages_is_checked_in_slices(tmp_path: Path) -> None:
    """Goal: 3,000 messages that name DELAY but do not ask for one are stored; one that does is found among them."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        many = element(b"x", b"DELAY\x010\x02") * 3_000
        async with Turns() as turns:
            answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, letters(send_fields("T")), many)
        assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
        assert turns.count > 5
        answer = await peer.ask(
            RequestCode.SEND_BATCH_MESSAGE, letters(send_fields("T")), many + element(b"x", b"DELAY\x013\x02")
        )
        assert (answer.code, "cannot be delayed" in (answer.remark or "")) == (13, True)
        assert broker.parts.store.max_offset("T", 0) == 3_000


@over_loopback
async def test_slow_sends_keep_their_place_among_fast_ones(tmp_path: Path) -> None:
    """Goal: with SYNC_FLUSH a send of the slow path is stored before later requests of the same read."""
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        await send(peer, "T")
        slow, fast = letters(send_fields("T", properties=props(name="\u00e9"))), letters(send_fields("T"))
        requests = [
            peer.request(RequestCode.SEND_MESSAGE_V2, slow if number % 3 == 0 else fast, b"%d" % number)
            for number in range(12)
        ]
        answers = await peer.ask_together(*requests)
        assert [int(answer.ext_fields["queueOffset"]) for answer in answers] == list(range(1, 13))
        assert sum(fast_path.taken for fast_path in broker.fast_paths) >= 4
