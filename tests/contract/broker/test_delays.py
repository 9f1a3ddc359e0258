"""interop.md, lines 55, 56, 93 and 94, and what else delay levels and retries promise: over loopback, raw frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rocketq.model import Record
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.runtime.clock import ManualClock
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    JAVA_497,
    Peer,
    connected,
    eventually,
    heartbeat,
    make_topic,
    over_loopback,
    properties,
    props,
    pull,
    records,
    send,
)

MakeCluster = Callable[..., EmbeddedCluster]
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def clock() -> ManualClock:
    """Of the broker; tests move it."""
    return ManualClock()


@pytest.fixture
def cluster(make_rocketq_cluster: MakeCluster, clock: ManualClock) -> EmbeddedCluster:
    return make_rocketq_cluster(clock=clock)


async def count(peer: Peer, topic: str, queue_id: int = 0) -> int:
    answer = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})
    return int(answer.ext_fields["offset"])


async def arrives(peer: Peer, topic: str, wanted: int = 1, queue_id: int = 0) -> None:
    async def there() -> bool:
        return await count(peer, topic, queue_id) >= wanted

    await eventually(there)


async def rests(cluster: EmbeddedCluster) -> None:
    """Everything that is due by now is delivered."""

    async def turn() -> None:
        while cluster.brokers[0].parts.delay.levels.step():
            pass

    cluster.thread.run(turn())


async def send_back(peer: Peer, record: Record, group: str, level: int = 0, **given: Any) -> Command:
    fields = {"offset": record.log_offset, "group": group, "delayLevel": level, **given}
    return await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


@over_loopback
async def test_055_a_delayed_message_appears_after_its_delay_with_all_it_had(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str
) -> None:
    """Goal: invisible for 10 s, then in its own topic and queue with all user properties."""
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        given = {"properties": props(TAGS="T", KEYS="k1 k2", UNIQ_KEY="U1", mine="yes", DELAY="3"), "flag": 9}
        answer = await send(peer, topic, b"later", queue_id=2, **given)
        assert (answer.code, answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == (0, "2", "0")
        assert await count(peer, SCHEDULE, 2) == 1
        waiting = cluster.brokers[0].parts.store.queues.get(SCHEDULE, 2)
        assert waiting is not None
        assert waiting.unit(0)[2] == clock.now_ms() + 10_000  # type: ignore[index]  # the entry says when
        clock.advance(9_999)
        await rests(cluster)
        assert await count(peer, topic, 2) == 0
        clock.advance(1)
        await arrives(peer, topic, queue_id=2)
        (record,) = records(await pull(peer, topic, queue_id=2))
        assert (record.body, record.queue_id, record.queue_offset, record.flag) == (b"later", 2, 0, 9)
        assert (record.born_ms, record.store_ms) == (1_700_000_000_123, clock.now_ms())
        wanted = {"TAGS": "T", "KEYS": "k1 k2", "UNIQ_KEY": "U1", "mine": "yes", "DELAY": "3"}
        wanted |= {"REAL_TOPIC": topic, "REAL_QID": "2", "CLUSTER": "DefaultCluster"}
        assert properties(record) == wanted
        found = await peer.ask(
            RequestCode.QUERY_MESSAGE,
            {"topic": topic, "key": "k2", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 60},
        )
        assert records(found) == [record]
        await rests(cluster)
        assert await count(peer, topic, 2) == 1


@over_loopback
async def test_055_a_level_above_the_table_counts_as_its_highest(
    make_rocketq_cluster: MakeCluster, clock: ManualClock, topic: str
) -> None:
    cluster = make_rocketq_cluster(clock=clock, settings={"messageDelayLevel": "1s 5s 2h"})
    async with connected(cluster.broker_addr) as (peer,):
        for level in ("99", "3"):
            assert (await send(peer, topic, properties=props(DELAY=level))).code == 0
        assert await count(peer, SCHEDULE, 2) == 2
        (stored, _) = records(await pull(peer, SCHEDULE, queue_id=2))
        assert properties(stored)["DELAY"] == "3"
        clock.advance(7_199_999)
        await rests(cluster)
        assert await count(peer, topic) == 0
        clock.advance(1)
        await arrives(peer, topic, 2)


@over_loopback
async def test_levels_keep_their_order_and_do_not_wait_for_each_other(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str
) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        for number in range(300):
            level = "1" if number % 3 else "2"
            await send(peer, topic, str(number).encode(), properties=props(DELAY=level))
            clock.advance(1)
        clock.advance(1_000)
        await arrives(peer, topic, 200)
        clock.advance(4_000)
        await arrives(peer, topic, 300)
        bodies: list[int] = []
        while len(bodies) < 300:
            bodies += [int(record.body) for record in records(await pull(peer, topic, len(bodies)))]
        assert [number for number in bodies if number % 3] == [number for number in range(300) if number % 3]
        assert [number for number in bodies if not number % 3] == list(range(0, 300, 3))
        assert bodies.index(299) < bodies.index(0)


@over_loopback
async def test_a_held_pull_wakes_when_a_delayed_message_is_due(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str
) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        await send(peer, topic, b"wake", properties=props(DELAY="1"))
        waiting = peer.start(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": "g",
                "topic": topic,
                "queueId": 0,
                "queueOffset": 0,
                "maxMsgNums": 32,
                "sysFlag": 6,
                "commitOffset": 0,
                "suspendTimeoutMillis": 15_000,
                "subscription": "*",
                "subVersion": 0,
            },
        )
        clock.advance(1_000)
        assert [record.body for record in records(await waiting)] == [b"wake"]


@over_loopback
async def test_what_was_delivered_is_not_delivered_again_after_a_restart(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str
) -> None:
    """Goal: exact resume, from delayOffset.json alone or with the page that crashes leave."""
    async with connected(cluster.broker_addr) as (peer,):
        for number in range(6):
            await send(peer, topic, str(number).encode(), properties=props(DELAY="1" if number < 3 else "2"))
        clock.advance(1_000)
        await arrives(peer, topic, 3)
    cluster.stop_broker()
    saved = cluster.store_dir() / "config" / "delayOffset.json"
    assert json.loads(saved.read_text().replace("1:", '"1":', 1))["offsetTable"] == {"1": 3}
    (saved.parent / "deliveryProgress").unlink()
    cluster.start_broker()
    async with connected(cluster.broker_addr) as (peer,):
        await rests(cluster)
        assert await count(peer, topic) == 3
        clock.advance(4_000)
        await arrives(peer, topic, 6)
    saved.unlink()
    cluster.stop_broker()
    saved.unlink()
    saved.with_name("delayOffset.json.bak").unlink(missing_ok=True)
    cluster.start_broker()
    async with connected(cluster.broker_addr) as (peer,):
        await rests(cluster)
        assert await count(peer, topic) == 6
        assert (await peer.ask(RequestCode.GET_ALL_DELAY_OFFSET)).code == 0


@over_loopback
async def test_what_waits_in_a_level_that_is_gone_is_delivered_all_the_same(
    make_rocketq_cluster: MakeCluster, clock: ManualClock, topic: str
) -> None:
    """Goal: a shorter table loses nothing."""
    cluster = make_rocketq_cluster(clock=clock)
    async with connected(cluster.broker_addr) as (peer,):
        await send(peer, topic, properties=props(DELAY="5"))
    cluster.stop_broker()
    cluster._settings["messageDelayLevel"] = "1s 2s"
    cluster.start_broker()
    async with connected(cluster.broker_addr) as (peer,):
        clock.advance(60_000)
        await arrives(peer, topic)


# retries


@over_loopback
async def test_056_a_retry_that_was_tried_often_enough_is_a_dead_letter(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str, group: str
) -> None:
    """Goal: the client's maximum counts when it is there, the group's (16) otherwise; no left-over delay."""
    async with connected(cluster.broker_addr) as (peer,):
        await heartbeat(peer, "c", group, topic=topic)
        retry, dead, delay = f"%RETRY%{group}", f"%DLQ%{group}", props(DELAY="3", RETRY_TOPIC=topic)
        for times, most in ((2, 3), (15, None)):
            given = {"reconsumeTimes": times, "maxReconsumeTimes": most, "properties": delay}
            assert (await send(peer, retry, **given)).code == 0
        assert (await count(peer, dead), await count(peer, SCHEDULE, 2)) == (0, 2)
        for number, (times, most) in enumerate(((3, 3), (16, None), (20, 16)), start=1):
            given = {"reconsumeTimes": times, "maxReconsumeTimes": most, "properties": delay}
            answer = await send(peer, retry, **given)
            assert (answer.code, await count(peer, dead)) == (0, number)
        letters = records(await pull(peer, dead))
        assert [record.reconsume_times for record in letters] == [3, 16, 20]
        assert all("DELAY" not in properties(record) for record in letters)


@over_loopback
async def test_093_a_message_sent_back_is_tried_again_a_little_later_each_time(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str, group: str
) -> None:
    """Goal: via the retry topic after 10 s, then 30 s, with where it came from and the same unique key."""
    async with connected(cluster.broker_addr) as (peer,):
        await heartbeat(peer, "c", group, topic=topic)
        sent = await send(peer, topic, b"hard", properties=props(TAGS="T", UNIQ_KEY="U9", mine="yes"), flag=3)
        (first,) = records(await pull(peer, topic))
        given = {"originTopic": topic, "originMsgId": "U9", "unitMode": "false", "maxReconsumeTimes": 16}
        answer = await send_back(peer, first, group, **given)
        assert (answer.code, answer.remark, dict(answer.ext_fields)) == (0, None, {})
        clock.advance(9_999)
        await rests(cluster)
        assert await count(peer, f"%RETRY%{group}") == 0
        clock.advance(1)
        await arrives(peer, f"%RETRY%{group}")
        (again,) = records(await pull(peer, f"%RETRY%{group}"))
        assert (again.body, again.reconsume_times, again.flag, again.born_ms) == (b"hard", 1, 3, first.born_ms)
        assert again.born_host == first.born_host
        wanted = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": sent.ext_fields["msgId"], "UNIQ_KEY": "U9"}
        assert wanted.items() <= properties(again).items()
        assert (await send_back(peer, again, group)).code == 0
        clock.advance(29_999)
        await rests(cluster)
        assert await count(peer, f"%RETRY%{group}") == 1
        clock.advance(1)
        await arrives(peer, f"%RETRY%{group}", 2)
        (third,) = records(await pull(peer, f"%RETRY%{group}", 1))
        assert third.reconsume_times == 2
        assert wanted.items() <= properties(third).items()


@over_loopback
async def test_093_a_consumer_may_say_how_long(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str, group: str
) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        await send(peer, topic)
        (record,) = records(await pull(peer, topic))
        assert (await send_back(peer, record, group, level=1)).code == 0
        assert (await send_back(peer, record, group, level=77)).code == 0
        assert (await count(peer, SCHEDULE, 0), await count(peer, SCHEDULE, 17)) == (1, 1)
        clock.advance(1_000)
        await arrives(peer, f"%RETRY%{group}")


@over_loopback
async def test_094_dead_letters_come_at_once_and_can_be_read(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str, group: str
) -> None:
    """Goal: delay level -1, or too many tries by the client's or the group's maximum; old requests work."""
    dead = f"%DLQ%{group}"
    async with connected(cluster.broker_addr) as (peer,):
        await heartbeat(peer, "c", group, topic=topic)
        sent = await send(peer, topic, b"bad", properties=props(UNIQ_KEY="U5"))
        (record,) = records(await pull(peer, topic))
        assert (await send_back(peer, record, group, level=-1)).code == 0
        (letter,) = records(await pull(peer, dead, group="reader"))
        assert (letter.body, letter.reconsume_times, letter.topic) == (b"bad", 1, dead)
        wanted = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": sent.ext_fields["msgId"], "UNIQ_KEY": "U5"}
        assert wanted.items() <= properties(letter).items()
        assert "DELAY" not in properties(letter)
        assert (await send_back(peer, record, group, maxReconsumeTimes=0)).code == 0
        assert await count(peer, dead) == 2


@over_loopback
async def test_094_the_seventeenth_try_is_a_dead_letter(
    make_rocketq_cluster: MakeCluster, clock: ManualClock, topic: str, group: str
) -> None:
    """Goal: 16 retries, then the dead letters, without a maximum in the request, and with one of -1."""
    cluster = make_rocketq_cluster(clock=clock, settings={"messageDelayLevel": "1s"})
    async with connected(cluster.broker_addr) as (peer,):
        await send(peer, topic, b"never")
        (record,) = records(await pull(peer, topic))
        for times in range(16):
            given = {"maxReconsumeTimes": -1} if times % 2 else {}
            assert (await send_back(peer, record, group, **given)).code == 0
            clock.advance(1_000)
            await arrives(peer, f"%RETRY%{group}", times + 1)
            (record,) = records(await pull(peer, f"%RETRY%{group}", times))
        assert (record.reconsume_times, await count(peer, f"%DLQ%{group}")) == (16, 0)
        assert (await send_back(peer, record, group)).code == 0
        (letter,) = records(await pull(peer, f"%DLQ%{group}"))
        assert (letter.reconsume_times, properties(letter)["RETRY_TOPIC"]) == (17, topic)
        assert "DELAY" not in properties(letter)


@over_loopback
async def test_send_back_refuses_what_it_cannot_do_and_stores_nothing(
    make_rocketq_cluster: MakeCluster, clock: ManualClock, topic: str, group: str
) -> None:
    """Goal: the code of the spec and a remark that helps."""
    cluster = make_rocketq_cluster(clock=clock, settings={"autoCreateSubscriptionGroup": "false"})
    async with connected(cluster.broker_addr) as (peer,):
        await send(peer, topic)
        await send(peer, topic, properties=props(DELAY="1"))
        (record,) = records(await pull(peer, topic, group="TOOLS_CONSUMER"))
        (hidden,) = records(await pull(peer, SCHEDULE, group="TOOLS_CONSUMER"))
        unknown = await send_back(peer, record, group)
        assert (unknown.code, bool(unknown.remark)) == (26, True)
        body = json.dumps({"groupName": group, "retryQueueNums": 0}).encode()
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0
        assert (await send_back(peer, record, group)).code == 0
        assert await count(peer, SCHEDULE, 2) == 0
        body = json.dumps({"groupName": group, "retryQueueNums": 2}).encode()
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0
        for offset in (1 << 40, record.log_offset + 1, -5, hidden.log_offset):
            fields = {"offset": offset, "group": group, "delayLevel": 0}
            answer = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
            assert (answer.code, bool(answer.remark)) == (1, True), offset
        await make_topic(peer, f"%RETRY%{group}", queues=2, perm=4)
        assert (await send_back(peer, record, group)).code == 16
        assert await count(peer, SCHEDULE, 2) == 0


@over_loopback
async def test_retries_go_to_any_queue_of_the_retry_topic(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str, group: str
) -> None:
    async with connected(cluster.broker_addr, version=JAVA_497) as (peer,):
        body = json.dumps({"groupName": group, "retryQueueNums": 4}).encode()
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0
        await send(peer, topic)
        (record,) = records(await pull(peer, topic))
        for _ in range(60):
            assert (await send_back(peer, record, group, level=1)).code == 0
        clock.advance(1_000)
        await rests(cluster)
        found = [await count(peer, f"%RETRY%{group}", queue_id) for queue_id in range(4)]
        assert (sum(found), min(found) > 0) == (60, True)


@over_loopback
async def test_tools_see_how_far_each_level_is(cluster: EmbeddedCluster, clock: ManualClock, topic: str) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        for level in ("1", "1", "3"):
            await send(peer, topic, properties=props(DELAY=level))
        clock.advance(1_000)
        await arrives(peer, topic, 2)
        table = json.loads((await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert table["scheduleMessageOffset_1"] == "2,2"
        offsets = (await peer.ask(RequestCode.GET_ALL_DELAY_OFFSET)).body
        assert b'"offsetTable":{"1":2}' in offsets
