"""The store against a model of it: random appends, cuts, deletions, crashes and restarts; everything is read back."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketq.model import SysFlag
from rocketq.protocol.messages import decode_records
from rocketq.runtime.clock import ManualClock
from rocketq.store import ReadStatus, Store
from rocketq.store.disk import DiskUsage

from .kit import NOW_MS, StagedDisk, message, open_store, packed

QUEUES = [("T", 0), ("T", 1), ("%RETRY%g", 0), ("SCHEDULE_TOPIC_XXXX", 2)]
ROOMY, FILLING = DiskUsage(1000, 100, 900), DiskUsage(1000, 880, 120)


@dataclass
class Stored:
    """A message as the model remembers it."""

    log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    key: str
    queued: bool

    @property
    def end(self) -> int:
        return self.log_offset + self.size


@dataclass
class Model:
    """Every message of the log in order, and the next offset of every queue."""

    log: list[Stored] = field(default_factory=list)
    next_offset: dict[tuple[str, int], int] = field(default_factory=dict)
    removed: list[Stored] = field(default_factory=list)

    def of_queue(self, queue: tuple[str, int]) -> list[Stored]:
        return [
            one for one in self.log if (one.topic, one.queue_id) == queue and one.queued and one not in self.removed
        ]

    def cut(self, end: int) -> None:
        gone = [one for one in self.log if one.end > end]
        self.log = [one for one in self.log if one.end <= end]
        for one in reversed(gone):
            queue = (one.topic, one.queue_id)
            if one.queued and one not in self.removed and queue in self.next_offset:
                self.next_offset[queue] = one.queue_offset
        self.next_offset = {queue: offset for queue, offset in self.next_offset.items() if offset > 0}

    def forget_before(self, start: int) -> None:
        self.log = [one for one in self.log if one.log_offset >= start]

    def delete_topic(self, topic: str) -> None:
        self.removed += [one for one in self.log if one.topic == topic]
        self.next_offset = {queue: offset for queue, offset in self.next_offset.items() if queue[0] != topic}


class Play:
    """One store, its model, and what may happen to them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.base, self.number = root, 0
        self.clock, self.disk = ManualClock(NOW_MS), StagedDisk()
        self.disk.usage_now = ROOMY
        self.options = {
            "queue_file_bytes": self.rng.choice([60, 200, 800]),
            "index_units": self.rng.choice([5, 30]),
            "transient_buffer": self.rng.random() < 0.3,
        }
        self.model = Model()
        self.store = self.open(root / "0")

    def open(self, root: Path) -> Store:
        store = open_store(root, clock=self.clock, disk=self.disk, **self.options)
        store.retention.pause = lambda seconds: None
        return store

    def remember(
        self, body: bytes, log_offset: int, size: int, queue_offset: int, queue: tuple[str, int], key: str, queued: bool
    ) -> None:
        self.model.log.append(Stored(log_offset, size, *queue, queue_offset, body, key, queued))

    def append(self) -> None:
        queue, key = self.rng.choice(QUEUES), f"k{self.rng.randrange(8)}"
        kind = self.rng.choice([0, 0, 0, 0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT])
        queued = kind != SysFlag.TRANSACTION_PREPARED
        body = self.rng.randbytes(self.rng.choice([0, 10, 500, 3_000]))
        self.clock.advance(self.rng.choice([0, 1, 1_500]))
        result = self.store.append(message(body, *queue, sys_flag=kind, KEYS=key, DELAY="1"))
        assert result.status.stored, result.reason
        offset = self.model.next_offset.get(queue, 0)
        if queued:
            assert result.queue_offset == offset
            self.model.next_offset[queue] = offset + 1
        self.remember(body, result.log_offset, result.size, offset if queued else 0, queue, key, queued)

    def append_batch(self) -> None:
        queue, count = self.rng.choice(QUEUES), self.rng.randrange(1, 9)
        batch = [self.rng.randbytes(self.rng.randrange(200)) for _ in range(count)]
        result = self.store.append_batch(message(packed(*batch), *queue, KEYS="batch"))
        assert result.status.stored, result.reason
        offset = self.model.next_offset.get(queue, 0)
        assert result.queue_offset == offset
        ends = [*result.log_offsets[1:], result.end]
        for number, (body, start, end) in enumerate(zip(batch, result.log_offsets, ends, strict=True)):
            self.remember(body, start, end - start, offset + number, queue, "batch", True)
        self.model.next_offset[queue] = offset + count

    def cut(self) -> None:
        if not self.model.log:
            return
        one = self.rng.choice(self.model.log[-8:])
        if one.log_offset < self.store.log_start:
            return
        place = self.rng.choice([one.log_offset, one.end, one.log_offset + 1])
        end = self.store.truncate_to(place)
        assert end == (one.end if place == one.end else one.log_offset)
        self.model.cut(end)

    def expire(self) -> None:
        """A filling disk takes the oldest files, but not what somebody still needs."""
        self.store.flush()
        keep = self.rng.randrange(self.store.log_start, self.store.log_end + 1)
        self.store.retention.keep_from(lambda: keep)
        self.disk.usage_now = FILLING
        self.store.clean()
        self.disk.usage_now = ROOMY
        self.store.retention.keep_from(lambda: None)
        self.model.forget_before(self.store.log_start)

    def delete_topic(self) -> None:
        topic = self.rng.choice(QUEUES)[0]
        self.store.delete_topic(topic)
        self.model.delete_topic(topic)

    def restart(self) -> None:
        self.store.close()
        self.store = self.open(self.base / str(self.number))
        self.store.rebuild_index()

    def crash(self) -> None:
        """Go on with a copy of the files as they are."""
        self.store.flush()
        self.number += 1
        shutil.copytree(self.store.config.root, self.base / str(self.number))
        self.store.close()
        self.store = self.open(self.base / str(self.number))
        self.store.rebuild_index()

    def upkeep(self) -> None:
        self.rng.choice([self.store.save_recovery_point, self.store.drop_idle_mappings, self.store.flush])()

    def check(self) -> None:
        """Bounds, every queue read to its end, every message by place, every key."""
        self.store.flush()
        grown = {(queue.topic, queue.queue_id) for queue in self.store.queues if queue.end_offset}
        assert grown == set(self.model.next_offset)
        for queue, next_offset in self.model.next_offset.items():
            expected = self.model.of_queue(queue)
            first = expected[0].queue_offset if expected else next_offset
            assert (self.store.min_offset(*queue), self.store.max_offset(*queue)) == (first, next_offset), queue
            assert self.read_all(queue, first) == [(one.queue_offset, one.log_offset, one.body) for one in expected]
        for one in self.model.log:
            record = self.store.message_at(one.log_offset)
            assert record is not None
            assert record.body == one.body
        for key in ("k0", "k3", "batch"):
            for topic in {topic for topic, _ in QUEUES}:
                wanted = [one.log_offset for one in self.model.log if (one.topic, one.key) == (topic, key)]
                found = [record.log_offset for record in self.store.query(topic, key, count_max=64).records]
                assert found == wanted[-64:], (topic, key)

    def read_all(self, queue: tuple[str, int], offset: int) -> list[tuple[int, int, bytes]]:
        found = []
        while True:
            result = self.store.read(*queue, offset)
            if result.status in (ReadStatus.OFFSET_OVERFLOW_ONE, ReadStatus.NO_MESSAGE_IN_QUEUE):
                return found
            assert result.status is ReadStatus.FOUND, result
            assert result.bad_count == 0
            found += [
                (record.queue_offset, record.log_offset, record.body) for record in decode_records(result.records)
            ]
            assert result.next_offset > offset
            offset = result.next_offset

    def run(self, steps: int) -> None:
        menu = {self.append: 60, self.append_batch: 15, self.upkeep: 6, self.cut: 4, self.expire: 2}
        menu |= {self.restart: 3, self.crash: 3, self.delete_topic: 1}
        for step in range(steps):
            self.rng.choices(list(menu), list(menu.values()))[0]()
            if step % 10 == 9:
                self.check()
        self.check()
        self.store.close()


@pytest.mark.parametrize("seed", range(8))
def test_store_does_what_its_model_does(tmp_path: Path, seed: int) -> None:
    """Goal: after any history every message stored and neither cut nor expired is read back, in every way."""
    Play(tmp_path, seed).run(120)
