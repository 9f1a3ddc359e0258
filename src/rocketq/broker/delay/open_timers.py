"""Timer messages of the current second in due order, and the newest mark whose messages are all complete. Pure.

These timers are on disk only as messages of the timer topic. Saved progress is therefore always a mark all of whose
messages are delivered, cancelled or dropped.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rocketq.protocol.bodies.stats import TimerMetrics, WaitingCount

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
        self._open_counts = [0]
        self._marks: deque[tuple[int, Mark]] = deque()

    def __len__(self) -> int:
        return len(self._epoch_of)

    def add(self, timer: OpenTimer) -> None:
        heapq.heappush(self._heap, timer)
        self._epoch_of[timer.queue_offset] = self._epoch
        self._open_counts[-1] += 1
        if timer.key:
            self._by_key[timer.key] = timer.queue_offset

    def is_open(self, key: str) -> bool:
        return key in self._by_key

    def cancel(self, key: str) -> bool:
        """Delete a group; returns whether it existed."""
        queue_offset = self._by_key.pop(key, None)
        if queue_offset is None:
            return False
        self._cancelled.add(queue_offset)
        self._complete(queue_offset)
        return True

    def next_due_ms(self) -> int | None:
        self._drop_cancelled()
        return self._heap[0].due_ms if self._heap else None

    def pop_due(self, now_ms: int) -> OpenTimer | None:
        """The first timer that is due; the caller must `complete` it or `put_back` it."""
        self._drop_cancelled()
        return heapq.heappop(self._heap) if self._heap and self._heap[0].due_ms <= now_ms else None

    def put_back(self, timer: OpenTimer) -> None:
        heapq.heappush(self._heap, timer)

    def complete(self, timer: OpenTimer) -> None:
        """The timer was delivered or dropped."""
        if timer.key and self._by_key.get(timer.key) == timer.queue_offset:
            del self._by_key[timer.key]
        self._complete(timer.queue_offset)

    def mark(self, mark: Mark) -> None:
        """Everything added so far belongs to this mark or earlier ones."""
        self._marks.append((self._epoch, mark))
        self._epoch += 1
        self._open_counts.append(0)

    def completed_mark(self) -> Mark | None:
        """The newest mark all of whose messages are complete; each mark is returned once."""
        found = None
        while self._marks and self._open_counts[0] == 0:
            found = self._marks.popleft()[1]
            del self._open_counts[0]
        return found

    def _complete(self, queue_offset: int) -> None:
        epoch = self._epoch_of.pop(queue_offset)
        self._open_counts[epoch - self._epoch - 1] -= 1

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0].queue_offset in self._cancelled:
            self._cancelled.discard(heapq.heappop(self._heap).queue_offset)


class WaitingCounts:
    """Time comes in as an argument."""

    def __init__(self, saved: TimerMetrics | None = None) -> None:
        saved = saved or TimerMetrics()
        self._topics = {topic: one for topic, one in saved.topics.items() if one.count > 0}
        self._version = saved.data_version
        self._changed = False

    def add(self, topic: str, count: int, now_ms: int) -> None:
        """Change the count of a topic; it never drops below 0."""
        known = self._topics.get(topic)
        waiting = max(0, (0 if known is None else known.count) + count)
        self._topics[topic] = WaitingCount(count=waiting, changed_ms=now_ms)
        self._changed = True

    def table(self, now_ms: int) -> TimerMetrics:
        """The current counts, with a new version if they changed since the last call."""
        if self._changed:
            self._version, self._changed = self._version.next(now_ms), False
        return TimerMetrics(data_version=self._version, topics=dict(sorted(self._topics.items())))
