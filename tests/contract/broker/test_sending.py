"""interop.md, section C: each line by its number, over loopback with raw frames."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from rocketq.model import decode_message_id
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.messages import BatchElement, encode_batch
from rocketq.store import FlushType
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    JAVA_533,
    ONEWAY,
    Peer,
    connected,
    eventually,
    heartbeat,
    letters,
    make_topic,
    over_loopback,
    properties,
    props,
    pull,
    records,
    route,
    send,
    send_fields,
)

MakeCluster = Callable[..., EmbeddedCluster]


async def max_offset(peer: Peer, topic: str, queue_id: int = 0) -> int:
    answer = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})
    return int(answer.ext_fields["offset"])


@over_loopback
async def test_041_names_and_letters_store_the_same(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        fields = send_fields(topic, flag=7, sysFlag=1, properties=props(KEYS="k", a="b"))
        assert (await peer.ask(RequestCode.SEND_MESSAGE, fields, b"same")).code == 0
        assert (await peer.ask(RequestCode.SEND_MESSAGE_V2, letters(fields), b"same")).code == 0
        first, second = records(await pull(peer, topic))
        for name in ("body", "flag", "sys_flag", "born_ms", "born_host", "properties", "reconsume_times", "topic"):
            assert getattr(first, name) == getattr(second, name)


@over_loopback
async def test_042_043_a_send_tells_where_the_message_went(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for number in range(3):
            answer = await send(peer, topic, queue_id=2)
            assert answer.code == 0
            ext = dict(answer.ext_fields)
            assert len(ext["msgId"]) == 32
            assert ext.pop("msgId").isupper()
            expected = {"queueId": "2", "queueOffset": str(number), "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
            assert ext == expected


@over_loopback
async def test_044_the_id_leads_to_the_message(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        answer = await send(peer, topic, b"find me")
        host, log_offset = decode_message_id(answer.ext_fields["msgId"])
        assert str(host) == rocketq_cluster.broker_addr
        (record,) = records(await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": log_offset}))
        assert (record.body, record.topic, record.message_id) == (b"find me", topic, answer.ext_fields["msgId"])
        assert (await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 1 << 40})).code == 1


@over_loopback
async def test_045_a_new_topic_is_made_and_routable_when_its_first_message_is_acknowledged(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    async with connected(rocketq_cluster.broker_addr, rocketq_cluster.name_server_addr) as (broker, names):
        assert (await send(broker, topic)).code == 0
        found = await route(names, topic)
        assert found is not None
        (data,) = found.queues
        assert (data.read_queue_count, data.write_queue_count, data.perm) == (4, 4, 6)
        assert found.brokers[0].addrs == {0: rocketq_cluster.broker_addr}


@over_loopback
async def test_046_without_auto_creation_it_is_17(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"autoCreateTopicEnable": "false"})
    async with connected(cluster.broker_addr) as (peer,):
        answer = await send(peer, topic)
        assert (answer.code, bool(answer.remark)) == (17, True)
        assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
        # any other topic with the inherit bit is still a template
        assert (await send(peer, topic, defaultTopic="DefaultCluster")).code == 0
        # and turning it on while running is enough
        body = b"autoCreateTopicEnable=true\n"
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0
        assert (await send(peer, topic + "2")).code == 0


@over_loopback
async def test_047_the_template_is_routed(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(rocketq_cluster.name_server_addr) as (names,):
        found = await route(names, "TBW102")
        assert found is not None
        assert [(data.perm, data.write_queue_count) for data in found.queues] == [(7, 8)]


@over_loopback
async def test_048_a_negative_queue_is_chosen_by_the_broker(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        chosen = {(await send(peer, topic, queue_id=-1)).ext_fields["queueId"] for _ in range(60)}
        assert chosen == {"0", "1", "2", "3"}


@over_loopback
async def test_049_a_queue_outside_is_refused_and_nothing_stored(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=2, readQueueNums=5)
        assert (await send(peer, topic, queue_id=4)).code == 0
        answer = await send(peer, topic, queue_id=5)
        assert (answer.code, bool(answer.remark)) == (1, True)
        assert await max_offset(peer, topic, 5) == 0


@over_loopback
async def test_050_nobody_sends_to_the_schedule_topic(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        assert (await send(peer, "SCHEDULE_TOPIC_XXXX")).code == 16


@pytest.mark.parametrize(
    ("body_bytes", "property_chars", "code"),
    [(4 << 20, 10, 0), ((4 << 20) + 1, 10, 13), (1, 32_000, 0), (1, 32_800, 13)],
)
@over_loopback
async def test_051_sizes(
    rocketq_cluster: EmbeddedCluster, topic: str, body_bytes: int, property_chars: int, code: int
) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        answer = await send(peer, topic, bytes(body_bytes), properties=props(p="v" * property_chars))
        assert answer.code == code


@over_loopback
async def test_052_053_what_is_stored_is_what_was_sent(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        given = props(KEYS="k1 k2", TAGS="TagA", WAIT="true", UNIQ_KEY="U", odd="a\x01b", umlaut="ü€")
        await send(peer, topic, b"x" * 99, flag=0x7FFFFFFF, sysFlag=0x301, properties=given, bornTimestamp=42)
        (record,) = records(await pull(peer, topic))
        assert (record.body, record.flag, record.sys_flag, record.born_ms) == (b"x" * 99, 0x7FFFFFFF, 0x301, 42)
        assert properties(record) == {
            "KEYS": "k1 k2",
            "TAGS": "TagA",
            "UNIQ_KEY": "U",
            "odd": "a\x01b",
            "umlaut": "ü€",
            "CLUSTER": "DefaultCluster",
        }
        assert str(record.born_host) == peer.addr
        assert str(record.store_host) == rocketq_cluster.broker_addr


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@over_loopback
async def test_054_a_batch_is_n_messages(rocketq_cluster: EmbeddedCluster, topic: str, code: RequestCode) -> None:
    batch = encode_batch(
        [BatchElement(body=b"%d" % n, properties=props(KEYS=f"k{n}").encode(), flag=n) for n in range(3)]
    )
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await send(peer, topic)
        flag = "false" if code == RequestCode.SEND_BATCH_MESSAGE else "1"
        fields = letters(send_fields(topic, batch=flag, properties=props(WAIT="true")))
        answer = await peer.ask(code, fields, batch)
        assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "1")
        ids = answer.ext_fields["msgId"].split(",")
        found = records(await pull(peer, topic, 1))
        assert [record.message_id for record in found] == ids
        assert [(record.body, record.flag, record.queue_offset) for record in found] == [
            (b"%d" % n, n, n + 1) for n in range(3)
        ]
        assert properties(found[1])["KEYS"] == "k1"
        assert properties(found[1])["CLUSTER"] == "DefaultCluster"


@pytest.mark.parametrize("body", [b"", b"\0\0\0\x08nonsense", bytes(20)])
@over_loopback
async def test_a_batch_that_is_none_is_refused(rocketq_cluster: EmbeddedCluster, topic: str, body: bytes) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        fields = letters(send_fields(topic, batch="true"))
        assert (await peer.ask(RequestCode.SEND_BATCH_MESSAGE, fields, body)).code == 13


@over_loopback
async def test_a_batch_with_thousands_of_properties_of_its_own_is_refused(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    """Goal: each would be looked for in every message: two megabytes of them once held up all clients for a minute."""
    many = "\x02".join(f"o{number}\x01v" for number in range(2_500))
    inner = "\x02".join(f"i{number}\x01v" for number in range(2_500)).encode()
    batch = encode_batch(BatchElement(body=b"b", properties=inner) for _ in range(100))
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        fields = send_fields(topic, batch="true", properties=many)
        answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, letters(fields), batch)
        assert answer.code == 13
        assert "properties of its own" in (answer.remark or "")
        fields["properties"] = "\x02".join(f"o{number}\x01v" for number in range(40))
        few = encode_batch(BatchElement(body=b"b", properties=b"o1\x01mine") for _ in range(3))
        assert (await peer.ask(RequestCode.SEND_BATCH_MESSAGE, letters(fields), few)).code == 0
        stored = [properties(record) for record in records(await pull(peer, topic))]
        assert [(one["o1"], one["o39"]) for one in stored] == [("mine", "v")] * 3


@over_loopback
async def test_a_batch_whose_records_are_larger_than_a_message_may_be_is_refused(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    """Goal: the rule of Apache's brokers, whichever way is taken: small elements with much around them count whole."""
    tiny = encode_batch(BatchElement(body=b"") for _ in range(45_000))
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for _ in range(2):  # the second finds the queue made, and so do those behind it
            await send(peer, topic)
        fields = letters(send_fields(topic, batch="true"))
        answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, fields, tiny)
        assert answer.code == 13
        assert "more than 4194304" in (answer.remark or "")
        assert (await send(peer, topic)).ext_fields["queueOffset"] == "2"


@over_loopback
async def test_057_a_disk_that_is_late_answers_10_with_everything(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    cluster = make_rocketq_cluster(settings={"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "200"})
    store = cluster.brokers[0].parts.store
    assert store.config.flush_type is FlushType.SYNC_FLUSH
    async with connected(cluster.broker_addr) as (peer,):
        assert (await send(peer, topic)).code == 0
        assert len(records(await pull(peer, topic))) == 1
        store.log.flush = lambda **given: store.gate.position  # type: ignore[method-assign]
        try:
            answer = await send(peer, topic)
            assert answer.code == 10
            assert {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"} <= set(answer.ext_fields)
            assert answer.ext_fields["queueOffset"] == "1"
            # who does not want to wait does not, and others are served meanwhile
            assert (await send(peer, topic, properties=props(WAIT="false"))).code == 0
            late = peer.start(RequestCode.SEND_MESSAGE_V2, letters(send_fields(topic)), b"b")
            assert await max_offset(peer, topic) == 1
            assert not late.done()
            assert (await late).code == 10
        finally:
            del store.log.flush


@over_loopback
async def test_057_sync_flush_answers_many_at_once(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"flushDiskType": "SYNC_FLUSH"})
    async with connected(cluster.broker_addr) as (peer,):
        fields = letters(send_fields(topic))
        answers = await asyncio.gather(*(peer.start(RequestCode.SEND_MESSAGE_V2, fields, b"b") for _ in range(200)))
        assert {answer.code for answer in answers} == {0}
        assert sorted(int(answer.ext_fields["queueOffset"]) for answer in answers) == list(range(200))


@over_loopback
async def test_058_a_broker_that_cannot_write_answers_14(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster()
    health = cluster.brokers[0].parts.store.health
    async with connected(cluster.broker_addr) as (peer,):
        assert (await send(peer, topic)).code == 0
        health.disk_full = "the disk is full"
        answer = await send(peer, topic)
        assert (answer.code, answer.remark) == (14, "the disk is full")
        assert answer.ext_fields["TRACE_ON"] == "true"
        health.disk_full = None
        assert (await send(peer, topic)).code == 0


@over_loopback
async def test_058_a_disk_past_its_limit_answers_14(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    """Goal: the same with a real disk and a real limit, which some file system here is always above."""
    used = shutil.disk_usage(tempfile.gettempdir())
    if used.used / used.total < 0.02:
        pytest.skip("the disk is empty")
    limits = {"diskSpaceWarningLevelRatio": "0.01", "diskSpaceCleanForciblyRatio": "0.01"}
    cluster = make_rocketq_cluster(settings=limits)
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)

        async def is_refused() -> bool:
            answer = await send(peer, topic)
            return answer.code == 14 and "disk" in (answer.remark or "")

        await eventually(is_refused)


@over_loopback
async def test_060_concurrent_producers_never_share_an_offset(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 8) as peers:
        fields = letters(send_fields(topic))
        await send(peers[0], topic)
        pending = [peer.start(RequestCode.SEND_MESSAGE_V2, fields, b"b") for _ in range(50) for peer in peers]
        offsets = [int((await answer).ext_fields["queueOffset"]) for answer in pending]
        assert sorted(offsets) == list(range(1, 401))


UNDELIVERABLE: list[tuple[dict[str, Any], int]] = [
    ({"properties": props(DELAY="soon")}, 1),
    ({"properties": props(TIMER_DELAY_MS="soon")}, 13),
    ({"properties": props(TIMER_DELAY_SEC="259201")}, 13),
    ({"properties": props(TIMER_DELIVER_MS="99999999999999")}, 13),
    ({"sysFlag": 4}, 0),
    ({"properties": props(TIMER_DELIVER_MS="1")}, 0),
    ({"properties": props(TIMER_DELAY_MS="-5")}, 0),
    ({"properties": props(DELAY="0")}, 0),
    ({"properties": props(DELAY="-1")}, 0),
    ({"properties": props(TRAN_MSG="true"), "reconsumeTimes": 1}, 0),
]


@pytest.mark.parametrize(("given", "code"), UNDELIVERABLE)
@over_loopback
async def test_what_cannot_be_delivered_is_refused(
    rocketq_cluster: EmbeddedCluster, topic: str, given: dict[str, Any], code: int
) -> None:
    """Goal: never 0 without a message that consumers will get."""
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        answer = await send(peer, topic, **given)
        assert (answer.code, bool(answer.remark)) == (code, code != 0)
        assert await max_offset(peer, topic) == (code == 0)


@over_loopback
async def test_delayed_messages_inside_a_batch_are_refused(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for inner in (props(DELAY="2"), props(TRAN_MSG="true")):
            batch = encode_batch([BatchElement(body=b"a"), BatchElement(body=b"b", properties=inner.encode())])
            answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, letters(send_fields(topic)), batch)
            assert answer.code == 13
        assert await max_offset(peer, topic) == 0


@over_loopback
async def test_retries_that_are_exhausted_become_dead_letters(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await heartbeat(peer, "c", group, topic=topic)
        retry = f"%RETRY%{group}"
        for times, most, target in ((2, 3, retry), (3, 3, f"%DLQ%{group}"), (15, None, retry), (16, None, "DLQ")):
            answer = await send(peer, retry, b"%d" % times, reconsumeTimes=times, maxReconsumeTimes=most)
            assert answer.code == 0, (target, answer)
        assert [record.body for record in records(await pull(peer, retry))] == [b"2", b"15"]
        assert [record.body for record in records(await pull(peer, f"%DLQ%{group}"))] == [b"3", b"16"]


@over_loopback
async def test_bad_names_are_refused(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for bad in ("a b", "x" * 128, "../../etc", "ü"):
            assert (await send(peer, bad)).code == 1
        answer = await peer.ask(RequestCode.SEND_MESSAGE, {"topic": "only"}, b"")
        assert (answer.code, "queueId" in (answer.remark or "")) == (1, True)


@over_loopback
async def test_a_oneway_send_is_stored_and_not_answered(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        silent = peer.start(RequestCode.SEND_MESSAGE_V2, letters(send_fields(topic)), b"quiet", flag=ONEWAY)
        refused = peer.start(RequestCode.SEND_MESSAGE_V2, letters(send_fields("a b")), b"", flag=ONEWAY)
        assert [record.body for record in records(await pull(peer, topic))] == [b"quiet"]
        assert not silent.done()
        assert not refused.done()


@over_loopback
async def test_newer_clients_get_their_transaction_id(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr, version=JAVA_533) as (peer,):
        answer = await send(peer, topic, properties=props(UNIQ_KEY="U1"))
        assert answer.ext_fields["transactionId"] == "U1"


@over_loopback
async def test_a_broker_without_write_permission_refuses_order_topics_only(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    cluster = make_rocketq_cluster(settings={"brokerPermission": "4"})
    async with connected(cluster.broker_addr, cluster.name_server_addr) as (peer, names):
        assert (await send(peer, topic)).code == 0
        put = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic, "value": "broker-0:4"}
        assert (await names.ask(RequestCode.PUT_KV_CONFIG, put)).code == 0
        await make_topic(peer, topic + "2")  # registers again, and so hears of the order

        async def is_ordered() -> bool:
            return (await send(peer, topic)).code == 16

        await eventually(is_ordered)
        found = await route(names, topic)
        assert found is not None
        assert found.queues[0].perm == 4


@over_loopback
async def test_sends_may_be_put_off(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"startAcceptSendRequestTimeStamp": str(1 << 50)})
    async with connected(cluster.broker_addr) as (peer,):
        answer: Command = await send(peer, topic)
        assert (answer.code, str(1 << 50) in (answer.remark or "")) == (1, True)


@over_loopback
async def test_017_code_2_has_a_reason_in_brackets(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"flushDiskType": "SYNC_FLUSH", "sendThreadPoolQueueCapacity": "10"})
    store = cluster.brokers[0].parts.store
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        store.log.flush = lambda **given: store.gate.position  # type: ignore[method-assign]
        fields = letters(send_fields(topic))
        pending = [peer.start(RequestCode.SEND_MESSAGE_V2, fields, b"b") for _ in range(14)]
        refused = [await answer for answer in pending[10:]]
        assert {answer.code for answer in refused} == {2}
        assert all((answer.remark or "").startswith("[OVERLOAD]") for answer in refused)
        del store.log.flush
        store.flush()
        assert {(await answer).code for answer in pending[:10]} == {0}
        assert await max_offset(peer, topic) == 10  # those that were refused are not stored


@over_loopback
async def test_017_a_held_up_append_is_told_with_a_reason_too(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"osPageCacheBusyTimeOutMills": "10"})
    writer = cluster.brokers[0].parts.store.writer
    async with connected(cluster.broker_addr) as (peer,):
        assert (await send(peer, topic)).code == 0
        writer._locked_since_ms = 1
        answer = await send(peer, topic, properties="wide\x01é")  # not for the kernel, which would wait for the lock
        assert (answer.code, (answer.remark or "").startswith("[REJECTREQUEST]")) == (2, True)
        writer._locked_since_ms = 0
        assert (await send(peer, topic)).code == 0


@over_loopback
async def test_properties_that_are_far_too_long_are_refused_unread(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    """Goal: long properties are rejected before they are parsed, and no topic is created."""
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        long = await send(peer, topic, properties="a\x01" + "b" * 79_996 + "\x02")
        assert (long.code, long.remark) == (13, "the properties have 79999 characters, more than 32767 bytes")
        assert (await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0})).ext_fields["offset"] == "0"
        mostly_empty = "\x02" * 20_000 + "a\x01b\x02"
        assert (await send(peer, topic, properties=mostly_empty)).code == 0
