"""Which failures of a send are worth another try, and what is said when no try succeeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketq.client.core.send_results import SendStatus
from rocketq.client.errors import NoQueueError, SendFailedError, SendTimeoutError
from rocketq.errors import RemoteProtocolError, RemotingError, RequestTimeoutError, RocketQError
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.failures import AclDenied, BrokerError

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
"""What Apache's producers try again since 4.9 and 5.x."""

CONNECT_FAILED: Final = 10001
TIMED_OUT: Final = 10002
NO_BROKER: Final = 10003

Attempt = tuple[str, RocketQError]
"""The broker's name, empty where none was found, and what went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    attempts_max: int = 3
    codes: frozenset[int] = RETRIED_CODES
    when_not_stored_ok: bool = False
    """Whether a message that is stored, but not as safely as asked for, is sent to another broker too."""
    attempt_timeout_ms: int | None = None
    """Of each try but the last; None: a try may take all the time there is."""

    def is_worth_another(self, error: RocketQError) -> bool:
        match error:
            case AclDenied():
                return False
            case BrokerError():
                return error.code in self.codes
            case RemotingError() | NoQueueError() | RemoteProtocolError():
                return True
        return False

    def is_settled(self, status: SendStatus) -> bool:
        return status is SendStatus.SEND_OK or not self.when_not_stored_ok

    def pause_ms(self, attempt: int) -> int:
        """Before the same broker is tried once more, because there is no other: 50 ms, then twice as long each time."""
        return int(50 * 2 ** max(0, attempt - 2))

    def timeout_ms(self, attempt: int, left_ms: int) -> int:
        """How long try number `attempt`, from 1 on, may take."""
        if self.attempt_timeout_ms is None or attempt >= self.attempts_max:
            return left_ms
        return min(left_ms, self.attempt_timeout_ms)


def failure(topic: str, attempts: Sequence[Attempt], elapsed_ms: int, timeout_ms: int) -> SendFailedError:
    """What all tries together come to."""
    kind = SendTimeoutError if elapsed_ms >= timeout_ms else SendFailedError
    return kind(topic, client_code(attempts[-1][1]) if attempts else TIMED_OUT, attempts, elapsed_ms)


def client_code(error: RocketQError) -> int:
    """The code Apache's clients give such a failure."""
    match error:
        case BrokerError():
            return error.code
        case RequestTimeoutError():
            return TIMED_OUT
        case RemotingError():
            return CONNECT_FAILED
    return NO_BROKER
