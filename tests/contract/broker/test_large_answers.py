"""Answers built over many turns of the loop while tables change: never an error, and each entry was true meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigTable
from rocketq.protocol.bodies.offsets import ConsumerOffsets, ResetOffsets, TimeSpans
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.stats import ConsumeStats, ConsumeStatsList
from rocketq.protocol.bodies.topics import TopicConfigTable, TopicStats
from rocketq.protocol.codes import RequestCode
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import JAVA_533, connected, make_topic, over_loopback, send
from tests.contract.broker.test_membership import commit

MakeCluster = Callable[..., EmbeddedCluster]
TOPICS = [f"T{number}" for number in range(40)]


@pytest.fixture
def one_entry_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketq.runtime.slices.SLICE_S", 0.0)


@pytest.mark.usefixtures("one_entry_a_slice")
@over_loopback
async def test_tables_may_change_while_answers_are_built(make_rocketq_cluster: MakeCluster) -> None:
    cluster = make_rocketq_cluster()
    async with connected(*[cluster.broker_addr] * 3, version=JAVA_533) as (writer, committer, tool):
        await asyncio.gather(*(make_topic(writer, topic, queues=2) for topic in TOPICS))
        await asyncio.gather(*(send(writer, topic) for topic in TOPICS))
        group_body = GroupConfig(group="g").encode()
        assert (await writer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group_body)).code == 0
        for topic in TOPICS:
            await commit(committer, "g", topic, 1)
        stopping, committed = asyncio.Event(), 1

        async def change_topics() -> None:
            while not stopping.is_set():
                await make_topic(writer, "Other", queues=2)
                assert (await writer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Other"})).code == 0

        async def change_offsets() -> None:
            nonlocal committed
            while not stopping.is_set():
                committed += 1
                for topic in TOPICS:
                    await commit(committer, "g", topic, committed)

        changing = [asyncio.create_task(change_topics()), asyncio.create_task(change_offsets())]
        for _ in range(5):
            before = committed - 1
            everything = await tool.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
            one = await tool.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
            offsets = await tool.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
            topics = await tool.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
            groups = await tool.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            found = {
                name: stats for each in ConsumeStatsList.decode(everything.body).groups for name, stats in each.items()
            }
            parts = [*found["g"], ConsumeStats.decode(one.body)]
            entries = {queue: entry for part in parts for queue, entry in part.queues.items() if queue.queue_id == 0}
            assert {queue.topic for queue in entries} == set(TOPICS)
            for entry in entries.values():
                assert entry.broker_offset == 1
                assert before <= entry.consumer_offset <= committed
            saved = ConsumerOffsets.decode(offsets.body).offsets
            assert all(before <= saved[f"{topic}@g"][0] <= committed for topic in TOPICS)
            assert set(TOPICS) <= set(TopicConfigTable.decode(topics.body).topics)
            assert "g" in GroupConfigTable.decode(groups.body).groups
        stopping.set()
        await asyncio.gather(*changing)


@over_loopback
async def test_a_topic_of_many_queues(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: every request that has an entry for each queue answers with all of them."""
    count = 300
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=count)
        await send(peer, topic, queue_id=count - 1)
        await asyncio.gather(*(commit(peer, group, topic, 0, queue_id=number) for number in range(count)))
        queues = {MessageQueue(topic=topic, broker_name="broker-0", queue_id=number) for number in range(count)}
        asked = {"topic": topic, "consumerGroup": group, "group": group}
        stats = TopicStats.decode((await peer.ask(RequestCode.GET_TOPIC_STATS_INFO, asked)).body).queues
        assert stats.keys() == queues
        assert sum(each.max_offset for each in stats.values()) == 1
        progress = ConsumeStats.decode((await peer.ask(RequestCode.GET_CONSUME_STATS, asked)).body).queues
        assert progress.keys() == queues
        spans = TimeSpans.decode((await peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, asked)).body).spans
        assert {span.queue for span in spans} == queues
        body = GroupConfig(group=group).encode()
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0
        answer = await peer.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**asked, "timestamp": -1, "isForce": "true"}, version=JAVA_533
        )
        assert ResetOffsets.decode(answer.body).offsets.keys() == queues
