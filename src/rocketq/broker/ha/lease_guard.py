"""With haLeaseMode=strict a master answers only while its lease is valid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from rocketq.broker.admin.settings import Settings
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection
from rocketq.runtime.clock import Clock

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
    def trusted_to_ms(self) -> int:
        """By the monotonic clock; it only ever moves on."""
        ...


class LeaseHolder(Protocol):
    """An election's agent."""

    @property
    def lease(self) -> HeldLease | None: ...
    def may_serve(self, now_ms: int) -> bool: ...


class LeaseGuard:
    """Check: a master without a valid lease serves nothing that another could contradict.

    The fast path does not ask for every request: it may serve until `valid_to_ms`, unless the generation is bumped.
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
        """End of the lease on the monotonic clock; 0 if it is not valid now."""
        if self._settings.config.is_slave:
            return NEVER_MS
        holder = self._holder()
        lease = holder.lease
        if lease is None or not holder.may_serve(self._clock.monotonic_ms()):
            return 0
        return lease.trusted_to_ms
