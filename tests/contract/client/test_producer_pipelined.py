"""Sends that do not wait for one another: send_nowait, send_many, flush, and sends on sockets of the caller."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from rocketq.client import (
    AsyncProducer,
    AsyncPullConsumer,
    BatchFailedError,
    Batching,
    ClientClosedError,
    ConsumeFromWhere,
    Message,
    MessageInvalidError,
    Producer,
    ProducerConfig,
    PullConfig,
    SendFailedError,
    SendResult,
    SendStatus,
    SendTimeoutError,
    SessionConfig,
    TooManySendsError,
)
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import MessageIllegalError
from rocketq.protocol.messages import decode_batch
from rocketq.remoting import Connection
from rocketq.testing.embedded import EmbeddedCluster
from rocketq.testing.fault_proxy import FaultProxy

from .kit import on_a_loop
from .scripted import ScriptedBroker, garbage, hang_up, nonsense, scripted_cluster, silence, stored

Ends = list[tuple[SendResult | None, BaseException | None]]


@asynccontextmanager
async def producing(*names: str, **given: Any) -> AsyncIterator[tuple[AsyncProducer, list[ScriptedBroker]]]:
    """A producer that has sent one message, so that later ones need no lookup, and its brokers."""
    queues = given.pop("queues", 1)
    async with (
        scripted_cluster(*names, queues=queues) as (name_servers, brokers),
        AsyncProducer("g", name_servers=name_servers, **given) as producer,
    ):
        for broker in brokers:
            await producer.send(message(b"first"), queue=(await producer.queues("T"))[brokers.index(broker) * queues])
        await producer.send(message(b"second"))
        for broker in brokers:
            broker.sends.clear()
        yield producer, brokers


def message(body: bytes, **given: Any) -> Message:
    return Message(topic="T", body=body, **given)


def bodies_of(brokers: list[ScriptedBroker]) -> list[bytes]:
    found: list[bytes] = []
    for request in (request for broker in brokers for request in broker.sends):
        is_batch = request.code == RequestCode.SEND_BATCH_MESSAGE
        found += [one.body for one in decode_batch(request.body)] if is_batch else [request.body]
    return found


@on_a_loop
async def test_sends_of_one_turn_share_a_request_and_keep_their_order() -> None:
    async with producing("a") as (producer, brokers):
        futures = [producer.send_nowait(message(b"%d" % at, tag="t", keys=("k",))) for at in range(100)]
        results = [await future for future in futures]
        assert len(brokers[0].sends) == 1
        assert bodies_of(brokers) == [b"%d" % at for at in range(100)]
        assert [result.queue_offset - results[0].queue_offset for result in results] == list(range(100))
        assert len({result.message_id for result in results}) == 100
        assert all(result.status is SendStatus.SEND_OK for result in results)


@on_a_loop
async def test_messages_gather_while_requests_are_in_flight() -> None:
    async with producing("a", config=ProducerConfig(batching=Batching(requests_max=1))) as (producer, brokers):
        released: list[tuple[Command, Connection]] = []
        brokers[0].script = [lambda *request: released.append(request)]
        futures = [producer.send_nowait(message(b"0"))]
        while not released:
            await asyncio.sleep(0.005)
        for at in range(1, 4):
            futures.append(producer.send_nowait(message(b"%d" % at)))
            await asyncio.sleep(0.005)
        assert len(brokers[0].sends) == 1
        request, connection = released[0]
        connection.answer(request, stored(request, 0))
        await asyncio.gather(*futures)
        assert [one.code for one in brokers[0].sends] == [310, 320]
        assert bodies_of(brokers) == [b"0", b"1", b"2", b"3"]


@on_a_loop
async def test_a_linger_waits_for_more_and_a_full_batch_does_not() -> None:
    config = ProducerConfig(batching=Batching(linger_ms=300, count_max=5))
    async with producing("a", config=config) as (producer, brokers):
        first = [producer.send_nowait(message(b"%d" % at)) for at in range(2)]
        await asyncio.sleep(0.02)
        assert not brokers[0].sends
        full = [producer.send_nowait(message(b"%d" % at)) for at in range(2, 5)]
        await asyncio.wait_for(asyncio.gather(*first, *full), 0.25)
        late = producer.send_nowait(message(b"5"))
        await producer.flush()
        assert late.done(), "flush does not linger"
        assert [one.code for one in brokers[0].sends] == [320, 310]


@on_a_loop
async def test_messages_of_every_kind_can_be_mixed() -> None:
    """Goal: properties, text beyond ASCII, delays and large bodies take other ways and arrive as well."""
    async with producing("a") as (producer, brokers):
        kinds = [
            message(b"plain"),
            message(b"text", tag="ü", keys=("ключ",)),
            message(b"properties", properties={"a": "b"}),
            message(b"later", delay_level=3),
            message(b"large" * 2_000),
            message(b"no wait", wait=False),
        ]
        results = await asyncio.gather(*(producer.send_nowait(one) for one in kinds))
        assert len({result.message_id for result in results}) == len(kinds)
        assert sum(len(request.body) > 0 for request in brokers[0].sends) >= 4
        assert {b"plain", b"text", b"properties", b"later", b"no wait"} <= set(bodies_of(brokers))


@on_a_loop
async def test_callbacks_get_results_and_one_that_raises_harms_no_other() -> None:
    async with producing("a") as (producer, brokers):
        ends: Ends = []

        def bad(result: SendResult | None, error: BaseException | None) -> None:
            raise RuntimeError("a callback's own fault")

        for at in range(10):
            assert producer.send_nowait(message(b"x"), bad if at == 3 else lambda *end: ends.append(end)) is None
        await producer.flush()
        assert len(ends) == 9
        assert all(result is not None and error is None for result, error in ends)
        brokers[0].script = [29]
        producer.send_nowait(message(b"x"), lambda *end: ends.append(end))
        producer.send_nowait(message(b"x"), lambda *end: ends.append(end))
        await producer.flush()
        assert [result for result, _ in ends[9:]] == [None, None]
        assert [getattr(error, "code", 0) for _, error in ends[9:]] == [29, 29]


@on_a_loop
async def test_invalid_messages_raise_at_the_call() -> None:
    async with producing("a") as (producer, brokers):
        for wrong in (message(b""), message("text"), message(b"x", keys=("a b",)), message(b"x", tag=5), "nothing"):  # type: ignore[arg-type]
            with pytest.raises(MessageInvalidError):
                producer.send_nowait(wrong)  # type: ignore[arg-type]
        await producer.flush()
        assert not brokers[0].sends


@on_a_loop
async def test_a_full_producer_says_so_and_room_can_be_awaited() -> None:
    async with producing("a", config=ProducerConfig(in_flight_count_max=10)) as (producer, brokers):
        futures = [producer.send_nowait(message(b"x")) for _ in range(10)]
        with pytest.raises(TooManySendsError):
            producer.send_nowait(message(b"one too many"))
        await producer.wait_for_room()
        futures.append(producer.send_nowait(message(b"x")))
        await asyncio.gather(*futures)
        assert len(bodies_of(brokers)) == 11
        assert producer.health()["in_flight_count"] == 0


@pytest.mark.parametrize("fault", [hang_up, garbage, nonsense, 1, 2, 14])
@on_a_loop
async def test_a_broker_that_fails_in_the_middle_costs_nothing_but_a_try(fault: Any) -> None:
    """Goal: every future of a pipelined turn ends once, with a result from the other broker."""
    async with producing("a", "b", queues=2) as (producer, brokers):
        for broker in brokers:
            broker.script = [fault]
        ends: Ends = []
        futures = [producer.send_nowait(message(b"%d" % at)) for at in range(20)]
        for at in range(20, 40):
            producer.send_nowait(message(b"%d" % at), lambda *end: ends.append(end))
        brokers[1].script = []
        results = await asyncio.gather(*futures)
        await producer.flush()
        assert len(results) + len(ends) == 40
        assert all(error is None for _, error in ends)
        assert set(bodies_of(brokers)) >= {b"%d" % at for at in range(40)}
        assert producer.health()["in_flight_count"] == 0


@on_a_loop
async def test_silence_ends_in_a_timeout_for_each() -> None:
    async with producing("a") as (producer, brokers):
        brokers[0].script = [silence] * 10
        futures = [producer.send_nowait(message(b"x"), timeout_ms=200) for _ in range(5)]
        ended = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(one, SendTimeoutError) for one in ended)
        assert len(brokers[0].sends) == 1


@on_a_loop
async def test_cancelled_futures_do_not_disturb_the_others() -> None:
    async with producing("a") as (producer, _):
        futures = [producer.send_nowait(message(b"x")) for _ in range(5)]
        futures[2].cancel()
        ended = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(one, SendResult) for one in ended] == [True, True, False, True, True]
        await producer.flush()
        assert producer.health()["in_flight_count"] == 0


@on_a_loop
async def test_closing_sends_what_was_given_and_ends_what_hangs() -> None:
    config = ProducerConfig(send_timeout_ms=300)
    async with scripted_cluster("a", queues=1) as (name_servers, brokers):
        producer = AsyncProducer("g", name_servers=name_servers, config=config)
        await producer.start()
        await producer.send(message(b"first"))
        done = [producer.send_nowait(message(b"x")) for _ in range(3)]
        await producer.close()
        assert all(isinstance(future.result(), SendResult) for future in done)
        with pytest.raises(ClientClosedError):
            producer.send_nowait(message(b"x"))
        other = AsyncProducer("h", name_servers=name_servers, config=config)
        await other.start()
        await other.send(message(b"first"))
        brokers[0].script = [silence] * 9
        hanging = [other.send_nowait(message(b"x")) for _ in range(3)]
        await other.close()
        ended = await asyncio.wait_for(asyncio.gather(*hanging, return_exceptions=True), 10)
        assert all(isinstance(one, SendFailedError | ClientClosedError) for one in ended)


@on_a_loop
async def test_many_bodies_have_one_result_and_keep_their_order() -> None:
    async with producing("a", config=ProducerConfig(batching=Batching(bytes_max=4_000))) as (producer, brokers):
        bodies = [b"%04d" % at * 10 for at in range(300)]
        bodies[150] = b"large" * 2_000
        result = await producer.send_many(
            "T", bodies, tags=[None if at % 2 else "even" for at in range(300)], keys=[f"k{at}" for at in range(300)]
        )
        assert len(result) == 300
        assert result.is_ok
        assert len({each.message_id for each in result}) == 300
        assert len(brokers[0].sends) < 40
        assert [body for body in bodies_of(brokers) if len(body) == 40] == [body for body in bodies if len(body) == 40]
        assert len(await producer.send_many("T", [])) == 0


@on_a_loop
async def test_many_with_properties_and_a_bad_one() -> None:
    async with producing("a") as (producer, brokers):
        await producer.send_many("T", [b"a", b"b"], properties={"p": "q"}, tags="x")
        assert b"p\x01q" in brokers[0].sends[-1].body
        with pytest.raises(MessageInvalidError):
            await producer.send_many("T", [b"a", b""])
        with pytest.raises(Exception, match="1 values for 2 bodies"):
            await producer.send_many("T", [b"a", b"b"], tags=["x"])


@on_a_loop
async def test_a_part_of_many_that_fails_tells_which_were_sent() -> None:
    async with producing("a", config=ProducerConfig(batching=Batching(bytes_max=2_000, requests_max=1))) as (
        producer,
        brokers,
    ):
        brokers[0].script = [0, 13]
        with pytest.raises(BatchFailedError) as caught:
            await producer.send_many("T", [bytes(300) + b"x"] * 20)
        assert isinstance(caught.value.error, MessageIllegalError)
        sent = [result is not None for result in caught.value.results]
        assert len(sent) == 20
        assert sent[0]
        assert not sent[-1]


@pytest.mark.parametrize("fault", ["cut", "half_close", "delay"])
def test_a_bad_connection_costs_no_message_and_leaves_no_future(
    cluster: EmbeddedCluster, topic: str, fault: str
) -> None:
    """Goal: while the connections to the brokers are broken again and again, each future ends, and ends well."""

    async def run(addr_map: dict[str, str], proxies: list[FaultProxy]) -> None:
        config = ProducerConfig(send_timeout_ms=20_000)
        session_config = SessionConfig(addr_map=addr_map)
        async with AsyncProducer(
            "g-" + topic, name_servers=cluster.name_server_addr, session_config=session_config, config=config
        ) as producer:
            await producer.send(Message(topic=topic, body=b"first"))
            ends: Ends = []
            futures = []
            for turn in range(12):
                for number in range(50):
                    body = b"%d" % (turn * 50 + number)
                    futures.append(producer.send_nowait(Message(topic=topic, body=body)))
                    producer.send_nowait(Message(topic=topic, body=body), lambda *end: ends.append(end))
                proxy = proxies[turn % len(proxies)]
                if turn % 3 == 1:
                    proxy.delay(20) if fault == "delay" else getattr(proxy, fault)()
                await asyncio.sleep(0.01)
                proxy.restore()
            many = await producer.send_many(topic, [b"%d" % number for number in range(600, 3_000)])
            results = await asyncio.gather(*futures)
            await producer.flush()
            assert len({result.message_id for result in [*results, *many]}) == 3_000
            assert len(ends) == 600
            assert all(error is None for _, error in ends)
            assert producer.health()["in_flight_count"] == 0

    async def stored_bodies() -> set[bytes]:
        found: set[bytes] = set()
        config = PullConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        async with AsyncPullConsumer("c-" + topic, name_servers=cluster.name_server_addr, config=config) as consumer:
            consumer.subscribe(topic)
            async for batch in consumer.batches(max_wait_ms=50):
                found.update(batch.bodies())
                if len(found) == 3_001:
                    return found
        return found

    addrs = [str(addr) for addr in cluster.broker_addrs]
    with ExitStack() as stack:
        proxies = [stack.enter_context(FaultProxy(addr)) for addr in addrs]
        asyncio.run(
            asyncio.wait_for(run(dict(zip(addrs, [proxy.addr for proxy in proxies], strict=True)), proxies), 60)
        )
    assert asyncio.run(asyncio.wait_for(stored_bodies(), 60)) == {b"first"} | {b"%d" % at for at in range(3_000)}


# Sends of the facade without await


class Gate:
    """A broker on a thread of its own, whose answers to sends are chosen by the test."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.brokers: list[ScriptedBroker] = []
        self.name_servers = ""
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._loop: asyncio.AbstractEventLoop

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with scripted_cluster(*self.names, queues=1) as (self.name_servers, self.brokers):
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Gate:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)


def test_a_send_without_await_uses_a_socket_of_its_own() -> None:
    peers: list[int] = []

    def remember(request: Command, connection: Connection) -> Command:
        peers.append(connection.peer_port)
        return stored(request, 7)

    with Gate("a") as gate, Producer("g", name_servers=gate.name_servers) as producer:
        gate.brokers[0].script = [remember] * 5
        results = [producer.send(message(b"x", tag="t")) for _ in range(5)]
        assert len(set(peers[1:])) == 1
        assert peers[0] != peers[1], "the first send asks for the route on the loop"
        assert len({result.message_id for result in results}) == 5
        assert gate.brokers[0].sends[0].ext_fields.keys() == gate.brokers[0].sends[1].ext_fields.keys()


@pytest.mark.parametrize("fault", [hang_up, garbage, nonsense, 1, 2])
def test_a_send_without_await_is_retried_on_another_broker(fault: Any) -> None:
    with Gate("a", "b") as gate, Producer("g", name_servers=gate.name_servers) as producer:
        producer.send(message(b"first"))
        for _ in range(4):
            gate.brokers[0].script = [fault]
            gate.brokers[1].script = []
            assert producer.send(message(b"x")).status is SendStatus.SEND_OK


def test_a_send_without_await_keeps_its_timeout_and_its_errors() -> None:
    with Gate("a") as gate, Producer("g", name_servers=gate.name_servers) as producer:
        producer.send(message(b"first"))
        gate.brokers[0].script = [silence] * 5
        with pytest.raises(SendTimeoutError):
            producer.send(message(b"x"), timeout_ms=200)
        gate.brokers[0].script = [13]
        with pytest.raises(MessageIllegalError):
            producer.send(message(b"x"))
        with pytest.raises(MessageInvalidError):
            producer.send(message(b""))
        assert producer.send(message(b"x")).status is SendStatus.SEND_OK
        producer.close()
        with pytest.raises(ClientClosedError):
            producer.send(message(b"x"))


def test_threads_and_a_forked_child_send_at_the_same_time(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer("g-" + topic, name_servers=cluster.name_server_addr) as producer:
        producer.send(Message(topic=topic, body=b"first"))
        results: list[SendResult] = []

        def work() -> None:
            results.extend(producer.send(Message(topic=topic, body=b"x")) for _ in range(25))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len({result.message_id for result in results}) == 200
        child = os.fork()
        if child == 0:
            sent = {producer.send(Message(topic=topic, body=b"child")).message_id for _ in range(3)}
            os._exit(0 if len(sent) == 3 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send(Message(topic=topic, body=b"after")).status is SendStatus.SEND_OK
