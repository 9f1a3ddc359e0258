"""Administration of real Apache brokers: every call of AsyncAdmin, with and without a Java consumer at work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rocketq.client import AsyncAdmin, GroupOnlineError, Message, NotFoundError, ResetTo, Sender
from rocketq.client.admin.topics import TopicKind
from rocketq.client.follow import Follower
from rocketq.protocol.bodies.clients import ConsumerData, Heartbeat, Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import InternalBrokerError, TopicNotFoundError
from rocketq.remoting import ConnectionPool

from .apache import BROKER_NAME, ApacheBroker, ApacheNameServer

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.3.3"]


def against(broker: ApacheBroker, work: Callable[[AsyncAdmin], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with AsyncAdmin(broker.nameserver.address) as admin:
            await eventually(lambda: _is_routed(admin, "TBW102"))
            await work(admin)

    asyncio.run(asyncio.wait_for(main(), 120))


async def eventually(look: Callable[[], Coroutine[Any, Any, bool]], within_s: float = 40) -> None:
    async with asyncio.timeout(within_s):
        while not await look():
            await asyncio.sleep(0.1)


async def _is_routed(admin: AsyncAdmin, topic: str) -> bool:
    try:
        await admin.topics.route(topic)
    except TopicNotFoundError:
        return False
    return True


async def fill(admin: AsyncAdmin, topic: str, count: int = 6) -> MessageQueue:
    assert (await admin.topics.create(topic, queues=2)).routed
    sender = Sender(admin.session, "p")
    for at in range(count):
        await sender.send(Message(topic=topic, body=b"x" * (5000 if at == 0 else 10), tag="t", keys=(f"k{at}",)))
    return MessageQueue(topic=topic, broker_name=BROKER_NAME, queue_id=0)


@pytest.mark.parametrize("version", VERSIONS)
def test_apache_brokers_are_administered(
    nameserver: Callable[[str], ApacheNameServer], broker_port: int, tmp_path: Path, version: str
) -> None:
    """Goal: what AsyncAdmin asks is understood by, and what is answered understood from, brokers that are not ours."""
    broker = ApacheBroker(
        nameserver(version),
        port=broker_port,
        store=tmp_path / "store",
        work=tmp_path / "broker",
        settings={} if version.startswith("4.") else {"timerWheelEnable": "true"},  # 5.3.3 deletes no topic without
    )
    with broker:
        against(broker, _topics_messages_brokers)
        against(broker, _groups_and_offsets)
        against(broker, _online_group)


async def _topics_messages_brokers(admin: AsyncAdmin) -> None:
    await fill(admin, "Made")
    assert (await admin.topics.list())["Made"] is TopicKind.NORMAL
    assert (await admin.topics.configs("Made"))[BROKER_NAME].read_queue_count == 2
    stats = await admin.topics.stats("Made")
    assert [found.max_offset for found in stats.queues.values()] == [3, 3]
    follower = Follower(admin.session, "Made")
    read = [one async for one in follower.read(await follower.start_offsets(ResetTo.earliest()))]
    assert sorted(len(one.body) for one in read) == [10, 10, 10, 10, 10, 5000]
    (first,) = [one for one in read if len(one.body) == 5000]
    assert await admin.messages.get(first.offset_message_id) == first
    await eventually(lambda: _is_indexed(admin, first.message_id))
    assert await admin.messages.get(first.message_id, "Made") == first
    assert await admin.messages.by_key("Made", "k0") == (first,)
    assert len(await admin.messages.by_time("Made", 0, first.store_ms + 60_000)) == 6
    assert (await admin.messages.resend(first.offset_message_id)).queue.topic == "Made"
    with pytest.raises(NotFoundError):
        await admin.messages.get(first.offset_message_id[:-8] + "00FFFFF1")
    table = await admin.brokers.cluster()
    assert table.clusters == {"DefaultCluster": (BROKER_NAME,)}
    await eventually(lambda: _has_figures(admin))
    assert await admin.brokers.set_config(BROKER_NAME, {"fileReservedTime": "71"}) == {"fileReservedTime": "71"}
    with pytest.raises(NotFoundError):
        await admin.brokers.set_config(BROKER_NAME, {"nobodyKnows": "1"})
    await admin.topics.delete("Made")
    with pytest.raises(TopicNotFoundError):
        await admin.topics.stats("Made")


async def _has_figures(admin: AsyncAdmin) -> bool:
    """A 4.x broker has none in its first seconds, and says that as a failure."""
    try:
        return "putTps" in await admin.brokers.status(BROKER_NAME)
    except InternalBrokerError:
        return False


async def _is_indexed(admin: AsyncAdmin, unique_key: str) -> bool:
    return bool(await admin.messages.by_unique_key("Made", unique_key))


async def _groups_and_offsets(admin: AsyncAdmin) -> None:
    queue = await fill(admin, "Consumed")
    await admin.groups.set("billing", retry_max=5)
    assert (await admin.groups.list())["billing"][BROKER_NAME].retry_max == 5
    await admin.offsets.set("billing", {queue: 2})
    status = await admin.groups.status("billing")
    assert not status.online
    assert next(one for one in status.queues if one.queue == queue).lag == 1
    preview = await admin.offsets.reset("billing", "Consumed", ResetTo.earliest(), preview=True)
    assert [(one.after, one.bounds.max_offset) for one in preview] == [(0, 3), (0, 3)]
    await admin.offsets.reset("billing", "Consumed", ResetTo.latest())
    assert [one.committed for one in await admin.offsets.get("billing", "Consumed")] == [3, 3]
    await admin.offsets.reset("billing", "Consumed", ResetTo.at_offset(1), queue=(BROKER_NAME, 0))
    assert [one.committed for one in await admin.offsets.get("billing", "Consumed")] == [1, 3]
    assert await admin.topics.consumers("Consumed") == ("billing",)
    assert await admin.groups.delete("billing") == (BROKER_NAME,)
    assert "billing" not in await admin.groups.list()
    with pytest.raises(NotFoundError):
        await admin.groups.status("no-such-group")


async def _online_group(admin: AsyncAdmin) -> None:
    """A member connected: resets reach it, and one that a 4.x broker would misunderstand is not sent."""
    queue = await fill(admin, "Online")
    addr = await admin.brokers.addr(BROKER_NAME)
    beat = Heartbeat(
        client_id="10.0.0.9@member",
        consumers=(ConsumerData(group="online", subscriptions=(Subscription(topic="Online", version=1),)),),
    )
    pool = ConnectionPool()
    try:
        assert (await pool.invoke(addr, Command(code=RequestCode.HEART_BEAT, body=beat.encode()))).code == 0
        status = await admin.groups.status("online")
        assert [one.client_id for one in status.members] == ["10.0.0.9@member"]
        assert "Online" in status.subscriptions
        assert {one.max_offset for one in status.queues if one.queue.topic == "Online"} == {3}
        await admin.offsets.reset("online", "Online", ResetTo.latest())
        version = (await admin.session.call(addr, None, code=RequestCode.GET_BROKER_RUNTIME_INFO)).version
        if version < 413:
            with pytest.raises(GroupOnlineError):
                await admin.offsets.reset("online", "Online", ResetTo.at_offset(1))
        else:
            await admin.offsets.reset("online", "Online", ResetTo.at_offset(1))
        assert queue in {one.queue for one in await admin.offsets.get("online", "Online")}
    finally:
        await pool.close()
