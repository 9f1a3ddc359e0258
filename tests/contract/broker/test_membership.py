"""interop.md, section F: each line by its number, over loopback with raw frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketq.protocol.bodies.assignment import AssignmentAnswer, AssignmentRequest, LockAnswer, LockRequest
from rocketq.protocol.bodies.clients import (
    CheckClient,
    ConsumerConnections,
    ConsumerData,
    ConsumerList,
    Heartbeat,
    ProducerConnections,
    ProducerTable,
    Subscription,
)
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.flags import MessageModel
from rocketq.runtime.clock import ManualClock
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    JAVA_533,
    Peer,
    beat,
    connected,
    drop_finished_segments,
    eventually,
    heartbeat,
    make_topic,
    over_loopback,
    props,
    route,
    send,
)

MakeCluster = Callable[..., EmbeddedCluster]


async def members(peer: Peer, group: str) -> list[str] | int:
    answer = await peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return sorted(ConsumerList.decode(answer.body).client_ids) if answer.code == 0 else answer.code


async def offset(peer: Peer, group: str, topic: str, **given: str) -> str | int:
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, **given}
    answer = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return answer.ext_fields["offset"] if answer.code == 0 else answer.code


async def commit(peer: Peer, group: str, topic: str, value: int, queue_id: int = 0) -> int:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": value}
    return (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code


@over_loopback
async def test_083_a_heartbeat_makes_the_retry_topic(rocketq_cluster: EmbeddedCluster, group: str) -> None:
    async with connected(rocketq_cluster.broker_addr, rocketq_cluster.name_server_addr) as (peer, names):
        await heartbeat(peer, "c1", group)
        assert await route(names, f"%RETRY%{group}") is not None


@over_loopback
async def test_a_new_group_is_told_of_itself_when_its_retry_topic_is_routed(
    rocketq_cluster: EmbeddedCluster, group: str
) -> None:
    """Goal: a Java client looks for that route after its heartbeat and uses it at the notice; without one, its retries
    would wait for its own next rounds, 20 to 50 s."""
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await heartbeat(peer, "c1", group)
        assert peer.pushes.empty()
        await peer.pushed(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        await peer.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": group})
        await heartbeat(peer, "c1", group)
        assert peer.pushes.qsize() == 1  # its retry topic was there before: at once


@over_loopback
async def test_085_087_members_are_listed_until_they_leave(rocketq_cluster: EmbeddedCluster, group: str) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 3) as (one, two, asker):
        assert await members(asker, group) == 1
        await heartbeat(one, "c1", group)
        await heartbeat(two, "c2", group)
        assert await members(asker, group) == ["c1", "c2"]
        bye = {"clientID": "c1", "producerGroup": "", "consumerGroup": group}
        assert (await one.ask(RequestCode.UNREGISTER_CLIENT, bye)).code == 0
        assert await members(asker, group) == ["c2"]
        await two.close()

        async def nobody() -> bool:
            return await members(asker, group) == 1

        await eventually(nobody)
        assert (await asker.ask(RequestCode.UNREGISTER_CLIENT)).code == 0


@over_loopback
async def test_087_either_group_may_be_an_empty_text(rocketq_cluster: EmbeddedCluster, group: str) -> None:
    """Goal: a goodbye of a producer leaves the consumer of the same client, and the other way round."""
    body = b'{"clientID":"c1","consumerDataSet":[{"groupName":"%s"}],"producerDataSet":[{"groupName":"%s"}]}'
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await peer.ask(RequestCode.HEART_BEAT, body=body % (group.encode(), group.encode()))

        async def producers() -> int:
            return (await peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group})).code

        assert (await members(peer, group), await producers()) == (["c1"], 0)
        bye = {"clientID": "c1", "producerGroup": group, "consumerGroup": ""}
        assert (await peer.ask(RequestCode.UNREGISTER_CLIENT, bye)).code == 0
        assert (await members(peer, group), await producers()) == (["c1"], 1)
        bye = {"clientID": "c1", "producerGroup": "", "consumerGroup": group}
        assert (await peer.ask(RequestCode.UNREGISTER_CLIENT, bye)).code == 0
        assert await members(peer, group) == 1


@over_loopback
async def test_086_a_group_is_told_of_every_change(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (one, two):

        async def told(*peers: Peer) -> None:
            for peer in peers:
                push = await peer.pushed(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
                assert (push.ext_fields["consumerGroup"], push.is_oneway) == (group, True)

        await heartbeat(one, "c1", group, topic=topic)
        await told(one)
        await heartbeat(two, "c2", group, topic=topic)
        await told(one, two)
        await heartbeat(two, "c2", group, topic=topic)
        assert one.pushes.empty()
        await heartbeat(two, "c2", group, topic=topic + "-other")
        await told(one, two)
        await two.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": group})
        await told(one)
        await heartbeat(two, "c2", group, topic=topic + "-other")
        await told(one, two)
        await two.close()
        await told(one)


@over_loopback
async def test_086_groups_that_do_not_want_to_be_told_are_not(rocketq_cluster: EmbeddedCluster, group: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        config = b'{"groupName":"%s","notifyConsumerIdsChangedEnable":false}' % group.encode()
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)).code == 0
        await heartbeat(peer, "c1", group)
        assert await members(peer, group) == ["c1"]
        assert peer.pushes.empty()


@over_loopback
async def test_086_silence_for_120_s_is_leaving(make_rocketq_cluster: MakeCluster, group: str) -> None:
    clock = ManualClock()
    cluster = make_rocketq_cluster(clock=clock)
    broker = cluster.brokers[0]

    async def look() -> None:
        broker.expire_idle()

    async with connected(*[cluster.broker_addr] * 2) as (silent, lively):
        await heartbeat(silent, "silent", group)
        clock.advance(60_000)
        await heartbeat(lively, "lively", group)
        await lively.pushed(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        clock.advance(60_000)
        cluster.thread.run(look())
        assert await members(lively, group) == ["lively", "silent"]
        clock.advance(1)
        cluster.thread.run(look())
        await asyncio.wait_for(silent.closed.wait(), 5)
        await lively.pushed(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        assert await members(lively, group) == ["lively"]


@over_loopback
async def test_088_offsets_move_as_they_are_told(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        assert await commit(peer, group, topic, 10) == 0
        assert await commit(peer, group, topic, 5) == 0
        assert await offset(peer, group, topic) == "5"
        assert await commit(peer, group, topic, -1) == 0
        assert await offset(peer, group, topic) == "5"


@over_loopback
async def test_088_offsets_survive_a_restart(make_rocketq_cluster: MakeCluster, topic: str, group: str) -> None:
    cluster = make_rocketq_cluster()
    async with connected(cluster.broker_addr) as (peer,):
        await send(peer, topic)
        await commit(peer, group, topic, 7)
    cluster.restart_broker()
    async with connected(cluster.broker_addr) as (peer,):
        assert await offset(peer, group, topic) == "7"


@over_loopback
async def test_089_a_group_that_never_committed(make_rocketq_cluster: MakeCluster, topic: str, group: str) -> None:
    cluster = make_rocketq_cluster(settings={"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "600000"})
    async with connected(cluster.broker_addr) as (peer,):
        assert await offset(peer, group, topic) == "0"  # an empty queue, as 4.9.7 answers
        await send(peer, topic)
        assert await offset(peer, group, topic) == "0"
        assert await offset(peer, group, topic, setZeroIfNotFound="false") == 22
        assert await offset(peer, group, topic, setZeroIfNotFound="true") == "0"
        store = cluster.brokers[0].parts.store
        for _ in range(8):
            await send(peer, topic, bytes(500_000))
        await drop_finished_segments(store)
        assert store.min_offset(topic, 0) > 0
        assert await offset(peer, group, topic) == 22
    async with connected(cluster.broker_addr, version=JAVA_533) as (peer,):
        assert await offset(peer, group, topic + "-empty") == "0"  # 5.3.3: 22, then its client asks for the end


@over_loopback
async def test_090_offsets_by_time(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    clock = ManualClock(1_000_000)
    cluster = make_rocketq_cluster(clock=clock)
    async with connected(cluster.broker_addr) as (peer,):

        async def at(time_ms: int, **given: str) -> str:
            fields = {"topic": topic, "queueId": 0, "timestamp": time_ms, **given}
            return (await peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)).ext_fields["offset"]

        assert await at(5) == "0"
        for _ in range(3):
            await send(peer, topic)
            clock.advance(1_000)
        assert [await at(when) for when in (0, 1_000_000, 1_000_001, 1_001_000, 1_002_000, 1_002_001)] == [
            "0",
            "0",
            "1",
            "1",
            "2",
            "3",
        ]
        assert await at(1_001_500, boundaryType="upper") == "1"
        fields = {"topic": topic, "queueId": 0}
        earliest = await peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, fields)
        assert earliest.ext_fields["timestamp"] == "1000000"
        none = await peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "nobody", "queueId": 0})
        assert none.ext_fields["timestamp"] == "-1"
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
            answer = await peer.ask(code, {"topic": "nobody", "queueId": 0, "timestamp": 1})
            assert (answer.code, answer.ext_fields["offset"]) == (0, "0")


@over_loopback
async def test_091_092_a_queue_is_locked_for_one_client(make_rocketq_cluster: MakeCluster, group: str) -> None:
    clock = ManualClock()
    cluster = make_rocketq_cluster(clock=clock)
    queues = tuple(MessageQueue(topic="T", broker_name="any name", queue_id=number) for number in (0, 7))

    async def lock(peer: Peer, client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> tuple[MessageQueue, ...]:
        body = LockRequest(group=group, client_id=client_id, queues=queues).encode()
        answer = await peer.ask(code, body=body)
        assert answer.code == 0
        return LockAnswer.decode(answer.body).queues if answer.body else ()

    async with connected(*[cluster.broker_addr] * 2) as (one, two):
        assert await lock(one, "c1") == queues
        assert await lock(two, "c2") == ()
        await one.close()
        clock.advance(60_000)
        assert await lock(two, "c2") == ()
        clock.advance(1)
        assert await lock(two, "c2") == queues
        assert await lock(two, "c3", RequestCode.UNLOCK_BATCH_MQ) == ()  # not the owner
        assert await lock(two, "c3") == ()
        clock.advance(50_000)
        assert await lock(two, "c2") == queues  # renewed
        clock.advance(50_000)
        assert await lock(two, "c3") == ()
        assert await lock(two, "c2", RequestCode.UNLOCK_BATCH_MQ) == ()
        assert await lock(two, "c3") == queues


@over_loopback
async def test_096_connections(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        consumers = {"consumerGroup": group}
        producers = {"producerGroup": group}
        assert (await peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumers)).code == 206
        assert (await peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producers)).code == 1
        data = ConsumerData(
            group=group, model=MessageModel.BROADCASTING, subscriptions=(Subscription(topic=topic, version=3),)
        )
        await peer.ask(RequestCode.HEART_BEAT, body=Heartbeat(client_id="c1", consumers=(data,)).encode())
        body = b'{"clientID":"c1","producerDataSet":[{"groupName":"%s"}]}' % group.encode()
        await peer.ask(RequestCode.HEART_BEAT, body=body)
        found = ConsumerConnections.decode((await peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumers)).body)
        assert found.model is MessageModel.BROADCASTING
        assert found.subscriptions == {topic: Subscription(topic=topic, version=3)}
        (connection,) = found.connections
        assert (connection.client_id, connection.addr, connection.version) == ("c1", peer.addr, 407)
        answer = await peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producers)
        assert ProducerConnections.decode(answer.body).connections == (connection,)
        table = ProducerTable.decode((await peer.ask(RequestCode.GET_ALL_PRODUCER_INFO)).body)
        (producer,) = table.groups[group]
        assert (producer.remote_addr, producer.language) == (f"/{peer.addr}", "JAVA")


@over_loopback
async def test_subscriptions_can_be_checked_before_they_are_used(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for subscription, code in (
            (Subscription(topic="T", expression="a || b"), 0),
            (Subscription(topic="T", expression="||"), 23),
            (Subscription(topic="T", expression="a > 1", expression_type="SQL92"), 1),
        ):
            body = CheckClient(subscription=subscription).encode()
            assert (await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)).code == code


@over_loopback
async def test_queues_are_assigned_to_who_asks(make_rocketq_cluster: MakeCluster, topic: str, group: str) -> None:
    """Goal: over the whole cluster, as the NameServer knows it."""
    cluster = make_rocketq_cluster(brokers=2)
    async with connected(*cluster.broker_addrs, cluster.name_server_addr, version=JAVA_533) as (one, two, names):
        await make_topic(one, topic, queues=2)
        await make_topic(two, topic, queues=3)

        async def both_routed() -> bool:
            found = await route(names, topic)
            return found is not None and len(found.queues) == 2

        await eventually(both_routed)
        await one.ask(RequestCode.HEART_BEAT, body=beat("c1", group))
        async with connected(cluster.broker_addr) as (other,):
            await other.ask(RequestCode.HEART_BEAT, body=beat("c2", group))

            async def ask(client_id: str, **given: object) -> list[tuple[str, int]] | None:
                wish = AssignmentRequest(topic=topic, group=group, client_id=client_id, **given)  # type: ignore[arg-type]
                answer = await one.ask(RequestCode.QUERY_ASSIGNMENT, body=wish.encode())
                found = AssignmentAnswer.decode(answer.body).assignments
                if found is None:
                    return None
                return [(share.queue.broker_name, share.queue.queue_id) for share in found]

            a, b = "broker-0", "broker-1"
            assert await ask("c1", strategy="AVG") == [(a, 0), (a, 1), (b, 0)]
            assert await ask("c2", strategy="AVG") == [(b, 1), (b, 2)]
            assert await ask("c2", strategy="AVG_BY_CIRCLE") == [(a, 1), (b, 1)]
            assert await ask("c1", strategy="MACHINE_ROOM_NEARBY") is None
            assert await ask("stranger") is None
            everything = await ask("c1", model=MessageModel.BROADCASTING)
            assert everything is not None
            assert len(everything) == 5


@over_loopback
async def test_request_modes(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):

        async def set_mode(topic: str, group: str, mode: str) -> int:
            body = b'{"topic":"%s","consumerGroup":"%s","mode":"%s"}' % (topic.encode(), group.encode(), mode.encode())
            return (await peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)).code

        assert await set_mode(topic, group, "PULL") == 17
        await send(peer, topic, properties=props(TAGS="x"))
        assert await set_mode(topic, group, "PULL") == 26
        await heartbeat(peer, "c1", group)
        assert await set_mode(f"%RETRY%{group}", group, "PULL") == 16
        assert await set_mode(topic, group, "POP") == 3
        assert await set_mode(topic, group, "PULL") == 0
        listed = await peer.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert group.encode() in listed.body
