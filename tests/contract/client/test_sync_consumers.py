"""Consumers without await: scripts, threads, notebooks, forks."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from rocketq.client import (
    AsyncPullConsumer,
    AsyncPushConsumer,
    ClientClosedError,
    ConsumeContext,
    MessageQueue,
    PullConsumer,
    PushConsumer,
    StoredMessage,
)
from rocketq.errors import ConfigError
from rocketq.testing.embedded import EmbeddedCluster

from .consuming import QUICK, fill, numbers, send
from .test_pull_consumer import PULLS


def until(true: Callable[[], bool], timeout_s: float = 15) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(PushConsumer, AsyncPushConsumer), (PullConsumer, AsyncPullConsumer)], ids=["push", "pull"]
)
def test_every_public_name_is_there_without_await(ours: type, theirs: type) -> None:
    """Goal: what users call is the same; what only sessions and brokers call is not offered."""
    inner = {"topics", "heartbeat_part", "ids_changed", "reset_offsets", "consume_positions", "running_info"}
    inner |= {"consume_directly", "put_back", "leave", "is_paused"}
    names = {name for name, _ in inspect.getmembers(theirs, inspect.isfunction) if not name.startswith("_")} - inner
    assert names <= {name for name, _ in inspect.getmembers(ours, inspect.isfunction)}


def test_a_script_with_a_listener(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    asyncio.run(fill(cluster.name_server_addr, topic, 20))
    seen: list[bytes] = []

    def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        seen.extend(message.body for message in messages)

    with PushConsumer(group, listener, name_servers=cluster.name_server_addr, config=QUICK) as consumer:
        consumer.subscribe(topic)
        until(lambda: len(seen) == 20)
        consumer.pause()
        consumer.resume()
        assert {queue.topic for queue in consumer.assignment()} == {topic}
        assert consumer.health()["kind"] == "push consumer"
        consumer.unsubscribe(topic)
        until(lambda: consumer.assignment() == ())
    assert set(seen) == numbers(0, 20)
    with pytest.raises(ClientClosedError):
        consumer.assignment()


def test_a_loop_over_messages_hands_out_what_was_not_looked_at_again(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: messages are fetched many at a time, but only those the program saw are committed."""
    addr, queue = cluster.name_server_addr, MessageQueue(topic=topic, broker_name="broker-0", queue_id=0)
    asyncio.run(fill(addr, topic, 40, queues=1))
    offsets: list[int] = []
    for end in (5, 12):
        with PullConsumer(group, name_servers=addr, config=PULLS) as consumer:
            consumer.assign([queue])
            for message in consumer:
                offsets.append(message.queue_offset)
                if len(offsets) == end:
                    break
    assert offsets == list(range(12))
    with pytest.raises(ValueError, match="stop"):
        _fail_on_the_first(group, addr, queue)
    with PullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        consumer.assign([queue])
        assert next(iter(consumer)).queue_offset == 12
        assert consumer.position(queue) == 13
        consumer.seek(queue, 2)
        assert [message.queue_offset for message in consumer.poll(count_max=2)] == [2, 3]
        consumer.pause()
        consumer.resume()
        consumer.commit()
        assert consumer.committed(queue) == 4
        assert len(consumer.pull(queue, "*", 0, 3).messages) == 3


def _fail_on_the_first(group: str, addr: str, queue: MessageQueue) -> None:
    with PullConsumer(group, name_servers=addr, config=PULLS) as consumer:
        consumer.assign([queue])
        for _ in consumer:
            raise ValueError("stop")


def test_it_works_while_a_loop_runs(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    async def cell() -> int:
        await fill(cluster.name_server_addr, topic, 5)
        with PullConsumer(group, name_servers=cluster.name_server_addr, config=PULLS) as consumer:
            consumer.subscribe(topic)
            count = 0
            while count < 5:
                count += len(consumer.poll())
            return count

    assert asyncio.run(cell()) == 5


def test_a_forked_child_starts_anew(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: with one consumer made before the fork, parent and child are two members and share the queues."""
    addr = cluster.name_server_addr
    asyncio.run(fill(addr, topic, 0))
    seen: list[bytes] = []
    read_end, write_end = os.pipe()

    def listener(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        seen.extend(message.body for message in messages)
        os.write(write_end, b"".join(message.body + b"\n" for message in messages))

    consumer = PushConsumer(group, listener, name_servers=addr, config=QUICK)
    consumer.subscribe(topic)
    consumer.start()
    child = os.fork()
    if child == 0:
        try:
            consumer.start()
            time.sleep(5)
            consumer.close()
        finally:
            os._exit(0)
    until(lambda: len(consumer.assignment()) == 4)
    asyncio.run(send(addr, topic, range(32)))
    found: set[bytes] = set()

    def read() -> None:
        buffer = b""
        while found != numbers(0, 32):
            buffer += os.read(read_end, 4096)
            *whole, buffer = buffer.split(b"\n")
            found.update(whole)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(15)
    os.kill(child, 9)
    os.waitpid(child, 0)
    consumer.close()
    assert found == numbers(0, 32)
    assert 0 < len(set(seen)) < 32


def test_what_is_wrong_is_said_before_anything_starts(topic: str) -> None:
    for wrong in ("", "no blanks", "TOOLS_CONSUMER"):
        with pytest.raises(ConfigError):
            PushConsumer(wrong, print, name_servers="127.0.0.1:1")  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            PullConsumer(wrong, name_servers="127.0.0.1:1")
    with pytest.raises(ConfigError):
        PushConsumer("g", print, name_servers="nonsense")  # type: ignore[arg-type]
