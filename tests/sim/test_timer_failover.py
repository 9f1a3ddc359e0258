"""Hours of timers on a manual clock, of masters that are gone and slaves that go on: each message arrives once."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import pytest

from rocketq.broker.delay.placement import DelayRules, place
from rocketq.broker.delay.timer_service import TimerService
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.model import NewMessage
from rocketq.protocol.messages import decode_records
from rocketq.protocol.names import TIMER_TOPIC
from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendStatus, Store, StoreConfig
from rocketq.store.timer_files import TimerPoint

TOPIC = "Later"
RULES = DelayRules(18)
MINUTE_MS = 60_000
WINDOW_MS = 40 * MINUTE_MS
DELAY_MS_MAX = 150 * MINUTE_MS
POLLS = 3
"""Of the master's tables, between what a slave was told and what happened since."""


class Group:
    """A master and a slave that copies its log, and is told how far its wheel has come."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance, self.clock = folder, random.Random(seed), ManualClock()
        self.due_ms: dict[str, int] = {}
        self.failovers = 0
        self.master, self.slave = self.open("s0"), self.open("s1")
        self.service = self.serve(self.master)
        self.begin_following()

    def open(self, name: str) -> Store:
        config = StoreConfig(
            root=self.folder / name,
            segment_bytes=1 << 20,
            message_bytes_max=1 << 14,
            queue_file_bytes=20 * 500,
            index_enabled=False,
            disk_used_percent_max=99,
            disk_force_clean_ratio=0.998,
            disk_refuse_ratio=0.999,
        )
        return Store.open(config, clock=self.clock, services=False)

    def serve(self, store: Store) -> TimerService:
        return TimerService(store, BrokerStats("sim", self.clock.now_ms()), self.clock)

    def begin_following(self) -> None:
        self.log_ends = deque([0], maxlen=POLLS)
        self.told: tuple[TimerPoint, int] | None = None

    def copy(self) -> None:
        while data := bytes(self.master.whole_range(self.slave.log_end, 1 << 16)):
            self.slave.append_raw(self.slave.log_end, data)

    def ask(self) -> None:
        log_end, point = self.slave.log_end, TimerPoint.decode(self.service.check_point())
        self.told = (point, min(self.log_ends)) if point is not None else None
        self.log_ends.append(log_end)

    def send(self) -> None:
        name, delay_ms = f"m{len(self.due_ms)}", self.chance.randrange(1, DELAY_MS_MAX)
        message = NewMessage(topic=TOPIC, queue_id=0, body=name.encode())
        asked = {"UNIQ_KEY": name, "TIMER_DELAY_MS": str(delay_ms)}
        placed = place(message, asked, RULES, self.clock.now_ms())
        assert self.master.append(placed).status is AppendStatus.OK
        self.due_ms[name] = self.clock.now_ms() + delay_ms

    def turn(self) -> None:
        """Some minutes, in which the slave is never far behind."""
        for _ in range(self.chance.randrange(3)):
            self.send()
        while self.service.step():
            pass
        self.copy()
        self.ask()
        self.clock.advance(self.chance.randrange(1, 3 * MINUTE_MS))

    def fail_over(self) -> None:
        """The slave has everything, and goes on by itself; a new one copies it."""
        self.failovers += 1
        while self.chance.random() < 0.8 and self.service.step():
            pass
        self.copy()
        self.master, before = self.slave, self.master
        before.close()
        self.service = self.serve(self.master)
        if self.told is not None:
            self.service.take_over(*self.told)
        self.slave = self.open(f"s{self.failovers + 1}")
        self.begin_following()

    def arrived(self) -> list[str]:
        offset, found = 0, list[str]()
        while (result := self.master.read(TOPIC, 0, offset)).count:
            offset = result.next_offset
            for record in decode_records(result.records):
                name = record.body.decode()
                assert record.store_ms >= self.due_ms[name], f"{name} came early"
                found.append(name)
        return found


@pytest.mark.parametrize("seed", [1, 2])
def test_timers_far_ahead_come_once_whoever_is_master_by_then(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what stands in the log again because its time is far away is one message, also for the next master."""
    monkeypatch.setattr("rocketq.store.timers.ROLL_WINDOW_MS", WINDOW_MS)  # two days, in life
    group = Group(tmp_path, seed)
    for number in range(200):
        group.turn()
        if number % 20 == 19:
            group.fail_over()
    while group.clock.now_ms() <= max(group.due_ms.values()) + 1_000:
        while group.service.step():
            pass
        group.clock.advance(MINUTE_MS)
    while group.service.step():
        pass
    assert sorted(group.arrived()) == sorted(group.due_ms)
    assert group.master.max_offset(TIMER_TOPIC, 0) > len(group.due_ms) + 50  # copies
    assert group.failovers == 10
    group.master.close()
    group.slave.close()
