"""Pulls that wait for messages: which wake, and why. Time comes in as an argument."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Payload = TypeVar("Payload")
QueueKey = tuple[str, int]


@dataclass(slots=True, eq=False)
class HeldPull(Generic[Payload]):
    """Waits for a message at or behind `scan_offset`, which moves on over messages it does not want."""

    queue: QueueKey
    scan_offset: int
    deadline_ms: int
    connection: Hashable
    payload: Payload
    start_offset: int = field(default=-1)

    def __post_init__(self) -> None:
        if self.start_offset < 0:
            self.start_offset = self.scan_offset


class HeldPulls(Generic[Payload]):
    """Whoever is returned is no longer held."""

    def __init__(self) -> None:
        self._by_queue: dict[QueueKey, dict[int, HeldPull[Payload]]] = {}
        self._by_connection: dict[Hashable, dict[int, HeldPull[Payload]]] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._held: dict[int, HeldPull[Payload]] = {}
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._held)

    def waits_for(self, queue: QueueKey) -> bool:
        return queue in self._by_queue

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first of them has waited long enough."""
        while self._deadlines and self._deadlines[0][1] not in self._held:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def hold(self, pull: HeldPull[Payload]) -> None:
        number, self._next_id = self._next_id, self._next_id + 1
        self._held[number] = pull
        self._by_queue.setdefault(pull.queue, {})[number] = pull
        self._by_connection.setdefault(pull.connection, {})[number] = pull
        heapq.heappush(self._deadlines, (pull.deadline_ms, number))

    def on_append(self, queue: QueueKey, end: int) -> list[HeldPull[Payload]]:
        """A queue has grown to `end`: whoever waits for something before it."""
        waiting = self._by_queue.get(queue, {})
        return self._take([number for number, pull in waiting.items() if pull.scan_offset < end])

    def on_deadline(self, now_ms: int) -> list[HeldPull[Payload]]:
        """Whoever has waited long enough."""
        due = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            due.append(heapq.heappop(self._deadlines)[1])
        return self._take([number for number in due if number in self._held])

    def on_recheck(self, end_of: Callable[[QueueKey], int]) -> Iterator[list[HeldPull[Payload]]]:
        """Whoever's queue has grown since it began to wait, wanted messages or not; one queue in each step."""
        for queue in list(self._by_queue):
            if queue in self._by_queue:
                end = end_of(queue)
                waiting = self._by_queue[queue]
                yield self._take([number for number, pull in waiting.items() if pull.start_offset < end])

    def on_disconnect(self, connection: Hashable) -> None:
        """Nobody waits for these answers any more."""
        self._take(list(self._by_connection.get(connection, ())))

    def release_all(self) -> list[HeldPull[Payload]]:
        return self._take(list(self._held))

    def _take(self, numbers: list[int]) -> list[HeldPull[Payload]]:
        taken = [self._held.pop(number) for number in numbers]
        for number, pull in zip(numbers, taken, strict=True):
            _drop(self._by_queue, pull.queue, number)
            _drop(self._by_connection, pull.connection, number)
        if len(self._deadlines) > 2 * len(self._held) + 1000:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._held]
            heapq.heapify(self._deadlines)
        return taken


Key = TypeVar("Key", bound=Hashable)


def _drop(table: dict[Key, dict[int, HeldPull[Payload]]], key: Key, number: int) -> None:
    entries = table[key]
    del entries[number]
    if not entries:
        del table[key]
