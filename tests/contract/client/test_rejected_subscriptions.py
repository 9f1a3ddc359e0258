"""Subscriptions that a broker rejects after the start: the application gets the error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from rocketq.client import (
    AsyncAdmin,
    AsyncPullConsumer,
    AsyncPushConsumer,
    PullConfig,
    PullConsumer,
    PushConsumer,
    SubscriptionRejectedError,
)
from rocketq.testing import EmbeddedCluster

from .consuming import FIRST, QUICK, Remembers, fill, send, until
from .kit import on_a_loop

PULL = PullConfig(from_where=FIRST, rebalance_interval_ms=500, retry_ms=100, hold_ms=300)


@pytest.fixture(scope="module")
def unfiltered() -> Iterator[str]:
    """The NameServer of a broker that does not filter by SQL92."""
    with EmbeddedCluster(settings={"enablePropertyFilter": "false"}) as cluster:
        yield cluster.name_server_addr


@on_a_loop
async def test_push_consumers_pass_it_to_on_error(unfiltered: str, topic: str, group: str) -> None:
    await fill(unfiltered, topic, 1)
    errors: list[SubscriptionRejectedError] = []
    listener = Remembers()
    config = replace(QUICK, on_error=errors.append)
    async with AsyncPushConsumer(group, listener, name_servers=unfiltered, config=config) as consumer:
        consumer.subscribe(topic, sql="a > 5")
        await until(lambda: bool(errors))
        consumer.subscribe(topic)
        await listener.until(1)
    (error,) = errors
    assert "enablePropertyFilter" in str(error)
    assert not error.retriable


@on_a_loop
async def test_push_consumers_without_on_error_raise_it_when_they_close(
    unfiltered: str, topic: str, group: str
) -> None:
    await fill(unfiltered, topic, 1)
    consumer = AsyncPushConsumer(group, Remembers(), name_servers=unfiltered, config=QUICK)
    await consumer.start()
    consumer.subscribe(topic, sql="a > 5")
    await until(lambda: consumer._subscriptions.rejection is not None)
    with pytest.raises(SubscriptionRejectedError):
        await consumer.close()
    await consumer.close()
    other = AsyncPushConsumer(group, Remembers(), name_servers=unfiltered, config=QUICK)
    await other.start()
    other.subscribe(topic, sql="a > 5")
    await until(lambda: other._subscriptions.rejection is not None)
    await other.__aexit__(ValueError, ValueError("the application's own"), None)  # not replaced by the rejection


@on_a_loop
async def test_pull_consumers_raise_it_until_the_subscription_is_replaced(
    unfiltered: str, topic: str, group: str
) -> None:
    await fill(unfiltered, topic, 1)
    async with AsyncPullConsumer(group, name_servers=unfiltered, config=PULL) as consumer:
        for take in (consumer.poll, consumer.__anext__, consumer.next_batch):
            consumer.subscribe(topic, sql="a > 5")
            with pytest.raises(SubscriptionRejectedError):
                await _until_it_fails(take)
        consumer.subscribe(topic)
        while not (messages := await consumer.poll(200)):
            pass
        assert [message.body for message in messages] == [b"0"]
    consumer = AsyncPullConsumer(group, name_servers=unfiltered, config=PULL)
    await consumer.start()
    consumer.subscribe(topic, sql="a > 5")
    await until(lambda: consumer._subscriptions.rejection is not None)
    with pytest.raises(SubscriptionRejectedError):
        await consumer.close()


@on_a_loop
async def test_a_broker_that_stops_filtering_is_noticed_by_pulls(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str, group: str
) -> None:
    addr = make_rocketq_cluster(settings={"enablePropertyFilter": "true"}).name_server_addr
    await fill(addr, topic, 1, properties={"a": "9"})
    errors: list[SubscriptionRejectedError] = []
    listener = Remembers()
    config = replace(QUICK, hold_ms=300, on_error=errors.append)
    push = AsyncPushConsumer(group, listener, name_servers=addr, config=config)
    pull = AsyncPullConsumer(group + "-pull", name_servers=addr, config=PULL)
    for consumer in (push, pull):
        consumer.subscribe(topic, sql="a > 5")
    async with AsyncAdmin(addr) as admin, push, pull:
        await listener.until(1)
        await admin.brokers.set_config("broker-0", {"enablePropertyFilter": "false"})
        await until(lambda: bool(errors))
        with pytest.raises(SubscriptionRejectedError):
            await _until_it_fails(pull.poll)
        await admin.brokers.set_config("broker-0", {"enablePropertyFilter": "true"})
        await send(addr, topic, [1], properties={"a": "9"})
        await listener.until(2)
        await until(lambda: pull._subscriptions.rejection is push._subscriptions.rejection is None)
        assert await pull.poll()


def test_consumers_without_await_raise_it(unfiltered: str, topic: str, group: str) -> None:
    asyncio.run(fill(unfiltered, topic, 1))
    with PullConsumer(group, name_servers=unfiltered, config=PULL) as pull:
        pull.subscribe(topic, sql="a > 5")
        with pytest.raises(SubscriptionRejectedError):
            _poll_until_it_fails(pull)
    push = PushConsumer(group, lambda messages, context: None, name_servers=unfiltered, config=QUICK)
    push.start()
    push.subscribe(topic, sql="a > 5")
    while push._do(lambda consumer: consumer._subscriptions.rejection) is None:
        time.sleep(0.01)
    with pytest.raises(SubscriptionRejectedError):
        push.close()


async def _until_it_fails(take: Callable[[], Awaitable[object]]) -> None:
    while True:
        await take()


def _poll_until_it_fails(consumer: PullConsumer) -> None:
    while True:
        consumer.poll(200)
