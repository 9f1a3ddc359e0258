"""Clients of other systems under the loads of our_load.py, each in a process of its own.

python -m bench.sdk.peer_load CLIENT MODE ADDR TOPIC NUMBER AMOUNT

CLIENT is aiokafka, confluent, nats or redis; modes and the line that is printed are those of our_load.py.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bench.sdk.our_load import BODY, WARM_UP_S, Meter
from rocketq.remoting.loops import run

DRAIN_SECONDS_MAX = 120


async def timed_tasks(send: Callable[[], Awaitable[Any]], concurrent: int, seconds: float) -> None:
    """`concurrent` tasks, each of which sends again when its last message is stored."""
    meter = Meter()

    async def work(until: float) -> None:
        while (now := time.monotonic()) < until:
            await send()
            meter.count += 1
            if concurrent == 1:
                meter.latencies_s.append(time.monotonic() - now)

    for span_s in (WARM_UP_S, seconds):
        meter.start()
        until = time.monotonic() + span_s
        await asyncio.gather(*(work(until) for _ in range(concurrent)))
    meter.report()


async def timed_rounds(send_all: Callable[[], Awaitable[Any]], count: int, seconds: float) -> None:
    """Rounds of `count` messages."""
    meter = Meter()
    for span_s in (WARM_UP_S, seconds):
        meter.start()
        until = time.monotonic() + span_s
        while time.monotonic() < until:
            await send_all()
            meter.count += count
    meter.report()


def timed_threads(make: Callable[[], Callable[[], Any]], threads: int, seconds: float) -> None:
    """Threads that each send one message after the other; `make` gives a thread its own way to send."""
    meter, counts = Meter(), [0] * threads
    sends = [make() for _ in range(threads)]

    def work(number: int, until: float) -> None:
        while (now := time.monotonic()) < until:
            sends[number]()
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


async def aiokafka(mode: str, addr: str, topic: str, number: int, amount: float) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # noqa: PLC0415

    if mode in ("iterate", "poll"):
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=addr, auto_offset_reset="earliest")
        meter = Meter()
        meter.start()
        async with consumer:
            while meter.count < number:
                if mode == "iterate":
                    assert (await anext(consumer)).value
                    meter.count += 1
                else:
                    found = await consumer.getmany(timeout_ms=1_000, max_records=int(amount))
                    meter.count += sum(len(records) for records in found.values())
        meter.report()
        return
    async with AIOKafkaProducer(bootstrap_servers=addr, acks=1) as producer:
        if mode == "send":
            await timed_tasks(lambda: producer.send_and_wait(topic, BODY, key=b"key"), number, amount)
            return

        async def gather() -> None:
            await asyncio.gather(*(producer.send_and_wait(topic, BODY, key=b"key") for _ in range(number)))

        async def futures() -> None:
            for future in [await producer.send(topic, BODY, key=b"key") for _ in range(number)]:
                await future

        await timed_rounds(gather if mode == "gather" else futures, number, amount)


async def confluent(mode: str, addr: str, topic: str, number: int, amount: float) -> None:
    from confluent_kafka import Consumer, Producer  # noqa: PLC0415

    if mode in ("iterate", "poll"):
        settings = {"bootstrap.servers": addr, "group.id": f"g{time.time_ns()}", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        meter = Meter()
        meter.start()
        while meter.count < number:
            if mode == "iterate":
                message = consumer.poll(1.0)
                meter.count += message is not None and bool(message.value())
            else:
                meter.count += len([each.value() for each in consumer.consume(int(amount), 1.0)])
        meter.report()
        consumer.close()
        return
    limits = {"queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": addr, "acks": 1, "linger.ms": 0, **limits})

    def done(error: object, message: object) -> None:
        assert error is None

    async def callbacks() -> None:
        for _ in range(number):
            producer.produce(topic, BODY, b"key", callback=done)
        producer.flush()

    async def many() -> None:
        for _ in range(number):
            producer.produce(topic, BODY, b"key")
        producer.flush()

    def blocking() -> Callable[[], None]:
        def send() -> None:
            stored = threading.Event()
            producer.produce(topic, BODY, b"key", callback=lambda error, message: stored.set())
            while not stored.is_set():
                producer.poll(0.1)

        return send

    if mode == "sync":
        await asyncio.to_thread(timed_threads, blocking, number, amount)
    else:
        await timed_rounds(many if mode == "many" else callbacks, number, amount)


async def nats(mode: str, addr: str, topic: str, number: int, amount: float) -> None:
    import nats as client  # noqa: PLC0415

    connection = await client.connect(f"nats://{addr}")
    stream = connection.jetstream()
    await stream.add_stream(name=topic, subjects=[topic], storage="file")
    await timed_tasks(lambda: stream.publish(topic, BODY), number, amount)
    await connection.close()


async def redis(mode: str, addr: str, topic: str, number: int, amount: float) -> None:
    import redis as client  # noqa: PLC0415
    import redis.asyncio  # noqa: PLC0415

    host, port = addr.split(":")
    if mode == "sync":

        def make() -> Callable[[], Any]:
            connection = client.Redis(host, int(port))
            return lambda: connection.xadd(topic, {"body": BODY})

        await asyncio.to_thread(timed_threads, make, number, amount)
        return
    connection = client.asyncio.Redis(host=host, port=int(port))
    await timed_tasks(lambda: connection.xadd(topic, {"body": BODY}), number, amount)
    await connection.aclose()


CLIENTS: dict[str, Callable[[str, str, str, int, float], Coroutine[Any, Any, None]]] = {
    "aiokafka": aiokafka,
    "confluent": confluent,
    "nats": nats,
    "redis": redis,
}


if __name__ == "__main__":
    name, mode, addr, topic, number, amount = sys.argv[1:7]
    run(CLIENTS[name](mode, addr, topic, int(number), float(amount)))
