"""What must hold with every broker: failed messages come again, dead ones are kept, expressions filter.

The brokers must have SETTINGS, so that no retry takes longer than a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import pytest

from rocketq.client import (
    AsyncAdmin,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    BrokerError,
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageModel,
    MessageQueue,
    PullConfig,
    SessionConfig,
    StoredMessage,
    SubscriptionInvalidError,
)
from rocketq.client.consume import SendBacks
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.clients import ConsumeDirectlyResult
from rocketq.protocol.flags import ConsumeResult as DirectResult
from rocketq.protocol.headers.groups import ConsumeDirectlyRequest

from .consuming import QUICK, Remembers, fill, numbers, until

SETTINGS: Final = {"messageDelayLevel": " ".join(["1s"] * 18), "enablePropertyFilter": "true"}
OFTEN: Final = SessionConfig(route_life_ms=1_000)

Scene = Callable[[str, str, str, pytest.MonkeyPatch], Awaitable[None]]


def consumer_of(group: str, listener: object, addr: str, **given: object) -> AsyncPushConsumer:
    config = replace(QUICK, **given)  # type: ignore[arg-type]
    return AsyncPushConsumer(group, listener, name_servers=addr, session_config=OFTEN, config=config)  # type: ignore[arg-type]


async def dead_letters(addr: str, group: str, count: int) -> list[StoredMessage]:
    """What lies with the dead of a group, once there is so much."""
    found: list[StoredMessage] = []
    async with AsyncPullConsumer("dead-reader", name_servers=addr, config=PullConfig(poll_timeout_ms=100)) as reader:
        for _ in range(150):
            try:
                queues = await reader.queues("%DLQ%" + group)
            except RocketQError:
                queues = ()
            results = [await reader.pull(queue, "*", 0) for queue in queues]
            found = [message for result in results for message in result.messages]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.1)
    raise AssertionError(f"{len(found)} dead letters, not {count}")


async def a_failed_message_comes_again(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    await fill(addr, topic, 6)

    def fails_first(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        if messages[0].reconsume_times == 0 and messages[0].body in (b"1", b"4"):
            if messages[0].body == b"1":
                raise ValueError("not the first time")
            return ConsumeResult.LATER
        return None

    listener = Remembers(fails_first)
    async with consumer_of(group, listener, addr) as consumer:
        consumer.subscribe(topic)
        await until(lambda: sorted(listener.bodies) == sorted([*numbers(0, 6), b"4"]), 40, lambda: listener.bodies)
    again = [message for message in listener.messages if message.reconsume_times]
    assert {message.body for message in again} == {b"1", b"4"}
    for message in again:
        assert message.topic == topic
        assert message.queue.topic == "%RETRY%" + group
        assert message.reconsume_times == 1
        assert message.properties["RETRY_TOPIC"] == topic
    first = next(message for message in listener.messages if message.body == b"4" and not message.reconsume_times)
    assert next(message for message in again if message.body == b"4").message_id == first.message_id


async def retries_are_the_groups_own(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    """Two groups on one topic: what one fails on comes again to that one alone."""
    await fill(addr, topic, 4)

    def fails_first(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        return ConsumeResult.LATER if messages[0].reconsume_times == 0 else None

    one, other = Remembers(fails_first), Remembers()
    async with consumer_of(group + "-1", one, addr) as first, consumer_of(group + "-2", other, addr) as second:
        first.subscribe(topic)
        second.subscribe(topic)
        await until(lambda: len(one.messages) == 8, 40, lambda: one.bodies)
        await other.until(4)
        await asyncio.sleep(0.5)
    assert len(other.messages) == 4
    assert all(message.reconsume_times == 0 for message in other.messages)


async def a_message_that_always_fails_is_dead(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    await fill(addr, topic, 3, keys=("k",))

    def never_one(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        return ConsumeResult.LATER if messages[0].body == b"1" else None

    listener = Remembers(never_one)
    async with consumer_of(group, listener, addr, max_reconsume_times=2) as consumer:
        consumer.subscribe(topic)
        (dead,) = await dead_letters(addr, group, 1)
    failed = [message for message in listener.messages if message.body == b"1"]
    assert [message.reconsume_times for message in failed] == [0, 1, 2]
    assert dead.body == b"1"
    assert dead.keys == ("k",)
    assert dead.message_id == failed[0].message_id
    assert dead.properties["RETRY_TOPIC"] == topic
    assert set(listener.bodies) == numbers(0, 3)


async def a_listener_may_give_up_at_once(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    await fill(addr, topic, 1)

    def gives_up(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        context.delay_level = -1
        return ConsumeResult.LATER

    listener = Remembers(gives_up)
    async with consumer_of(group, listener, addr) as consumer:
        consumer.subscribe(topic)
        (dead,) = await dead_letters(addr, group, 1)
    assert dead.body == b"0"
    assert len(listener.messages) == 1


async def a_batch_may_be_done_in_part(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    async with AsyncAdmin(addr) as admin:
        await admin.topics.create(topic, queues=1)
    queue: MessageQueue | None = None
    async with AsyncProducer("p-part", name_servers=addr) as producer:
        for number in range(5):
            sent = await producer.send(Message(topic=topic, body=b"%d" % number), queue=queue)
            queue = sent.queue

    def first_two(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        if messages[0].reconsume_times == 0 and len(messages) > 2:
            context.acknowledged = 2
        return None

    listener = Remembers(first_two)
    async with consumer_of(group, listener, addr, batch_max=32) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(listener.messages) >= 8, 40, lambda: listener.bodies)
    again = {message.body for message in listener.messages if message.reconsume_times}
    assert again == numbers(2, 5)


async def a_message_that_takes_too_long_comes_again(
    addr: str, topic: str, group: str, patch: pytest.MonkeyPatch
) -> None:
    await fill(addr, topic, 1)
    seen: list[int] = []
    release = asyncio.Event()

    async def slow(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        seen.append(messages[0].reconsume_times)
        if messages[0].reconsume_times == 0:
            await release.wait()

    async with consumer_of(group, slow, addr, consume_timeout_ms=300) as consumer:
        consumer.subscribe(topic)
        await until(lambda: seen == [0, 1], 40, lambda: seen)
        release.set()
        await asyncio.sleep(0.3)
    assert seen == [0, 1]


async def what_is_not_taken_back_is_sent_anew(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    async def refused(*given: object) -> None:
        raise BrokerError(1, "refused for the test")

    patch.setattr(SendBacks, "_send_back", refused)
    await fill(addr, topic, 2)
    listener = Remembers(lambda messages, _: None if messages[0].reconsume_times else ConsumeResult.LATER)
    async with consumer_of(group, listener, addr) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(listener.messages) == 4, 40, lambda: listener.bodies)
    again = [message for message in listener.messages if message.reconsume_times]
    assert {message.body for message in again} == numbers(0, 2)
    assert all(message.topic == topic and message.reconsume_times == 1 for message in again)
    ids = {message.message_id for message in listener.messages}
    assert len(ids) == 2


async def what_nobody_takes_is_tried_here_again(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    async def refused(self: SendBacks, *given: object) -> bool:
        return False

    patch.setattr(SendBacks, "later", refused)
    await fill(addr, topic, 2)
    listener = Remembers(lambda messages, _: None if messages[0].reconsume_times == 2 else ConsumeResult.LATER)
    async with consumer_of(group, listener, addr, resubmit_ms=50) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(listener.messages) == 6, 40, lambda: listener.bodies)
    assert sorted(message.reconsume_times for message in listener.messages) == [0, 0, 1, 1, 2, 2]


async def in_order_a_poison_message_is_dead_and_the_queue_goes_on(
    addr: str, topic: str, group: str, patch: pytest.MonkeyPatch
) -> None:
    await fill(addr, topic, 8, queues=1)

    def never_three(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        context.suspend_ms = 20
        return ConsumeResult.LATER if messages[0].body == b"3" else None

    listener = Remembers(never_three)
    async with consumer_of(group, listener, addr, max_reconsume_times=2, orderly=True) as consumer:
        consumer.subscribe(topic)
        await until(lambda: len(listener.messages) == 8 + 2, 40, lambda: listener.bodies)
        (dead,) = await dead_letters(addr, group, 1)
    assert dead.body == b"3"
    assert dead.properties["RETRY_TOPIC"] == topic
    for offsets in listener.by_queue.values():
        assert offsets == sorted(offsets)


async def sql_expressions_filter(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    async with AsyncAdmin(addr) as admin:
        await admin.topics.create(topic, queues=2)
    async with AsyncProducer("p-sql", name_servers=addr) as producer:
        for number in range(20):
            properties = {"a": str(number), "kind": "odd" if number % 2 else "even"}
            await producer.send(Message(topic=topic, body=b"%d" % number, properties=properties))
    listener = Remembers()
    consumer = consumer_of(group, listener, addr)
    consumer.subscribe(topic, sql="a > 9 AND kind = 'odd'")
    async with consumer:
        await listener.until(5)
        await asyncio.sleep(0.3)
    assert set(listener.bodies) == {b"%d" % number for number in range(11, 20, 2)}
    bad = consumer_of(group + "-bad", listener, addr)
    with pytest.raises(SubscriptionInvalidError) as caught:
        bad.subscribe(topic, sql="a > 5 AND")
    assert caught.value.position == 9
    await bad.close()


async def an_operator_may_have_one_message_consumed(
    addr: str, topic: str, group: str, patch: pytest.MonkeyPatch
) -> None:
    await fill(addr, topic, 1)
    listener = Remembers(lambda messages, _: ConsumeResult.LATER if messages[0].body == b"x" else None)
    async with consumer_of(group, listener, addr) as consumer, AsyncAdmin(addr) as admin:
        consumer.subscribe(topic)
        await listener.until(1)
        (message,) = listener.messages
        request = ConsumeDirectlyRequest(
            group=group,
            client_id=consumer.session.client_id,
            message_id=message.offset_message_id,
            broker_name=message.queue.broker_name,
            topic=topic,
        )
        answer = await admin.session.call(str(message.store_host), request, timeout_ms=30_000)
        said = ConsumeDirectlyResult.decode(answer.body)
    assert said.result is DirectResult.CR_SUCCESS
    assert len(listener.messages) == 2


async def broadcasting_drops_what_fails(addr: str, topic: str, group: str, patch: pytest.MonkeyPatch) -> None:
    await fill(addr, topic, 3)
    listener = Remembers(lambda messages, _: ConsumeResult.LATER)
    async with consumer_of(group, listener, addr, model=MessageModel.BROADCASTING) as consumer:
        consumer.subscribe(topic)
        await listener.until(3)
        await asyncio.sleep(1.5)
    assert len(listener.messages) == 3


async def asking_brokers_for_queues_works_with_all(
    addr: str, topic: str, group: str, patch: pytest.MonkeyPatch
) -> None:
    """Brokers that do not assign refuse, and the members share by themselves."""
    await fill(addr, topic, 12)
    one, other = Remembers(), Remembers()
    async with (
        consumer_of(group, one, addr, broker_assigns=True) as first,
        consumer_of(group, other, addr, broker_assigns=True) as second,
    ):
        first.subscribe(topic)
        second.subscribe(topic)
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 2, 40, first.assignment)
        assert not set(first.assignment()) & set(second.assignment())
        await until(lambda: set(one.bodies) | set(other.bodies) == numbers(0, 12), 40)


SCENES: Final[tuple[Scene, ...]] = (
    a_failed_message_comes_again,
    retries_are_the_groups_own,
    a_message_that_always_fails_is_dead,
    a_listener_may_give_up_at_once,
    a_batch_may_be_done_in_part,
    a_message_that_takes_too_long_comes_again,
    what_is_not_taken_back_is_sent_anew,
    what_nobody_takes_is_tried_here_again,
    in_order_a_poison_message_is_dead_and_the_queue_goes_on,
    sql_expressions_filter,
    an_operator_may_have_one_message_consumed,
    broadcasting_drops_what_fails,
    asking_brokers_for_queues_works_with_all,
)
