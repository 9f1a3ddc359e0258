"""How far each group has consumed: the next offset by topic, group and queue."""

from __future__ import annotations

from collections.abc import Collection

from rocketq.protocol.bodies.offsets import ConsumerOffsets

_SEPARATOR = "@"


class OffsetTable:
    """`changes` counts, so that whoever saves knows when there is something new."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, int]] = {}
        self.changes = 0

    def load(self, saved: ConsumerOffsets) -> None:
        self._offsets = {key: dict(queues) for key, queues in saved.offsets.items()}

    def take_over(self, others: ConsumerOffsets) -> None:
        """The master's offsets replace ours; what it does not know stays."""
        changed = {key: queues for key, queues in others.offsets.items() if self._offsets.get(key) != queues}
        for key, queues in changed.items():
            self._offsets[key] = self._offsets.get(key, {}) | queues
        self.changes += len(changed)

    def snapshot(self) -> ConsumerOffsets:
        return ConsumerOffsets(offsets={key: dict(queues) for key, queues in self._offsets.items()})

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """None when nothing was committed."""
        offset = self._offsets.get(_key(topic, group), {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def of(self, group: str, topic: str) -> dict[int, int]:
        return dict(self._offsets.get(_key(topic, group), {}))

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Whether it was taken. Lower than before is fine, below zero means nothing and is ignored."""
        if offset < 0:
            return False
        self._offsets.setdefault(_key(topic, group), {})[queue_id] = offset
        self.changes += 1
        return True

    def topics_of(self, group: str) -> list[str]:
        return sorted(topic for topic, other in self._keys() if other == group)

    def groups_of(self, topic: str) -> list[str]:
        return sorted(group for other, group in self._keys() if other == topic)

    def forget_topic(self, topic: str) -> None:
        self._forget([_key(topic, group) for group in self.groups_of(topic)])

    def forget_group(self, group: str) -> None:
        self._forget([_key(topic, group) for topic in self.topics_of(group)])

    def slowest(self, topic: str, *, leave_out: Collection[str] = ()) -> dict[int, int]:
        """By queue, the lowest offset that any group but those left out has committed."""
        lowest: dict[int, int] = {}
        for group in self.groups_of(topic):
            if group not in leave_out:
                for queue_id, offset in self.of(group, topic).items():
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        return lowest

    def clone(self, source: str, target: str, topic: str) -> None:
        """The target group goes on where the source is."""
        offsets = self._offsets.get(_key(topic, source))
        if offsets is not None:
            self._offsets[_key(topic, target)] = dict(offsets)
            self.changes += 1

    def _keys(self) -> list[tuple[str, str]]:
        parts = (key.partition(_SEPARATOR) for key in self._offsets)
        return [(topic, group) for topic, _, group in parts]

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            del self._offsets[key]
        self.changes += len(keys)


def _key(topic: str, group: str) -> str:
    return f"{topic}{_SEPARATOR}{group}"


class PullPositions:
    """Where each group's last pull of a queue ended; in memory only, for tools that show what is under way."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, str, int], int] = {}

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._offsets[group, topic, queue_id] = offset

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._offsets.get((group, topic, queue_id))

    def forget_topic(self, topic: str) -> None:
        self._offsets = {key: offset for key, offset in self._offsets.items() if key[1] != topic}

    def forget_group(self, group: str) -> None:
        self._offsets = {key: offset for key, offset in self._offsets.items() if key[0] != group}
