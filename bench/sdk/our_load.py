"""Our client under one load, in a process of its own; CPU is this process's, user and system.

python -m bench.sdk.our_load send NAMESERVER TOPIC CONCURRENT SECONDS [single]
python -m bench.sdk.our_load gather|nowait|callback|many NAMESERVER TOPIC COUNT SECONDS
python -m bench.sdk.our_load sync NAMESERVER TOPIC THREADS SECONDS
python -m bench.sdk.our_load consume NAMESERVER TOPIC COUNT BATCH      push consumer
python -m bench.sdk.our_load iterate|poll|batches NAMESERVER TOPIC COUNT BATCH

It prints one line of JSON: messages, seconds, CPU us per message and, where single calls are timed, their latencies.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Sequence

from rocketq.client import (
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    Batching,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    Producer,
    ProducerConfig,
    PullConfig,
    PushConfig,
    SendResult,
    StoredMessage,
)
from rocketq.remoting.loops import run

BODY = bytes(128)
WARM_UP_S = 0.5
FROM_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Meter:
    """Counts from start() on."""

    def __init__(self) -> None:
        self.count = 0
        self.latencies_s: list[float] = []
        self._start_s = self._start_cpu_s = 0.0

    def start(self) -> None:
        self.count = 0
        self.latencies_s.clear()
        self._start_s, self._start_cpu_s = time.monotonic(), time.process_time()

    def report(self) -> None:
        seconds, cpu_s = time.monotonic() - self._start_s, time.process_time() - self._start_cpu_s
        found: dict[str, float] = {"count": self.count, "seconds": seconds, "cpu_us": cpu_s * 1e6 / max(1, self.count)}
        if len(self.latencies_s) > 1:
            cuts = statistics.quantiles(self.latencies_s, n=100)
            found |= {"p50_us": cuts[49] * 1e6, "p99_us": cuts[98] * 1e6}
        print(json.dumps(found), flush=True)


def message(topic: str) -> Message:
    return Message(topic=topic, body=BODY, tag="TagA", keys=("key",))


async def send(name_server: str, topic: str, concurrent: int, seconds: float, config: ProducerConfig) -> None:
    meter = Meter()
    async with AsyncProducer("our-load", name_servers=name_server, config=config) as producer:

        async def work(until: float) -> None:
            while (now := time.monotonic()) < until:
                await producer.send(message(topic))
                meter.count += 1
                if concurrent == 1:
                    meter.latencies_s.append(time.monotonic() - now)

        for span_s in (WARM_UP_S, seconds):
            meter.start()
            until = time.monotonic() + span_s
            await asyncio.gather(*(work(until) for _ in range(concurrent)))
        meter.report()


async def gather(name_server: str, topic: str, count: int, seconds: float, config: ProducerConfig) -> None:
    meter = Meter()
    async with AsyncProducer("our-load", name_servers=name_server, config=config) as producer:
        for span_s in (WARM_UP_S, seconds):
            meter.start()
            until = time.monotonic() + span_s
            while time.monotonic() < until:
                await asyncio.gather(*(producer.send(message(topic)) for _ in range(count)))
                meter.count += count
        meter.report()


async def nowait(name_server: str, topic: str, count: int, seconds: float, config: ProducerConfig, mode: str) -> None:
    """`nowait`: a future each; `callback`: a function each; `many`: one result per call of send_many."""
    meter = Meter()
    async with AsyncProducer("our-load", name_servers=name_server, config=config) as producer:
        await producer.send(message(topic))

        def done(result: SendResult | None, error: BaseException | None) -> None:
            assert error is None

        bodies = [BODY] * count
        for span_s in (WARM_UP_S, seconds):
            meter.start()
            until = time.monotonic() + span_s
            while time.monotonic() < until:
                if mode == "many":
                    await producer.send_many(topic, bodies, tags="TagA")
                elif mode == "callback":
                    await producer.wait_for_room()
                    for _ in range(count):
                        producer.send_nowait(message(topic), done)
                    await asyncio.sleep(0)
                else:
                    for future in [producer.send_nowait(message(topic)) for _ in range(count)]:
                        await future
                meter.count += count
            await producer.flush()
        meter.report()


def sync(name_server: str, topic: str, threads: int, seconds: float, config: ProducerConfig) -> None:
    meter, counts = Meter(), [0] * threads
    with Producer("our-load", name_servers=name_server, config=config) as producer:

        def work(number: int, until: float) -> None:
            while (now := time.monotonic()) < until:
                producer.send(message(topic))
                counts[number] += 1
                if threads == 1:
                    meter.latencies_s.append(time.monotonic() - now)

        for span_s in (WARM_UP_S, seconds):
            meter.start()
            counts[:] = [0] * threads
            until = time.monotonic() + span_s
            workers = [threading.Thread(target=work, args=(number, until)) for number in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        meter.count = sum(counts)
        meter.report()


async def consume(name_server: str, topic: str, count: int, batch: int) -> None:
    meter, ended = Meter(), asyncio.Event()

    async def on_messages(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        for each in messages:
            assert each.body
        meter.count += len(messages)
        if meter.count >= count:
            ended.set()

    config = PushConfig(from_where=FROM_FIRST, batch_max=batch)
    consumer = AsyncPushConsumer(f"our-load-{time.time_ns()}", on_messages, name_servers=name_server, config=config)
    consumer.subscribe(topic)
    meter.start()
    async with consumer:
        async with asyncio.timeout(120):
            await ended.wait()
        meter.report()


async def pull(name_server: str, topic: str, count: int, batch: int, mode: str) -> None:
    meter = Meter()
    config = PullConfig(from_where=FROM_FIRST)
    consumer = AsyncPullConsumer(f"our-load-{time.time_ns()}", name_servers=name_server, config=config)
    consumer.subscribe(topic)
    meter.start()
    async with consumer:
        if mode == "iterate":
            async for each in consumer:
                assert each.body
                meter.count += 1
                if meter.count >= count:
                    break
        elif mode == "poll":
            while meter.count < count:
                for each in await consumer.poll(count_max=batch):
                    assert each.body
                    meter.count += 1
        else:
            async for found in consumer.batches(max_count=batch):
                meter.count += len(found.bodies())
                if meter.count >= count:
                    break
        meter.report()


def main() -> None:
    mode, name_server, topic, number, amount = sys.argv[1:6]
    config = ProducerConfig(send_timeout_ms=10_000, batching=None if sys.argv[6:] == ["single"] else Batching())
    if mode == "send":
        run(send(name_server, topic, int(number), float(amount), config))
    elif mode == "gather":
        run(gather(name_server, topic, int(number), float(amount), config))
    elif mode in ("nowait", "callback", "many"):
        run(nowait(name_server, topic, int(number), float(amount), config, mode))
    elif mode == "sync":
        sync(name_server, topic, int(number), float(amount), config)
    elif mode == "consume":
        run(consume(name_server, topic, int(number), int(amount)))
    else:
        run(pull(name_server, topic, int(number), int(amount), mode))


if __name__ == "__main__":
    main()
