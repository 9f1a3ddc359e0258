"""Actions that the agent of a replica returns. A list is executed in order; results come back as events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketq.replication.control import Transaction


class Purpose(Enum):
    SECRET = "create the secret"
    APPLY = "apply for an id"
    ELECT = "elect"
    ALTER = "alter the in-sync set"
    RETIRE = "retire"
    REPORT = "report"


class Action:
    """Base class of all actions."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Read(Action):
    """Read the group; answered with the same number by on_view or on_read_failed."""

    number: int


@dataclass(frozen=True, slots=True)
class Commit(Action):
    """Answered by on_committed with the same number; a revision of None means that another change came first."""

    number: int
    purpose: Purpose
    change: Transaction


@dataclass(frozen=True, slots=True)
class Grant(Action):
    """Answered by on_granted or on_grant_failed."""

    ttl_ms: int


@dataclass(frozen=True, slots=True)
class KeepAlive(Action):
    """Answered by on_kept_alive (with the time it was sent) or on_lease_lost; without an answer the lease expires."""

    lease_id: int


@dataclass(frozen=True, slots=True)
class Revoke(Action):
    lease_id: int


@dataclass(frozen=True, slots=True)
class Persist(Action):
    """Add this to haState (`HaState.with_seen`) and sync it before the next action of the list."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Follow(Action):
    """Copy from this master; stop copying from any other."""

    master_id: int
    ha_addr: str
    epoch: int
    addr: str = ""


@dataclass(frozen=True, slots=True)
class StopFollowing(Action):
    pass


@dataclass(frozen=True, slots=True)
class Promote(Action):
    """Execute the steps of a promotion; answered by on_promoted or on_promotion_failed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Lead(Action):
    """Serve slaves and clients as master of this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StopAccepting(Action):
    """Reject new writes; stored ones are still replicated and answered."""


@dataclass(frozen=True, slots=True)
class AcceptAgain(Action):
    """Accept writes again: a planned switch was cancelled."""


@dataclass(frozen=True, slots=True)
class StepDown(Action):
    """Stop being master: reject writes, fail waiting sends, close the slaves' connections."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unrelated(Action):
    """This replica's log and the master's have no common epoch."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped(Action):
    """The replica has finished its clean stop."""
