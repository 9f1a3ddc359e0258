"""Delayed messages that are due: how many are delivered per second, and how late under load.

python -m bench.delays               200,000 due at once; then 5 seconds of 20,000 sends and deliveries each
python -m bench.delays --smoke       a few: does it still run?
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import rocketq.kernel
from bench.bars import Bar, save
from bench.load.folders import run_folder
from rocketq.broker.delay.level_service import DelayService
from rocketq.broker.delay.placement import DelayRules, place
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.model import NewMessage
from rocketq.protocol.messages import decode_records
from rocketq.runtime.clock import SystemClock
from rocketq.store import StateFiles, Store, StoreConfig

RATE_BAR = 50_000.0
LATE_MS_BAR = 150.0
TOPIC, QUEUES = "Due", 4


@dataclass(frozen=True)
class Result:
    delivered_per_second: float
    late_ms_p99: float


def store_at(root: Path, segment_bytes: int) -> Store:
    config = StoreConfig(
        root=root,
        segment_bytes=segment_bytes,
        message_bytes_max=1 << 16,
        delay_levels="1s",
        disk_used_percent_max=95,
        disk_force_clean_ratio=0.98,
        disk_refuse_ratio=0.99,
    )
    return Store.open(config)


def delayed(number: int) -> NewMessage:
    message = NewMessage(topic=TOPIC, queue_id=number % QUEUES, body=b"x" * 128)
    named = {"KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}", "TAGS": "TagA", "DELAY": "1"}
    return place(message, named, DelayRules(1), 0)


def service_of(store: Store) -> DelayService:
    return DelayService(store, StateFiles(store.config.root).delay_offsets, BrokerStats("bench", 0), SystemClock())


def arrived(store: Store) -> int:
    return sum(store.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES))


async def measure_rate(store: Store, count: int) -> float:
    """Everything is due when the deliveries begin."""
    messages = [delayed(number) for number in range(min(count, 10_000))]
    for number in range(count):
        store.append(messages[number % len(messages)], wait=False)
    await asyncio.sleep(1.1)
    service = service_of(store)
    began = time.perf_counter()
    service.start()
    while arrived(store) < count:
        await asyncio.sleep(0.001)
    took = time.perf_counter() - began
    await service.stop()
    return count / took


async def measure_lateness(store: Store, per_second: int, seconds: float) -> float:
    """Sends and deliveries share the event loop, as in a broker."""
    service, before = service_of(store), arrived(store)
    service.start()
    messages = [delayed(number) for number in range(1_000)]
    began, sent = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        while sent < passed * per_second:
            store.append(messages[sent % 1_000], wait=False)
            sent += 1
        await asyncio.sleep(0.002)
    while arrived(store) < before + sent:
        await asyncio.sleep(0.005)
    await service.stop()
    late = sorted(lateness(store))
    return late[int(len(late) * 0.99)]


def lateness(store: Store) -> list[float]:
    """Of the last ones delivered: when each was stored in its queue, against when it was due there."""
    found = []
    for queue_id in range(QUEUES):
        end = store.max_offset(TOPIC, queue_id)
        offset = max(0, end - 5_000)
        while offset < end:
            result = store.read(TOPIC, queue_id, offset, count_max=64, bytes_max=1 << 20)
            for record in decode_records(result.records):
                waited = store.message_at(max(record.prepared_offset, 0))
                assert waited is not None
                found.append(float(record.store_ms - waited.store_ms - 1_000))
            offset = result.next_offset
    assert min(found) >= 0, "early"
    return found


def run(count: int, per_second: int, seconds: float, segment_bytes: int = 256 << 20) -> Result:
    root = Path(tempfile.mkdtemp(prefix="rocketq-delays-"))

    async def measure() -> Result:
        with store_at(root / "a", segment_bytes) as store:
            rate = await measure_rate(store, count)
        with store_at(root / "b", segment_bytes) as store:
            return Result(rate, await measure_lateness(store, per_second, seconds))

    try:
        return asyncio.run(measure())
    finally:
        shutil.rmtree(root)


def judge(result: Result) -> list[Bar]:
    return [
        Bar("due messages delivered per second", result.delivered_per_second, RATE_BAR),
        Bar("ms late, 99 of 100", result.late_ms_p99, LATE_MS_BAR, at_most=True),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    if parser.parse_args().smoke:
        print(json.dumps(asdict(run(300, 500, 0.2, 1 << 20)), indent=2))
        return
    if not rocketq.kernel.compiled:
        sys.exit(
            "the kernel is not compiled here (no C compiler was found at setup): the bars are for the compiled one"
        )
    result = run(200_000, 20_000, 5)
    bars = judge(result)
    for bar in bars:
        print(bar)
    print(f"saved as {save('delays', asdict(result))}")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
