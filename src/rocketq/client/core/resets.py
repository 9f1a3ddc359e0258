"""Where a group starts again: what is asked for, and what that means for each queue."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rocketq.protocol.bodies.queues import MessageQueue

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
