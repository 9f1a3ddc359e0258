"""Timing of elections: how long a master may trust its lease, and when a replica campaigns. Monotonic milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketq.errors import ConfigError
from rocketq.replication.control import GroupView

CLOCK_MARGIN_MS: Final = 2_000


class LeaseMode(Enum):
    STRICT = "strict"
    AVAILABLE = "available"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    keep_alive_ms: int = 1_000
    valid_ms: int = 3_000
    """L: duration of trust, from sending a keep-alive that was answered."""
    ttl_ms: int = 5_000
    """T: the control store expires the lease this long after its last keep-alive."""

    def __post_init__(self) -> None:
        if not 0 < self.keep_alive_ms < self.valid_ms:
            raise ConfigError(
                f"haLeaseTimeout {self.valid_ms} ms must be longer than a keep-alive's {self.keep_alive_ms} ms"
            )
        if self.ttl_ms < self.valid_ms + CLOCK_MARGIN_MS:
            raise ConfigError(
                f"haLeaseTtl {self.ttl_ms} ms must be at least haLeaseTimeout {self.valid_ms} ms + {CLOCK_MARGIN_MS} ms"
            )


class Lease:
    """A lease of the control store, from its owner's view."""

    def __init__(self, lease_id: int, sent_ms: int, times: LeaseTimes) -> None:
        self.id = lease_id
        self._times = times
        self._answered_ms = sent_ms  # send time of the newest answered request
        self._asked_ms = sent_ms

    def asked(self, now_ms: int) -> None:
        self._asked_ms = now_ms

    def answered(self, sent_ms: int) -> None:
        """A keep-alive sent at that time was answered; answers may arrive out of order."""
        self._answered_ms = max(self._answered_ms, sent_ms)

    def is_due(self, now_ms: int) -> bool:
        return now_ms - self._asked_ms >= self._times.keep_alive_ms

    def is_valid(self, now_ms: int) -> bool:
        return now_ms < self.valid_to_ms

    @property
    def valid_to_ms(self) -> int:
        return self._answered_ms + self._times.valid_ms


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a replica observes of its disk, its master and the other replicas."""

    dead_epoch: int = 0
    """The process of the master of this epoch has ended; 0: unknown."""
    isolated_epoch: int = 0
    """The master of this epoch is not heard; 0: it is."""
    reaches: frozenset[int] = frozenset()
    """Other replicas that it can connect to while it does not hear the master."""
    full_ms: int | None = None
    """Since when the disk is full."""

    @property
    def has_room(self) -> bool:
        return self.full_ms is None

    def is_vacant(self, view: GroupView, own_id: int, boot_id: str) -> bool:
        """Whether no other process is master: no key, the key of a process that ended (all living members of S agree),
        or this store's own one from before a restart. After a reboot of the machine a log may lack its unsynced end,
        so then others go first."""
        master = view.master
        if master is None:
            return True
        if master.value.epoch == self.dead_epoch:
            state, alive = view.state, view.alive
            others = state.value.in_sync - {own_id, master.value.broker_id} if state is not None else frozenset()
            return all(alive[each].value.isolated_epoch == self.dead_epoch for each in others if each in alive)
        return master.value.broker_id == own_id and bool(boot_id) and master.value.boot_id == boot_id


FIRST_MS: Final = 300
"""Delay for the reports of the other replicas to arrive."""
NEXT_MS: Final = 1_000


def campaign_delay_ms(
    view: GroupView, own_id: int, last_epoch: int, log_end: int, *, has_room: bool = True
) -> int | None:
    """Delay between the loss of the master and this replica's ELECT; None: it cannot be elected. Replicas with a full
    disk come last, then the longest log is first."""
    state = view.state.value if view.state else None
    if state is not None and own_id not in state.in_sync:
        return None
    if state is not None and state.preferred_id == own_id:
        return 0
    master_id = view.master.value.broker_id if view.master else 0
    if master_id == own_id:
        return 0  # its own key, from before a restart
    # The keys of a master whose process ended have not expired yet: it is no candidate.
    others = {
        broker_id: report.value
        for broker_id, report in view.alive.items()
        if broker_id not in (own_id, master_id) and (state is None or broker_id in state.in_sync)
    }
    own_rank = (not has_room, -last_epoch, -log_end, own_id)
    better = sum(
        (not other.has_room, -other.last_epoch, -other.log_end, broker_id) < own_rank
        for broker_id, other in others.items()
    )
    preferred_alive = state is not None and state.preferred_id in others
    return FIRST_MS + NEXT_MS * min(better + preferred_alive, 2)
