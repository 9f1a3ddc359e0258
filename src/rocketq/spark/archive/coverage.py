"""Which offsets of which queue there are: pure.

JSON := {"topic": {"broker": {"queue": [[low, high], ...]}}}      half-open, sorted, never touching
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rocketq.spark.offsets import QueueKey

Span = tuple[int, int]
Spans = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Spans of offsets by queue; never changed once made."""

    by_queue: Mapping[QueueKey, Spans]

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Coverage:
        return cls(
            {
                QueueKey(topic, broker, int(queue)): merged((low, high) for low, high in spans)
                for topic, brokers in tree.items()
                for broker, queues in brokers.items()
                for queue, spans in queues.items()
            }
        )

    def tree(self) -> dict[str, dict[str, dict[str, list[list[int]]]]]:
        nested: dict[str, dict[str, dict[str, list[list[int]]]]] = {}
        for key, spans in sorted(self.by_queue.items()):
            own = nested.setdefault(key.topic, {}).setdefault(key.broker_name, {})
            own[str(key.queue_id)] = [list(span) for span in spans]
        return nested

    def __getitem__(self, queue: QueueKey) -> Spans:
        return self.by_queue.get(queue, ())

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self.by_queue)

    def __contains__(self, queue: QueueKey) -> bool:
        return bool(self[queue])

    @property
    def count(self) -> int:
        return sum(high - low for spans in self.by_queue.values() for low, high in spans)

    def missing(self, queue: QueueKey, low: int, high: int) -> list[Span]:
        """What is not covered of [low, high), in order."""
        found: list[Span] = []
        for start, end in self[queue]:
            if end <= low or start >= high:
                continue
            if low < start:
                found.append((low, start))
            low = max(low, end)
        return [*found, (low, high)] if low < high else found

    def plus(self, other: Coverage) -> Coverage:
        together = dict(self.by_queue)
        for queue in other:
            together[queue] = merged([*self[queue], *other[queue]])
        return Coverage(together)

    def minus(self, other: Coverage) -> Coverage:
        left = {
            queue: tuple(span for low, high in self[queue] for span in other.missing(queue, low, high))
            for queue in self
        }
        return Coverage({queue: spans for queue, spans in left.items() if spans})

    def first_common(self, other: Coverage) -> tuple[QueueKey, Span] | None:
        """An overlap, if there is one: what must not be twice."""
        for queue in sorted(other):
            for low, high in other[queue]:
                for start, end in self[queue]:
                    if start < high and low < end:
                        return queue, (max(low, start), min(high, end))
        return None


NOTHING = Coverage({})


def merged(spans: Iterable[Span]) -> Spans:
    """The same offsets in as few spans as there can be."""
    found: list[Span] = []
    for low, high in sorted(span for span in spans if span[0] < span[1]):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)
