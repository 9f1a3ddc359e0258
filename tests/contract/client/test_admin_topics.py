"""Topics, brokers and settings through AsyncAdmin, against a cluster of two brokers."""

from __future__ import annotations

import pytest

from rocketq.client import AsyncAdmin, NotFoundError
from rocketq.client.admin.topics import TopicKind
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.topics import TopicConfigTable
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import InternalBrokerError, NoPermissionError, TopicNotFoundError
from rocketq.protocol.headers.nameserver import GetConfigRequest
from rocketq.testing.embedded import EmbeddedCluster

from .kit import member, on_a_loop, send


@on_a_loop
async def test_a_topic_is_made_on_every_master_and_routed_at_once(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        made = await admin.topics.create(topic, queues=3)
        assert made.routed
        assert dict(made.brokers) == dict(zip(["broker-0", "broker-1"], cluster.broker_addrs, strict=True))
        route = await admin.topics.route(topic)
        assert [(data.broker_name, data.read_queue_count, data.perm) for data in route.queues] == [
            ("broker-0", 3, 6),
            ("broker-1", 3, 6),
        ]
        assert (await admin.topics.list())[topic] is TopicKind.NORMAL
        assert (await admin.topics.list())["TBW102"] is TopicKind.SYSTEM
        assert (await admin.topics.list())["broker-0"] is TopicKind.SYSTEM


@on_a_loop
async def test_a_topic_is_changed_on_one_broker_alone(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=2)
        changed = await admin.topics.create(
            topic, read_queues=4, write_queues=1, perm=4, broker="broker-1", attributes={"message.type": "FIFO"}
        )
        assert changed.routed
        configs = await admin.topics.configs(topic)
        assert (configs["broker-0"].read_queue_count, configs["broker-0"].perm) == (2, 6)
        assert (configs["broker-1"].read_queue_count, configs["broker-1"].write_queue_count) == (4, 1)
        assert configs["broker-1"].perm == 4
        assert configs["broker-1"].attributes == {"message.type": "FIFO"}
        by_addr = await admin.topics.create(topic, queues=5, broker=cluster.broker_addrs[0])
        assert by_addr.routed
        assert (await admin.topics.configs(topic))["broker-0"].read_queue_count == 5


@on_a_loop
async def test_an_ordered_topic_is_told_to_the_name_servers(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=2, order=True)
        answer = await admin.session.call_name_server(GetConfigRequest(namespace="ORDER_TOPIC_CONFIG", key=topic))
        assert answer.ext_fields["value"] == "broker-0:2;broker-1:2"


@on_a_loop
async def test_stats_and_consumers_are_of_all_brokers(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=2)
        await send(admin, topic, 8)
        stats = await admin.topics.stats(topic)
        assert [(queue.broker_name, queue.queue_id) for queue in stats.queues] == [
            ("broker-0", 0),
            ("broker-0", 1),
            ("broker-1", 0),
            ("broker-1", 1),
        ]
        assert [found.max_offset for found in stats.queues.values()] == [2, 2, 2, 2]
        assert await admin.topics.consumers(topic) == ()
        async with member(cluster.broker_addrs[1:], group, topic):
            assert await admin.topics.consumers(topic) == (group,)


@on_a_loop
async def test_a_deleted_topic_is_gone_from_brokers_and_name_servers(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=2)
        assert set(await admin.topics.delete(topic)) == {"broker-0", "broker-1"}
        with pytest.raises(TopicNotFoundError):
            await admin.topics.route(topic)
        with pytest.raises(TopicNotFoundError):
            await admin.topics.delete(topic)
        assert topic not in await admin.topics.list()
        for addr in cluster.broker_addrs:
            answer = await admin.session.call(addr, None, code=RequestCode.GET_ALL_TOPIC_CONFIG)
            assert topic not in TopicConfigTable.decode(answer.body).topics


@on_a_loop
async def test_what_is_not_there_is_said_so(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        with pytest.raises(TopicNotFoundError):
            await admin.topics.stats(topic)
        with pytest.raises(NotFoundError, match="cluster Nowhere"):
            await admin.topics.create(topic, cluster="Nowhere")
        with pytest.raises(NotFoundError, match="broker nobody"):
            await admin.topics.create(topic, broker="nobody")
        with pytest.raises(NotFoundError, match="cluster Nowhere"):
            await admin.topics.list(cluster="Nowhere")
        with pytest.raises(ConfigError, match="letters"):
            await admin.topics.create("bad name")


@on_a_loop
async def test_topics_of_a_cluster(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, cluster="DefaultCluster")
        assert topic in await admin.topics.list(cluster="DefaultCluster")


@on_a_loop
async def test_the_cluster_and_a_brokers_figures(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        table = await admin.brokers.cluster()
        assert table.clusters == {"DefaultCluster": ("broker-0", "broker-1")}
        assert table.brokers["broker-1"].addrs == {0: cluster.broker_addrs[1]}
        assert await admin.brokers.addr("broker-1") == cluster.broker_addrs[1]
        await admin.topics.create(topic, queues=1, broker="broker-1")
        await send(admin, topic, 3)
        status = await admin.brokers.status("broker-1")
        assert status["brokerActive"] == "true"
        assert int(status["putMessageTimesTotal"]) >= 3
        stats = await admin.brokers.stats("broker-1", "TOPIC_PUT_NUMS", topic)
        assert stats.minute.sum >= 0
        with pytest.raises(InternalBrokerError):
            await admin.brokers.stats("broker-1", "TOPIC_PUT_NUMS", "nothing-of-that-name")


@on_a_loop
async def test_settings_are_read_and_changed(cluster: EmbeddedCluster) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        config = await admin.brokers.config("broker-0")
        assert config["brokerName"] == "broker-0"
        after = await admin.brokers.set_config("broker-0", {"fileReservedTime": "71"})
        assert after == {"fileReservedTime": "71"}
        with pytest.raises(NotFoundError, match="setting nobodyKnows"):
            await admin.brokers.set_config("broker-0", {"nobodyKnows": "1"})
        with pytest.raises(NoPermissionError):
            await admin.brokers.set_config("broker-0", {"brokerName": "other"})
        with pytest.raises(ConfigError):
            await admin.brokers.set_config("broker-0", {"a": "b\nc=d"})


@on_a_loop
async def test_connected_producers(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with AsyncAdmin(cluster.name_server_addr) as admin, member(cluster.broker_addrs, group, topic):
        assert [one.client_id for one in (await admin.brokers.producers("broker-0"))["P-" + group]] == [
            "10.0.0.9@member"
        ]
        assert [one.client_id for one in await admin.groups.producer_connections("P-" + group)] == ["10.0.0.9@member"]
        with pytest.raises(NotFoundError, match="producer group"):
            await admin.groups.producer_connections("nobody")
