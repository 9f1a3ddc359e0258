"""What senders were told and consumers saw during failovers, and what must hold between that and the logs."""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketq.protocol.messages import decode_records
from rocketq.store import Store, StoreConfig
from rocketq.testing.embedded import SMALL_FILES

TOPIC = "Load"
SEGMENT_BYTES = 256 << 10
"""Small, so that files end all the time."""
MESSAGE_BYTES_MAX = 64 << 10
Place = tuple[int, int]
"""Queue id and queue offset."""


@dataclass
class Answers:
    """The history: bodies are unique, so each stands for one send."""

    acked: dict[bytes, Place] = field(default_factory=dict)
    acked_s: list[float] = field(default_factory=list)
    unknown: set[bytes] = field(default_factory=set)
    seen: dict[Place, bytes] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    again_count: int = 0
    trouble: str = ""
    """The last thing a sender was told that was no SEND_OK."""

    def ok(self, body: bytes, place: Place) -> None:
        self.acked_s.append(time.monotonic())
        self.acked[body] = place

    def failed(self, body: bytes, trouble: str) -> None:
        """Stored or not, nobody knows."""
        self.trouble = trouble
        self.unknown.add(body)

    def consumed(self, place: Place, body: bytes) -> None:
        """A consumer saw it there: nothing else may ever be seen there."""
        known = self.seen.get(place)
        if known is None:
            self.seen[place] = body
        elif known == body:
            self.again_count += 1
        else:
            self.changed.append(f"{place}: {known!r}, then {body!r}")

    @property
    def unseen(self) -> set[Place]:
        return set(self.acked.values()) - self.seen.keys()

    def longest_gap_s(self, since_s: float) -> float:
        """The longest time without an answered send, from the last answer before that moment on."""
        times = self.acked_s[max(0, bisect_left(self.acked_s, since_s) - 1) :]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


@dataclass(frozen=True)
class Findings:
    """What the logs say of the history."""

    lost: list[bytes]
    stored_twice_count: int
    """Sends that were tried again although the first try had been stored."""


def check(folder: Path, answers: Answers, count: int = 3) -> Findings:
    """Logs are the same as far as they go; no offset is missing or given twice; nothing that was seen has changed.

    What was answered and is not at its place is found, not asserted: the caller says so."""
    logs = [_log_in(folder / f"data{number}") for number in range(count)]
    both = min(map(len, logs))
    assert all(log[:both] == logs[0][:both] for log in logs), "the logs of the replicas differ"
    places = _places(max(logs, key=len))
    for queue_id in {queue for queue, _ in places}:
        offsets = sorted(offset for queue, offset in places if queue == queue_id)
        assert offsets == list(range(len(offsets))), f"offsets of queue {queue_id} have gaps"
    assert not answers.changed, f"consumers saw two messages at one place: {answers.changed[:5]}"
    vanished = [place for place, body in answers.seen.items() if places.get(place) != body]
    assert not vanished, f"consumers saw messages that no longer exist: {vanished[:5]}"
    stored = Counter(places.values())
    return Findings(
        [body for body, place in answers.acked.items() if places.get(place) != body],
        sum(times - 1 for times in stored.values()),
    )


def check_nothing_lost(folder: Path, answers: Answers) -> Findings:
    found = check(folder, answers)
    assert answers.acked, "nothing was ever answered: this run shows nothing"
    assert not found.lost, f"{len(found.lost)} of {len(answers.acked)} answered messages are lost: {found.lost[:5]}"
    return found


def _places(log: bytes) -> dict[Place, bytes]:
    places: dict[Place, bytes] = {}
    for record in _records(log):
        if record.topic == TOPIC:
            place = (record.queue_id, record.queue_offset)
            assert place not in places, f"a queue offset was given twice: {place}"
            places[place] = record.body
    return places


def store_config(root: Path) -> StoreConfig:
    """As the replicas of these tests have it."""
    return StoreConfig(
        root=root,
        segment_bytes=SEGMENT_BYTES,
        message_bytes_max=MESSAGE_BYTES_MAX,
        queue_file_bytes=int(SMALL_FILES["mappedFileSizeConsumeQueue"]),
        index_slots=int(SMALL_FILES["maxHashSlotNum"]),
        index_units=int(SMALL_FILES["maxIndexNum"]),
    )


def clock_differences_s(folder: Path) -> set[int]:
    """How far the clocks of brokers were ahead of those of senders."""
    return {(record.store_ms - record.born_ms) // 1000 for record in _records(_log_in(folder / "data0"))}


def _log_in(root: Path) -> bytes:
    with Store.open(store_config(root), services=False) as store:
        pieces, at = [], store.log_start
        while at < store.log_end:
            pieces.append(bytes(store.raw_range(at, SEGMENT_BYTES)))
            at += len(pieces[-1])
    return b"".join(pieces)


def _records(log: bytes) -> list[Any]:
    records, at = [], 0
    while at < len(log):
        size, magic = int.from_bytes(log[at : at + 4], "big"), int.from_bytes(log[at + 4 : at + 8], "big")
        if magic != 0xCBD43194:  # not the filler at the end of a file
            records += decode_records(log[at : at + size])
        at += size
    return records
