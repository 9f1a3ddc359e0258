"""Consumers with namespaces and with trace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from rocketq.client import (
    AsyncAdmin,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ConsumeContext,
    ConsumeResult,
    Message,
    SessionConfig,
    StoredMessage,
)
from rocketq.client.core.trace_records import ContextCode, SubAfterRecord, SubBeforeRecord, decode_trace
from rocketq.testing.embedded import EmbeddedCluster

from .consuming import QUICK, Remembers, until
from .delivery_scenes import SETTINGS
from .kit import on_a_loop
from .test_pull_consumer import PULLS

TENANT = SessionConfig(namespace="tenant-a", route_life_ms=1_000)
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(scope="module")
def traced() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(settings={**SETTINGS, "traceTopicEnable": "true"}) as running:
        yield running


@on_a_loop
async def test_a_namespace_is_on_the_wire_only(traced: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: users see plain names, also of retried messages; brokers see the tenant's."""
    addr = traced.name_server_addr
    async with AsyncAdmin(addr) as admin:
        await admin.topics.create(f"tenant-a%{topic}", queues=1)
    async with AsyncProducer("p", name_servers=addr, session_config=TENANT) as producer:
        await producer.send(Message(topic=topic, body=b"0"))
    contexts: list[ConsumeContext] = []

    def fails_first(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        contexts.append(context)
        return None if messages[0].reconsume_times else ConsumeResult.LATER

    listener = Remembers(fails_first)
    async with AsyncPushConsumer(group, listener, name_servers=addr, session_config=TENANT, config=QUICK) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(listener.messages) == 2)
        assert {queue.topic for queue in consumer.assignment()} == {topic}
        async with AsyncAdmin(addr) as admin:
            assert (await admin.groups.status(f"tenant-a%{group}")).online
    assert [message.topic for message in listener.messages] == [topic, topic]
    assert [context.group for context in contexts] == [group, group]
    assert [context.queue.topic for context in contexts] == [topic, f"%RETRY%{group}"]
    async with AsyncPullConsumer(f"{group}-pull", name_servers=addr, session_config=TENANT, config=PULLS) as pulling:
        pulling.subscribe(topic)
        (message,) = await pulling.poll()
        assert message.topic == message.queue.topic == topic
        assert pulling.position(message.queue) == 1
        await pulling.commit()
        assert await pulling.committed(message.queue) == 1


@pytest.mark.parametrize("in_threads", [True, False], ids=["threads", "tasks"])
def test_deliveries_are_told_to_the_trace_topic(
    traced: EmbeddedCluster, topic: str, group: str, in_threads: bool
) -> None:
    async def run() -> None:
        addr, remembers = traced.name_server_addr, Remembers()

        def plain(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            remembers.messages.extend(messages)
            if messages[0].reconsume_times == 0 and messages[0].body == b"1":
                raise ValueError("once")

        async def waits(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
            plain(messages, context)

        listener = plain if in_threads else waits
        async with AsyncProducer("p", name_servers=addr) as producer:
            sent = [
                await producer.send(Message(topic=topic, body=b"%d" % number, keys=(f"k{number}",)))
                for number in range(2)
            ]
        config = replace(QUICK, trace=True)
        async with AsyncPushConsumer(group, listener, name_servers=addr, config=config) as consumer:
            consumer.subscribe(topic)
            await until(lambda: len(remembers.messages) == 3)
        ids = [one.message_id for one in sent]
        found: list[SubBeforeRecord | SubAfterRecord] = []
        async with AsyncPullConsumer(f"{group}-reader", name_servers=addr) as reader:
            for queue in await reader.queues(TRACE_TOPIC):
                for message in (await reader.pull(queue, "*", 0)).messages:
                    records = decode_trace(message.body.decode())
                    found += [one for one in records if isinstance(one, (SubBeforeRecord, SubAfterRecord))]
        mine = [record for record in found if record.message_id in ids]
        before = [record for record in mine if isinstance(record, SubBeforeRecord)]
        after = [record for record in mine if isinstance(record, SubAfterRecord)]
        assert sorted((record.message_id, record.retry_times, record.keys) for record in before) == sorted(
            [(ids[0], 0, "k0"), (ids[1], 0, "k1"), (ids[1], 1, "k1")]
        )
        assert {record.request_id for record in before} == {record.request_id for record in after}
        assert sorted(record.context_code for record in after) == [0, 0, ContextCode.EXCEPTION]
        assert {record.group for record in mine} == {group}

    asyncio.run(asyncio.wait_for(run(), 60))
