"""Producers coming and going: wrong input before any call, closing, loops, forks, brokers that die under load."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketq.client import (
    AsyncAdmin,
    AsyncProducer,
    Batching,
    ClientClosedError,
    GroupTakenError,
    Message,
    MessageInvalidError,
    NotStartedError,
    Producer,
    ProducerConfig,
    SelectorError,
    SendResult,
    SendStatus,
    Session,
    SessionConfig,
    TransactionListener,
    WrongLoopError,
)
from rocketq.errors import ConfigError, RocketQError
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.testing.embedded import EmbeddedCluster
from rocketq.testing.fault_proxy import FaultProxy

from .kit import closed_port, on_a_loop
from .producing import arrived, stored

NOWHERE = "127.0.0.1:1"
MESSAGE = Message(topic="T", body=b"x")


@pytest.mark.parametrize(
    "message",
    [
        replace(MESSAGE, body=b""),
        replace(MESSAGE, body="text"),
        replace(MESSAGE, body=None),
        replace(MESSAGE, body=bytes((4 << 20) + 1)),
        replace(MESSAGE, topic=""),
        replace(MESSAGE, topic="no blanks"),
        replace(MESSAGE, topic="x" * 128),
        replace(MESSAGE, topic=5),
        replace(MESSAGE, topic="SCHEDULE_TOPIC_XXXX"),
        replace(MESSAGE, keys=(5,)),
        replace(MESSAGE, keys=("a b",)),
        replace(MESSAGE, tag=5),
        replace(MESSAGE, tag="a\x02b"),
        replace(MESSAGE, delay_level=-1),
        replace(MESSAGE, delay_level=1, delay_ms=5),
        replace(MESSAGE, deliver_at_ms="soon"),
        replace(MESSAGE, properties={"TRAN_MSG": "true"}),
        replace(MESSAGE, properties={"a": ""}),
        replace(MESSAGE, properties={"a": 5}),
        replace(MESSAGE, properties={"a": "x" * 40_000}),
        replace(MESSAGE, properties=["a"]),
        b"bytes",
        None,
    ],
    ids=lambda message: repr(message)[:60],
)
@on_a_loop
async def test_a_bad_message_is_refused_before_anybody_is_called(message: Any) -> None:
    async with AsyncProducer("g", name_servers=NOWHERE) as producer:
        with pytest.raises(MessageInvalidError):
            await producer.send(message)
        with pytest.raises(MessageInvalidError):
            await producer.send_oneway(message)
        with pytest.raises(MessageInvalidError):
            await producer.send_batch([message, message])


@pytest.mark.parametrize("group", ["", "no blanks", "x" * 256, "DEFAULT_PRODUCER", None])
def test_a_bad_group_is_refused_at_once(group: Any) -> None:
    for kind in (AsyncProducer, Producer):
        with pytest.raises(ConfigError):
            kind(group, name_servers=NOWHERE)


def test_bad_settings_are_refused_at_once() -> None:
    for wrong in ({"attempts_max": 0}, {"send_timeout_ms": 0}, {"in_flight_count_max": 0}, {"attempt_timeout_ms": 0}):
        with pytest.raises(ConfigError):
            ProducerConfig(**wrong)
    with pytest.raises(ConfigError):
        Producer("g", name_servers="nonsense")


@on_a_loop
async def test_it_must_be_started_and_is_started_once(cluster: EmbeddedCluster, topic: str) -> None:
    producer = AsyncProducer("g", name_servers=cluster.name_server_addr)
    with pytest.raises(NotStartedError):
        await producer.send(MESSAGE)
    await producer.start()
    with pytest.raises(ConfigError):
        await producer.start()
    assert (await producer.send(Message(topic=topic, body=b"x"))).status is SendStatus.SEND_OK
    await producer.close()
    await producer.close()
    for call in (producer.send(MESSAGE), producer.send_oneway(MESSAGE), producer.request(MESSAGE), producer.start()):
        with pytest.raises(ClientClosedError):
            await call


def test_on_another_loop_it_says_so() -> None:
    """Goal: a loop that was closed without closing the producer leaves a clear error, not a riddle."""

    async def begin() -> AsyncProducer:
        return await AsyncProducer("g", name_servers=NOWHERE).start()

    loop = asyncio.new_event_loop()
    producer = loop.run_until_complete(begin())

    async def use() -> None:
        with pytest.raises(WrongLoopError):
            await producer.send(MESSAGE)

    asyncio.run(use())
    loop.run_until_complete(producer.close())
    loop.close()


@on_a_loop
async def test_producers_share_a_session(cluster: EmbeddedCluster, topic: str) -> None:
    async with Session(cluster.name_server_addr) as session, AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1)
        async with AsyncProducer("one", session=session) as one, AsyncProducer("two", session=session) as two:
            for producer in (one, two):
                await producer.send(Message(topic=topic, body=b"x"))
            with pytest.raises(GroupTakenError):
                await AsyncProducer("one", session=session).start()
            connected = await admin.groups.producer_connections("one")
            assert [each.client_id for each in connected] == [session.client_id]
            health = session.health()
            assert {member["group"] for member in health.members} == {"one", "two"}
            assert any(health.brokers.values())
        assert not session.health().closed
        assert len(await stored(session, topic)) == 2
        with pytest.raises(ConfigError):
            AsyncProducer("g", session=session, name_servers="127.0.0.1:1")
    assert session.health().closed


@on_a_loop
async def test_a_selector_that_fails_or_chooses_nothing_is_told(cluster: EmbeddedCluster, topic: str) -> None:
    async with AsyncProducer("g", name_servers=cluster.name_server_addr) as producer:
        message = Message(topic=topic, body=b"x")
        for select in (lambda queues, one, arg: None, lambda queues, one, arg: queues[99]):
            with pytest.raises(SelectorError):
                await producer.send(message, select=select)
        with pytest.raises(ConfigError):
            await producer.send(message, select=lambda queues, one, arg: queues[0], sharding_key="k")
        with pytest.raises(ConfigError):
            await producer.send_in_transaction(message)


@on_a_loop
async def test_without_topics_made_by_themselves_an_unknown_one_is_told(
    make_rocketq_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = make_rocketq_cluster(settings={"autoCreateTopicEnable": "false"})
    async with AsyncProducer("g", name_servers=cluster.name_server_addr) as producer:
        with pytest.raises(TopicNotFoundError):
            await producer.send(Message(topic="Nobody-made-it", body=b"x"))


@on_a_loop
async def test_closing_ends_what_waits(cluster: EmbeddedCluster, topic: str) -> None:
    producer = await AsyncProducer("g", name_servers=cluster.name_server_addr).start()
    asking = asyncio.create_task(producer.request(Message(topic=topic, body=b"?"), timeout_ms=20_000))
    while not producer.health()["waiting_for_replies"]:
        await asyncio.sleep(0.01)
    await producer.close()
    with pytest.raises(RocketQError):
        await asking


@on_a_loop
async def test_what_is_gathered_goes_out_before_the_end(cluster: EmbeddedCluster, topic: str) -> None:
    config = ProducerConfig(batching=Batching(linger_ms=60_000))
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1)
        producer = await AsyncProducer("g", name_servers=cluster.name_server_addr, config=config).start()
        sends = [asyncio.create_task(producer.send(Message(topic=topic, body=b"%d" % at))) for at in range(3)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in sends)
        await producer.close()
        assert [result.queue_offset for result in await asyncio.gather(*sends)] == [0, 1, 2]


# faults


@pytest.fixture
def proxied(make_rocketq_cluster: Callable[..., EmbeddedCluster]) -> Iterator[tuple[EmbeddedCluster, FaultProxy, Any]]:
    """A cluster whose broker is reached through a proxy: a session that is misled to it is made by the third."""
    cluster = make_rocketq_cluster()
    with FaultProxy(cluster.broker_addr) as proxy:

        def session(**given: Any) -> Session:
            made = Session(cluster.name_server_addr, config=SessionConfig(**given))
            look_up = made.routes._lookup

            async def misled(topic: str) -> Any:
                route = await look_up(topic)
                return replace(route, brokers=tuple(replace(one, addrs={0: proxy.addr}) for one in route.brokers))

            made.routes._lookup = misled
            return made

        yield cluster, proxy, session


@on_a_loop
async def test_a_cut_line_is_made_anew(proxied: Any, topic: str) -> None:
    _, proxy, make = proxied
    async with make() as session, AsyncProducer("g", session=session) as producer:
        await producer.send(Message(topic=topic, body=b"before"))
        for _ in range(5):
            proxy.cut()
            assert (await producer.send(Message(topic=topic, body=b"after"))).status is SendStatus.SEND_OK
        assert proxy.connections_count >= 6


@on_a_loop
async def test_a_line_that_is_cut_under_load_loses_nothing_that_was_acknowledged(proxied: Any, topic: str) -> None:
    cluster, proxy, make = proxied
    async with AsyncAdmin(cluster.name_server_addr) as admin, make() as session:
        await admin.topics.create(topic, queues=2)
        async with AsyncProducer("g", session=session) as producer:
            stop = asyncio.Event()
            tasks = [asyncio.create_task(_load(producer, topic, stop, name)) for name in range(4)]
            for _ in range(6):
                await asyncio.sleep(0.1)
                await asyncio.to_thread(proxy.cut)
            stop.set()
            results = [one for part in await asyncio.gather(*tasks) for one in part]
            await _all_there(admin.session, topic, results)


@on_a_loop
async def test_a_frozen_line_costs_the_timeout_and_no_more(proxied: Any, topic: str) -> None:
    _, proxy, make = proxied
    async with make() as session, AsyncProducer("g", session=session) as producer:
        await producer.send(Message(topic=topic, body=b"before"))
        proxy.freeze()
        with pytest.raises(RocketQError) as caught:
            await producer.send(Message(topic=topic, body=b"frozen"), timeout_ms=300)
        assert caught.value.retriable
        proxy.restore()
        assert (await producer.send(Message(topic=topic, body=b"after"))).status is SendStatus.SEND_OK


@on_a_loop
async def test_a_slow_or_half_closed_line_does_not_stop_it(proxied: Any, topic: str) -> None:
    _, proxy, make = proxied
    async with make() as session, AsyncProducer("g", session=session) as producer:
        proxy.delay(50)
        assert (await producer.send(Message(topic=topic, body=b"slow"))).status is SendStatus.SEND_OK
        proxy.restore()
        proxy.half_close()
        sends = [await _until_sent(producer, Message(topic=topic, body=b"half-closed")) for _ in range(3)]
        assert all(result.status is SendStatus.SEND_OK for result in sends)
        proxy.refuse()
        proxy.cut()
        with pytest.raises(RocketQError):
            await producer.send(Message(topic=topic, body=b"refused"), timeout_ms=500)
        proxy.restore()
        assert (await _until_sent(producer, Message(topic=topic, body=b"again"))).status is SendStatus.SEND_OK


async def _until_sent(producer: AsyncProducer, message: Message) -> SendResult:
    while True:
        try:
            return await producer.send(message, timeout_ms=500)
        except RocketQError as error:
            if not error.retriable:
                raise


async def _load(producer: AsyncProducer, topic: str, stop: asyncio.Event, name: int) -> list[tuple[bytes, SendResult]]:
    """Sends until told to stop; what failed may or may not be stored, what did not must be."""
    done = []
    at = 0
    while not stop.is_set():
        at += 1
        body = b"%d-%d" % (name, at)
        try:
            done.append((body, await producer.send(Message(topic=topic, body=body), timeout_ms=1_000)))
        except RocketQError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(0.01)
    return done


async def _all_there(session: Session, topic: str, results: list[tuple[bytes, SendResult]]) -> None:
    assert results
    found = {(one.queue, one.queue_offset): one for one in await arrived(session, topic, len(results))}
    for body, result in results:
        one = found[result.queue, result.queue_offset]
        assert (one.body, one.message_id) == (body, result.message_id)


@pytest.mark.parametrize("batching", [None, Batching()], ids=["one by one", "sharing"])
def test_brokers_and_the_name_server_restart_under_load(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str, batching: Batching | None
) -> None:
    """Goal: sending goes on by itself, and whatever was acknowledged is there."""

    async def work() -> None:
        cluster = make_rocketq_cluster(brokers=2)
        config = ProducerConfig(batching=batching)
        async with AsyncAdmin(cluster.name_server_addr) as admin:
            await admin.topics.create(topic, queues=2)
        async with AsyncProducer("g", name_servers=cluster.name_server_addr, config=config) as producer:
            stop = asyncio.Event()
            tasks = [asyncio.create_task(_load(producer, topic, stop, name)) for name in range(4)]
            for index in (0, 1):
                await asyncio.sleep(0.2)
                await asyncio.to_thread(cluster.restart_broker, index)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(cluster.stop_name_server)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(cluster.start_name_server)
            await asyncio.sleep(0.3)
            before = producer.session.health()
            assert before.members
            stop.set()
            results = [one for part in await asyncio.gather(*tasks) for one in part]
            assert {result.queue.broker_name for _, result in results} == {"broker-0", "broker-1"}
            sent = await _until_sent(producer, Message(topic=topic, body=b"last"))
            async with asyncio.timeout(60):
                while True:  # brokers register with the new NameServer by and by
                    try:
                        await _all_there(producer.session, topic, [*results, (b"last", sent)])
                        break
                    except (RocketQError, KeyError):
                        await asyncio.sleep(0.5)

    asyncio.run(asyncio.wait_for(work(), 120))


# without await


def test_threads_share_one_without_await(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer("g", name_servers=cluster.name_server_addr) as producer, ThreadPoolExecutor(8) as threads:
        sent = list(threads.map(lambda at: producer.send(Message(topic=topic, body=b"%d" % at)), range(40)))
        futures = [producer.send_async(Message(topic=topic, body=b"%d" % at)) for at in range(40)]
        sent += [future.result(10) for future in futures]
    assert len({(one.queue, one.queue_offset) for one in sent}) == 80
    with pytest.raises(ClientClosedError):
        producer.send(MESSAGE)
    with pytest.raises(ClientClosedError):
        producer.send_async(MESSAGE)
    assert not any(thread.name == "rocketq-client" for thread in threading.enumerate())


def test_a_running_loop_does_not_matter(cluster: EmbeddedCluster, topic: str) -> None:
    async def cell() -> SendStatus:
        with Producer("g", name_servers=cluster.name_server_addr) as producer:
            return producer.send(Message(topic=topic, body=b"x")).status

    assert asyncio.run(cell()) is SendStatus.SEND_OK


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_producer_of_its_own(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer("g", name_servers=cluster.name_server_addr) as producer:
        producer.send(Message(topic=topic, body=b"parent"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if producer.send(Message(topic=topic, body=b"child")).status is SendStatus.SEND_OK else 2
                producer.close()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert producer.send(Message(topic=topic, body=b"parent")).status is SendStatus.SEND_OK


def test_a_listener_may_use_the_producer_itself(cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: listeners run on threads, so what they call does not wait for itself."""

    def execute(message: Message, arg: object) -> Any:
        producer.send(Message(topic=topic, body=b"from the listener"))

    listener = TransactionListener(execute, lambda message: None)
    with Producer("g-" + topic[:40], name_servers=cluster.name_server_addr, transaction=listener) as producer:
        try:
            result = producer.send_in_transaction(Message(topic=topic, body=b"half"))
        except RocketQError as error:
            pytest.skip(f"no transactions here: {error}")
        assert result.error is None


def test_what_cannot_start_says_why_and_may_try_again(cluster: EmbeddedCluster) -> None:
    producer = Producer("g", name_servers=closed_port(), config=ProducerConfig(send_timeout_ms=500))
    for _ in range(2):
        with pytest.raises(RocketQError):
            producer.send(MESSAGE)
    producer.close()


FORKING = """
import gc, os, sys
from rocketq.client import Message, Producer

producer = Producer("forking", name_servers=sys.argv[1])
message = Message(topic=sys.argv[2], body=b"x")
producer.send(message)
for child in range(3):
    process_id = os.fork()
    if process_id == 0:
        if child:
            producer.send(message)
        if child == 2:
            producer.close()
        del producer
        gc.collect()
        sys.exit(0)
    os.waitpid(process_id, 0)
    for _ in range(3):
        producer.send(message, timeout_ms=5_000)
producer.close()
print("done")
"""


def test_children_that_end_leave_their_parent_alone(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    """Goal: what a child drops of its parent's loop may not be torn down: both share the kernel's part of it."""
    script = tmp_path / "forking.py"
    script.write_text(FORKING)
    command = [sys.executable, str(script), cluster.name_server_addr, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr
    assert done.returncode == 0
