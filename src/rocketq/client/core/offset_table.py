"""Offsets a consumer has reached, and which of them nobody else knows yet."""

from __future__ import annotations

from collections.abc import Collection

from rocketq.errors import RocketQError
from rocketq.protocol.bodies.offsets import ResetOffsets
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.fastjson import dumps


class OffsetTable:
    """Next to be consumed, by queue."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._saved: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def all(self) -> dict[MessageQueue, int]:
        return dict(self._offsets)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        if increase_only and offset <= self._offsets.get(queue, -1):
            return
        self._offsets[queue] = offset

    def learn(self, queue: MessageQueue, offset: int) -> None:
        """What the store said: known to both sides."""
        self._offsets[queue] = self._saved[queue] = offset

    def unsaved(self, queues: Collection[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """What changed since it was saved, of these queues or of all."""
        chosen = self._offsets if queues is None else [queue for queue in queues if queue in self._offsets]
        return {queue: self._offsets[queue] for queue in chosen if self._saved.get(queue) != self._offsets[queue]}

    def saved(self, queue: MessageQueue, offset: int) -> None:
        self._saved[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._saved.pop(queue, None)


def encode_offset_file(offsets: dict[MessageQueue, int]) -> bytes:
    """As Apache's clients keep the offsets of a broadcasting group: objects as keys, tabs."""
    return dumps(ResetOffsets(offsets=offsets).to_json(), pretty=True)


def decode_offset_file(data: bytes) -> dict[MessageQueue, int]:
    """RocketQError when it is none."""
    offsets = ResetOffsets.decode(data).offsets
    if any(offset < 0 for offset in offsets.values()):
        raise RocketQError("an offset in the file is negative")
    return offsets
