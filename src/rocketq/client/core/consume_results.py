"""Results of listener calls, hooks around them, and retries of failed messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.model import SysFlag
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.headers.pull import SendBackRequest
from rocketq.protocol.headers.send import SendRequest
from rocketq.protocol.names import Property, retry_topic
from rocketq.protocol.properties import encode_properties


class ConsumeResult(StrEnum):
    """What a listener may return; None means SUCCESS, an exception LATER."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"
    """Redeliver the messages: after a delay, or (orderly) after a pause of the queue."""
    COMMIT = "COMMIT"
    """Orderly, with `auto_commit=False`: everything up to here is done."""
    ROLLBACK = "ROLLBACK"
    """Orderly, with `auto_commit=False`: everything since the last COMMIT is redelivered."""


class ConsumeOutcome(StrEnum):
    """The outcome of a call; the order is that of the numbers in traces."""

    SUCCESS = "SUCCESS"
    TIMEOUT = "TIMEOUT"
    """It took longer than the consume timeout."""
    EXCEPTION = "EXCEPTION"
    NULL = "NULL"
    """The return value is not a ConsumeResult; it counts as LATER."""
    FAILED = "FAILED"
    """LATER or ROLLBACK was returned."""


@dataclass(slots=True)
class ConsumeContext:
    """One call of a listener, which may set the fields from `acknowledged` on."""

    group: str
    """The group, without namespace."""
    queue: MessageQueue
    """The queue; for a retried message, the retry queue."""
    acknowledged: int | None = None
    """With SUCCESS: how many messages, from the first on, are done; the rest is redelivered. None means all."""
    delay_level: int = 0
    """Delay of failed messages: a level of the broker's table, 0 for the broker's default, -1 for the dead letters."""
    suspend_ms: int | None = None
    """Orderly: how long the queue pauses after LATER or ROLLBACK."""
    auto_commit: bool = True
    """Orderly: whether SUCCESS commits. If False, only COMMIT does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a finished call."""

    result: ConsumeResult
    outcome: ConsumeOutcome
    elapsed_ms: int
    error: BaseException | None = None


def judge(returned: object, error: BaseException | None, elapsed_ms: int, timeout_ms: int) -> Verdict:
    """The verdict on what a listener returned or raised."""
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
    """Data that hooks keep from before to after."""

    @property
    def success(self) -> bool:
        return self.outcome is ConsumeOutcome.SUCCESS


class ConsumeHook(Protocol):
    """Observes calls. Runs where the listener runs: in its thread, or on the event loop, where it must not block.
    Exceptions are logged and ignored."""

    def before_consume(self, event: ConsumeEvent) -> None: ...

    def after_consume(self, event: ConsumeEvent) -> None: ...


class PullFilter(Protocol):
    """Filters pulled messages before they are held. Messages it leaves out count as consumed."""

    def keep(self, group: str, queue: MessageQueue, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]: ...


RETRIES_MAX: Final = 16
WITHOUT_END: Final = 2**31 - 1
FIRST_LEVEL: Final = 3
TIMEOUT_LEVEL: Final = 3
"""Of a message whose listener took too long."""
DEAD_LEVEL: Final = -1
SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000
_NOT_RESENT: Final = frozenset(
    {
        Property.CONSUME_START_MS,
        Property.DELAY,
        Property.MAX_OFFSET,
        Property.MAX_RECONSUME_TIMES,
        Property.MIN_OFFSET,
        Property.RECONSUME_TIMES,
        Property.TRANSACTION_PREPARED,
    }
)
_BODY_BITS: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK | SysFlag.MULTI_TAGS


def retries_max(configured: int) -> int:
    """The retry limit of a concurrent consumer; -1 is the default of 16."""
    return RETRIES_MAX if configured < 0 else configured


def retry_level(reconsume_times: int, asked: int = 0) -> int:
    """The delay level brokers use for the next delivery, where the listener asked for none."""
    return asked if asked > 0 else FIRST_LEVEL + reconsume_times


def send_back_request(
    message: StoredMessage,
    group: str,
    delay_level: int,
    configured: int,
    origin_topic: str | None = None,
    failure: str | None = None,
    *,
    unit_mode: bool = False,
) -> SendBackRequest:
    """To the broker that stored the message; group and topic as brokers know them."""
    return SendBackRequest(
        log_offset=message.log_offset,
        group=group,
        delay_level=delay_level,
        origin_message_id=message.message_id,
        origin_topic=origin_topic or message.topic,
        unit_mode=unit_mode,
        max_reconsume_times=retries_max(configured),
        broker_name=message.queue.broker_name or None,
        failure=failure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryCopy:
    """A copy for the retry topic of the group, with the original body and id."""

    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int

    def request(
        self, queue_id: int, broker_name: str, producer_group: str, now_ms: int, *, unit_mode: bool = False
    ) -> SendRequest:
        return SendRequest(
            group=producer_group,
            topic=self.topic,
            default_queue_count=1,
            queue_id=queue_id,
            sys_flag=self.sys_flag,
            born_ms=now_ms,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            max_reconsume_times=self.max_reconsume_times,
            unit_mode=unit_mode,
            broker_name=broker_name,
        )


def retry_copy(
    message: StoredMessage, group: str, delay_level: int, configured: int, origin_topic: str | None = None
) -> RetryCopy:
    """Sent if the broker did not take the message back: redelivered after a delay, or dead beyond the limit."""
    delay = {} if delay_level < 0 else {Property.DELAY: str(retry_level(message.reconsume_times, delay_level))}
    limit = retries_max(configured)
    times = message.reconsume_times + 1 if delay_level >= 0 else max(limit, message.reconsume_times + 1)
    return _copy(message, group, origin_topic, delay, times, limit)


def dead_copy(message: StoredMessage, group: str, limit: int, origin_topic: str | None = None) -> RetryCopy:
    """Orderly, beyond the retry limit: brokers store it in the dead-letter topic."""
    return _copy(message, group, origin_topic, {}, max(limit, message.reconsume_times), limit)


def may_be_retried(message: StoredMessage, configured: int) -> bool:
    """An orderly message is retried without limit unless a limit was set."""
    return configured < 0 or message.reconsume_times < configured


def suspend_ms(asked: int | None, configured: int) -> int:
    """How long a queue consumed in order waits after a failure."""
    return max(SUSPEND_MS_MIN, min(asked if asked is not None else configured, SUSPEND_MS_MAX))


def _copy(
    message: StoredMessage, group: str, origin_topic: str | None, delay: dict[str, str], times: int, limit: int
) -> RetryCopy:
    properties = {name: text for name, text in message.properties.items() if name not in _NOT_RESENT}
    properties.setdefault(Property.RETRY_TOPIC, origin_topic or message.topic)
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, message.offset_message_id)
    return RetryCopy(
        topic=retry_topic(group),
        body=message.stored_body,
        sys_flag=message.sys_flag & _BODY_BITS,
        flag=message.flag,
        properties=encode_properties(properties | delay).decode(),
        reconsume_times=times,
        max_reconsume_times=limit,
    )
