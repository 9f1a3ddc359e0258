"""What may look at consumption from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    notes: dict[Any, Any] = field(default_factory=dict)
    """The hooks' own, from before to after."""

    @property
    def success(self) -> bool:
        return self.outcome is ConsumeOutcome.SUCCESS


class ConsumeHook(Protocol):
    """Changes nothing. Called where the listener is: in its thread, or on the event loop, where it must not block.
    What it raises is told to the log and goes no further."""

    def before_consume(self, event: ConsumeEvent) -> None: ...

    def after_consume(self, event: ConsumeEvent) -> None: ...


class PullFilter(Protocol):
    """Sees pulled messages before they are held. Those it leaves out count as consumed."""

    def keep(self, group: str, queue: MessageQueue, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]: ...
