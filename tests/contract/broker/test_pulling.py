"""interop.md, section E, and line 2: each by its number, over loopback with raw frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rocketq.protocol.bodies.offsets import OffsetMoved
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import PullFlag
from rocketq.protocol.frame import encode_command
from rocketq.protocol.messages import decode_records
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    JAVA_533,
    Peer,
    beat,
    connected,
    drop_finished_segments,
    eventually,
    heartbeat,
    hold,
    make_topic,
    over_loopback,
    props,
    pull,
    pull_fields,
    records,
    send,
    send_fields,
)
from tests.page_cache import KNOWS_PAGES, drop_messages

MakeCluster = Callable[..., EmbeddedCluster]
PLACES = {"nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"}


def places(answer: Command) -> tuple[int, int, int]:
    assert set(answer.ext_fields) == PLACES
    assert answer.ext_fields["suggestWhichBrokerId"] == "0"
    return tuple(int(answer.ext_fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))  # type: ignore[return-value]


async def fill(peer: Peer, topic: str, count: int, tag: str = "TagA") -> None:
    for number in range(count):
        assert (await send(peer, topic, b"%d" % number, properties=props(TAGS=tag))).code == 0


@over_loopback
async def test_067_068_069_found_messages(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 5)
        answer = await pull(peer, topic, 2)
        assert (answer.code, answer.remark, places(answer)) == (0, "FOUND", (5, 0, 5))
        found = decode_records(answer.body)
        assert [record.queue_offset for record in found] == [2, 3, 4]
        assert answer.body[4:8] == bytes.fromhex("daa320a7")
        assert sum(record.size for record in found) == len(answer.body)
        asked = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0})
        assert asked.ext_fields["offset"] == "5"


@over_loopback
async def test_070_a_held_pull_is_answered_when_a_message_comes(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (consumer, producer):
        await fill(producer, topic, 1)
        held = hold(consumer, topic, 1, suspendTimeoutMillis=60_000)
        assert (await consumer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0})).code == 0
        assert not held.done()
        await send(producer, topic, b"now")
        answer = await asyncio.wait_for(held, 1)
        assert ([record.body for record in records(answer)], places(answer)) == ([b"now"], (2, 0, 2))


@over_loopback
async def test_070_a_held_pull_is_answered_when_its_time_is_over(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        began = asyncio.get_running_loop().time()
        answer = await hold(peer, topic, 1, suspendTimeoutMillis=300)
        assert (answer.code, answer.remark, places(answer)) == (19, "OFFSET_OVERFLOW_ONE", (1, 0, 1))
        assert 0.25 < asyncio.get_running_loop().time() - began < 3


@over_loopback
async def test_002_a_held_pull_delays_nothing_behind_it(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        held = [hold(peer, topic, queue_id=number, suspendTimeoutMillis=60_000) for number in range(4)]
        await send(peer, topic, queue_id=3)
        assert (await asyncio.wait_for(held[3], 1)).code == 0
        assert not any(one.done() for one in held[:3])


@over_loopback
async def test_070_only_what_matches_wakes_a_filtered_pull(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        held = hold(peer, topic, 1, subscription="TagB || TagC", suspendTimeoutMillis=60_000)
        await fill(peer, topic, 3, tag="TagA")
        assert not held.done()
        await send(peer, topic, b"wanted", properties=props(TAGS="TagC"))
        answer = await asyncio.wait_for(held, 1)
        assert ([record.body for record in records(answer)], places(answer)) == ([b"wanted"], (5, 0, 5))


@over_loopback
async def test_072_a_filtered_pull_moves_on_at_the_regular_look(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster()
    polling = cluster.brokers[0].parts.pull.polling

    async def look() -> None:
        await polling.recheck()

    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        moved = hold(peer, topic, 1, subscription="TagB", suspendTimeoutMillis=60_000)
        still = hold(peer, topic, 0, queue_id=1, suspendTimeoutMillis=60_000)
        await fill(peer, topic, 3, tag="TagA")
        cluster.thread.run(look())
        answer = await asyncio.wait_for(moved, 1)
        assert (answer.code, answer.remark, places(answer)) == (20, "NO_MATCHED_MESSAGE", (4, 0, 4))
        assert not still.done()


@over_loopback
async def test_071_without_the_hold_bit_the_end_is_told_at_once(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        answer = await pull(peer, topic, 1, suspendTimeoutMillis=60_000)
        assert (answer.code, places(answer)) == (19, (1, 0, 1))


@over_loopback
async def test_072_nothing_that_matches_is_20_with_an_offset_past_it(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 3)
        answer = await pull(peer, topic, 0, subscription="TagB")
        assert (answer.code, answer.remark, places(answer)) == (20, "NO_MATCHED_MESSAGE", (3, 0, 3))


@over_loopback
async def test_073_offsets_outside_are_21_and_told_to_operators(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 3)
        answer = await pull(peer, topic, 99, group="lost")
        assert (answer.code, answer.remark, places(answer)) == (21, "OFFSET_OVERFLOW_BADLY", (3, 0, 3))
        answer = await pull(peer, topic, -1)
        assert (answer.code, answer.remark, places(answer)) == (21, "OFFSET_TOO_SMALL", (0, 0, 3))
        moved = [
            OffsetMoved.decode(record.body) for record in records(await pull(peer, "OFFSET_MOVED_EVENT", group="ops"))
        ]
        mine = [event for event in moved if event.queue.topic == topic]
        assert [(event.group, event.requested_offset, event.new_offset) for event in mine] == [
            ("lost", 99, 3),
            ("g", -1, 0),
        ]


@over_loopback
async def test_073_below_the_first_message_that_is_left(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "600000"})
    store = cluster.brokers[0].parts.store
    async with connected(cluster.broker_addr) as (peer,):
        for _ in range(8):
            assert (await send(peer, topic, bytes(500_000))).code == 0
        await drop_finished_segments(store)
        first = store.min_offset(topic, 0)
        assert 0 < first < 8
        for offset in (0, first - 1):
            answer = await pull(peer, topic, offset)
            assert (answer.code, answer.remark, places(answer)) == (21, "OFFSET_TOO_SMALL", (first, first, 8))
        assert records(await pull(peer, topic, first))[0].queue_offset == first


@over_loopback
async def test_074_an_empty_queue_is_19_at_its_start(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        answer = await pull(peer, topic, 0)
        assert (answer.code, places(answer)) == (19, (0, 0, 0))
        assert (await pull(peer, topic, 7)).code == 21
        held = hold(peer, topic, 0, suspendTimeoutMillis=60_000)
        await send(peer, topic, b"first")
        assert [record.body for record in records(await asyncio.wait_for(held, 1))] == [b"first"]


@over_loopback
async def test_075_offsets_are_committed_with_a_pull_when_asked(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 3)

        async def committed() -> str | None:
            fields = {"consumerGroup": group, "topic": topic, "queueId": 0}
            return (await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)).ext_fields.get("offset")

        await pull(peer, topic, 0, group=group, commitOffset=2)
        assert await committed() == "0"
        flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        await pull(peer, topic, 0, group=group, commitOffset=2, sysFlag=int(flags))
        assert await committed() == "2"
        hold(peer, topic, 3, group=group, commitOffset=3, sysFlag=int(flags | PullFlag.HOLD))
        assert await committed() == "3"


@over_loopback
async def test_076_077_whose_subscription_counts(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        assert (await pull(peer, topic, group=group)).code == 0
        plain = {"group": group, "sysFlag": 0, "subVersion": 5}
        assert (await pull(peer, topic, **plain)).code == 24
        await heartbeat(peer, "c1", group, topic=topic + "-other", version=9)
        assert (await pull(peer, topic, **plain)).code == 24
        await heartbeat(peer, "c1", group, topic=topic, version=4)
        assert (await pull(peer, topic, **plain)).code == 25
        await heartbeat(peer, "c1", group, topic=topic, version=5)
        assert (await pull(peer, topic, **plain)).code == 0


@over_loopback
async def test_078_what_cannot_be_pulled(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"autoCreateSubscriptionGroup": "false"})
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=2)
        assert (await pull(peer, topic, group="unknown")).code == 26
        known = {"group": "TOOLS_CONSUMER"}
        assert (await pull(peer, "missing", **known)).code == 17
        assert (await pull(peer, topic, queue_id=2, **known)).code == 1
        assert (await pull(peer, topic, queue_id=-1, **known)).code == 1
        await make_topic(peer, topic, perm=2)
        answer = await pull(peer, topic, **known)
        assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, "3")
        disabled = b'{"groupName":"TOOLS_CONSUMER","consumeEnable":false}'
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=disabled)).code == 0
        assert (await pull(peer, topic, **known)).code == 16
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=2\n")).code == 0
        assert (await pull(peer, topic, **known)).ext_fields["forbiddenType"] == "1"


@over_loopback
async def test_expressions_that_are_none_and_filters_we_do_not_have(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        assert (await pull(peer, topic, subscription="||")).code == 23
        longest = "TagA||" + "t" * 65_530
        assert (await pull(peer, topic, subscription=longest)).code == 19
        long = await pull(peer, topic, subscription=longest + "t")
        assert (long.code, long.remark) == (23, "an expression of tags has up to 65536 characters, not 65537")
        subscribed = beat("long", "long", topic=topic, expression=longest + "t")
        assert (await peer.ask(RequestCode.HEART_BEAT, body=subscribed)).code == 0
        assert (await pull(peer, topic, group="long", sysFlag=0, subVersion=1)).code == 23
        assert (await pull(peer, topic, subscription="a > 1", expressionType="SQL92")).code == 1


CPP_BEAT = b"""{"clientID":"cpp","consumerDataSet":[{"groupName":"%s","consumeType":1,"messageModel":1,
"consumeFromWhere":0,"subscriptionDataSet":[{"topic":"%s","subString":"TagB","subVersion":"7","codeSet":["0"]%s}]}]}"""


@pytest.mark.parametrize("more", [b"", b',"tagsSet":["TagB"],"expressionType":"TAG","unitMode":false'])
@over_loopback
async def test_079_084_codes_of_a_cpp_client_are_not_believed(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str, more: bytes
) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 2, tag="TagA")
        await send(peer, topic, b"wanted", properties=props(TAGS="TagB"))
        body = CPP_BEAT % (group.encode(), topic.encode(), more)
        assert (await peer.ask(RequestCode.HEART_BEAT, body=body)).code == 0
        answer = await pull(peer, topic, group=group, sysFlag=0, subVersion=7)
        assert [record.body for record in records(answer)] == [b"wanted"]


@over_loopback
async def test_080_a_lite_pull_is_a_pull(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr, version=JAVA_533) as (peer,):
        await fill(peer, topic, 2)
        fields = pull_fields(topic, sysFlag=22, maxMsgBytes=0x7FFFFFFF)
        first, second = [await peer.ask(code, fields) for code in (11, 361)]
        assert (first.code, first.ext_fields, first.body) == (second.code, second.ext_fields, second.body)
        assert (first.ext_fields["topicSysFlag"], first.ext_fields["groupSysFlag"]) == ("0", "0")


@over_loopback
async def test_081_limits_by_count_and_bytes(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await send(peer, topic, bytes(1 << 20))
        for _ in range(40):
            await send(peer, topic, bytes(10_000))
        assert [len(record.body) for record in records(await pull(peer, topic, 0))] == [1 << 20]
        assert len(records(await pull(peer, topic, 1, maxMsgNums=3))) == 3
        assert len(records(await pull(peer, topic, 1, maxMsgNums=0))) == 1
        by_bytes = records(await pull(peer, topic, 1, maxMsgNums=100))
        assert len(by_bytes) == 256 * 1024 // by_bytes[0].size
        assert len(records(await pull(peer, topic, 1, maxMsgNums=100, maxMsgBytes=1 << 30))) == 40


@over_loopback
async def test_081_as_many_as_a_reader_asks_for_up_to_the_brokers_own_limit(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    """Goal: who names a size gets thousands in one answer, who does not 32, as ever; an operator can say less."""
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        fields = send_fields(topic, properties=None)
        pending = [peer.start(RequestCode.SEND_MESSAGE, fields) for _ in range(4_200)]
        assert {(await answer).code for answer in pending} == {0}
        assert len(records(await pull(peer, topic, maxMsgNums=9_999, maxMsgBytes=1 << 20))) == 4_200
        assert len(records(await pull(peer, topic, maxMsgNums=9_999))) == 32
        try:
            await set_option(peer, "maxPullCountOnRequest=100")
            assert len(records(await pull(peer, topic, maxMsgNums=9_999, maxMsgBytes=1 << 20))) == 100
        finally:
            await set_option(peer, "maxPullCountOnRequest=8192")


async def set_option(peer: Peer, line: str) -> None:
    assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=line.encode())).code == 0


@over_loopback
async def test_the_vip_port_serves_everything_but_pulls(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    host, _, port = rocketq_cluster.broker_addr.rpartition(":")
    async with connected(f"{host}:{int(port) - 2}", rocketq_cluster.broker_addr) as (vip, main):
        assert (await send(vip, topic, b"by vip")).code == 0
        assert (await pull(vip, topic)).code == 3
        assert [record.body for record in records(await pull(main, topic))] == [b"by vip"]


@over_loopback
async def test_005_binary_requests_get_binary_answers_held_or_not(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        fields = pull_fields(topic, 1, sysFlag=int(PullFlag.SUBSCRIPTION | PullFlag.HOLD), suspendTimeoutMillis=60_000)
        held = peer.start(RequestCode.PULL_MESSAGE, fields, form=HeaderForm.BINARY)
        await send(peer, topic)
        answer = await held
        assert (answer.code, answer.form) == (0, HeaderForm.BINARY)


@over_loopback
async def test_a_client_that_vanishes_takes_its_held_pulls_along(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster()
    polling = cluster.brokers[0].parts.pull.polling
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        async with connected(cluster.broker_addr) as (doomed,):
            for number in range(50):
                hold(doomed, topic, queue_id=number % 4, suspendTimeoutMillis=60_000)

            async def all_held() -> bool:
                return len(polling) == 50

            await eventually(all_held)

        async def none_held() -> bool:
            return len(polling) == 0

        await eventually(none_held)
        assert (await send(peer, topic)).code == 0


@over_loopback
async def test_too_many_held_pulls_are_told_so(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"pullThreadPoolQueueCapacity": "2"})
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        held = [hold(peer, topic, suspendTimeoutMillis=60_000) for _ in range(2)]
        answer = await hold(peer, topic)
        assert (answer.code, (answer.remark or "").startswith("[OVERLOAD]")) == (2, True)
        await send(peer, topic)
        assert [(await one).code for one in held] == [0, 0]


@over_loopback
async def test_without_long_polling_a_pull_is_held_for_a_moment(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"longPollingEnable": "false", "shortPollingTimeMills": "50"})
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        assert (await hold(peer, topic, suspendTimeoutMillis=60_000)).code == 19


@over_loopback
async def test_a_topic_deleted_under_a_held_pull_is_told_as_17(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        held = hold(peer, topic, 1, suspendTimeoutMillis=200)
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0
        assert (await held).code == 17


@over_loopback
async def test_slow_groups_are_sent_elsewhere_when_slaves_may_be_read(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    cluster = make_rocketq_cluster(settings={"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"})
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, 3)
        drop_messages(cluster.brokers[0])
        assert (await pull(peer, topic, 0, maxMsgNums=1)).ext_fields["suggestWhichBrokerId"] == "1"
        if KNOWS_PAGES:
            assert (await pull(peer, topic, 0, maxMsgNums=1)).ext_fields["suggestWhichBrokerId"] == "0"
        assert (await pull(peer, topic, 3)).ext_fields["suggestWhichBrokerId"] == "0"


@over_loopback
async def test_012_unknown_and_unserved_codes_are_3_with_a_reason(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for code in (29_999, 39, 40, 220, 221, 326, 27, 22, 200050, 200051, 1005, 513, 902):
            answer = await peer.ask(code)
            assert (answer.code, str(code) in (answer.remark or "")) == (3, True), answer
        for code in (50, 52, 54, 3005):
            assert (await peer.ask(code)).code in (1, 209)


@over_loopback
async def test_013_bad_fields_and_bodies_are_1_and_the_connection_stays(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for code in (10, 11, 310, 320, 12, 14, 15, 17, 29, 30, 31, 32, 33, 36, 38, 202, 203, 204, 207, 208, 215, 222):
            assert (await peer.ask(code, {"queueId": "many"})).code == 1, code
        for code in (34, 41, 42, 46, 200, 400, 401):
            for body in (b"", b"{", b"[]", b'{"clientID":7,"consumerDataSet":{}}', b"\xff\xfe"):
                assert (await peer.ask(code, body=body)).code == 1, (code, body)
        assert not peer.closed.is_set()


@over_loopback
async def test_garbage_ends_its_connection_only(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (bad, good):
        bad.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(bad.closed.wait(), 5)
        assert (await good.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0


@over_loopback
async def test_011_frames_byte_by_byte(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, 1)
        frame = encode_command(Command(code=30, opaque=77, ext_fields={"topic": topic, "queueId": "0"}))
        answer = peer._waiting[77] = asyncio.get_running_loop().create_future()
        for at in range(len(frame)):
            peer.write(frame[at : at + 1])
            await asyncio.sleep(0)
        assert (await asyncio.wait_for(answer, 5)).ext_fields["offset"] == "1"
