"""Messages sent, found again, read and followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rocketq.client import (
    AsyncAdmin,
    Message,
    MessageInvalidError,
    NotFoundError,
    Puller,
    PullResult,
    PullStatus,
    ResetTo,
    Sender,
    SendStatus,
    SessionConfig,
    StoredMessage,
)
from rocketq.client.follow import Follower
from rocketq.model import SysFlag
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import InternalBrokerError, TopicNotFoundError
from rocketq.testing.embedded import EmbeddedCluster

from .kit import on_a_loop, send


@on_a_loop
async def test_sends_take_turns_over_all_queues(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=2)
        results = await send(admin, topic, 8)
        places = {(one.queue.broker_name, one.queue.queue_id) for one in results}
        assert places == {(name, at) for name in ("broker-0", "broker-1") for at in (0, 1)}
        assert [one.queue_offset for one in results] == [0, 0, 0, 0, 1, 1, 1, 1]
        assert {one.status for one in results} == {SendStatus.SEND_OK}
        assert len({one.message_id for one in results}) == 8


@on_a_loop
async def test_a_message_goes_to_the_queue_it_is_told(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=2)
        queue = MessageQueue(topic=topic, broker_name="broker-1", queue_id=1)
        sender = Sender(admin.session, "p")
        assert {(await sender.send(Message(topic=topic, body=b"x"), queue)).queue for _ in range(3)} == {queue}
        outside = MessageQueue(topic=topic, broker_name="broker-1", queue_id=9)
        with pytest.raises(InternalBrokerError):
            await sender.send(Message(topic=topic, body=b"x"), outside)
        with pytest.raises(MessageInvalidError):
            await sender.send(Message(topic=topic, body=b""))


@on_a_loop
async def test_a_send_makes_the_topic_where_that_is_allowed(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        (result,) = await send(admin, topic)
        assert result.queue.topic == topic
        async with asyncio.timeout(10):
            while topic not in await admin.topics.list():
                await asyncio.sleep(0.02)
        assert {data.write_queue_count for data in (await admin.topics.route(topic)).queues} == {4}


@on_a_loop
async def test_a_message_is_found_by_id_key_unique_key_and_time(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1)
        sender = Sender(admin.session, "p")
        large = Message(
            topic=topic, body=b"y" * 5000, tag="paid", keys=("k-1", "k-2"), properties={"mine": "ä"}, flag=3
        )
        sent = await sender.send(large)
        await send(admin, topic, 3, keys=("k-3",))
        by_id = await admin.messages.get(sent.offset_message_id)
        assert (by_id.body, by_id.tag, by_id.keys, by_id.flag) == (large.body, "paid", ("k-1", "k-2"), 3)
        assert by_id.properties["mine"] == "ä"
        assert by_id.sys_flag & SysFlag.COMPRESSED
        assert by_id.stored_bytes < 1000
        assert by_id.queue == sent.queue
        assert await admin.messages.get(sent.message_id, topic) == by_id
        assert await admin.messages.by_key(topic, "k-2") == (by_id,)
        assert await admin.messages.by_unique_key(topic, sent.message_id) == (by_id,)
        assert len(await admin.messages.by_key(topic, "k-3")) == 3
        assert await admin.messages.by_key(topic, "k-3", end_ms=1) == ()
        assert await admin.messages.by_key(topic, "other") == ()
        found = await admin.messages.by_time(topic, by_id.store_ms, by_id.store_ms + 60_000)
        assert by_id in found
        assert len(found) == 4
        assert [one.store_ms for one in found] == sorted(one.store_ms for one in found)
        assert len(await admin.messages.by_time(topic, 0, by_id.store_ms + 60_000, count_max=2)) == 2
        assert await admin.messages.by_time(topic, 0, 1) == ()
        assert await admin.messages.by_time(topic, 0, by_id.store_ms + 60_000, expression="paid") == (by_id,)


@on_a_loop
async def test_what_is_not_there_is_not_found(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1, broker="broker-0")
        (sent,) = await send(admin, topic)
        nowhere = sent.offset_message_id[:-2] + "FF"
        with pytest.raises(NotFoundError, match="log offset"):
            await admin.messages.get(nowhere)
        with pytest.raises(NotFoundError, match="no broker here"):
            await admin.messages.get("0A00000100002A9F000000000012D687")
        with pytest.raises(NotFoundError, match="unique key"):
            await admin.messages.get("0A00000100002A9F000000000012D687", topic)
        with pytest.raises(NotFoundError):
            await admin.messages.get("no id at all")
        with pytest.raises(TopicNotFoundError):
            await admin.messages.by_key("no-such-topic", "k")


@on_a_loop
async def test_a_message_is_sent_once_more(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1)
        (sent,) = await send(admin, topic, tag="t", keys=("k",))
        again = await admin.messages.resend(sent.message_id, topic)
        copy = await admin.messages.get(again.offset_message_id)
        assert (copy.topic, copy.body, copy.tag, copy.keys) == (topic, b"body-0", "t", ("k",))
        assert copy.properties["ORIGIN_MESSAGE_ID"] == sent.message_id
        assert again.message_id != sent.message_id
        await admin.topics.create(topic + "-2", queues=1)
        elsewhere = await admin.messages.resend(sent.offset_message_id, to_topic=topic + "-2")
        assert elsewhere.queue.topic == topic + "-2"


@on_a_loop
async def test_pulls_say_how_it_stands(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1, broker="broker-0")
        queue = MessageQueue(topic=topic, broker_name="broker-0", queue_id=0)
        await send(admin, topic, 2, tag="a")
        await send(admin, topic, 1, tag="b")
        puller = Puller(admin.session)
        found = await puller.pull(queue, 0)
        assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (PullStatus.FOUND, 3, 0, 3)
        assert [one.queue_offset for one in found.messages] == [0, 1, 2]
        assert [one.tag for one in (await puller.pull(queue, 0, expression="b")).messages] == ["b"]
        assert len((await puller.pull(queue, 0, count_max=1)).messages) == 1
        assert (await puller.pull(queue, 3)).status is PullStatus.NO_NEW_MESSAGE
        assert (await puller.pull(queue, 0, expression="zzz")).status is PullStatus.NO_MATCHED_MESSAGE
        moved = await puller.pull(queue, 99)
        assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
        held = asyncio.create_task(puller.pull(queue, 3, hold_ms=10_000))
        await send(admin, topic, 1)
        assert [one.queue_offset for one in (await held).messages] == [3]


@on_a_loop
async def test_a_topic_is_read_to_its_end(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=2)
        await send(admin, topic, 9)
        follower = Follower(admin.session, topic)
        found = [one async for one in follower.read(await follower.start_offsets(ResetTo.earliest()))]
        assert sorted(one.body for one in found) == [b"body-%d" % at for at in range(9)]
        assert [one async for one in follower.read(await follower.start_offsets(ResetTo.latest()))] == []


@on_a_loop
async def test_a_topic_is_followed_over_a_restart(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str
) -> None:
    cluster = make_rocketq_cluster()
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1, broker="broker-0")
        follower = Follower(admin.session, topic)
        found: list[StoredMessage] = []
        messages = follower.follow(await follower.start_offsets(ResetTo.latest()))
        await send(admin, topic, 2)
        found += [await anext(messages), await anext(messages)]
        await asyncio.to_thread(cluster.restart_broker, 0)
        async with asyncio.timeout(15):
            while True:
                try:
                    await send(admin, topic)
                    break
                except (TopicNotFoundError, InternalBrokerError):
                    await asyncio.sleep(0.05)
        found.append(await anext(messages))
        await messages.aclose()
        assert [one.queue_offset for one in found] == [0, 1, 2]


@on_a_loop
async def test_queues_that_come_later_are_followed_from_their_start(cluster: EmbeddedCluster, topic: str) -> None:
    config = SessionConfig(route_life_ms=50)
    async with AsyncAdmin(cluster.name_server_addr, config=config) as admin:
        await admin.topics.create(topic, queues=1, broker="broker-0")
        follower = Follower(admin.session, topic)
        messages = follower.follow(await follower.start_offsets(ResetTo.latest()))
        await send(admin, topic)
        assert (await anext(messages)).queue.queue_id == 0
        await admin.topics.create(topic, queues=2, broker="broker-0")
        late = MessageQueue(topic=topic, broker_name="broker-0", queue_id=1)
        await Sender(admin.session, "p").send(Message(topic=topic, body=b"late"), late)
        found = await anext(messages)
        assert (found.queue, found.queue_offset, found.body) == (late, 0, b"late")
        await messages.aclose()


@on_a_loop
async def test_what_will_not_get_better_ends_the_following(
    cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whoever follows hears of a failure that another try does not mend, instead of waiting in vain."""

    async def broken(*args: object, **given: object) -> PullResult:
        raise MessageInvalidError("whatever it is, it is not retriable")

    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1, broker="broker-0")
        follower = Follower(admin.session, topic)
        monkeypatch.setattr(Puller, "pull", broken)
        with pytest.raises(MessageInvalidError):
            await anext(follower.follow(await follower.start_offsets(ResetTo.latest())))
