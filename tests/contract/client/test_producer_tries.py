"""Tries of a send, told by scripted brokers: what is tried again and where, what is raised, how long it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import chain, repeat
from typing import Any

import pytest

from rocketq.client import (
    AccessDeniedError,
    AsyncProducer,
    BatchFailedError,
    Batching,
    FaultLatencyConfig,
    Message,
    NoQueueError,
    ProducerConfig,
    SendFailedError,
    SendStatus,
    SendTimeoutError,
    TooManySendsError,
)
from rocketq.errors import RemoteProtocolError, RequestTimeoutError, RocketQError, UnreachableError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import MessageIllegalError, SystemBusyError
from rocketq.remoting import Connection

from .kit import closed_port, on_a_loop
from .scripted import ScriptedBroker, garbage, hang_up, nonsense, scripted_cluster, silence, stored

MESSAGE = Message(topic="T", body=b"x")


@asynccontextmanager
async def producing(*names: str, **given: Any) -> AsyncIterator[tuple[AsyncProducer, list[ScriptedBroker]]]:
    """A producer and the brokers it has."""
    queues, ids = given.pop("queues", 2), given.pop("ids", None)
    async with (
        scripted_cluster(*names, queues=queues, ids=ids) as (name_servers, brokers),
        AsyncProducer("g", name_servers=name_servers, **given) as producer,
    ):
        yield producer, brokers


def chosen(brokers: list[ScriptedBroker]) -> list[str]:
    return [broker.name for broker in brokers for _ in broker.sends]


def fail_first(brokers: list[ScriptedBroker], step: object, times: int = 1) -> None:
    """Whichever broker is asked first fails; the count is shared."""
    left = [times]

    def once(request: Command, connection: Connection) -> Command | None:
        if left[0] > 0:
            left[0] -= 1
            if isinstance(step, int):
                return stored(request, 0, step)
            return step(request, connection)  # type: ignore[no-any-return, operator]
        return stored(request, 0)

    for broker in brokers:
        broker.script = [once] * 10


@pytest.mark.parametrize(
    "step", [1, 2, 14, 16, 17, 1500, garbage, nonsense, hang_up], ids=lambda step: getattr(step, "__name__", str(step))
)
@on_a_loop
async def test_another_broker_is_tried(step: object) -> None:
    async with producing("a", "b") as (producer, brokers):
        fail_first(brokers, step)
        sent = await producer.send(MESSAGE)
        assert sent.status is SendStatus.SEND_OK
        assert sorted(chosen(brokers)) == ["a", "b"]


@on_a_loop
async def test_a_silent_broker_costs_only_its_own_try() -> None:
    async with producing("a", "b", config=ProducerConfig(attempt_timeout_ms=100)) as (producer, brokers):
        fail_first(brokers, silence)
        assert (await producer.send(MESSAGE)).status is SendStatus.SEND_OK
        assert sorted(chosen(brokers)) == ["a", "b"]


@on_a_loop
async def test_without_a_master_sends_wait_until_there_is_one() -> None:
    """Goal: a failover, as a producer sees it: only slaves for a while, then one of them is the master."""
    async with producing("a", ids=chain([1] * 5, repeat(0))) as (producer, brokers):
        with pytest.raises(SendTimeoutError, match="it has no writable queue") as caught:
            await producer.send(MESSAGE, timeout_ms=60)
        assert caught.value.retriable
        assert all(isinstance(error, NoQueueError) for _, error in caught.value.attempts)
        await producer.send(MESSAGE)
        assert len(brokers[0].sends) == 1


@pytest.mark.parametrize("code", [13, 26, 29, 3])
@on_a_loop
async def test_what_no_broker_would_take_is_not_tried_again(code: int) -> None:
    async with producing("a", "b") as (producer, brokers):
        fail_first(brokers, code)
        with pytest.raises(Exception) as caught:
            await producer.send(MESSAGE)
        assert getattr(caught.value, "code", None) == code
        assert len(chosen(brokers)) == 1


@on_a_loop
async def test_denied_says_so_and_is_not_tried_again() -> None:
    async with scripted_cluster("a", "b") as (name_servers, brokers):

        def deny(request: Command, connection: Connection) -> Command:
            return request.answer(1, remark="org.apache.rocketmq.acl.common.AclException: no such key")

        async with AsyncProducer("g", name_servers=name_servers) as producer:
            fail_first(brokers, deny)
            with pytest.raises(AccessDeniedError) as caught:
                await producer.send(MESSAGE)
            assert not caught.value.retriable
            assert "no such key" in str(caught.value)
            assert len(chosen(brokers)) == 1


@on_a_loop
async def test_after_the_last_try_all_are_told() -> None:
    async with producing("a", "b") as (producer, brokers):
        for broker in brokers:
            broker.script = [2] * 5
        with pytest.raises(SendFailedError) as caught:
            await producer.send(MESSAGE)
        assert caught.value.code == 2
        assert len(caught.value.attempts) == 3
        assert len({name for name, _ in caught.value.attempts[:2]}) == 2
        assert isinstance(caught.value.__cause__, SystemBusyError)
        assert caught.value.retriable


@on_a_loop
async def test_to_a_queue_there_is_one_try() -> None:
    async with producing("a", "b") as (producer, brokers):
        queue = (await producer.queues("T"))[0]
        for broker in brokers:
            broker.script = [2]
        with pytest.raises(SystemBusyError):
            await producer.send(MESSAGE, queue=queue)
        assert len(chosen(brokers)) == 1
        for broker in brokers:
            broker.script = []
        assert (await producer.send(MESSAGE, sharding_key="k")).status is SendStatus.SEND_OK


@on_a_loop
async def test_the_timeout_bounds_the_whole_call() -> None:
    async with producing("a") as (producer, brokers):
        brokers[0].script = [silence] * 5
        start_s = time.monotonic()
        with pytest.raises(SendTimeoutError) as caught:
            await producer.send(MESSAGE, timeout_ms=300)
        assert time.monotonic() - start_s < 5
        assert caught.value.code == 10002
        assert isinstance(caught.value.attempts[0][1], RequestTimeoutError)
        brokers[0].script = []
        assert (await producer.send(MESSAGE)).status is SendStatus.SEND_OK


@on_a_loop
async def test_stored_but_unsure_is_enough_unless_told_otherwise() -> None:
    async with producing("a", "b") as (producer, brokers):
        fail_first(brokers, 11)
        assert (await producer.send(MESSAGE)).status is SendStatus.SLAVE_NOT_AVAILABLE
    async with producing("a", "b", config=ProducerConfig(retry_when_not_stored_ok=True)) as (strict, brokers):
        fail_first(brokers, 11)
        assert (await strict.send(MESSAGE)).status is SendStatus.SEND_OK
        fail_first(brokers, 11, times=9)
        assert (await strict.send(MESSAGE)).status is SendStatus.SLAVE_NOT_AVAILABLE


@on_a_loop
async def test_a_failing_broker_is_passed_over_by_later_sends() -> None:
    async with producing("a", "b", config=ProducerConfig(fault_latency=FaultLatencyConfig())) as (producer, brokers):
        brokers[0].script = [2] * 100
        for _ in range(10):
            assert (await producer.send(MESSAGE)).queue.broker_name == "b"
        assert len(brokers[0].sends) <= 1


@on_a_loop
async def test_a_broker_out_of_reach_is_probed_until_it_answers() -> None:
    """Goal: where no broker is available, one that answers again comes before one that does not."""
    faults = FaultLatencyConfig(probe_interval_ms=20)
    async with producing("a", "b", config=ProducerConfig(fault_latency=faults, attempts_max=1)) as (producer, brokers):
        heard = asyncio.Event()

        def answer(request: Command, connection: Connection) -> Command:
            heard.set()
            return request.answer(0, ext_fields={"offset": "0"})

        for broker in brokers:
            broker.script = [hang_up] * 10
        while not all(broker.sends for broker in brokers):
            with suppress(RocketQError):
                await producer.send(MESSAGE)
        brokers[1].dispatcher.register(RequestCode.GET_MAX_OFFSET, answer)
        await heard.wait()
        await asyncio.sleep(0.05)
        for broker in brokers:
            broker.script = []
        before = len(brokers[0].sends)
        for _ in range(6):
            assert (await producer.send(MESSAGE)).queue.broker_name == "b"
        assert len(brokers[0].sends) == before


@on_a_loop
async def test_sends_that_wait_for_room_go_in_order_or_give_up() -> None:
    async with producing("a", queues=1, config=ProducerConfig(in_flight_count_max=2, batching=None)) as (
        producer,
        brokers,
    ):
        released: list[tuple[Command, Connection]] = []

        def later(request: Command, connection: Connection) -> None:
            released.append((request, connection))

        brokers[0].script = [later] * 2
        first = [asyncio.create_task(producer.send(MESSAGE)) for _ in range(2)]
        while len(released) < 2:
            await asyncio.sleep(0.005)
        with pytest.raises(TooManySendsError) as caught:
            await producer.send(MESSAGE, timeout_ms=50)
        assert caught.value.retriable
        third = asyncio.create_task(producer.send(Message(topic="T", body=b"third")))
        await asyncio.sleep(0.02)
        assert len(brokers[0].sends) == 2
        for at, (request, connection) in enumerate(released):
            connection.answer(request, stored(request, at))
        await asyncio.gather(*first, third)
        assert brokers[0].sends[2].body == b"third"
        assert producer.health()["in_flight_count"] == 0


@on_a_loop
async def test_bytes_under_way_are_bounded_and_a_giant_goes_alone() -> None:
    config = ProducerConfig(in_flight_bytes_max=100, compress_from_bytes=1 << 20)
    async with producing("a", queues=1, config=config) as (producer, _):
        results = await asyncio.gather(
            *(producer.send(Message(topic="T", body=bytes(size or 1))) for size in (90, 90, 5_000, 3))
        )
        assert [result.queue_offset for result in results] == [0, 1, 2, 3]


@on_a_loop
async def test_many_awaits_need_few_requests() -> None:
    async with producing("a", queues=1, config=ProducerConfig(batching=Batching())) as (producer, brokers):
        await producer.send(MESSAGE)
        await asyncio.gather(*(producer.send(Message(topic="T", body=b"%d" % at)) for at in range(500)))
        assert len(brokers[0].sends) <= 4
        assert brokers[0].sends[0].code == 310


@on_a_loop
async def test_a_batch_that_is_too_large_for_a_broker_goes_one_by_one() -> None:
    async with producing("a", queues=1, config=ProducerConfig(batching=Batching())) as (producer, brokers):
        brokers[0].script = [13]
        results = await asyncio.gather(*(producer.send(Message(topic="T", body=b"%d" % at)) for at in range(3)))
        assert [request.code for request in brokers[0].sends] == [320, 310, 310, 310]
        assert len({result.message_id for result in results}) == 3


@on_a_loop
async def test_each_await_of_a_failed_batch_hears_of_it() -> None:
    async with producing("a", queues=1, config=ProducerConfig(batching=Batching())) as (producer, brokers):
        brokers[0].script = [29]
        results = await asyncio.gather(*(producer.send(MESSAGE) for _ in range(3)), return_exceptions=True)
        assert [getattr(result, "code", None) for result in results] == [29, 29, 29]
        cancelled = [asyncio.create_task(producer.send(MESSAGE)) for _ in range(3)]
        await asyncio.sleep(0)
        cancelled[1].cancel()
        ended = await asyncio.gather(*cancelled, return_exceptions=True)
        assert isinstance(ended[1], asyncio.CancelledError)
        assert not any(isinstance(one, BaseException) for one in (ended[0], ended[2]))


@on_a_loop
async def test_a_later_part_of_a_batch_that_fails_tells_what_was_sent() -> None:
    async with producing("a", queues=1, config=ProducerConfig(batch_bytes_max=1_000)) as (producer, brokers):
        brokers[0].script = [0, 13]
        with pytest.raises(BatchFailedError) as caught:
            await producer.send_batch([Message(topic="T", body=bytes(200) + b"x")] * 6)
        done = [result for result in caught.value.results if result is not None]
        assert 0 < len(done) < 6
        assert len(caught.value.results) == 6
        assert isinstance(caught.value.error, MessageIllegalError)
        brokers[0].script = [13]
        with pytest.raises(MessageIllegalError):
            await producer.send_batch([MESSAGE] * 2)


@on_a_loop
async def test_no_broker_at_all_is_told_after_some_tries() -> None:
    async with producing("a") as (producer, brokers):
        await producer.send(MESSAGE)
        await brokers[0].stop()
        with pytest.raises(SendFailedError) as caught:
            await producer.send(MESSAGE)
        assert caught.value.code == 10001
        await brokers[0].start()  # so that it can be stopped
    with pytest.raises(UnreachableError):
        async with AsyncProducer("g", name_servers=closed_port()) as lost:
            await lost.send(MESSAGE)


@on_a_loop
async def test_garbage_from_the_only_broker_ends_in_time() -> None:
    async with producing("a") as (producer, brokers):
        brokers[0].script = [nonsense] * 3
        with pytest.raises(SendFailedError) as caught:
            await producer.send(MESSAGE)
        assert isinstance(caught.value.attempts[0][1], RemoteProtocolError)
        brokers[0].script = [garbage] * 3
        with pytest.raises(SendFailedError):
            await producer.send(MESSAGE)
        assert (await producer.send(MESSAGE)).status is SendStatus.SEND_OK
