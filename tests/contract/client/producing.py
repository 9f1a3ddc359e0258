"""What a producer of ours does with any broker: one suite, run against our broker and against Apache's."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from rocketq.client import (
    AsyncAdmin,
    AsyncProducer,
    Batching,
    BrokerError,
    Message,
    NotARequestError,
    Producer,
    ProducerConfig,
    Puller,
    RecallHandleError,
    ReplyTimeoutError,
    SendContext,
    SendOutcome,
    SendStatus,
    Session,
    SessionConfig,
    StoredMessage,
    TransactionListener,
    TransactionState,
)
from rocketq.client.core.routes import hash_index, subscribe_queues
from rocketq.client.core.trace_records import (
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    TraceMessageType,
    TraceRecord,
    decode_trace,
)
from rocketq.client.offsets import QueuePositions
from rocketq.errors import RocketQError
from rocketq.model import SysFlag
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.failures import MessageIllegalError, TopicNotFoundError
from rocketq.protocol.names import TRACE_TOPIC

_NUMBERS = itertools.count()


class Needs(StrEnum):
    """What not every broker has."""

    DELAY = "delay levels"
    TIMER = "delivery at any time"
    RECALLS = "messages taken back"
    TRANSACTIONS = "transactions"
    REPLIES = "replies"


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to be tried."""

    name_servers: str
    has: frozenset[Needs]

    def topic(self, name: str) -> str:
        return f"P{next(_NUMBERS)}-{name}-{int(time.time()) % 100_000}"


Case = Callable[[Target], Coroutine[Any, Any, None]]
CASES: dict[str, tuple[Case, frozenset[Needs]]] = {}


def case(*needs: Needs) -> Callable[[Case], Case]:
    def add(work: Case) -> Case:
        CASES[work.__name__] = (work, frozenset(needs))
        return work

    return add


def run_case(name: str, target: Target) -> None:
    work, needs = CASES[name]
    if missing := needs - target.has:
        pytest.skip(f"this broker has no {', '.join(sorted(missing))}")
    asyncio.run(asyncio.wait_for(work(target), 90))


@asynccontextmanager
async def producing(
    target: Target, topic: str | None = None, queues: int = 2, **given: Any
) -> AsyncIterator[AsyncProducer]:
    """A producer, and a topic of its own if one is named."""
    if topic is not None:
        async with AsyncAdmin(target.name_servers) as admin:
            assert (await admin.topics.create(topic, queues=queues)).routed
    async with AsyncProducer(f"G-{next(_NUMBERS)}", name_servers=target.name_servers, **given) as producer:
        yield producer


async def stored(session: Session, topic: str) -> list[StoredMessage]:
    """Everything that is visible in a topic, in the order of queues and offsets."""
    found: list[StoredMessage] = []
    puller, positions = Puller(session), QueuePositions(session)
    for queue in subscribe_queues(topic, await session.routes.refresh(topic)):
        bounds = await positions.bounds(queue)
        at = bounds.min_offset
        while at < bounds.max_offset:
            result = await puller.pull(queue, at)
            found += result.messages
            assert result.next_offset > at
            at = result.next_offset
    return found


async def arrived(session: Session, topic: str, count: int, within_s: float = 30) -> list[StoredMessage]:
    """The messages of a topic once there are so many."""
    async with asyncio.timeout(within_s):
        while len(found := await stored(session, topic)) < count:
            await asyncio.sleep(0.05)
    return found


def bodies(messages: Iterable[StoredMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


@case()
async def a_message_is_stored_as_it_was_sent(target: Target) -> None:
    topic = target.topic("single")
    async with producing(target, topic) as producer:
        message = Message(
            topic=topic, body=b"\x00\xffbody", tag="t", keys=("k1", "k2"), properties={"mine": "ü"}, flag=7
        )
        sent = await producer.send(message)
        assert (sent.status, sent.queue.topic, sent.queue_offset) == (SendStatus.SEND_OK, topic, 0)
        (found,) = await arrived(producer.session, topic, 1)
        assert (found.body, found.tag, found.keys, found.flag) == (message.body, "t", ("k1", "k2"), 7)
        assert found.properties["mine"] == "ü"
        assert (found.message_id, found.offset_message_id) == (sent.message_id, sent.offset_message_id)
        assert (found.queue, found.queue_offset) == (sent.queue, sent.queue_offset)
        async with AsyncAdmin(session=producer.session) as admin:
            assert (await admin.messages.get(sent.offset_message_id)).body == message.body


@case()
async def sends_take_turns_at_the_queues(target: Target) -> None:
    topic = target.topic("turns")
    async with producing(target, topic, queues=4) as producer:
        results = [await producer.send(Message(topic=topic, body=b"%d" % at)) for at in range(8)]
        assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert bodies(await arrived(producer.session, topic, 8)) == [b"%d" % at for at in range(8)]


@case()
async def a_queue_is_given_or_chosen(target: Target) -> None:
    topic = target.topic("chosen")
    async with producing(target, topic, queues=4) as producer:
        queues = await producer.queues(topic)
        assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
        message = Message(topic=topic, body=b"x")
        assert (await producer.send(message, queue=queues[2])).queue == queues[2]
        for key in ("order-1", "order-2", 77):
            sent = [await producer.send(message, sharding_key=key) for _ in range(3)]
            assert {result.queue for result in sent} == {queues[hash_index(key, 4)]}
            offsets = [result.queue_offset for result in sent]
            assert offsets == list(range(offsets[0], offsets[0] + 3))
        sent_there = await producer.send(message, select=lambda found, one, arg: found[arg], arg=3)
        assert sent_there.queue == queues[3]


@case()
async def one_way_messages_arrive(target: Target) -> None:
    topic = target.topic("oneway")
    async with producing(target, topic) as producer:
        for at in range(5):
            await producer.send_oneway(Message(topic=topic, body=b"%d" % at))
        assert bodies(await arrived(producer.session, topic, 5)) == [b"%d" % at for at in range(5)]


@case()
async def each_message_of_a_batch_has_its_ids_and_its_place(target: Target) -> None:
    topic = target.topic("batch")
    async with producing(target, topic) as producer:
        messages = [Message(topic=topic, body=b"%02d" % at, keys=(f"k{at}",), tag=f"t{at % 2}") for at in range(20)]
        results = await producer.send_batch(messages)
        assert len({result.queue for result in results}) == 1
        assert [result.queue_offset for result in results] == list(range(20))
        found = {message.offset_message_id: message for message in await arrived(producer.session, topic, 20)}
        for message, result in zip(messages, results, strict=True):
            one = found[result.offset_message_id]
            assert (one.body, one.keys, one.tag, one.message_id) == (
                message.body,
                message.keys,
                message.tag,
                result.message_id,
            )


@case()
async def a_long_batch_is_split(target: Target) -> None:
    topic = target.topic("split")
    async with producing(target, topic, config=ProducerConfig(batch_bytes_max=2_000)) as producer:
        messages = [Message(topic=topic, body=(b"%02d" % at) * (700 if at == 5 else 50)) for at in range(20)]
        results = await producer.send_batch(messages)
        found = {(one.queue, one.queue_offset): one for one in await arrived(producer.session, topic, 20)}
        assert [found[one.queue, one.queue_offset].body for one in results] == [one.body for one in messages]
        assert [found[one.queue, one.queue_offset].message_id for one in results] == [one.message_id for one in results]


@case()
async def sends_share_requests_and_each_has_its_own_result(target: Target) -> None:
    """Goal: whatever goes together, every await hears of its own message."""
    topic = target.topic("sharing")
    config = ProducerConfig(batching=Batching(count_max=50))
    async with producing(target, topic, config=config) as producer:
        messages = [Message(topic=topic, body=b"%03d" % at) for at in range(300)]
        messages.append(Message(topic=topic, body=b"large" * 2_000))
        results = await asyncio.gather(*(producer.send(message) for message in messages))
        found = {(one.queue, one.queue_offset): one for one in await arrived(producer.session, topic, 301)}
        assert len(found) == len(messages)
        for message, result in zip(messages, results, strict=True):
            one = found[result.queue, result.queue_offset]
            assert (one.body, one.message_id) == (message.body, result.message_id)
            assert one.offset_message_id == result.offset_message_id


@case()
async def large_bodies_travel_compressed(target: Target) -> None:
    topic = target.topic("large")
    async with producing(target, topic, queues=1) as producer:
        for body in (b"a" * 4_095, b"a" * 4_096, bytes(range(256)) * 4_096):
            await producer.send(Message(topic=topic, body=body))
        small, middle, large = await arrived(producer.session, topic, 3)
        assert [bool(one.sys_flag & SysFlag.COMPRESSED) for one in (small, middle, large)] == [False, True, True]
        assert [len(one.body) for one in (small, middle, large)] == [4_095, 4_096, 256 * 4_096]
        assert large.stored_bytes < 100_000


@case()
async def a_topic_that_is_not_there_is_made_by_the_first_message(target: Target) -> None:
    topic = target.topic("made")
    async with producing(target) as producer:
        sent = await producer.send(Message(topic=topic, body=b"first"))
        assert sent.queue_offset == 0
        async with asyncio.timeout(40):
            while True:
                try:
                    queues = subscribe_queues(topic, await producer.session.routes.refresh(topic))
                    break
                except TopicNotFoundError:
                    await asyncio.sleep(0.05)
        assert len(queues) == 4
        assert bodies(await arrived(producer.session, topic, 1)) == [b"first"]


@case()
async def a_message_need_not_wait(target: Target) -> None:
    topic = target.topic("nowait")
    async with producing(target, topic) as producer:
        await producer.send(Message(topic=topic, body=b"one", wait=False))
        await producer.send_batch([Message(topic=topic, body=b"%d" % at, wait=False) for at in range(2)])
        assert bodies(await arrived(producer.session, topic, 3)) == [b"0", b"1", b"one"]


@case()
async def what_a_broker_refuses_is_raised_with_its_code(target: Target) -> None:
    topic = target.topic("refused")
    config = ProducerConfig(body_bytes_max=16 << 20, compress_from_bytes=1 << 30)
    async with producing(target, topic, config=config) as producer:
        with pytest.raises(MessageIllegalError) as caught:
            await producer.send(Message(topic=topic, body=bytes(5 << 20)), timeout_ms=10_000)
        assert caught.value.code == 13
        assert not caught.value.retriable
        assert (await producer.send(Message(topic=topic, body=b"x"))).queue_offset == 0


@case()
async def names_have_their_namespace_on_the_wire_only(target: Target) -> None:
    topic = target.topic("tenant")
    config = SessionConfig(namespace="tenant-1")
    async with producing(target, f"tenant-1%{topic}", session_config=config) as producer:
        sent = await producer.send(Message(topic=topic, body=b"x"))
        assert sent.queue.topic == topic
        assert (await producer.send(Message(topic=topic, body=b"y"), queue=sent.queue)).queue == sent.queue
        batch = await producer.send_batch([Message(topic=topic, body=b"z")] * 2)
        assert {result.queue.topic for result in batch} == {topic}
        found = await arrived(producer.session, f"tenant-1%{topic}", 4)
        assert bodies(found) == [b"x", b"y", b"z", b"z"]
        assert {one.properties.get("INSTANCE_ID") for one in found} == {"tenant-1"}


@case()
async def hooks_hear_of_every_send(target: Target) -> None:
    topic = target.topic("hooks")
    heard: list[tuple[str, SendContext]] = []

    class Hook:
        def before_send(self, context: SendContext) -> None:
            assert context.outcome is None
            heard.append(("before", context))
            raise RuntimeError("a hook's own fault")

        def after_send(self, context: SendContext) -> None:
            heard.append(("after", context))

    async with producing(target, topic, hooks=[Hook()]) as producer:
        sent = await producer.send(Message(topic=topic, body=b"x"))
        await producer.send_batch([Message(topic=topic, body=b"y")] * 2)
        await producer.send_oneway(Message(topic=topic, body=b"z"))
        with pytest.raises(RocketQError):
            await producer.send(Message(topic=topic, body=b""))
    assert [what for what, _ in heard] == ["before", "after"] * 4
    contexts = [context for what, context in heard if what == "after"]
    assert [len(context.results) for context in contexts] == [1, 2, 0, 0]
    assert [context.outcome for context in contexts] == [SendOutcome.SUCCESS] * 3 + [SendOutcome.EXCEPTION]
    assert contexts[0].results == (sent,)
    assert contexts[0].queue == sent.queue
    assert contexts[3].error is not None


@case()
async def traced_messages_are_told_of(target: Target) -> None:
    topic = target.topic("traced")
    async with producing(target, topic, config=ProducerConfig(trace=True)) as producer:
        sent = await producer.send(Message(topic=topic, body=b"hello", tag="t", keys=("k",)))
        await producer.send_batch([Message(topic=topic, body=b"%d" % at) for at in range(2)])
        group = producer.group
    async with Session(target.name_servers) as session:
        async with asyncio.timeout(30):
            while len(records := await _traces(session, group)) < 3:
                await asyncio.sleep(0.1)
        first = records[sent.message_id]
        assert (first.topic, first.tag, first.keys, first.body_bytes, first.success) == (topic, "t", "k", 5, True)
        assert first.offset_message_id == sent.offset_message_id
        assert first.message_type is TraceMessageType.NORMAL


async def _traces(session: Session, group: str) -> dict[str, PubRecord]:
    records = await _records(session)
    return {one.message_id: one for one in records if isinstance(one, PubRecord) and one.group == group}


async def _records(session: Session) -> list[TraceRecord]:
    try:
        found = await stored(session, TRACE_TOPIC)
    except TopicNotFoundError:
        return []
    return [record for message in found for record in decode_trace(message.body.decode())]


@case(Needs.DELAY)
async def a_delay_level_holds_a_message_back(target: Target) -> None:
    topic = target.topic("level")
    async with producing(target, topic) as producer:
        start_s = time.monotonic()
        sent = await producer.send(Message(topic=topic, body=b"later", tag="t", keys=("k",), delay_level=2))
        assert sent.status is SendStatus.SEND_OK
        await producer.send(Message(topic=topic, body=b"now"))
        assert bodies(await arrived(producer.session, topic, 1)) == [b"now"]
        found = await arrived(producer.session, topic, 2)
        assert time.monotonic() - start_s > 4.5
        (later,) = [one for one in found if one.body == b"later"]
        assert (later.message_id, later.tag, later.keys) == (sent.message_id, "t", ("k",))


@case(Needs.TIMER)
async def a_time_holds_a_message_back(target: Target) -> None:
    topic = target.topic("timer")
    async with producing(target, topic) as producer:
        start_s = time.monotonic()
        await producer.send(Message(topic=topic, body=b"span", delay_ms=3_000))
        await producer.send(Message(topic=topic, body=b"moment", deliver_at_ms=int(time.time() * 1000) + 3_000))
        assert await stored(producer.session, topic) == []
        assert bodies(await arrived(producer.session, topic, 2)) == [b"moment", b"span"]
        assert time.monotonic() - start_s > 1.5


@case(Needs.TIMER, Needs.RECALLS)
async def a_message_with_a_timer_is_taken_back(target: Target) -> None:
    """With a namespace, and traced; what is no handle is refused here, what comes too late by the broker."""
    topic = target.topic("recall")
    config = ProducerConfig(trace=True)
    session_config = SessionConfig(namespace="taken")
    async with producing(target, f"taken%{topic}", session_config=session_config, config=config) as producer:
        gone = await producer.send(Message(topic=topic, body=b"gone", delay_ms=4_000))
        comes = await producer.send(Message(topic=topic, body=b"comes", delay_ms=4_000))
        plain = await producer.send(Message(topic=topic, body=b"plain"))
        assert plain.recall_handle is None
        for bad in (plain.recall_handle, "nonsense", 5):
            with pytest.raises(RecallHandleError):
                await producer.recall(bad)  # type: ignore[arg-type]
        assert await producer.recall(gone.recall_handle) == gone.message_id
        named = f"taken%{topic}"
        assert bodies(await arrived(producer.session, named, 2)) == [b"comes", b"plain"]
        await asyncio.sleep(1.5)
        assert bodies(await stored(producer.session, named)) == [b"comes", b"plain"]
        with pytest.raises(BrokerError) as refused:
            await producer.recall(comes.recall_handle)
        assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
        group = "G-" + producer.group.rpartition("G-")[2]
    async with Session(target.name_servers) as session, asyncio.timeout(30):
        while len(told := [one for one in await _records(session) if _is_recall(one, group)]) < 2:
            await asyncio.sleep(0.1)
        assert {(one.message_id, one.topic, one.success) for one in told} == {  # type: ignore[union-attr]
            (gone.message_id, topic, True),
            (comes.message_id, topic, False),
        }


def _is_recall(record: TraceRecord, group: str) -> bool:
    return isinstance(record, RecallRecord) and record.group == group


@case(Needs.TRANSACTIONS)
async def a_transaction_is_committed_or_rolled_back(target: Target) -> None:
    topic = target.topic("transaction")
    states = {b"commit": TransactionState.COMMIT, b"rollback": TransactionState.ROLLBACK}

    def execute(message: Message, arg: object) -> TransactionState:
        assert arg == "arg"
        return states[message.body]

    async def check(message: StoredMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    listener = TransactionListener(execute, check)
    async with producing(target, topic, transaction=listener) as producer:
        rolled = await producer.send_in_transaction(Message(topic=topic, body=b"rollback"), "arg")
        done = await producer.send_in_transaction(Message(topic=topic, body=b"commit", keys=("k",)), "arg")
        assert (rolled.state, done.state) == (TransactionState.ROLLBACK, TransactionState.COMMIT)
        (found,) = await arrived(producer.session, topic, 1)
        assert (found.body, found.keys, found.message_id) == (b"commit", ("k",), done.sent.message_id)
        await asyncio.sleep(0.3)
        assert len(await stored(producer.session, topic)) == 1


@case(Needs.TRANSACTIONS)
async def an_undecided_transaction_is_asked_about(target: Target) -> None:
    """Goal: what the local part did not know, or failed at, is decided by the later check."""
    topic = target.topic("checked")
    asked: list[bytes] = []

    async def execute(message: Message, arg: object) -> TransactionState | None:
        if message.body == b"broken":
            raise ValueError("the local part failed")
        return None

    def check(message: StoredMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT if message.body == b"unknown" else TransactionState.ROLLBACK

    async with producing(target, topic, transaction=TransactionListener(execute, check)) as producer:
        unknown = await producer.send_in_transaction(Message(topic=topic, body=b"unknown"))
        broken = await producer.send_in_transaction(Message(topic=topic, body=b"broken"))
        assert (unknown.state, unknown.error) == (TransactionState.UNKNOWN, None)
        assert broken.state is TransactionState.UNKNOWN
        assert isinstance(broken.error, ValueError)
        assert await stored(producer.session, topic) == []
        (found,) = await arrived(producer.session, topic, 1, within_s=60)
        assert (found.body, found.message_id) == (b"unknown", unknown.sent.message_id)
        async with asyncio.timeout(30):
            while b"broken" not in asked:
                await asyncio.sleep(0.05)


@case(Needs.TRANSACTIONS)
async def the_end_of_a_transaction_is_traced(target: Target) -> None:
    topic = target.topic("traced-end")
    listener = TransactionListener(lambda message, arg: TransactionState.COMMIT, lambda message: None)
    async with producing(target, topic, transaction=listener, config=ProducerConfig(trace=True)) as producer:
        done = await producer.send_in_transaction(Message(topic=topic, body=b"x", keys=("k",)))
        group = producer.group
    async with Session(target.name_servers) as session, asyncio.timeout(30):
        while done.sent.message_id not in (half := await _traces(session, group)):
            await asyncio.sleep(0.1)
        assert half[done.sent.message_id].message_type is TraceMessageType.HALF
        ends = [one for one in await _records(session) if isinstance(one, EndTransactionRecord) and one.group == group]
        assert [(one.message_id, one.keys, one.state) for one in ends] == [
            (done.sent.message_id, "k", "COMMIT_MESSAGE")
        ]


async def _answer(session: Session, topic: str, producer: AsyncProducer, count: int) -> None:
    """Replies to requests in the order they are found."""
    seen: set[str] = set()
    while len(seen) < count:
        for message in await stored(session, topic):
            if message.message_id not in seen:
                seen.add(message.message_id)
                await producer.reply(message, b"re: " + message.body, properties={"who": "replier"})
        await asyncio.sleep(0.02)


@case(Needs.REPLIES)
async def a_request_gets_its_reply(target: Target) -> None:
    topic = target.topic("request")
    async with producing(target, topic) as asking, producing(target) as replying:
        answering = asyncio.create_task(_answer(replying.session, topic, replying, 3))
        replies = await asyncio.gather(
            *(asking.request(Message(topic=topic, body=b"%d" % at), timeout_ms=20_000) for at in range(3))
        )
        assert [reply.body for reply in replies] == [b"re: 0", b"re: 1", b"re: 2"]
        assert {reply.properties["who"] for reply in replies} == {"replier"}
        await answering


@case()
async def a_request_without_a_reply_ends_in_time(target: Target) -> None:
    topic = target.topic("silence")
    async with producing(target, topic) as producer:
        with pytest.raises(ReplyTimeoutError) as caught:
            await producer.request(Message(topic=topic, body=b"anybody?"), timeout_ms=1_000)
        assert caught.value.code == 10006
        await producer.send(Message(topic=topic, body=b"plain"))
        (plain,) = [one for one in await arrived(producer.session, topic, 2) if one.body == b"plain"]
        with pytest.raises(NotARequestError):
            await producer.reply(plain, b"nobody asked")


@case()
async def it_works_without_await(target: Target) -> None:
    topic = target.topic("sync")
    async with producing(target, topic) as other:
        await asyncio.to_thread(_without_await, target, topic)
        assert bodies(await arrived(other.session, topic, 6)) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def _without_await(target: Target, topic: str) -> None:
    with Producer("G-sync", name_servers=target.name_servers) as producer:
        assert producer.send(Message(topic=topic, body=b"a")).status is SendStatus.SEND_OK
        assert producer.send(Message(topic=topic, body=b"b"), sharding_key="k").status is SendStatus.SEND_OK
        producer.send_oneway(Message(topic=topic, body=b"c"))
        assert len(producer.send_batch([Message(topic=topic, body=body) for body in (b"d", b"e")])) == 2
        assert producer.send_async(Message(topic=topic, body=b"f")).result(10).status is SendStatus.SEND_OK
        assert producer.health().brokers
