"""A writing process is killed at random moments, again and again on the same directory: more than 500 kills in all.

With SIGKILL the page cache survives, so everything that was acknowledged must be there, flushed or not; only what the
transient buffer had not handed over may go. Moments are chosen by a seeded source and by real time: a failure names its
seed, and the directory tells the rest.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketq.model import Record
from rocketq.protocol.properties import decode_properties
from rocketq.store import Store, StoreConfig, tag_code
from rocketq.store.queue_extensions import is_address
from rocketq.store.verify import Verifier

from . import raw_store
from .crash_writer import TOPICS, crash_config
from .stores import await_index, body_of, read_queue

ROUNDS = {"sync": 160, "async": 160, "transient": 120, "extended": 80}
ROUNDS_PER_DIRECTORY = 20
NUMBERS_PER_ROUND = 1000
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Promise:
    """An answered append: this message is at this place."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    end: int


class Writers:
    """The process that forks writers."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors.open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversity.crash_writer"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._running = 0

    def run_and_kill(
        self, root: Path, mode: str, seed: int, first: int, source: random.Random, *, whole: bool = False
    ) -> list[Promise]:
        """Let one writer write until a random moment, or all its messages; what it was promised by then."""
        assert self._process.stdin is not None
        order = {"root": str(root), "mode": mode, "seed": seed, "first": first, "limit": source.randrange(20, 70)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        kind, pid = self._line().split()
        assert kind == "pid"
        self._running = int(pid)
        promises: list[Promise] = []
        acknowledged_to = 0
        count = source.choice((0, 0, 1, source.randrange(80)))  # 0: while it is still opening, perhaps
        count = 1_000 if whole else count  # more than it writes: it is killed when it is idle
        pause_s = source.random() * source.choice((0.0005, 0.005, 0.03))
        killed = False
        while True:
            if not killed and len(promises) >= count:
                time.sleep(pause_s)
                os.kill(self._running, signal.SIGKILL)
                killed = True
            words = self._line().split()
            if words[0] == "reaped":
                self._running = 0
                assert int(words[1]) == -signal.SIGKILL, f"the writer died by itself:\n{self._said()}"
                break
            acknowledged_to = max(acknowledged_to, int(words[-1]))
            if words[0] == "idle":
                count = 0
            else:
                promises.append(Promise(int(words[0]), words[1], *map(int, words[2:6])))
        return [promise for promise in promises if promise.end <= acknowledged_to]

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the writers' process is gone:\n{self._said()}"
        return line

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._running:  # a test failed half-way
            os.kill(self._running, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()
        self._errors.close()


@pytest.fixture
def writers(work_dir: Path) -> Iterator[Writers]:
    made = Writers(work_dir / "writers.log")
    yield made
    made.close()


@dataclass
class Ledger:
    """Everything promised so far on one directory."""

    seed: int
    promises: dict[tuple[str, int, int], Promise] = field(default_factory=dict)

    def add(self, promises: list[Promise]) -> None:
        for promise in promises:
            place = promise.topic, promise.queue_id, promise.queue_offset
            assert place not in self.promises, f"offset given twice: {self.promises[place]} and {promise}"
            self.promises[place] = promise

    def check(self, config: StoreConfig, source: random.Random) -> None:
        """Every promise is kept, offsets are contiguous, whatever is served is a message exactly as it was sent."""
        with Store.open(config) as store:
            await_index(store)
            assert store.report.holes == [], "a kill leaves no holes"
            kept, numbers = self._check_queues(store)
            missing = self.promises.keys() - kept
            assert not missing, f"{len(missing)} promised messages are gone: {min(missing)}; {store.report.notes}"
            assert len(numbers) == len(set(numbers)), "a message is in two places"
            asked = list(self.promises.values())
            for promise in asked[-30:] + source.sample(asked, min(len(asked), 40)):
                self._check_record(store.message_at(promise.log_offset), promise)
                found = store.query(promise.topic, f"uniq-{self.seed}-{promise.number}").records
                assert [record.log_offset for record in found] == [promise.log_offset], f"not by key: {promise}"

    def _check_queues(self, store: Store) -> tuple[set[tuple[str, int, int]], list[int]]:
        kept, numbers = set(), []
        for queue in store.queues:
            records = read_queue(store, queue.topic, queue.queue_id)
            offsets = [record.queue_offset for record in records]
            assert offsets == list(range(queue.end_offset)), f"{queue!r} is not contiguous: {offsets}"
            for record in records:
                place = queue.topic, queue.queue_id, record.queue_offset
                number = int(record.properties["UNIQ_KEY"].split("-")[2])
                assert record.body == body_of(number, self.seed), f"{place} holds a torn message"
                assert record.queue == place[:2]
                assert record.properties["KEYS"] == f"key-{self.seed}-{number} group-{number // 4}"
                assert record.properties["TAGS"] == f"Tag{number % 3}"
                promise = self.promises.get(place)
                assert promise is None or (promise.number, promise.log_offset) == (number, record.log_offset)
                numbers.append(number)
                kept.add(place)
        return kept, numbers

    def _check_record(self, record: Record | None, promise: Promise) -> None:
        assert record is not None, f"not by id: {promise}"
        assert record.body == body_of(promise.number, self.seed)
        assert decode_properties(record.properties)["UNIQ_KEY"] == f"uniq-{self.seed}-{promise.number}"


@pytest.mark.parametrize("mode", list(ROUNDS))
def test_a_killed_store_keeps_every_promise(work_dir: Path, writers: Writers, mode: str) -> None:
    """Goal: after each of many kills (520 over the four modes) everything acknowledged is there, with contiguous
    offsets and a whole index, and nothing torn is. Some kills hit a store that was just killed and not looked at."""
    rounds = ROUNDS[mode]
    for first_round in range(0, rounds, ROUNDS_PER_DIRECTORY):
        source = random.Random(f"{mode}/{first_round}")
        root, ledger = work_dir / f"store-{first_round}", Ledger(seed=first_round)
        config = crash_config(root, mode)
        for number in range(ROUNDS_PER_DIRECTORY):
            ledger.add(writers.run_and_kill(root, mode, first_round, number * NUMBERS_PER_ROUND, source))
            chance = source.random()
            if not root.exists():
                continue
            if chance < 0.1:
                (root / "recovery.rocketq").unlink(missing_ok=True)
            elif chance < 0.4:  # ask a copy: the next writer finds the store as the kill left it
                copied = crash_config(work_dir / "copy", mode)
                shutil.copytree(root, copied.root)
                ledger.check(copied, source)
                shutil.rmtree(copied.root)
            elif chance < 0.9:
                ledger.check(config, source)
        number = ROUNDS_PER_DIRECTORY
        while not _is_large(config):  # a slow machine kills writers before they have written much
            first = number * NUMBERS_PER_ROUND
            ledger.add(writers.run_and_kill(root, mode, first_round, first, source, whole=True))
            number += 1
        ledger.check(config, source)
        records = raw_store.walk(config)
        raw_store.check_queues(config, records, set())
        raw_store.check_index(config, records, set())
        if mode == "extended":
            check_extensions(config)
        assert {record.topic for record in records} == set(TOPICS), "the writers wrote too little to mean anything"
        assert len(raw_store.log_files(config)) >= 2
        shutil.rmtree(root)


def _is_large(config: StoreConfig) -> bool:
    """Whether there are two log files with messages of all topics."""
    if not config.root.exists() or len(raw_store.log_files(config)) < 2:
        return False
    with Store.open(config, services=False) as store:
        return set(store.topics()) == set(TOPICS)


def check_extensions(config: StoreConfig) -> None:
    """Most units have an extension, and each has the one that was made for its message."""
    extended = plain = 0
    with Store.open(config, services=False) as store:
        for queue in store.queues:
            assert queue.extensions is not None
            for record in read_queue(store, queue.topic, queue.queue_id):
                code = (queue.unit(record.queue_offset) or (0, 0, 0))[2]
                if not is_address(code):
                    assert code == tag_code(record.properties["TAGS"])
                    plain += 1
                    continue
                unit = queue.extensions.get(code)
                assert unit is not None, f"{queue!r}: the extension of {record.queue_offset} is gone"
                assert decode_properties(unit.bitmap) == record.properties
                assert unit.tags_code == tag_code(record.properties["TAGS"])
                extended += 1
        assert extended > 3 * plain, f"{extended} extended, {plain} plain"
    assert Verifier(config.root).run().ok


def test_a_lost_message_would_be_noticed(work_dir: Path, writers: Writers) -> None:
    """Goal: the test above can fail: a promise that was never kept is found."""
    source = random.Random(1)
    ledger = Ledger(seed=1)
    while not ledger.promises:
        ledger.add(
            writers.run_and_kill(work_dir / "store", "async", 1, len(ledger.promises) * NUMBERS_PER_ROUND, source)
        )
        shutil.rmtree(work_dir / "store", ignore_errors=not ledger.promises)
    with pytest.raises(AssertionError, match="promised messages are gone"):
        ledger.check(crash_config(work_dir / "store", "async"), source)
