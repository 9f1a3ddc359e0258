"""Start and end positions of queues. An offset is the next message to read.

JSON := {"topic": {"broker": {"queue": n}}}      keys sorted: Spark compares offsets as texts
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rocketq.spark.errors import OptionError

EARLIEST: Final = -2
LATEST: Final = -1


class QueueKey(NamedTuple):
    """A queue, in the order that plans are made in."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} of {self.broker_name}"


@dataclass(frozen=True, slots=True)
class Offsets(Mapping[QueueKey, int]):
    """The next offset of each queue, sorted by queue; never changed once made."""

    by_queue: Mapping[QueueKey, int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[QueueKey, int]]) -> Offsets:
        return cls(dict(sorted(pairs)))

    @classmethod
    def from_json(cls, text: str) -> Offsets:
        return cls.from_tree(_tree(text))

    @classmethod
    def from_tree(cls, tree: Any) -> Offsets:
        """From the nested form; OptionError names what is wrong with it."""
        pairs = []
        for topic, brokers in _items(tree, "a topic"):
            for broker, queues in _items(brokers, f"a broker of {topic}"):
                for queue, value in _items(queues, f"a queue of {topic} on {broker}"):
                    if not (queue.isascii() and queue.isdigit() and type(value) is int):
                        raise OptionError(
                            f"offsets of {topic} on {broker}: {queue!r}: {value!r} is no queue and number"
                        )
                    pairs.append((QueueKey(topic, broker, int(queue)), value))
        return cls.of(pairs)

    def tree(self) -> dict[str, dict[str, dict[str, int]]]:
        nested: dict[str, dict[str, dict[str, int]]] = {}
        for key, value in sorted(self.by_queue.items()):
            nested.setdefault(key.topic, {}).setdefault(key.broker_name, {})[str(key.queue_id)] = value
        return nested

    def to_json(self) -> str:
        return json.dumps(self.tree(), sort_keys=True, separators=(",", ":"))

    def merged(self, other: Mapping[QueueKey, int]) -> Offsets:
        """These offsets, overridden by the other's."""
        return Offsets.of({**self.by_queue, **other}.items())

    def __getitem__(self, key: QueueKey) -> int:
        return self.by_queue[key]

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self.by_queue)

    def __len__(self) -> int:
        return len(self.by_queue)


def parse_assignment(text: str) -> dict[str, dict[str, list[int]]]:
    """The `assign` option: {"topic": {"broker": [0, 1]}}."""
    assigned: dict[str, dict[str, list[int]]] = {}
    shape = '{"topic": {"broker": [0, 1]}}'
    for topic, brokers in _items(_tree(text), "a topic", shape):
        for broker, queues in _items(brokers, f"a broker of {topic}", shape):
            numbers = isinstance(queues, list) and all(type(each) is int and each >= 0 for each in queues)
            if not numbers or not queues:
                raise OptionError(f"assign: queues of {topic} on {broker} must be a list of numbers, not {queues!r}")
            assigned.setdefault(topic, {})[broker] = sorted(set(queues))
    if not assigned:
        raise OptionError("assign names no queue")
    return assigned


def _tree(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"not JSON: {text[:80]!r} ({error})") from None


def _items(tree: Any, what: str, shape: str = '{"topic": {"broker": {"0": 5}}}') -> Iterable[tuple[str, Any]]:
    if not isinstance(tree, dict):
        raise OptionError(f"{what} is expected with its parts, as in {shape}, not {tree!r}")
    return tree.items()
