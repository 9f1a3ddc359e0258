"""Groups and offsets through AsyncAdmin, with members connected and without."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from rocketq.client import AsyncAdmin, GroupOnlineError, NotFoundError, ResetTo, SessionConfig
from rocketq.client.admin.offsets import _refuse_unheard
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.offsets import ResetOffsets
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import ConsumerNotOnlineError, TopicNotFoundError
from rocketq.protocol.flags import Language
from rocketq.testing.embedded import EmbeddedCluster

from .kit import member, on_a_loop, send


def queue(topic: str, broker_name: str = "broker-0", queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


@dataclass(frozen=True)
class Filled:
    """A topic with one queue per broker and three messages in each."""

    topic: str
    first: MessageQueue
    second: MessageQueue


async def fill(admin: AsyncAdmin, topic: str) -> Filled:
    await admin.topics.create(topic, queues=1)
    await send(admin, topic, 6)
    return Filled(topic, queue(topic), queue(topic, "broker-1"))


@on_a_loop
async def test_a_group_is_set_listed_and_deleted(cluster: EmbeddedCluster, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        made = await admin.groups.set(group, retry_max=5)
        assert set(made) == {"broker-0", "broker-1"}
        changed = await admin.groups.set(group, broker="broker-1", consume_enable=False)
        assert (changed["broker-1"].retry_max, changed["broker-1"].consume_enable) == (5, False)
        configs = (await admin.groups.list())[group]
        assert (configs["broker-0"].consume_enable, configs["broker-1"].consume_enable) == (True, False)
        assert await admin.groups.delete(group) == ("broker-0", "broker-1")
        assert group not in await admin.groups.list()
        with pytest.raises(NotFoundError, match="consumer group"):
            await admin.groups.delete(group)
        with pytest.raises(ConfigError):
            await admin.groups.set("bad name")


@on_a_loop
async def test_deleting_takes_offsets_and_the_retry_topic_along(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        filled = await fill(admin, topic)
        async with member(cluster.broker_addrs, group, topic):
            pass
        await admin.offsets.set(group, {filled.first: 2})
        await admin.groups.delete(group)
        assert [one.committed for one in await admin.offsets.get(group, topic)] == [None, None]
        with pytest.raises(TopicNotFoundError):
            await admin.topics.route("%RETRY%" + group)


@on_a_loop
async def test_offsets_may_be_kept(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        filled = await fill(admin, topic)
        await admin.groups.set(group)
        await admin.offsets.set(group, {filled.first: 2})
        await admin.groups.delete(group, keep_offsets=True, dead_letters=True)
        assert [one.committed for one in await admin.offsets.get(group, topic)] == [2, None]


@on_a_loop
async def test_the_status_of_a_group_at_work(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        filled = await fill(admin, topic)
        async with (
            member(cluster.broker_addrs, group, topic, "10.0.0.9@a"),
            member(cluster.broker_addrs[:1], group, topic, "10.0.0.9@b"),
        ):
            status = await admin.groups.status(group)
            assert [one.client_id for one in status.members] == ["10.0.0.9@a", "10.0.0.9@b"]
            assert list(status.subscriptions) == [topic]
            assert [(one.queue, one.committed, one.max_offset, one.lag) for one in status.queues] == [
                (filled.first, None, 3, None),
                (filled.second, None, 3, None),
            ]
            assert (status.lag, status.lag_known, status.online) == (None, 0, True)
            await admin.offsets.set(group, {filled.first: 1, filled.second: 0})
            status = await admin.groups.status(group)
            assert [(one.committed, one.lag) for one in status.queues] == [(1, 2), (0, 3)]
            assert (status.lag, status.unreachable) == (5, {})
            connections = await admin.groups.connections(group)
            assert connections.model is status.model
        with pytest.raises(ConsumerNotOnlineError):
            await _until_offline(admin, group)


async def _until_offline(admin: AsyncAdmin, group: str) -> None:
    async with asyncio.timeout(10):
        while True:
            await admin.groups.connections(group)


@on_a_loop
async def test_the_status_of_a_group_that_sleeps(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        filled = await fill(admin, topic)
        await admin.offsets.set(group, {filled.first: 3})
        status = await admin.groups.status(group)
        assert (status.online, status.members, status.model) == (False, (), None)
        assert [(one.queue, one.lag) for one in status.queues] == [(filled.first, 0), (filled.second, None)]
        assert status.queues[0].last_ms is not None
        with pytest.raises(NotFoundError, match="consumer group"):
            await admin.groups.status("nobody-at-all")
        await admin.groups.set(group + "-new")
        assert (await admin.groups.status(group + "-new")).queues == ()


@on_a_loop
async def test_offsets_of_a_group(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        filled = await fill(admin, topic)
        await admin.offsets.set(group, {filled.second: 2})
        found = await admin.offsets.get(group, topic)
        assert [(one.queue, one.committed, one.bounds.min_offset, one.bounds.max_offset) for one in found] == [
            (filled.first, None, 0, 3),
            (filled.second, 2, 0, 3),
        ]
        with pytest.raises(TopicNotFoundError):
            await admin.offsets.get(group, "no-such-topic")


@on_a_loop
async def test_a_reset_is_shown_first_and_done_while_the_group_is_offline(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        filled = await fill(admin, topic)
        await admin.offsets.set(group, {filled.first: 3})
        preview = await admin.offsets.reset(group, topic, ResetTo.earliest(), preview=True)
        assert [(one.queue, one.before, one.after, one.again) for one in preview] == [
            (filled.first, 3, 0, 3),
            (filled.second, None, 0, None),
        ]
        assert [one.committed for one in await admin.offsets.get(group, topic)] == [3, None]
        assert await admin.offsets.reset(group, topic, ResetTo.earliest()) == preview
        assert [one.committed for one in await admin.offsets.get(group, topic)] == [0, 0]
        await admin.offsets.reset(group, topic, ResetTo.latest())
        assert [one.committed for one in await admin.offsets.get(group, topic)] == [3, 3]
        await admin.offsets.reset(group, topic, ResetTo.at_offset(2))
        assert [one.committed for one in await admin.offsets.get(group, topic)] == [2, 2]
        await admin.offsets.reset(group, topic, ResetTo.at_offset(1), queue=("broker-1", 0))
        assert [one.committed for one in await admin.offsets.get(group, topic)] == [2, 1]


@on_a_loop
async def test_a_reset_by_time_finds_the_first_message_from_then_on(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1, broker="broker-0")
        await send(admin, topic, 2)
        (last,) = await send(admin, topic, 1)
        stored = await admin.messages.get(last.offset_message_id)
        await admin.offsets.set(group, {queue(topic): 0})
        (change,) = await admin.offsets.reset(group, topic, ResetTo.at_time(stored.store_ms + 1))
        assert change.after == 3
        (change,) = await admin.offsets.reset(group, topic, ResetTo.at_time(0))
        assert (change.before, change.after) == (3, 0)


@on_a_loop
async def test_members_that_run_are_told(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        filled = await fill(admin, topic)
        async with member(cluster.broker_addrs[:1], group, topic) as running:
            await admin.offsets.reset(group, topic, ResetTo.latest())
            push = await running.pushed(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            assert ResetOffsets.decode(push.body).offsets == {filled.first: 3}
            await admin.offsets.reset(group, topic, ResetTo.at_offset(1))
            push = await running.pushed(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            assert ResetOffsets.decode(push.body).offsets == {filled.first: 1}
            assert [one.committed for one in await admin.offsets.get(group, topic)] == [1, 1]


def test_a_broker_that_would_misunderstand_is_not_asked() -> None:
    """Goal: an Apache 4.x broker takes a reset to an offset for one by time, and would move all queues."""
    old = {"b": Command(code=0, language=Language.JAVA, version=407)}
    _refuse_unheard("g", ResetTo.at_time(1), old, one_queue=False)
    _refuse_unheard("g", ResetTo.at_offset(1), {}, one_queue=True)
    _refuse_unheard(
        "g", ResetTo.at_offset(1), {"b": Command(code=0, language=Language.JAVA, version=479)}, one_queue=False
    )
    with pytest.raises(GroupOnlineError) as caught:
        _refuse_unheard("g", ResetTo.at_offset(1), old, one_queue=False)
    assert (caught.value.group, caught.value.broker_name) == ("g", "b")
    with pytest.raises(GroupOnlineError):
        _refuse_unheard("g", ResetTo.latest(), old, one_queue=True)


@on_a_loop
async def test_what_cannot_be_reset_is_said_so(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1)
        with pytest.raises(NotFoundError, match="consumer group"):
            await admin.offsets.reset("nobody-at-all", topic, ResetTo.latest())
        await admin.groups.set(group)
        with pytest.raises(TopicNotFoundError):
            await admin.offsets.reset(group, "no-such-topic", ResetTo.latest())
        with pytest.raises(NotFoundError, match="queue"):
            await admin.offsets.reset(group, topic, ResetTo.latest(), queue=("broker-0", 7))


@on_a_loop
async def test_a_member_that_does_not_answer_is_not_waited_for_forever(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    config = SessionConfig(control_timeout_ms=1_000)
    async with AsyncAdmin(cluster.name_server_addr, config=config) as admin:
        with pytest.raises(NotFoundError, match="member"):
            await admin.groups.running(group, "10.0.0.9@member")
