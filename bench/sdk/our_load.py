"""Our client under the same loads, in a process of its own.

python -m bench.sdk.our_load send NAMESERVER TOPIC CONCURRENT SECONDS [auto]
python -m bench.sdk.our_load consume NAMESERVER TOPIC COUNT BATCH
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from rocketq.client import (
    AsyncProducer,
    AsyncPushConsumer,
    Batching,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    ProducerConfig,
    PushConfig,
    StoredMessage,
)
from rocketq.remoting.loops import run


async def send(name_server: str, topic: str, concurrent: int, seconds: float, auto: bool) -> None:
    config = ProducerConfig(batching=Batching() if auto else None, send_timeout_ms=10_000)
    body, counts = bytes(128), [0] * concurrent
    async with AsyncProducer("our-load", name_servers=name_server, config=config) as producer:
        warm = time.monotonic() + 1
        until = warm + seconds

        async def work(number: int) -> None:
            while (now := time.monotonic()) < until:
                await producer.send(Message(topic=topic, body=body, tag="TagA", keys=("key",)))
                counts[number] += now >= warm

        await asyncio.gather(*(work(number) for number in range(concurrent)))
        report(sum(counts), time.monotonic() - warm)


async def consume(name_server: str, topic: str, count: int, batch: int) -> None:
    seen, first, ended = 0, 0.0, asyncio.Event()

    async def take(messages: list[StoredMessage], context: ConsumeContext) -> None:
        nonlocal seen, first
        first = first or time.monotonic()
        seen += len(messages)
        if seen >= count:
            ended.set()

    config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, batch_max=batch)
    consumer = AsyncPushConsumer(f"our-load-{time.time_ns()}", take, name_servers=name_server, config=config)
    consumer.subscribe(topic)
    async with consumer:
        async with asyncio.timeout(120):
            await ended.wait()
        report(seen, time.monotonic() - first)


def report(count: int, seconds: float) -> None:
    print(json.dumps({"count": count, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    mode, name_server, topic, number, amount = sys.argv[1:6]
    if mode == "send":
        run(send(name_server, topic, int(number), float(amount), sys.argv[6:] == ["auto"]))
    else:
        run(consume(name_server, topic, int(number), int(amount)))
