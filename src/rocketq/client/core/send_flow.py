"""The decisions of a send: results, retry policy, and hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from rocketq.client.core.messages import Message
from rocketq.client.errors import NoQueueError, ReplyTimeoutError, SendFailedError, SendTimeoutError, TooManySendsError
from rocketq.errors import RemoteProtocolError, RemotingError, RequestTimeoutError, RocketQError, UnreachableError
from rocketq.kernel.send_batch import SendResultFields
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.failures import AccessDeniedError, BrokerError
from rocketq.protocol.flags import TransactionState


class SendStatus(StrEnum):
    """The message is stored in every case; other statuses than SEND_OK name what is not confirmed."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


SEND_STATUSES: Final[Mapping[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


@dataclass
class _ResultSpec:
    """The fields of a SendResult for `dataclasses.replace`, `fields` and `asdict`."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str | None = None
    trace_on: bool = True


class SendResult(SendResultFields):
    """`message_id` is the unique key, `offset_message_id` encodes the position in the broker's log."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = _ResultSpec.__dataclass_fields__
    __match_args__ = _ResultSpec.__match_args__
    __hash__ = None  # type: ignore[assignment]

    status: SendStatus
    queue: MessageQueue

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def __repr__(self) -> str:
        values = zip(_RESULT_FIELDS, _values(self), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), _values(self)


_RESULT_FIELDS: Final = tuple(_ResultSpec.__dataclass_fields__)
_values: Final[Callable[[Any], tuple[Any, ...]]] = attrgetter(*_RESULT_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """The send result and the state of the local transaction; `error` is the exception it raised."""

    sent: SendResult
    state: TransactionState
    error: BaseException | None = None


class Accepted(NamedTuple):
    """A broker's answer to a send: the actual queue and the first offset."""

    code: int
    fields: Mapping[str, str]
    queue: MessageQueue
    queue_offset: int


def accepted(code: int, fields: Mapping[str, str], queue: MessageQueue) -> Accepted:
    """Parse the answer of a send to this queue; RemoteProtocolError if it is malformed."""
    try:
        fields["msgId"]
        queue_id, queue_offset = int(fields["queueId"]), int(fields["queueOffset"])
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(f"the answer to a send lacks {error}") from None
    if queue_id != queue.queue_id:
        queue = MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue_id)
    return Accepted(code, fields, queue, queue_offset)


def status_of(accepted: Accepted) -> SendStatus:
    return SEND_STATUSES[accepted.code]


def send_result(answer: Accepted, unique_key: str) -> SendResult:
    code, fields, queue, queue_offset = answer
    return SendResult(
        SEND_STATUSES[code],
        unique_key,
        fields["msgId"],
        queue,
        queue_offset,
        fields.get("transactionId"),
        fields.get("recallHandle"),
        fields.get("MSG_REGION"),
        fields.get("TRACE_ON") != "false",
    )


def batch_results(answer: Accepted, unique_keys: Sequence[str]) -> list[SendResult]:
    """A result per message of a batch: offsets are consecutive, ids are comma-joined in one field."""
    first = send_result(answer, "")
    ids = first.offset_message_id.split(",")
    if len(ids) != len(unique_keys):
        ids = ids + [""] * (len(unique_keys) - len(ids))  # a broker that stores the batch as one has one id
    status, queue, region, trace_on = first.status, first.queue, first.region, first.trace_on
    return [
        SendResult(status, unique_key, offset_id, queue, first.queue_offset + at, None, None, region, trace_on)
        for at, (unique_key, offset_id) in enumerate(zip(unique_keys, ids, strict=False))
    ]


RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Codes that Apache's producers retry since 4.9 and 5.x."""

CONNECT_FAILED: Final = 10001
TIMED_OUT: Final = 10002
NO_BROKER: Final = 10003

PAUSE_MS_MAX: Final = 1_000
ATTEMPT_MS_MIN: Final = 20
"""With less time than this an attempt would only replace the cause of the failure by a timeout."""
NOT_SENT: Final = (UnreachableError, NoQueueError)
"""Failures after which the broker certainly has not stored the message."""

Attempt = tuple[str, RocketQError]
"""The broker's name, empty if none was found, and the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    attempts_max: int = 3
    codes: frozenset[int] = RETRIED_CODES
    when_not_stored_ok: bool = False
    """Send a message to another broker too if it was stored without the requested flush or replication."""
    attempt_timeout_ms: int | None = None
    """For each attempt but the last; None: an attempt may use all remaining time."""

    def is_retriable(self, error: RocketQError) -> bool:
        match error:
            case AccessDeniedError():
                return False
            case BrokerError():
                return error.code in self.codes
            case RemotingError() | NoQueueError() | RemoteProtocolError():
                return True
        return False

    def is_final(self, status: SendStatus) -> bool:
        return status is SendStatus.SEND_OK or not self.when_not_stored_ok

    def pause_ms(self, attempt: int) -> int:
        """The pause before the same broker is tried again, if there is no other: 50 ms, doubled each time."""
        return int(50 * 2 ** max(0, attempt - 2))

    def timeout_ms(self, attempt: int, left_ms: int) -> int:
        """The timeout of attempt number `attempt`, from 1 on."""
        if self.attempt_timeout_ms is None or attempt >= self.attempts_max:
            return left_ms
        return min(left_ms, self.attempt_timeout_ms)


class SendFlow:
    """The attempts of one send, from its first failure on: retry, pause, or give up. Pure: time is an argument.

    A driver makes the attempts and reports each result here. Attempts whose request was certainly not sent (no queue,
    no connection) do not count against `attempts_max` while there is a timeout: they are repeated until it expires,
    with pauses that grow to PAUSE_MS_MAX, so that a send outlasts a failover.
    """

    def __init__(
        self, topic: str, policy: RetryPolicy, start_ms: int, timeout_ms: int | None, *, raise_last: bool = False
    ) -> None:
        """With `raise_last` the last error is raised as it is, instead of a SendFailedError with all of them."""
        self.attempts: list[Attempt] = []
        self.failed_broker: str | None = None
        """The broker of the last attempt: the next one prefers another."""
        self.unconfirmed: Accepted | None = None
        """The last answer that the policy does not accept, returned if no other attempt succeeds."""
        self._topic = topic
        self._policy = policy
        self._start_ms = start_ms
        self._timeout_ms = timeout_ms
        self._raise_last = raise_last
        self._counted = self._pauses = 0
        self._tried: set[str] = set()

    @property
    def number(self) -> int:
        """The number of the next attempt, from 1 on."""
        return self._counted + 1

    def left_ms(self, now_ms: int) -> int:
        return max(1, self._start_ms + self._timeout_ms - now_ms) if self._timeout_ms is not None else PAUSE_MS_MAX

    def not_confirmed(self, broker_name: str, answer: Accepted, now_ms: int, brokers: Collection[str]) -> int | None:
        """As `failed`, after an answer that the policy does not accept as final."""
        self.unconfirmed = answer
        self._counted += 1
        return self._next(broker_name, now_ms, brokers)

    def failed(self, broker_name: str, error: RocketQError, now_ms: int, brokers: Collection[str] = ()) -> int | None:
        """The pause in ms before the next attempt, given the brokers of the route; None if `unconfirmed` is the result.

        Raises the error if no retry can help, else SendFailedError or SendTimeoutError after the last attempt.
        """
        if not self._policy.is_retriable(error):
            if self.unconfirmed is not None:
                return None
            raise error
        self.attempts.append((broker_name, error))
        if self._timeout_ms is None or not isinstance(error, NOT_SENT):
            self._counted += 1
        pause_ms = self._next(broker_name, now_ms, brokers)
        if pause_ms is None and self.unconfirmed is None:
            if self._raise_last:
                causes = [each for _, each in self.attempts if isinstance(each, NOT_SENT)]
                raise causes[-1] if causes and not broker_name else error  # rather than a route that came too late
            raise failure(self._topic, self.attempts, now_ms - self._start_ms, self._timeout_ms) from error
        return pause_ms

    def _next(self, broker_name: str, now_ms: int, brokers: Collection[str]) -> int | None:
        self.failed_broker = broker_name or self.failed_broker
        self._tried.add(broker_name)
        left_ms = self.left_ms(now_ms)
        is_expired = self._timeout_ms is not None and left_ms <= ATTEMPT_MS_MIN
        if is_expired or self._counted >= self._policy.attempts_max:
            return None
        if any(name not in self._tried for name in brokers):
            return 0
        self._tried = {broker_name}
        self._pauses += 1
        return min(left_ms - ATTEMPT_MS_MIN, PAUSE_MS_MAX, self._policy.pause_ms(self._pauses + 1))


def failure(topic: str, attempts: Sequence[Attempt], elapsed_ms: int, timeout_ms: int | None) -> SendFailedError:
    """The error of a send after all its attempts."""
    kind = SendTimeoutError if timeout_ms is not None and elapsed_ms >= timeout_ms - ATTEMPT_MS_MIN else SendFailedError
    return kind(topic, client_code(attempts[-1][1]) if attempts else TIMED_OUT, attempts, elapsed_ms)


def client_code(error: RocketQError) -> int:
    """The code that Apache's clients use for such a failure."""
    match error:
        case BrokerError():
            return error.code
        case RequestTimeoutError():
            return TIMED_OUT
        case RemotingError():
            return CONNECT_FAILED
    return NO_BROKER


class SendOutcome(StrEnum):
    """FAILED: stored without the requested flush or replication."""

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
    """One send with all its attempts. Before it, `queue` is set only if the caller chose one, and `outcome` is None.

    `results` has one result for each message that was stored. `notes` holds data of the hooks.
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
    """Observes sends. Exceptions are logged and ignored."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


def outcome_of(results: tuple[SendResult, ...], error: BaseException | None) -> SendOutcome:
    if isinstance(error, (RequestTimeoutError, SendTimeoutError, ReplyTimeoutError, TooManySendsError, TimeoutError)):
        return SendOutcome.TIMEOUT
    if error is not None:
        return SendOutcome.EXCEPTION
    return SendOutcome.SUCCESS if all(one.status is SendStatus.SEND_OK for one in results) else SendOutcome.FAILED
