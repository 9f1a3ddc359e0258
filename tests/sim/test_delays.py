"""Days of delays, timers and retries on a manual clock, on real files, with crashes and clean stops in between: each
message arrives once, not before its time, and not much later; levels keep their order."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketq.broker.delay.level_service import DelayService
from rocketq.broker.delay.placement import DelayRules, place
from rocketq.broker.delay.timer_service import TimerService
from rocketq.broker.send.send_back_handlers import FIRST_RETRY_LEVEL
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.model import NewMessage, Record
from rocketq.protocol.messages import decode_records
from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendStatus, StateFiles, Store, StoreConfig

TOPIC = "Later"
RULES = DelayRules(18)
STEP_MS_MAX = 30_000


@dataclass
class Sent:
    due_ms: int
    level: int
    tries: int = 0


class World:
    """A broker's store and what delivers in it; consumers that fail now and then."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.config = StoreConfig(
            root=root,
            segment_bytes=1 << 20,
            message_bytes_max=1 << 14,
            queue_file_bytes=20 * 500,
            index_enabled=False,
            disk_used_percent_max=99,
            disk_force_clean_ratio=0.998,
            disk_refuse_ratio=0.999,
        )
        self.sent: dict[str, Sent] = {}
        self.arrived: dict[str, int] = {}
        self.order: dict[int, list[int]] = {}
        self.offset = self.crashes = self.stops = self.retries = 0
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.config, clock=self.clock, services=False)
        stats = BrokerStats("sim", self.clock.now_ms())
        self.delays = DelayService(self.store, StateFiles(self.config.root).delay_offsets, stats, self.clock)
        self.timers = TimerService(self.store, stats, self.clock)

    def crash(self) -> None:
        """As a kill leaves it: what was written is in the files, what was only known is gone."""
        self.crashes += 1
        assert self.store._directory_lock is not None
        self.store._directory_lock.release()
        self.open()

    def stop(self) -> None:
        self.stops += 1
        asyncio.run(self._stop())
        self.open()

    async def _stop(self) -> None:
        await self.delays.stop()
        await self.timers.stop()
        self.store.close()

    # clients

    def send(self) -> None:
        name, now_ms = f"m{len(self.sent)}", self.clock.now_ms()
        if self.chance.random() < 0.5:
            level = self.chance.randrange(1, 19)
            self.put(name, {"DELAY": str(level)}, Sent(now_ms + self.config.delays_ms[level - 1], level))
        else:
            delay_ms = int(self.chance.choice((1_000, 60_000, 3_600_000, 259_000_000)) * self.chance.random()) + 1
            self.put(name, {"TIMER_DELAY_MS": str(delay_ms)}, Sent(now_ms + delay_ms, 0))

    def put(self, name: str, asked: dict[str, str], sent: Sent) -> None:
        message = NewMessage(topic=TOPIC, queue_id=0, body=name.encode(), reconsume_times=sent.tries)
        placed = place(message, {"UNIQ_KEY": name, **asked}, RULES, self.clock.now_ms())
        assert self.store.append(placed).status is AppendStatus.OK
        self.sent[name] = sent

    def consume(self) -> None:
        while (result := self.store.read(TOPIC, 0, self.offset)).count:
            self.offset = result.next_offset
            for record in decode_records(result.records):
                self.check(record)

    def check(self, record: Record) -> None:
        name = record.body.decode()
        sent = self.sent[name]
        assert name not in self.arrived, f"{name} came twice"
        assert record.store_ms >= sent.due_ms, f"{name} came {sent.due_ms - record.store_ms} ms early"
        assert record.store_ms <= sent.due_ms + STEP_MS_MAX + 1_000, f"{name} came late"
        self.arrived[name] = record.store_ms
        if sent.level:
            self.order.setdefault(sent.level, []).append(int(name.partition("-")[0][1:]) if "-" not in name else -1)
        if sent.tries < 15 and self.chance.random() < 0.4:
            self.retries += 1
            level = FIRST_RETRY_LEVEL + sent.tries
            again = Sent(self.clock.now_ms() + self.config.delays_ms[level - 1], level, sent.tries + 1)
            self.put(f"{name}-{again.tries}", {"DELAY": str(level)}, again)

    # time

    def turn(self) -> None:
        for _ in range(self.chance.randrange(4)):
            self.send()
        self.deliver()
        self.consume()
        fate = self.chance.random()
        if fate < 0.01:
            self.crash()
        elif fate < 0.015:
            self.stop()
        self.clock.advance(self.chance.randrange(1, STEP_MS_MAX))

    def deliver(self) -> None:
        """All that is due; a crash may come in the middle."""
        while self.delays.step() | self.timers.step():
            if self.chance.random() < 0.0005:
                self.crash()

    def run_dry(self) -> None:
        while len(self.arrived) < len(self.sent):
            self.deliver()
            self.consume()
            self.clock.advance(STEP_MS_MAX)


@pytest.mark.parametrize(("seed", "turns"), [(1, 800), pytest.param(2, 3_000, marks=pytest.mark.slow)])
def test_days_of_delays_timers_and_retries(tmp_path: Path, seed: int, turns: int) -> None:
    world = World(tmp_path / "store", seed)
    began_ms = world.clock.now_ms()
    for _ in range(turns):
        world.turn()
    world.run_dry()
    assert world.clock.now_ms() - began_ms > 86_400_000
    assert len(world.arrived) == len(world.sent) > turns
    assert world.crashes > 2
    assert world.stops > 1
    assert world.retries > turns // 4
    for numbers in world.order.values():
        first_tries = [number for number in numbers if number >= 0]
        assert first_tries == sorted(first_tries)
    asyncio.run(world._stop())
