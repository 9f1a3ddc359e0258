"""What only clients can say went wrong; everything else is in rocketq.errors and rocketq.protocol.failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketq.errors import RocketQError


class ClientError(RocketQError):
    """Decided here: no peer said so."""


class MessageInvalidError(ClientError):
    """A message that no broker would take; it was not sent."""


class NotFoundError(ClientError):
    """Nobody who could have it knows it: a group, a message, a broker, a cluster, a setting (`what`)."""

    def __init__(self, what: str, name: str, reason: str | None = None) -> None:
        super().__init__(f"{what} {name} was not found" + (f": {reason}" if reason else ""))
        self.what = what
        self.name = name
        self.reason = reason


class NoQueueError(ClientError):
    """The topic has a route, but no queue in it can be used at present."""

    retriable = True

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic}: {reason}")
        self.topic = topic
        self.reason = reason


class GroupOnlineError(ClientError):
    """Members of the group are connected to a broker that cannot tell them to move there."""

    def __init__(self, group: str, broker_name: str) -> None:
        super().__init__(
            f"group {group} has members on {broker_name}, a broker that can only move them by time: "
            "stop them first, or reset by time"
        )
        self.group = group
        self.broker_name = broker_name


class PartlyFailedError(ClientError):
    """Some of several peers did not do it; `failures` says why by peer, `done` names those that did."""

    def __init__(self, failures: Mapping[str, RocketQError], done: Sequence[str]) -> None:
        why = "; ".join(f"{peer}: {error}" for peer, error in failures.items())
        super().__init__(f"{len(failures)} of {len(failures) + len(done)} failed: {why}")
        self.failures = dict(failures)
        self.done = tuple(done)
        self.retriable = all(error.retriable for error in failures.values())


class ClientClosedError(ClientError):
    """It was closed, or its event loop was; `what` says what."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed")
        self.what = what


class GroupTakenError(ClientError):
    """One session has at most one producer and one consumer of a group; give the second a session of its own."""

    def __init__(self, group: str, kind: str) -> None:
        super().__init__(f"this session has a {kind} of group {group} already: give the second a session of its own")
        self.group = group
        self.kind = kind


class NotARequestError(ClientError):
    """A message that lacks what a reply needs: `missing` names the property."""

    def __init__(self, message_id: str, missing: str) -> None:
        super().__init__(f"message {message_id} was not sent as a request, or by no broker that replies: no {missing}")
        self.message_id = message_id
        self.missing = missing
