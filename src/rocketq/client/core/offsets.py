"""Offset rules: where a queue starts, what is not saved yet, and resets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rocketq.errors import RocketQError
from rocketq.protocol.bodies.offsets import ResetOffsets
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.fastjson import dumps
from rocketq.protocol.flags import ConsumeFromWhere
from rocketq.protocol.names import RETRY_PREFIX


class StartRule(StrEnum):
    ZERO = "the first message; if offset 0 is deleted, the broker corrects it"
    END = "after the last message"
    TIME = "the first message stored at or after a time"


def start_rule(from_where: ConsumeFromWhere, topic: str) -> StartRule:
    """Retries are never skipped, except where a time was asked for."""
    is_retry = topic.startswith(RETRY_PREFIX)
    match from_where:
        case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return StartRule.ZERO
        case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return StartRule.END if is_retry else StartRule.TIME
        case _:
            return StartRule.ZERO if is_retry else StartRule.END


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
        """An offset loaded from the store: already saved."""
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


TO_THE_END_MS: Final = -1
"""The timestamp that brokers take for "after the last message"."""


class ResetKind(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class ResetTo:
    """Made by `earliest`, `latest`, `at_time` or `at_offset`."""

    kind: ResetKind
    value: int = 0

    @classmethod
    def earliest(cls) -> ResetTo:
        return cls(ResetKind.EARLIEST)

    @classmethod
    def latest(cls) -> ResetTo:
        return cls(ResetKind.LATEST)

    @classmethod
    def at_time(cls, time_ms: int) -> ResetTo:
        """The first message stored at this time or later."""
        if time_ms < 0:
            raise ValueError(f"a time is not negative: {time_ms}")
        return cls(ResetKind.TIME, time_ms)

    @classmethod
    def at_offset(cls, queue_offset: int) -> ResetTo:
        if queue_offset < 0:
            raise ValueError(f"an offset is not negative: {queue_offset}")
        return cls(ResetKind.OFFSET, queue_offset)

    @property
    def timestamp_ms(self) -> int | None:
        """What brokers understand it as; None for an offset."""
        by_kind = {ResetKind.EARLIEST: 0, ResetKind.LATEST: TO_THE_END_MS, ResetKind.TIME: self.value}
        return by_kind.get(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBounds:
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """One queue of a reset: `before` is None where nothing was committed."""

    queue: MessageQueue
    before: int | None
    after: int
    bounds: QueueBounds

    @property
    def again(self) -> int | None:
        """How many messages are delivered once more; negative when as many are skipped."""
        return None if self.before is None else self.before - self.after


def target_of(to: ResetTo, bounds: QueueBounds, by_time: int | None) -> int:
    """The offset within the queue; `by_time` is what the broker found for a time."""
    wanted = {
        ResetKind.EARLIEST: bounds.min_offset,
        ResetKind.LATEST: bounds.max_offset,
        ResetKind.TIME: by_time if by_time is not None else bounds.max_offset,
        ResetKind.OFFSET: to.value,
    }[to.kind]
    return max(bounds.min_offset, min(wanted, bounds.max_offset))
