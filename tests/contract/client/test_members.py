"""Members of a session: brokers know them, keep knowing them, and their requests reach the right one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import pytest

from rocketq.client import AsyncAdmin, ClientClosedError, GroupTakenError, Session, SessionConfig
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerData,
    ProducerData,
    RunningConsumer,
    Subscription,
)
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeResult
from rocketq.testing.embedded import EmbeddedCluster

from .kit import on_a_loop

SLOW = SessionConfig(heartbeat_interval_ms=3_600_000, route_life_ms=3_600_000)


class PlainProducer:
    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self._topic = topic

    def topics(self) -> Collection[str]:
        return (self._topic,)

    def heartbeat_part(self) -> ProducerData:
        return ProducerData(group=self.group)


class PlainConsumer(PlainProducer):
    def __init__(self, group: str, topic: str) -> None:
        super().__init__(group, topic)
        self.changed = asyncio.Event()
        self.resets: asyncio.Queue[tuple[str, Mapping[MessageQueue, int]]] = asyncio.Queue()

    def heartbeat_part(self) -> ConsumerData:  # type: ignore[override]
        return ConsumerData(group=self.group, subscriptions=(Subscription(topic=self._topic, version=1),))

    def ids_changed(self) -> None:
        self.changed.set()

    async def reset_offsets(self, topic: str, table: Mapping[MessageQueue, int]) -> None:
        self.resets.put_nowait((topic, table))

    def consume_positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {MessageQueue(topic=topic, broker_name="broker-0", queue_id=0): 7}

    def running_info(self) -> RunningConsumer:
        return RunningConsumer(properties={"PROP_CLIENT_VERSION": "ours"})

    async def consume_directly(self, message: StoredMessage) -> ConsumeDirectlyResult:
        return ConsumeDirectlyResult(result=ConsumeResult.CR_SUCCESS, remark=message.message_id)


@on_a_loop
async def test_a_member_is_known_to_brokers_until_it_leaves(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin, Session(cluster.name_server_addr) as session:
        await admin.topics.create(topic, queues=1)
        member = PlainConsumer(group, topic)
        await session.members.join(member)
        found = await admin.groups.connections(group)
        assert [one.client_id for one in found.connections] == [session.client_id]
        await session.members.leave(member)
        assert not (await admin.groups.status(group)).online
        await session.members.leave(member)


@on_a_loop
async def test_one_session_has_one_consumer_of_a_group(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with Session(cluster.name_server_addr) as session, Session(cluster.name_server_addr) as other:
        await session.members.join(PlainConsumer(group, topic))
        await session.members.join(PlainProducer(group, topic))
        for second in (PlainConsumer(group, topic), PlainProducer(group, topic)):
            with pytest.raises(GroupTakenError) as caught:
                await session.members.join(second)
            assert caught.value.group == group
        await other.members.join(PlainConsumer(group, topic))
        assert session.client_id != other.client_id


@on_a_loop
async def test_what_brokers_ask_reaches_the_consumer_of_the_group(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin, Session(cluster.name_server_addr) as session:
        await admin.topics.create(topic, queues=1)
        member = PlainConsumer(group, topic)
        await session.members.join(member)
        running = await admin.groups.running(group, session.client_id)
        assert running.properties["PROP_CLIENT_VERSION"] == "ours"
        async with Session(cluster.name_server_addr) as other:
            member.changed.clear()
            await other.members.join(PlainConsumer(group, topic))
            await asyncio.wait_for(member.changed.wait(), 10)


@on_a_loop
async def test_a_broker_that_was_gone_hears_of_members_again(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str, group: str
) -> None:
    """Goal: whatever makes a new connection, the heartbeat follows at once, not after its interval."""
    cluster = make_rocketq_cluster()
    async with AsyncAdmin(cluster.name_server_addr) as admin, Session(cluster.name_server_addr, config=SLOW) as session:
        await admin.topics.create(topic, queues=1)
        await session.members.join(PlainConsumer(group, topic))
        await asyncio.to_thread(cluster.restart_broker)
        assert not (await admin.groups.status(group)).online
        await AsyncAdmin(session=session).brokers.status(cluster.broker_addr)
        while not (await admin.groups.status(group)).online:
            await asyncio.sleep(0.02)


@on_a_loop
async def test_heartbeats_go_on_by_themselves(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str, group: str
) -> None:
    cluster = make_rocketq_cluster()
    config = SessionConfig(heartbeat_interval_ms=50, route_life_ms=50)
    async with AsyncAdmin(cluster.name_server_addr) as admin, Session(cluster.name_server_addr, config=config) as mine:
        await admin.groups.set(group)
        await mine.members.join(PlainConsumer(group, topic))
        await admin.topics.create(topic, queues=1)  # after joining: the route is found by the refresh
        await asyncio.to_thread(cluster.restart_broker)
        while not (await admin.groups.status(group)).online:
            await asyncio.sleep(0.02)


@on_a_loop
async def test_nobody_joins_a_closed_session(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    session = Session(cluster.name_server_addr)
    member = PlainProducer(group, topic)
    await session.members.join(member)
    await session.close()
    with pytest.raises(ClientClosedError):
        await session.members.join(PlainConsumer(group, topic))
    await session.members.leave(member)
