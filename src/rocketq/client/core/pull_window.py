"""How much a consumer may hold before it stops pulling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from rocketq.protocol.bodies.queues import MessageQueue


class HoldReason(StrEnum):
    """Why no more is pulled of a queue now."""

    COUNT = "too many messages are held"
    BYTES = "too many bytes are held"
    SPAN = "the lowest message held is too far behind"


class Held(Protocol):
    @property
    def queue(self) -> MessageQueue: ...

    @property
    def count(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def span(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PullWindow:
    """Limits per queue; those per topic, where given, are shared out among the queues owned."""

    count_max: int = 1_000
    bytes_max: int = 100 << 20
    span_max: int = 2_000
    topic_count_max: int | None = None
    topic_bytes_max: int | None = None

    def shared_by(self, owned_count: int) -> PullWindow:
        """The limits of each queue while so many are owned."""
        owned = max(1, owned_count)
        count = self.topic_count_max // owned if self.topic_count_max is not None else self.count_max
        size = self.topic_bytes_max // owned if self.topic_bytes_max is not None else self.bytes_max
        return replace(self, count_max=max(1, count), bytes_max=max(1 << 20, size))

    def hold_reason(self, held: Held) -> HoldReason | None:
        """Why to wait with the next pull; None to go on."""
        if held.count > self.count_max:
            return HoldReason.COUNT
        if held.bytes > self.bytes_max:
            return HoldReason.BYTES
        if held.span > self.span_max:
            return HoldReason.SPAN
        return None
