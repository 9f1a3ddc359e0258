"""The master's lease in a broker: what runs only with a valid lease, and the check of haLeaseMode=strict."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from rocketq.broker.admin.settings import Settings
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection
from rocketq.runtime.clock import Clock

log = logging.getLogger(__name__)


class LeaseOwner(Protocol):
    """A broker that can be elected."""

    @property
    def is_leading(self) -> bool: ...
    def has_lease(self, now_ms: int) -> bool: ...


class MasterLease:
    """Always valid without replicas. With replicas, valid only while the broker leads and its lease is valid, in both
    lease modes."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._candidate: LeaseOwner | None = None
        self._was_valid = True

    def depend_on(self, candidate: LeaseOwner) -> None:
        self._candidate = candidate

    def is_valid(self) -> bool:
        if self._candidate is None:
            return True
        is_leading = self._candidate.is_leading
        is_valid = is_leading and self._candidate.has_lease(self._clock.monotonic_ms())
        if is_leading and is_valid != self._was_valid:
            self._was_valid = is_valid
            name = self._settings.config.name
            if is_valid:
                log.info("lease of broker %s is valid again: deliveries, checks and deletion resume", name)
            else:
                log.warning("broker %s has no valid lease: deliveries, checks, deletion and locks are suspended", name)
        return is_valid


NEVER_MS: Final = (1 << 63) // 1_000_000 - 1
_LEASED: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
    }
)


class HeldLease(Protocol):
    @property
    def valid_to_ms(self) -> int:
        """By the monotonic clock; never decreases."""
        ...


class LeaseHolder(Protocol):
    """The agent of a replica."""

    @property
    def lease(self) -> HeldLease | None: ...
    def may_serve(self, now_ms: int) -> bool: ...


class LeaseGuard:
    """Request check: reject requests that a new master could contradict while the lease is invalid.

    The fast path serves until `valid_to_ms` without asking again, unless the generation is bumped.
    """

    def __init__(self, settings: Settings, holder: Callable[[], LeaseHolder], clock: Clock) -> None:
        self._settings = settings
        self._holder = holder
        self._clock = clock

    def __call__(self, request: Command, connection: Connection) -> Command | None:
        if request.code not in _LEASED or self._settings.config.is_slave:
            return None
        if self._holder().may_serve(self._clock.monotonic_ms()):
            return None
        return request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark="the master's lease is not valid")

    def valid_to_ms(self) -> int:
        """By the monotonic clock; 0 when the lease is invalid."""
        if self._settings.config.is_slave:
            return NEVER_MS
        holder = self._holder()
        lease = holder.lease
        if lease is None or not holder.may_serve(self._clock.monotonic_ms()):
            return 0
        return lease.valid_to_ms
