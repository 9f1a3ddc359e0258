"""Table of held pulls by queue, connection and deadline. Pure: time comes in as an argument."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Payload = TypeVar("Payload")
QueueKey = tuple[str, int]


@dataclass(slots=True, eq=False)
class HeldPull(Generic[Payload]):
    """A pull that waits for a message at or after `scan_offset`, which advances over messages that do not match."""

    queue: QueueKey
    scan_offset: int
    deadline_ms: int
    connection: Hashable
    payload: Payload
    start_offset: int = field(default=-1)
    address: str = ""
    """The client's address without port."""

    def __post_init__(self) -> None:
        if self.start_offset < 0:
            self.start_offset = self.scan_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLimits:
    """Held pulls in all, of one connection, and from one address."""

    total: int
    per_connection: int
    per_address: int


class HeldPulls(Generic[Payload]):
    """Held pulls. Methods that return pulls remove them."""

    def __init__(self) -> None:
        self._by_queue: dict[QueueKey, dict[int, HeldPull[Payload]]] = {}
        self._by_connection: dict[Hashable, dict[int, HeldPull[Payload]]] = {}
        self._address_counts: Counter[str] = Counter()
        self._deadlines: list[tuple[int, int]] = []
        self._held: dict[int, HeldPull[Payload]] = {}
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._held)

    def limit_fault(self, pull: HeldPull[Payload], limits: HoldLimits, woken: int = 0) -> str | None:
        """Which limit a pull would exceed, or None; `woken` pulls count though they are not in this table."""
        if len(self._by_connection.get(pull.connection, ())) >= limits.per_connection:
            return f"{limits.per_connection} pulls of this connection are held"
        if self._address_counts[pull.address] >= limits.per_address:
            return f"{limits.per_address} pulls from this address are held"
        if len(self) + woken >= limits.total:
            return f"{len(self) + woken} pulls are held"
        return None

    def waits_for(self, queue: QueueKey) -> bool:
        return queue in self._by_queue

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest deadline."""
        while self._deadlines and self._deadlines[0][1] not in self._held:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def hold(self, pull: HeldPull[Payload]) -> None:
        number, self._next_id = self._next_id, self._next_id + 1
        self._held[number] = pull
        self._by_queue.setdefault(pull.queue, {})[number] = pull
        self._by_connection.setdefault(pull.connection, {})[number] = pull
        self._address_counts[pull.address] += 1
        heapq.heappush(self._deadlines, (pull.deadline_ms, number))

    def on_append(self, queue: QueueKey, end: int) -> list[HeldPull[Payload]]:
        """Pulls that wait for messages before `end`, the new end of a queue."""
        waiting = self._by_queue.get(queue, {})
        return self._take([number for number, pull in waiting.items() if pull.scan_offset < end])

    def on_deadline(self, now_ms: int) -> list[HeldPull[Payload]]:
        """Pulls whose deadline has passed."""
        due = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            due.append(heapq.heappop(self._deadlines)[1])
        return self._take([number for number in due if number in self._held])

    def on_recheck(self, end_of: Callable[[QueueKey], int]) -> Iterator[list[HeldPull[Payload]]]:
        """Pulls whose queue has grown since they started, matching or not; one queue per step."""
        for queue in list(self._by_queue):
            if queue in self._by_queue:
                end = end_of(queue)
                waiting = self._by_queue[queue]
                yield self._take([number for number, pull in waiting.items() if pull.start_offset < end])

    def on_disconnect(self, connection: Hashable) -> None:
        """Drop the pulls of a closed connection."""
        self._take(list(self._by_connection.get(connection, ())))

    def release_all(self) -> list[HeldPull[Payload]]:
        return self._take(list(self._held))

    def _take(self, numbers: list[int]) -> list[HeldPull[Payload]]:
        taken = [self._held.pop(number) for number in numbers]
        for number, pull in zip(numbers, taken, strict=True):
            _drop(self._by_queue, pull.queue, number)
            _drop(self._by_connection, pull.connection, number)
            self._address_counts[pull.address] -= 1
            if not self._address_counts[pull.address]:
                del self._address_counts[pull.address]
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
