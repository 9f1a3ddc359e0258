"""Committed offsets: the next offset by topic, group and queue. Pure."""

from __future__ import annotations

from rocketq.protocol.bodies.offsets import ConsumerOffsets

_SEPARATOR = "@"


class OffsetTable:
    """Committed offsets. `changes` counts changes, for autosave."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, int]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._groups_of: dict[str, set[str]] = {}
        self.changes = 0

    def load(self, saved: ConsumerOffsets) -> None:
        for key, queues in saved.offsets.items():
            self._queues(key).update(queues)

    def take_over(self, others: ConsumerOffsets) -> None:
        """Take the master's offsets over; entries that the master lacks stay."""
        changed = {key: queues for key, queues in others.offsets.items() if self._offsets.get(key) != queues}
        for key, queues in changed.items():
            self._queues(key).update(queues)
        self.changes += len(changed)

    def body(self) -> ConsumerOffsets:
        """The table for encoding: keys as of now, offsets as of the moment they are encoded."""
        return ConsumerOffsets(offsets=dict(self._offsets))

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset, or None."""
        offset = self._offsets.get(_key(topic, group), {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def of(self, group: str, topic: str) -> dict[int, int]:
        return dict(self._offsets.get(_key(topic, group), {}))

    def equals(self, group: str, topic: str, offsets: dict[int, int]) -> bool:
        """Whether `of(group, topic)` would return these offsets."""
        return self._offsets.get(_key(topic, group), {}) == offsets

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Commit an offset, which may be lower than before; negative ones are ignored. Returns whether it was
        stored."""
        if offset < 0:
            return False
        self._queues(_key(topic, group))[queue_id] = offset
        self.changes += 1
        return True

    def groups(self) -> list[str]:
        """Groups that committed an offset."""
        return list(self._topics_of)

    def topics_of(self, group: str) -> list[str]:
        return sorted(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        return sorted(self._groups_of.get(topic, ()))

    def forget_topic(self, topic: str) -> None:
        self._forget([_key(topic, group) for group in self.groups_of(topic)])

    def forget_group(self, group: str) -> None:
        self._forget([_key(topic, group) for topic in self.topics_of(group)])

    def lower(self, lowest: dict[int, int], group: str, topic: str) -> None:
        """Lower the offset of each queue to the group's, if that is less."""
        for queue_id, offset in self.of(group, topic).items():
            lowest[queue_id] = min(offset, lowest.get(queue_id, offset))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the source group's offsets to the target group."""
        offsets = self._offsets.get(_key(topic, source))
        if offsets is not None:
            queues = self._queues(_key(topic, target))
            queues.clear()
            queues.update(offsets)
            self.changes += 1

    def _queues(self, key: str) -> dict[int, int]:
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
            topic, _, group = key.partition(_SEPARATOR)
            self._topics_of.setdefault(group, set()).add(topic)
            self._groups_of.setdefault(topic, set()).add(group)
        return queues

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            del self._offsets[key]
            topic, _, group = key.partition(_SEPARATOR)
            _discard(self._topics_of, group, topic)
            _discard(self._groups_of, topic, group)
        self.changes += len(keys)


def _discard(table: dict[str, set[str]], key: str, entry: str) -> None:
    table[key].discard(entry)
    if not table[key]:
        del table[key]


def _key(topic: str, group: str) -> str:
    return f"{topic}{_SEPARATOR}{group}"


class PullPositions:
    """End of each group's last pull per queue. In memory only, for tools that show messages in flight."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self._offsets.get((group, topic))
        if queues is None:
            queues = self._offsets[group, topic] = {}
        queues[queue_id] = offset

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._offsets.get((group, topic), {}).get(queue_id)

    def of(self, group: str, topic: str) -> dict[int, int]:
        return dict(self._offsets.get((group, topic), {}))

    def equals(self, group: str, topic: str, offsets: dict[int, int]) -> bool:
        """Whether `of(group, topic)` would return these offsets."""
        return self._offsets.get((group, topic), {}) == offsets

    def forget_topic(self, topic: str) -> None:
        self._offsets = {key: queues for key, queues in self._offsets.items() if key[1] != topic}

    def forget_group(self, group: str) -> None:
        self._offsets = {key: queues for key, queues in self._offsets.items() if key[0] != group}
