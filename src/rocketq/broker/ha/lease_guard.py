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
    """An election's agent. `role`, `lease` and `handing_over` are replaced when they change, never edited."""

    @property
    def lease(self) -> HeldLease | None: ...
    def may_serve(self, now_ms: int) -> bool: ...


class LeaseGuard:
    """A master without a valid lease serves nothing that another could contradict.

    Whoever serves without asking for every request (the kernel) may do so while the facts are what they were, until
    `valid_to_ms`, and has to ask again then.
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

    def facts(self) -> tuple[tuple[object, str], ...]:
        """Objects and names of what `valid_to_ms` rests on, beside the broker's settings."""
        if self._settings.config.is_slave:
            return ()
        holder = self._holder()
        return (holder, "role"), (holder, "lease"), (holder, "handing_over")

    def valid_to_ms(self) -> int:
        """By the monotonic clock; 0 when nothing may be served now."""
        if self._settings.config.is_slave:
            return NEVER_MS
        holder = self._holder()
        lease = holder.lease
        if lease is None or not holder.may_serve(self._clock.monotonic_ms()):
            return 0
        return lease.trusted_to_ms
