"""What may look at consumption from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketq.client.core.consume_results import ConsumeOutcome
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.bodies.queues import MessageQueue


@dataclass(slots=True, kw_only=True)
class ConsumeEvent:
    """One call of a listener. `outcome`, `elapsed_ms` and `error` are set when it is over."""

    group: str
    queue: MessageQueue
    messages: Sequence[StoredMessage]
    outcome: ConsumeOutcome | None = None
    elapsed_ms: int = 0
    error: BaseException | None = None
    note: object = None
    """Of the hook's own, from `before` to `after`; hooks that share an event must not both use it."""

    @property
    def success(self) -> bool:
        return self.outcome is ConsumeOutcome.SUCCESS


class ConsumeHook(Protocol):
    """Called on the event loop around each call of the listener; it must not block. What it raises is only logged."""

    def before(self, event: ConsumeEvent) -> None: ...

    def after(self, event: ConsumeEvent) -> None: ...


class PullFilter(Protocol):
    """Sees pulled messages before they are held. Those it leaves out count as consumed."""

    def keep(self, group: str, queue: MessageQueue, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]: ...
