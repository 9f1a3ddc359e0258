"""What a listener says about messages, what it is told about them, and what came of the call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocketq.protocol.bodies.queues import MessageQueue


class ConsumeResult(StrEnum):
    """What a listener may return; None means SUCCESS, an exception LATER."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"
    """Deliver the messages again: after a delay, or in order after a moment in which the queue waits."""
    COMMIT = "COMMIT"
    """In order, with `auto_commit` off: everything up to here is done."""
    ROLLBACK = "ROLLBACK"
    """In order, with `auto_commit` off: everything since the last COMMIT is delivered again."""


class ConsumeOutcome(StrEnum):
    """What came of a call; the order is that of the numbers in traces."""

    SUCCESS = "SUCCESS"
    TIMEOUT = "TIMEOUT"
    """It took longer than the consume timeout."""
    EXCEPTION = "EXCEPTION"
    NULL = "NULL"
    """What was returned is no ConsumeResult; it counts as LATER."""
    FAILED = "FAILED"
    """LATER or ROLLBACK was returned."""


@dataclass(slots=True)
class ConsumeContext:
    """About one call of a listener, which may set what is not marked as told."""

    group: str
    """Told."""
    queue: MessageQueue
    """Told; of a retried message the queue it was retried in."""
    acknowledged: int | None = None
    """With SUCCESS: only the first so many messages are done, the rest is delivered again. None means all."""
    delay_level: int = 0
    """When failed messages come again: a level of the broker's table, 0 as the broker sees fit, -1 never (dead)."""
    suspend_ms: int | None = None
    """In order: how long the queue waits after LATER or ROLLBACK."""
    auto_commit: bool = True
    """In order: whether SUCCESS commits. Without it only COMMIT does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A finished call, judged."""

    result: ConsumeResult
    outcome: ConsumeOutcome
    elapsed_ms: int
    error: BaseException | None = None


def judge(returned: object, error: BaseException | None, elapsed_ms: int, timeout_ms: int) -> Verdict:
    """What counts, given what a listener returned or raised."""
    if error is not None:
        return Verdict(result=ConsumeResult.LATER, outcome=ConsumeOutcome.EXCEPTION, elapsed_ms=elapsed_ms, error=error)
    if returned is None:
        result, outcome = ConsumeResult.SUCCESS, ConsumeOutcome.SUCCESS
    elif not isinstance(returned, ConsumeResult):
        result, outcome = ConsumeResult.LATER, ConsumeOutcome.NULL
        error = TypeError(f"the listener returned {returned!r:.80}: None and ConsumeResult.SUCCESS mean done")
    else:
        result = returned
        failed = returned in (ConsumeResult.LATER, ConsumeResult.ROLLBACK)
        outcome = ConsumeOutcome.FAILED if failed else ConsumeOutcome.SUCCESS
    if elapsed_ms >= timeout_ms and outcome is not ConsumeOutcome.NULL:
        outcome = ConsumeOutcome.TIMEOUT
    return Verdict(result=result, outcome=outcome, elapsed_ms=elapsed_ms, error=error)
