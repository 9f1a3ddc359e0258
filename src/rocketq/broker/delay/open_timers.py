"""Messages with a timer whose second has begun, in the order they are due; and from when on all is settled. Pure.

What is in here is on disk only as a message in the timer topic. So that nothing is lost or done twice, whoever writes
down how far the timer has come does it with a mark all of whose messages are settled.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Mark = TypeVar("Mark")


@dataclass(frozen=True, slots=True, order=True)
class OpenTimer:
    due_ms: int
    queue_offset: int
    log_offset: int = field(compare=False)
    size: int = field(compare=False)
    key: str = field(default="", compare=False)
    rolls: bool = field(default=False, compare=False)


class OpenTimers(Generic[Mark]):
    def __init__(self) -> None:
        self._heap: list[OpenTimer] = []
        self._cancelled: set[int] = set()
        self._by_key: dict[str, int] = {}
        self._epoch_of: dict[int, int] = {}
        self._epoch = 0
        self._unsettled = [0]
        self._marks: deque[tuple[int, Mark]] = deque()

    def __len__(self) -> int:
        return len(self._epoch_of)

    def add(self, timer: OpenTimer) -> None:
        heapq.heappush(self._heap, timer)
        self._epoch_of[timer.queue_offset] = self._epoch
        self._unsettled[-1] += 1
        if timer.key:
            self._by_key[timer.key] = timer.queue_offset

    def is_open(self, key: str) -> bool:
        return key in self._by_key

    def cancel(self, key: str) -> bool:
        """Whether it was there."""
        queue_offset = self._by_key.pop(key, None)
        if queue_offset is None:
            return False
        self._cancelled.add(queue_offset)
        self._settle(queue_offset)
        return True

    def next_due_ms(self) -> int | None:
        self._drop_cancelled()
        return self._heap[0].due_ms if self._heap else None

    def take_due(self, now_ms: int) -> OpenTimer | None:
        """The first that is due; it stays unsettled until `settle` or `put_back`."""
        self._drop_cancelled()
        return heapq.heappop(self._heap) if self._heap and self._heap[0].due_ms <= now_ms else None

    def put_back(self, timer: OpenTimer) -> None:
        heapq.heappush(self._heap, timer)

    def settle(self, timer: OpenTimer) -> None:
        """Delivered, or given up."""
        if timer.key and self._by_key.get(timer.key) == timer.queue_offset:
            del self._by_key[timer.key]
        self._settle(timer.queue_offset)

    def mark(self, mark: Mark) -> None:
        """Everything added so far belongs to this mark or earlier ones."""
        self._marks.append((self._epoch, mark))
        self._epoch += 1
        self._unsettled.append(0)

    def settled_mark(self) -> Mark | None:
        """The newest mark all of whose messages are settled, once."""
        found = None
        while self._marks and self._unsettled[0] == 0:
            found = self._marks.popleft()[1]
            del self._unsettled[0]
        return found

    def _settle(self, queue_offset: int) -> None:
        epoch = self._epoch_of.pop(queue_offset)
        self._unsettled[epoch - self._epoch - 1] -= 1

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0].queue_offset in self._cancelled:
            self._cancelled.discard(heapq.heappop(self._heap).queue_offset)
