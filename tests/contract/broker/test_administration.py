"""interop.md, section G, and the requests of operators' tools: what they send and what they read back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigTable, GroupList
from rocketq.protocol.bodies.offsets import ConsumerOffsets, ConsumerStatus, ResetOffsets, TimeSpans
from rocketq.protocol.bodies.queues import KeyValues, MessageQueue
from rocketq.protocol.bodies.stats import ConsumeStats, ConsumeStatsList, QueueEntries, StatsData
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable, TopicList, TopicStats
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.config_text import parse_config
from rocketq.protocol.flags import Language
from rocketq.protocol.messages import decode_records
from rocketq.runtime.clock import ManualClock
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    JAVA_533,
    Peer,
    connected,
    eventually,
    heartbeat,
    letters,
    make_topic,
    over_loopback,
    props,
    pull,
    records,
    route,
    send,
    send_fields,
)
from tests.contract.broker.test_membership import commit
from tests.page_cache import drop_messages

MakeCluster = Callable[..., EmbeddedCluster]


def queue(topic: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-0", queue_id=queue_id)


@over_loopback
async def test_095_messages_by_key(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await send(peer, topic, b"one", properties=props(KEYS="k1 k2", UNIQ_KEY=f"U-{topic}"))
        await send(peer, topic, b"two", properties=props(KEYS="k2"))

        async def find(key: str, **given: Any) -> list[bytes] | int:
            fields = {
                "topic": topic,
                "key": key,
                "maxNum": 64,
                "beginTimestamp": 0,
                "endTimestamp": 0x7FFFFFFFFFFFFFFF,
                **given,
            }
            answer = await peer.ask(RequestCode.QUERY_MESSAGE, fields)
            if answer.code != 0:
                return answer.code
            assert {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"} == set(answer.ext_fields)
            return [record.body for record in records(answer)]

        assert await find("k1") == [b"one"]
        assert await find("k2") == [b"one", b"two"]
        assert await find(f"U-{topic}", _UNIQUE_KEY_QUERY="true") == [b"one"]
        assert await find("k3") == 22
        assert await find("k1", endTimestamp=5) == 22


@over_loopback
async def test_097_a_question_to_one_client_is_passed_on(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (client, tool):
        await heartbeat(client, "c1", group, topic=topic)
        fields = {"consumerGroup": group, "clientId": "c1", "jstackEnable": "false"}
        asked = tool.start(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        push = await client.pushed(RequestCode.GET_CONSUMER_RUNNING_INFO)
        assert dict(push.ext_fields) == {**fields}
        client.send(push.answer(0, body=b'{"properties":{}}'))
        answer = await asked
        assert (answer.code, answer.body) == (0, b'{"properties":{}}')
        assert (await tool.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {**fields, "clientId": "c2"})).code == 1


@over_loopback
async def test_097_a_message_is_consumed_directly(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (client, tool):
        message_id = (await send(tool, topic, b"again")).ext_fields["msgId"]
        await heartbeat(client, "c1", group, topic=topic)
        fields = {"consumerGroup": group, "clientId": "c1", "msgId": message_id, "brokerName": "broker-0"}
        asked = tool.start(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
        push = await client.pushed(RequestCode.CONSUME_MESSAGE_DIRECTLY)
        assert [record.body for record in decode_records(push.body)] == [b"again"]
        client.send(push.answer(0, body=b'{"consumeResult":"CR_SUCCESS"}'))
        assert (await asked).body == b'{"consumeResult":"CR_SUCCESS"}'
        assert (await tool.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "msgId": "7F" * 16})).code == 1
        assert (await tool.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "msgId": "x"})).code == 1


@over_loopback
async def test_097_a_client_that_does_not_answer_is_207(
    rocketq_cluster: EmbeddedCluster, group: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("rocketq.broker.groups.relay_handlers.RELAY_TIMEOUT_MS", 100)
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (client, tool):
        await heartbeat(client, "c1", group)
        fields = {"consumerGroup": group, "clientId": "c1"}
        assert (await tool.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)).code == 207
        asked = tool.start(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        await client.close()
        assert (await asked).code == 1


def reset_fields(topic: str, group: str, timestamp: int, force: bool = True) -> dict[str, Any]:
    return {"topic": topic, "group": group, "timestamp": timestamp, "isForce": str(force).lower()}


@over_loopback
async def test_098_a_reset_is_pushed_to_every_member(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    clock, group = ManualClock(1_000), "g"
    cluster = make_rocketq_cluster(clock=clock)
    async with connected(*[cluster.broker_addr] * 3) as (one, two, tool):
        await make_topic(tool, topic, queues=2)
        for _ in range(4):
            await send(tool, topic)
            clock.advance(1_000)
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        assert (await tool.ask(code, reset_fields("nobody", group, 0))).code == 1
        assert (await tool.ask(code, reset_fields(topic, group, 0))).code == 1  # nothing was committed
        await commit(tool, group, topic, 3)
        await commit(tool, group, topic, 0, queue_id=1)
        assert (await tool.ask(code, reset_fields(topic, group, 0))).code == 206
        await heartbeat(one, "c1", group, topic=topic)
        await heartbeat(two, "c2", group, topic=topic)

        async def reset(timestamp: int, *, force: bool = True, **members: Any) -> tuple[Command, Command]:
            answer = await tool.ask(code, reset_fields(topic, group, timestamp, force), **members)
            push = await one.pushed(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            other = await two.pushed(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            assert (push.is_oneway, push.body) == (True, other.body)
            assert (push.ext_fields["topic"], push.ext_fields["group"]) == (topic, group)
            return answer, push

        answer, push = await reset(2_000)
        text = (
            '{"offsetTable":{{"brokerName":"broker-0","queueId":0,"topic":"%s"}:1,'
            '{"brokerName":"broker-0","queueId":1,"topic":"%s"}:0}}'
        )
        assert push.body == (text % (topic, topic)).encode()
        assert ResetOffsets.decode(answer.body).offsets == {queue(topic, 0): 1, queue(topic, 1): 0}
        answer, _ = await reset(-1)
        assert ResetOffsets.decode(answer.body).offsets[queue(topic, 0)] == 4
        answer, _ = await reset(-1, force=False)
        assert ResetOffsets.decode(answer.body).offsets[queue(topic, 0)] == 3  # never forward without force
        _, push = await reset(0, language=Language.CPP)
        assert json.loads(push.body)["offsetTable"][0] == {
            "brokerName": "broker-0",
            "offset": 0,
            "queueId": 0,
            "topic": topic,
        }


@over_loopback
async def test_098_newer_tools_reset_groups_that_are_offline(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    async with connected(rocketq_cluster.broker_addr, version=JAVA_533) as (tool,):
        assert (await tool.ask(code, reset_fields("nobody", group, 0))).code == 17
        for _ in range(3):
            await send(tool, topic)
        assert (await tool.ask(code, reset_fields(topic, group, 0))).code == 26
        await pull(tool, topic, group=group)
        assert (await tool.ask(code, reset_fields(topic, group, -1))).code == 0
        asked = {"consumerGroup": group, "topic": topic, "queueId": 0}
        assert (await tool.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)).ext_fields["offset"] == "3"
        one = {**reset_fields(topic, group, -1), "queueId": 0, "offset": 2}
        assert ResetOffsets.decode((await tool.ask(code, one)).body).offsets == {queue(topic): 2}


@over_loopback
async def test_status_of_consumers(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (client, tool):
        code, fields = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": topic, "group": group}
        assert (await tool.ask(code, fields)).code == 1
        await heartbeat(client, "c1", group)
        asked = tool.start(code, fields)
        push = await client.pushed(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
        client.send(push.answer(0, body=ConsumerStatus(queues={queue(topic): 5}).encode()))
        assert ConsumerStatus.decode((await asked).body).consumers == {"c1": {queue(topic): 5}}
        answer = await tool.ask(code, {**fields, "clientAddr": "somebody else"})
        assert (answer.code, ConsumerStatus.decode(answer.body).consumers) == (0, {})


@over_loopback
async def test_100_topics_change_at_once(make_rocketq_cluster: MakeCluster, topic: str, group: str) -> None:
    cluster = make_rocketq_cluster(settings={"autoCreateTopicEnable": "false"})
    async with connected(cluster.broker_addr, cluster.name_server_addr) as (peer, names):
        assert (await send(peer, topic)).code == 17
        await make_topic(peer, topic, queues=2)
        assert (await send(peer, topic, queue_id=1)).code == 0

        async def routed_queues() -> int:
            found = await route(names, topic)
            return found.queues[0].write_queue_count if found is not None else 0

        async def two() -> bool:
            return await routed_queues() == 2

        async def six() -> bool:
            return await routed_queues() == 6

        await eventually(two, within_s=1)
        await make_topic(peer, topic, queues=6)
        await eventually(six, within_s=1)
        await commit(peer, group, topic, 1, queue_id=1)
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0
        assert (await pull(peer, topic)).code == 17
        assert (await send(peer, topic)).code == 17
        await make_topic(peer, topic, queues=2)
        answer = await send(peer, topic, queue_id=1)
        assert answer.ext_fields["queueOffset"] == "0"  # it begins anew, and so do its groups
        offsets = ConsumerOffsets.decode((await peer.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body)
        assert f"{topic}@{group}" not in offsets.offsets


@over_loopback
async def test_topics_that_may_not_be_touched(rocketq_cluster: EmbeddedCluster) -> None:
    fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for name in ("TBW102", "broker-0", "DefaultCluster", "rmq_sys_x", "a b", "x" * 128):
            assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": name, **fields})).code == 1
            assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})).code == 1
        odd = {"topic": "fine", **fields, "topicFilterType": "ODD"}
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, odd)).code == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"readQueueNums": "-5"},
        {"writeQueueNums": "-1"},
        {"writeQueueNums": "65536"},
        {"perm": "99"},
        {"perm": "-1"},
        {"attributes": "+queue.type=BatchCQ"},
        {"attributes": "+message.type=fifo"},
    ],
    ids=str,
)
@over_loopback
async def test_topics_that_cannot_be_are_refused(rocketq_cluster: EmbeddedCluster, topic: str, odd: Any) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        fields = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
        answer = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | {"topicFilterType": "SINGLE_TAG", **odd})
        assert (answer.code, bool(answer.remark)) == (1, True)
        assert (await peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})).code == 17


@over_loopback
async def test_topic_configs_are_listed(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=3, attributes="+message.type=FIFO")
        table = TopicConfigTable.decode((await peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
        assert (table.topics[topic].read_queue_count, table.topics[topic].attributes) == (3, {"message.type": "FIFO"})
        assert {"TBW102", "SELF_TEST_TOPIC"} <= set(table.topics)
        page = await peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG, {"topicSeq": 1, "maxTopicNum": 2})
        assert len(TopicConfigTable.decode(page.body).topics) == 2
        assert page.ext_fields["totalTopicNum"] == str(len(table.topics))
        one = await peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"})
        assert TopicConfig.decode(one.body).write_queue_count == 3
        assert (await peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "nobody"})).code == 17
        await make_topic(peer, topic, queues=3, attributes="-message.type")
        assert b'"attributes":{}' in (await peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})).body
        system = TopicList.decode((await peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body).topics
        assert {"RMQ_SYS_TRANS_HALF_TOPIC", "broker-0", "DefaultCluster", "DefaultCluster_REPLY_TOPIC"} <= set(system)
        several = b'{"topicConfigList":[{"topicName":"%s-a"},{"topicName":"%s-b"}]}' % (topic.encode(), topic.encode())
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=several)).code == 0
        batched = several.replace(b'-b"', b'-c","attributes":{"queue.type":"BatchCQ"}')
        answer = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=batched)
        assert (answer.code, answer.remark) == (
            1,
            f"topic {topic}-c: attribute queue.type=BatchCQ: this broker makes no batch queues, SimpleCQ only",
        )
        assert (await peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": f"{topic}-b"})).code == 0


@over_loopback
async def test_groups_are_configured_listed_and_deleted(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        config = GroupConfig(group=group, retry_max=3, consume_from_min_enable=False)
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())).code == 0
        table = GroupConfigTable.decode((await peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert table.groups[group] == config
        assert "TOOLS_CONSUMER" in table.groups
        one = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
        assert GroupConfig.decode(one.body) == config
        await make_topic(peer, topic)
        await commit(peer, group, topic, 5)
        for name, left in (("none", {topic}), ("removeOffset", set())):
            assert (await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": group, name: "true"})).code == 0
            topics = await peer.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group})
            assert set(TopicList.decode(topics.body).topics) == left
        table = GroupConfigTable.decode((await peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert group not in table.groups


@over_loopback
async def test_progress_of_topics_and_groups(make_rocketq_cluster: MakeCluster, topic: str, group: str) -> None:
    clock = ManualClock(1_000_000)
    cluster = make_rocketq_cluster(clock=clock)
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic, queues=2, readQueueNums=3)
        for _ in range(4):
            await send(peer, topic)
            clock.advance(1_000)
        stats = TopicStats.decode((await peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})).body)
        assert set(stats.queues) == {queue(topic, 0), queue(topic, 1)}
        assert (stats.queues[queue(topic)].max_offset, stats.queues[queue(topic)].updated_ms) == (4, 1_003_000)
        assert stats.queues[queue(topic, 1)].updated_ms == 0
        assert (await peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "nobody"})).code == 17

        async def progress(**given: Any) -> ConsumeStats:
            answer = await peer.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group, **given})
            return ConsumeStats.decode(answer.body)

        assert (await progress()).queues == {}
        await commit(peer, group, topic, 3)
        found = (await progress()).queues
        assert len(found) == 3
        mine = found[queue(topic)]
        assert (mine.broker_offset, mine.consumer_offset, mine.last_ms, mine.pull_offset) == (4, 3, 1_002_000, None)
        await heartbeat(peer, "c1", group, topic=topic + "-other")
        assert (await progress()).queues == {}
        await heartbeat(peer, "c1", group, topic=topic, version=2)
        assert len((await progress(topic=topic)).queues) == 3
        everything = ConsumeStatsList.decode((await peer.ask(RequestCode.GET_BROKER_CONSUME_STATS)).body)
        assert (everything.total_lag, everything.broker_addr) == (1, cluster.broker_addr)
        by_group = {name: stats for entry in everything.groups for name, stats in entry.items()}
        assert len(by_group[group]) == 1
        assert by_group["TOOLS_CONSUMER"] == ()
        fields = {"topic": topic, "group": group}
        spans = TimeSpans.decode((await peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, fields)).body).spans
        assert [(span.min_ms, span.max_ms, span.consume_ms, span.delay_ms) for span in spans[:1]] == [
            (1_000_000, 1_003_000, 1_002_000, 1_000)
        ]
        who = await peer.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        assert GroupList.decode(who.body).groups == (group,)
        nobody = await peer.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "nobody"})
        assert (nobody.code, GroupList.decode(nobody.body).groups) == (0, ())
        clone = {"srcGroup": group, "destGroup": group + "-copy", "topic": topic, "offline": "true"}
        assert (await peer.ask(RequestCode.CLONE_GROUP_OFFSET, clone)).code == 0
        asked = {"consumerGroup": group + "-copy", "topic": topic, "queueId": 0}
        assert (await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)).ext_fields["offset"] == "3"
    async with connected(cluster.broker_addr, version=JAVA_533) as (peer,):
        await pull(peer, topic, 3, group=group)
        newer = TopicStats.decode((await peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})).body)
        assert (len(newer.queues), newer.put_tps) == (3, 0.0)
        answer = await peer.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})
        assert ConsumeStats.decode(answer.body).queues[queue(topic)].pull_offset == 4


@over_loopback
async def test_figures_are_counted(make_rocketq_cluster: MakeCluster, topic: str, group: str) -> None:
    clock = ManualClock()
    cluster = make_rocketq_cluster(clock=clock)
    broker = cluster.brokers[0]

    async def tick() -> None:
        await broker._tick()

    async def statistic(peer: Peer, name: str, key: str) -> int:
        answer = await peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        return StatsData.decode(answer.body).minute.sum if answer.code == 0 else -answer.code

    async with connected(cluster.broker_addr) as (peer,):
        assert await statistic(peer, "TOPIC_PUT_NUMS", topic) == -1
        for _ in range(5):
            await send(peer, topic)
        await pull(peer, topic, 1, group=group)
        await pull(peer, topic, 5, group=group)
        for _ in range(12):
            clock.advance(1_000)
            cluster.thread.run(tick())
        assert await statistic(peer, "TOPIC_PUT_NUMS", topic) == 5
        assert await statistic(peer, "GROUP_GET_NUMS", f"{topic}@{group}") == 4
        table = KeyValues.decode((await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("5", "4")
        assert table["putTps"].count(" ") == 2
        assert table["getTransferedTps"] == table["getTransferredTps"]
        assert table["brokerVersionDesc"].startswith("V4_")
        assert float(table["commitLogDiskRatio"]) > 0
        assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 12 seconds ]"
        assert int(table["earliestMessageTimeStamp"]) > 0
        for name in ("sendThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills"):
            assert int(table[name]) == 0
        assert {"remainHowManyDataToFlush", "putMessageAverageSize", "commitLogMaxOffset"} <= set(table)


@over_loopback
async def test_settings_are_read_changed_and_kept(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster()
    async with connected(cluster.broker_addr, cluster.name_server_addr) as (peer, names):
        before = await peer.ask(RequestCode.GET_BROKER_CONFIG)
        assert parse_config(before.body.decode())["brokerName"] == "broker-0"
        await send(peer, topic)
        change = b"brokerPermission=4\nregionId=Elsewhere\nfileReservedTime=48\n"
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change)).code == 0
        after = await peer.ask(RequestCode.GET_BROKER_CONFIG)
        versions = [json.loads(answer.ext_fields["version"])["counter"] for answer in (before, after)]
        assert versions[1] == versions[0] + 1
        assert (await send(peer, topic)).ext_fields["MSG_REGION"] == "Elsewhere"

        async def is_read_only() -> bool:
            found = await route(names, topic)
            return found is not None and found.queues[0].perm == 4

        await eventually(is_read_only, within_s=1)
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerName=x\n")).code == 16
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=perhaps\n")).code == 1
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG)).code == 1
    cluster.restart_broker()
    async with connected(cluster.broker_addr) as (peer,):
        kept = parse_config((await peer.ask(RequestCode.GET_BROKER_CONFIG)).body.decode())
        assert (kept["regionId"], kept["brokerPermission"], kept["fileReservedTime"]) == ("Elsewhere", "4", "48")


@over_loopback
async def test_queue_entries(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await send(peer, topic, properties=props(TAGS="TagA"))
        await send(peer, topic, properties=props(TAGS="TagB"))
        await heartbeat(peer, "c1", group, topic=topic, expression="TagA")
        fields = {"topic": topic, "queueId": 0, "index": 0, "count": 10, "consumerGroup": group}
        found = QueueEntries.decode((await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, fields)).body)
        assert (found.min_offset, found.max_offset, found.filter_data) == (0, 2, "null")
        assert [(entry.tags_code, entry.passes) for entry in found.entries] == [(2598919, True), (2598920, False)]
        assert (await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, {**fields, "queueId": 9})).code == 1


@over_loopback
async def test_upkeep_on_request(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await send(peer, topic)
        for code in (306, 316, 329, 45):
            assert (await peer.ask(code)).code == 0
        assert len(records(await pull(peer, topic))) == 1


@over_loopback
async def test_many_requests_at_once_are_all_answered(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 20) as peers:
        await make_topic(peers[0], topic)
        asked = [
            peer.start(code, {"topic": topic, "queueId": 0, "consumerGroup": "g"})
            for peer in peers
            for code in (28, 26, 21, 201, 202, 208, 30, 31, 32, 14, 300, 43, 328, 317)
        ]
        answers = await asyncio.wait_for(asyncio.gather(*asked), 20)
        assert {answer.code for answer in answers} == {0}


@over_loopback
async def test_a_topic_deleted_under_its_producers_loses_nothing_it_acknowledges_afterwards(
    rocketq_cluster: EmbeddedCluster, topic: str
) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (producer, tool):
        for turn in range(10):
            await send(producer, topic, b"old")
            sending = [producer.start(RequestCode.SEND_MESSAGE_V2, letters(send_fields(topic)), b"x") for _ in range(5)]
            deleting = tool.start(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            assert (await deleting).code == 0
            await asyncio.gather(*sending)
            body = b"after %d" % turn
            answer = await send(producer, topic, body)
            assert answer.code == 0
            found = records(await pull(tool, topic, int(answer.ext_fields["queueOffset"])))
            assert found[0].body == body


@over_loopback
async def test_settings_of_the_store_count_at_once(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: a smaller largest message refuses the next send, SYNC_FLUSH syncs each send; what cannot change is told."""
    cluster = make_rocketq_cluster()
    store = cluster.brokers[0].parts.store
    async with connected(cluster.broker_addr) as (peer,):
        assert (await send(peer, "Live", b"x" * 2_000)).code == 0
        change = b"maxMessageSize=1000\nflushDiskType=SYNC_FLUSH\n"
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change)).code == 0
        shown = parse_config((await peer.ask(RequestCode.GET_BROKER_CONFIG)).body.decode())
        assert (shown["maxMessageSize"], shown["flushDiskType"]) == ("1000", "SYNC_FLUSH")
        assert (await send(peer, "Live", b"x" * 500)).code == 0
        assert store.gate.position == store.log_end
        refused = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"mappedFileSizeCommitLog=1048576\n")
        assert refused.code == 16
        assert "mappedFileSizeCommitLog cannot be changed while running" in (refused.remark or "")


@over_loopback
async def test_a_group_forbidden_to_read_a_topic(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: 353 takes and gives back, pulls are refused meanwhile, and a restart does not forget it."""
    cluster = make_rocketq_cluster()

    async def forbid(peer: Peer, readable: str | None = None) -> bool:
        fields = {"group": "g", "topic": "Forbidden", "readable": readable}
        answer = await peer.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields)
        assert (answer.code, json.loads(answer.body)["group"]) == (0, "g")
        return bool(json.loads(answer.body)["readable"])

    async with connected(cluster.broker_addr, version=JAVA_533) as (peer,):
        await send(peer, "Forbidden")
        assert await forbid(peer) is True
        assert await forbid(peer, "false") is False
        answer = await pull(peer, "Forbidden")
        assert (answer.code, answer.ext_fields["forbiddenType"]) == (16, "5")
        assert (await pull(peer, "Forbidden", group="other")).code == 0
        table = GroupConfigTable.decode((await peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert table.forbidden == {"g": {"Forbidden": 4}}
    await asyncio.to_thread(cluster.restart_broker)
    async with connected(cluster.broker_addr, version=JAVA_533) as (peer,):
        assert (await pull(peer, "Forbidden")).code == 16
        assert await forbid(peer, "true") is True
        assert (await pull(peer, "Forbidden")).code == 0
        table = GroupConfigTable.decode((await peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert table.forbidden == {}


@over_loopback
async def test_correction_offsets(rocketq_cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: the slowest group per queue; where everybody is ahead of the compared one, the largest number."""
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        for _ in range(5):
            await send(peer, topic)
        await commit(peer, f"{group}-slow", topic, 1)
        await commit(peer, f"{group}-fast", topic, 4)

        async def ask(compare: str, leave_out: str = "") -> dict[str, int]:
            fields = {"filterGroups": leave_out, "compareGroup": compare, "topic": topic}
            answer = await peer.ask(RequestCode.QUERY_CORRECTION_OFFSET, fields)
            offsets: dict[str, int] = json.loads(answer.body)["correctionOffsets"]
            return offsets

        assert await ask(f"{group}-fast") == {"0": 1}
        assert await ask(f"{group}-fast", f"{group}-slow") == {"0": 4}
        assert await ask(f"{group}-slow", f"{group}-slow") == {"0": (1 << 63) - 1}
        assert await ask("nobody") == {"0": 1}
        assert await ask(f"{group}-fast") == {"0": 1}, "asking changes nothing"


@over_loopback
async def test_replication_of_a_master_alone(rocketq_cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: haStatus prints a master without replicas; resetMasterFlushOffset has nothing to do."""
    async with connected(rocketq_cluster.broker_addr, version=JAVA_533) as (peer,):
        await send(peer, topic)
        state = json.loads((await peer.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (state["master"], state["inSyncSlaveNums"], state["haConnectionInfo"]) == (True, 0, [])
        assert state["masterCommitLogMaxOffset"] > 0
        assert state["haClientRuntimeInfo"]["maxOffset"] == 0
        fields = {"masterFlushOffset": 5}
        assert (await peer.ask(RequestCode.RESET_MASTER_FLUSH_OFFSET, fields)).code == 0
        assert (await peer.ask(RequestCode.GET_BROKER_EPOCH_CACHE)).code == 1


@over_loopback
async def test_the_read_mode_of_the_log(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: setCommitLogReadAheadMode prints a remark that says the mode, and the setting follows."""
    cluster = make_rocketq_cluster()
    async with connected(cluster.broker_addr, version=JAVA_533) as (peer,):
        for mode, shown in ((1, "false"), (0, "true")):
            answer = await peer.ask(RequestCode.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": mode})
            assert (answer.code, str(mode) in (answer.remark or "")) == (0, True)
            config = parse_config((await peer.ask(RequestCode.GET_BROKER_CONFIG)).body.decode())
            assert config["dataReadAheadEnable"] == shown
        assert (await peer.ask(RequestCode.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": 7})).code == 29


@over_loopback
async def test_groups_take_turns_at_the_disk(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: a group that reads old messages too fast is told to wait, another is not; operators see and lift it."""
    settings = {"coldDataFlowControlEnable": "true", "cgColdReadThreshold": "500", "accessMessageInMemoryMaxRatio": "0"}
    cluster = make_rocketq_cluster(settings=settings, clock=ManualClock())
    async with connected(cluster.broker_addr, version=JAVA_533) as (peer,):
        for _ in range(3):
            await send(peer, "Cold", b"x" * 1_000)
        drop_messages(cluster.brokers[0])
        assert (await pull(peer, "Cold", group="slow", maxMsgNums=1)).code == 0
        drop_messages(cluster.brokers[0])
        assert (await pull(peer, "Cold", 1, group="slow", maxMsgNums=1)).code == 2
        assert (await pull(peer, "Cold", group="other", maxMsgNums=1)).code == 0

        shown = json.loads((await peer.ask(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body)
        assert shown["runtimeTable"]["slow"]["coldAcc"] > 1_000
        assert (shown["cgColdReadThreshold"], shown["configTable"]) == (500, {})
        assert shown["globalAcc"] == sum(group["coldAcc"] for group in shown["runtimeTable"].values())

        assert (await peer.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"slow=1000000\n")).code == 0
        assert json.loads((await peer.ask(2003)).body)["configTable"] == {"slow": 1_000_000}
        assert (await pull(peer, "Cold", 1, group="slow", maxMsgNums=1)).code == 0
        assert (await peer.ask(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"slow")).code == 0
        drop_messages(cluster.brokers[0])
        assert (await pull(peer, "Cold", 2, group="slow", maxMsgNums=1)).code == 2
        assert (await peer.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"slow=much\n")).code == 1
