"""How long a master may trust its lease. All times are monotonic milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketq.errors import ConfigError

CLOCK_MARGIN_MS: Final = 2_000


class LeaseMode(Enum):
    STRICT = "strict"
    AVAILABLE = "available"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    keep_alive_ms: int = 1_000
    trusted_ms: int = 6_000
    """L: from sending a keep-alive that was answered."""
    ttl_ms: int = 10_000
    """T: the control store forgets a lease this long after its last keep-alive."""

    def __post_init__(self) -> None:
        if not 0 < self.keep_alive_ms < self.trusted_ms:
            raise ConfigError(
                f"haLeaseTimeout {self.trusted_ms} ms must be longer than a keep-alive's {self.keep_alive_ms} ms"
            )
        if self.ttl_ms < self.trusted_ms + CLOCK_MARGIN_MS:
            raise ConfigError(
                f"haLeaseTtl {self.ttl_ms} ms must be at least "
                f"haLeaseTimeout {self.trusted_ms} ms + {CLOCK_MARGIN_MS} ms"
            )


class Lease:
    """One lease of the control store, as its holder sees it."""

    def __init__(self, lease_id: int, sent_ms: int, times: LeaseTimes) -> None:
        self.id = lease_id
        self._times = times
        self._answered_ms = sent_ms  # when the newest request that was answered had been sent
        self._asked_ms = sent_ms

    def asked(self, now_ms: int) -> None:
        self._asked_ms = now_ms

    def answered(self, sent_ms: int) -> None:
        """A keep-alive sent at that time was answered; answers may overtake each other."""
        self._answered_ms = max(self._answered_ms, sent_ms)

    def is_due(self, now_ms: int) -> bool:
        return now_ms - self._asked_ms >= self._times.keep_alive_ms

    def is_trusted(self, now_ms: int) -> bool:
        return now_ms < self.trusted_to_ms

    @property
    def trusted_to_ms(self) -> int:
        return self._answered_ms + self._times.trusted_ms
