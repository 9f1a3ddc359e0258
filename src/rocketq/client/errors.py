"""Errors of clients; others are in rocketq.errors and rocketq.protocol.failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketq.errors import RocketQError
from rocketq.protocol.acl import ACCESS_KEY
from rocketq.protocol.command import Command
from rocketq.protocol.failures import AccessDeniedError, BrokerError, failure_of, is_denial


def failure_to(request: Command, answer: Command, addr: str) -> BrokerError:
    """The error that a broker's answer stands for. A denial says what was asked, too."""
    if not is_denial(answer):
        return failure_of(answer, peer=addr)
    from rocketq.access.rights import denied_action  # noqa: PLC0415 - only denials need it

    found = AccessDeniedError(answer.code, answer.remark, peer=addr)
    action = denied_action(request, found.resource)
    user = request.ext_fields.get(ACCESS_KEY)
    return AccessDeniedError(answer.code, answer.remark, peer=addr, user=user, action=action)


class ClientError(RocketQError):
    """An error of the client itself, not an answer of a broker."""


class MessageInvalidError(ClientError):
    """A message that no broker would accept; it was not sent."""


class RecallHandleError(ClientError):
    """Not a handle of a message that can be recalled."""


class NotFoundError(ClientError):
    """A group, message, broker, cluster or setting (`what`) does not exist."""

    def __init__(self, what: str, name: str, reason: str | None = None) -> None:
        super().__init__(f"{what} {name} was not found" + (f": {reason}" if reason else ""))
        self.what = what
        self.name = name
        self.reason = reason


class NoQueueError(ClientError):
    """The topic has a route, but no usable queue in it."""

    retriable = True

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic}: {reason}")
        self.topic = topic
        self.reason = reason


class GroupOnlineError(ClientError):
    """The broker cannot move connected members of the group to this offset."""

    def __init__(self, group: str, broker_name: str) -> None:
        super().__init__(
            f"group {group} has members on {broker_name}, a broker that only resets by time: "
            "stop them first, or reset by time"
        )
        self.group = group
        self.broker_name = broker_name


class PartlyFailedError(ClientError):
    """Some of several peers failed; `failures` has the error by peer, `done` names those that succeeded."""

    def __init__(self, failures: Mapping[str, RocketQError], done: Sequence[str]) -> None:
        why = "; ".join(f"{peer}: {error}" for peer, error in failures.items())
        super().__init__(f"{len(failures)} of {len(failures) + len(done)} failed: {why}")
        self.failures = dict(failures)
        self.done = tuple(done)
        self.retriable = all(error.retriable for error in failures.values())


class ClientClosedError(ClientError):
    """The client or its event loop was closed; `what` names it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed")
        self.what = what


class GroupTakenError(ClientError):
    """One session has at most one producer and one consumer of a group; give the second one another session."""

    def __init__(self, group: str, kind: str) -> None:
        super().__init__(f"this session has a {kind} of group {group} already: give the second one another session")
        self.group = group
        self.kind = kind


class NotARequestError(ClientError):
    """A message without a property that a reply needs: `missing` names it."""

    def __init__(self, message_id: str, missing: str) -> None:
        super().__init__(f"message {message_id} was not sent as a request, or by no broker that replies: no {missing}")
        self.message_id = message_id
        self.missing = missing


class NotStartedError(ClientError):
    """The client was not started: use it in an `async with`, or await its `start()`."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not started: use it in a `with`, or call its start()")
        self.what = what


class WrongLoopError(ClientError):
    """The client belongs to another event loop, which may be closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} belongs to another event loop: make one on each loop, or use the one without await")
        self.what = what


class SelectorError(ClientError):
    """The function that selects a queue failed, or returned none of the topic's."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"no queue of topic {topic} was chosen: {reason}")
        self.topic = topic
        self.reason = reason


class SendFailedError(ClientError):
    """All attempts failed. `code` is the broker's or one of Apache's client codes; `attempts`: (broker, error) pairs.

    A message whose answer did not arrive may have been stored.
    """

    def __init__(self, topic: str, code: int, attempts: Sequence[tuple[str, RocketQError]], elapsed_ms: int) -> None:
        tries = "; ".join(f"{broker_name or 'no broker'}: {error}" for broker_name, error in attempts)
        super().__init__(f"topic {topic}: {len(attempts)} attempts failed within {elapsed_ms} ms: {tries}")
        self.topic = topic
        self.code = code
        self.attempts = tuple(attempts)
        self.elapsed_ms = elapsed_ms
        self.retriable = bool(attempts) and attempts[-1][1].retriable


class SendTimeoutError(SendFailedError):
    """The timeout of the whole call expired before an attempt succeeded."""

    retriable = True


class BatchFailedError(ClientError):
    """A part of a batch was not sent. `results` are in the order of the messages, None for those that failed."""

    def __init__(self, results: Sequence[object], error: RocketQError) -> None:
        done = sum(result is not None for result in results)
        super().__init__(f"{len(results) - done} of {len(results)} messages were not sent: {error}")
        self.results = list(results)
        self.error = error
        self.retriable = error.retriable


class TooManySendsError(ClientError):
    """The limit of sends in flight was reached and no capacity became free in time; this one was not sent."""

    retriable = True

    def __init__(self, count: int, size_bytes: int, timeout_ms: int) -> None:
        super().__init__(f"{count} sends of {size_bytes} bytes are in flight, no capacity within {timeout_ms} ms")
        self.count = count
        self.size_bytes = size_bytes
        self.timeout_ms = timeout_ms


class ReplyTimeoutError(ClientError):
    """The request was sent, and no reply came in time."""

    retriable = True
    code = 10006

    def __init__(self, topic: str, message_id: str, timeout_ms: int) -> None:
        super().__init__(f"no reply to message {message_id} of topic {topic} within {timeout_ms} ms")
        self.topic = topic
        self.message_id = message_id
        self.timeout_ms = timeout_ms
