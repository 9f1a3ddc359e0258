"""Plain sends that the kernel takes are stored and answered exactly as the handlers would."""

from __future__ import annotations

import asyncio
import itertools
import json
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from rocketq.model import Record
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import CommandFlag
from rocketq.protocol.frame import encode_command
from rocketq.protocol.messages import BatchElement, decode_records, encode_batch
from rocketq.protocol.names import SCHEDULE_TOPIC
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    JAVA_497,
    JAVA_533,
    Peer,
    connected,
    hold,
    letters,
    make_topic,
    over_loopback,
    pull,
    pull_fields,
    records,
    send_fields,
)
from tests.contract.broker.test_replication import make_broker, running

UNIQUE = "7F0000010B3A18B4AAC2123456780000"
PLAIN: list[dict[str, Any]] = [
    {"properties": f"KEYS\x01k1 k2\x02UNIQ_KEY\x01{UNIQUE}\x02WAIT\x01true\x02TAGS\x01TagA"},
    {"properties": f'UNIQ_KEY\x01{UNIQUE}\x02WAIT\x01false\x02empty\x01\x02a\x01b=c;"q" \\ /\x02'},
    {"properties": ""},
    {"properties": "x\x01" + "y" * 20_000},
    {"properties": "a\x01b\x01c\x02nothing\x02\x01v"},
    {"properties": "tab\x01a\tb", "flag": 7, "sysFlag": 1, "bornTimestamp": 1},
]
LEFT_TO_HANDLERS: list[dict[str, Any]] = [
    {"properties": "KEYS\x01键\x02TAGS\x01标签"},
    {"properties": "CLUSTER\x01mine"},
    {"properties": "a\x011\x02a\x012"},
    {"properties": "a\x01b", "reconsumeTimes": 1},
    {"properties": 'UNIQ_KEY\x01with"quote'},
    {"properties": "\x02".join(f"p{number}\x01v" for number in range(200))},
]
ROOMY = {"mappedFileSizeCommitLog": str(16 << 20), "mappedFileSizeConsumeQueue": "6000000"}
_counter = itertools.count()


def facts(record: Record) -> tuple[Any, ...]:
    """What two stored copies of one message have in common."""
    return (
        record.body,
        record.properties,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.born_host.ip,
        record.topic,
    )


def answered(answer: Command) -> dict[str, str]:
    return {name: value for name, value in answer.ext_fields.items() if name not in ("msgId", "queueOffset")}


@pytest.mark.parametrize("version", [JAVA_497, JAVA_533])
@pytest.mark.parametrize("given", PLAIN + LEFT_TO_HANDLERS)
@over_loopback
async def test_kernel_and_handlers_store_and_answer_the_same(
    rocketq_cluster: EmbeddedCluster, version: int, given: dict[str, Any]
) -> None:
    """Goal: the same message twice, once with a field the kernel does not know; nothing tells them apart."""
    topic = f"BrokerFastPath{next(_counter)}"
    async with connected(rocketq_cluster.broker_addr, version=version) as (peer,):
        await make_topic(peer, topic, queues=1)
        for _ in range(2):  # the queue comes to be, then the route
            assert (await ask(peer, topic, {"properties": "warm\x01up"}, known=True)).code == 0
        fast = await ask(peer, topic, given, known=True)
        slow = await ask(peer, topic, given, known=False)
        records = decode_records((await pull(peer, topic, 2)).body)
    assert (fast.code, slow.code) == (0, 0)
    assert answered(fast) == answered(slow)
    assert list(fast.ext_fields) == list(slow.ext_fields)
    assert facts(records[0]) == facts(records[1])
    assert [record.message_id for record in records] == [fast.ext_fields["msgId"], slow.ext_fields["msgId"]]
    assert [fast.ext_fields["queueOffset"], slow.ext_fields["queueOffset"]] == ["2", "3"]


async def ask(peer: Peer, topic: str, given: dict[str, Any], *, known: bool) -> Command:
    fields = letters(send_fields(topic, 0, **given))
    if not known:
        fields["unknownToTheKernel"] = "x"
    return await peer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"a body")


@over_loopback
async def test_delay_levels_are_executed_by_the_kernel(rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: a message with a delay level is stored in the queue of its level as handlers would store it."""
    broker, topic, level = rocketq_cluster.brokers[0], f"FastPath{next(_counter)}", 17
    fast_path, store = broker.fast_paths[0], broker.parts.store
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=2)
        given = {"properties": f"UNIQ_KEY\x01{UNIQUE}\x02DELAY\x01{level}\x02WAIT\x01false\x02TAGS\x01TagA\x02a\x01b"}
        for properties in ("x\x01y", given["properties"]):  # both queues come to be
            assert (await ask(peer, topic, {"properties": properties}, known=True)).code == 0
        start, before = store.max_offset(SCHEDULE_TOPIC, level - 1), fast_path.taken
        fast = await ask(peer, topic, given, known=True)
        assert fast_path.taken == before + 1
        slow = await ask(peer, topic, given, known=False)
        for odd in ("DELAY\x0199", "DELAY\x0101", "DELAY\x01x", "DELAY\x011\x02REAL_QID\x017", "DELAY\x010"):
            await ask(peer, topic, {"properties": odd}, known=True)
        assert fast_path.taken == before + 2, "only a level of 0 is plain"
    assert (fast.code, answered(fast)) == (0, answered(slow))
    records = decode_records(store.read(SCHEDULE_TOPIC, level - 1, start).records)
    assert facts(records[0]) == facts(records[1])
    assert records[0].properties.endswith(f"\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010".encode())
    units = [store.queue_unit(SCHEDULE_TOPIC, level - 1, start + number) for number in range(2)]
    due_ms = [unit[2] - record.store_ms for unit, record in zip(units, records, strict=False) if unit is not None]
    assert due_ms == [store.config.delays_ms[level - 1]] * 2


@over_loopback
async def test_plain_sends_are_taken_by_the_kernel(rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: the fast path is really taken, and what is not plain is not."""
    fast_path, topic = rocketq_cluster.brokers[0].fast_paths[0], f"BrokerFastPath{next(_counter)}"
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=1)
        for _ in range(2):
            await ask(peer, topic, PLAIN[0], known=True)
        before = fast_path.taken
        waiting = [
            peer.start(RequestCode.SEND_MESSAGE_V2, letters(send_fields(topic, 0, **PLAIN[0])), b"x" * n)
            for n in range(1, 200)
        ]
        answers = [await each for each in waiting]
        assert [int(answer.ext_fields["queueOffset"]) for answer in answers] == list(range(2, 201))
        assert fast_path.taken - before == 199
        for given in LEFT_TO_HANDLERS:
            await ask(peer, topic, given, known=True)
        assert fast_path.taken - before == 199


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2], ids=["long", "short"])
@over_loopback
async def test_a_queue_whose_room_ends_costs_no_message_its_fast_path(tmp_path: Path, code: RequestCode) -> None:
    """Goal: where answers wait for the disk, handlers begin a turn later; what comes meanwhile must not be theirs."""
    broker = make_broker(tmp_path, "", flushDiskType="SYNC_FLUSH", **ROOMY)
    async with running(broker), connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        for _ in range(2):
            await ask(peer, "T", PLAIN[0], known=True)
        fast_path, fields = broker.fast_paths[0], send_fields("T", 0, **PLAIN[0])
        before = fast_path.taken
        fields = fields if code == RequestCode.SEND_MESSAGE else letters(fields)
        answers = await asyncio.gather(*(peer.start(code, fields, b"%d" % number) for number in range(2_000)))
        assert [int(answer.ext_fields["queueOffset"]) for answer in answers] == list(range(2, 2_002))
        assert fast_path.taken - before == 2_000


@over_loopback
async def test_a_batch_that_meets_the_end_of_its_queues_room_is_the_kernels_too(tmp_path: Path) -> None:
    """Goal: room is made for the whole batch, and a batch that is not sound makes none."""
    broker = make_broker(tmp_path, "", **ROOMY)
    async with running(broker), connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        for _ in range(2):
            await ask(peer, "T", PLAIN[0], known=True)
        fast_path, fields = broker.fast_paths[0], letters(send_fields("T", 0, batch="true"))
        before, batch = (
            fast_path.taken,
            encode_batch(BatchElement(body=b"%d" % number, properties=b"k\x01v") for number in range(7)),
        )
        for _ in range(300):
            answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, fields, batch)
            assert answer.code == 0
        assert fast_path.taken - before == 2_100
        queue = broker.parts.store.queues.get("T", 0)
        assert queue is not None
        queue.tail.room_end = room_end = queue.tail.next_offset + 1
        assert (await peer.ask(RequestCode.SEND_BATCH_MESSAGE, fields, batch[:-1])).code != 0
        assert queue.tail.room_end == room_end


@over_loopback
async def test_without_a_disk_for_more_room_the_handler_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a full disk is an answer, and when there is room again sends go on."""
    broker = make_broker(tmp_path, "", flushDiskType="SYNC_FLUSH")
    async with running(broker), connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        for _ in range(2):
            await ask(peer, "T", PLAIN[0], known=True)
        queue = broker.parts.store.queues.get("T", 0)
        assert queue is not None
        queue.tail.room_end = queue.tail.next_offset

        def fail(count: int) -> None:
            raise OSError(ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(queue, "make_room", fail)
            answer = await ask(peer, "T", PLAIN[0], known=True)
            assert answer.code != 0
            assert "No space left on device" in (answer.remark or "")
        assert (await ask(peer, "T", PLAIN[0], known=True)).code == 0


@over_loopback
async def test_who_begins_to_wait_hears_of_the_next_message(rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: messages that nobody waited for are not told of, and keep nobody from hearing of those that follow."""
    fast_path, topic = rocketq_cluster.brokers[0].fast_paths[0], f"BrokerFastPath{next(_counter)}"
    async with connected(rocketq_cluster.broker_addr, rocketq_cluster.broker_addr) as (peer, other):
        await make_topic(peer, topic, queues=1)
        for _ in range(5):
            await ask(peer, topic, PLAIN[0], known=True)
        for offset in (5, 6, 7):
            waiting = hold(other, topic, offset, suspendTimeoutMillis=60_000)
            await other.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0})  # it is held by now
            before = fast_path.taken
            await ask(peer, topic, PLAIN[0], known=True)
            assert fast_path.taken == before + 1
            async with asyncio.timeout(30):
                assert [record.queue_offset for record in records(await waiting)] == [offset]


@over_loopback
async def test_handlers_find_every_fast_send_counted(rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: whoever asks for figures gets those of the moment."""
    topic = f"BrokerFastPath{next(_counter)}"

    async def total() -> int:
        answer = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(json.loads(answer.body)["table"]["msgPutTotalTodayNow"])

    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=1)
        before = await total()
        for _ in range(7):
            await ask(peer, topic, PLAIN[0], known=True)
        assert await total() == before + 7


@over_loopback
async def test_offsets_that_pulls_commit_are_there_for_the_next_request(rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: of one write, a query behind a pull sees its commit, and a later commit is not replaced by it."""
    topic = f"BrokerFastPath{next(_counter)}"
    place = {"consumerGroup": "g", "topic": topic, "queueId": 0}
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=1)
        for _ in range(9):
            await ask(peer, topic, PLAIN[0], known=True)
        for _ in range(2):
            assert (await pull(peer, topic, 1)).code == 0
        before = rocketq_cluster.brokers[0].fast_paths[0].pulls_taken
        answers = await peer.ask_together(
            peer.request(RequestCode.PULL_MESSAGE, pull_fields(topic, 1, commitOffset=5, sysFlag=5)),
            peer.request(RequestCode.QUERY_CONSUMER_OFFSET, place),
            peer.request(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 7}),
        )
        assert [answer.code for answer in answers] == [0, 0, 0]
        assert answers[1].ext_fields["offset"] == "5"
        after = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, place)
        assert after.ext_fields["offset"] == "7"
    assert rocketq_cluster.brokers[0].fast_paths[0].pulls_taken - before == 1


@over_loopback
async def test_a_changed_topic_is_looked_at_again(rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: a topic that was deleted takes no message from the kernel."""
    topic = f"BrokerFastPath{next(_counter)}"
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=1)
        for _ in range(3):
            await ask(peer, topic, PLAIN[0], known=True)
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0
        again = await ask(peer, topic, PLAIN[0], known=True)
        assert (again.code, again.ext_fields.get("queueOffset")) in ((17, None), (0, "0"))


@over_loopback
async def test_what_the_kernel_knows_of_a_queue_ends_with_every_change_of_its_topic(
    rocketq_cluster: EmbeddedCluster,
) -> None:
    """Goal: a permission, a number of queues, a topic made anew: the next send is answered by what is so now."""
    fast_path, topic = rocketq_cluster.brokers[0].fast_paths[0], f"BrokerFastPath{next(_counter)}"
    async with connected(rocketq_cluster.broker_addr) as (peer,):

        async def sent() -> list[tuple[int, str | None]]:
            """Codes and queue offsets of several sends to queue 1 that are under way at once."""
            fields = letters(send_fields(topic, 1, **PLAIN[0]))
            waiting = [peer.start(RequestCode.SEND_MESSAGE_V2, fields, b"x") for _ in range(4)]
            answers = [await each for each in waiting]
            return [(answer.code, answer.ext_fields.get("queueOffset")) for answer in answers]

        await make_topic(peer, topic, queues=2)
        assert await sent() == [(0, str(offset)) for offset in range(4)]
        await sent()
        before = fast_path.taken
        assert await sent() == [(0, str(offset)) for offset in range(8, 12)]
        assert fast_path.taken - before == 4
        await make_topic(peer, topic, queues=2, perm=4)  # which is for routes: a broker takes what is sent, as Apache's
        assert await sent() == [(0, str(offset)) for offset in range(12, 16)]
        await make_topic(peer, topic, queues=1)
        assert {code for code, _ in await sent()} == {1}
        await make_topic(peer, topic, queues=2)
        assert await sent() == [(0, str(offset)) for offset in range(16, 20)]
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0
        await make_topic(peer, topic, queues=2)
        assert await sent() == [(0, str(offset)) for offset in range(4)]


@over_loopback
async def test_a_oneway_send_is_stored_and_not_answered(rocketq_cluster: EmbeddedCluster) -> None:
    topic = f"BrokerFastPath{next(_counter)}"
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=1)
        for _ in range(2):
            await ask(peer, topic, PLAIN[0], known=True)
        fields = {
            name: str(value) for name, value in letters(send_fields(topic, 0, **PLAIN[0])).items() if value is not None
        }
        oneway = Command(
            code=310, opaque=99, flag=CommandFlag.ONEWAY, version=JAVA_497, ext_fields=fields, body=b"oneway"
        )
        peer.write(encode_command(oneway))
        after = await ask(peer, topic, PLAIN[0], known=True)
        assert after.ext_fields["queueOffset"] == "3"
        assert [record.body for record in decode_records((await pull(peer, topic, 2)).body)] == [b"oneway", b"a body"]
