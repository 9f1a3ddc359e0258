"""Who is told of every send."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from rocketq.client.core.messages import Message
from rocketq.client.core.send_results import SendResult, SendStatus
from rocketq.client.errors import ReplyTimeoutError, SendTimeoutError, TooManySendsError
from rocketq.errors import RequestTimeoutError
from rocketq.protocol.bodies.queues import MessageQueue


class SendOutcome(StrEnum):
    """FAILED: stored, but not as safely as was asked for."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    EXCEPTION = "exception"
    FAILED = "failed"


class SendMode(StrEnum):
    SEND = "send"
    ONEWAY = "oneway"
    BATCH = "batch"
    HALF = "half"
    REPLY = "reply"


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One send, all its tries together. Before it `queue` is set only where the caller chose one; the outcome is None.

    `results` has one result for each message that was stored. `notes` is the hooks' own.
    """

    group: str
    messages: tuple[Message, ...]
    mode: SendMode
    queue: MessageQueue | None = None
    outcome: SendOutcome | None = None
    results: tuple[SendResult, ...] = ()
    error: BaseException | None = None
    elapsed_ms: int = 0
    notes: dict[Any, Any] = field(default_factory=dict)


class SendHook(Protocol):
    """Changes nothing. What it raises is told to the log and goes no further."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


def outcome_of(results: tuple[SendResult, ...], error: BaseException | None) -> SendOutcome:
    if isinstance(error, (RequestTimeoutError, SendTimeoutError, ReplyTimeoutError, TooManySendsError, TimeoutError)):
        return SendOutcome.TIMEOUT
    if error is not None:
        return SendOutcome.EXCEPTION
    return SendOutcome.SUCCESS if all(one.status is SendStatus.SEND_OK for one in results) else SendOutcome.FAILED
