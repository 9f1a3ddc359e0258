"""Settings that every listening port of a broker or NameServer has: the limits of what its peers may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from rocketq.errors import ConfigError
from rocketq.protocol.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from rocketq.remoting.limits import SMALL_HOLDER_SLOTS, Limits

_MiB = 1 << 20
_LOWEST: Final = {
    "serverHeaderBytesMax": 64 << 10,
    "serverUnfinishedBytesMax": 2 * FRAME_BYTES_MAX,
    "serverUnsentBytesMax": 2 * FRAME_BYTES_MAX,
    "serverRequestsPerConnectionMax": SMALL_HOLDER_SLOTS,
    "serverRequestsPerAddressMax": SMALL_HOLDER_SLOTS,
}
"""A lower value would reject ordinary clients. 0 is allowed where it means a derived limit."""
_DERIVED: Final = frozenset({"serverRequestsPerConnectionMax", "serverRequestsPerAddressMax"})


def _option(key: str, default: Any, about: str) -> Any:
    return field(default=default, metadata={"key": key, "about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The part of a server's settings that limits its peers; values are checked by `check_limits`."""

    header_bytes_max: int = _option(
        "serverHeaderBytesMax", HEADER_BYTES_MAX, "Longest header of a request. A longer one closes the connection."
    )
    unfinished_bytes_max: int = _option(
        "serverUnfinishedBytesMax",
        256 * _MiB,
        "Bytes kept of unfinished frames of all peers; one address may use half. Beyond it the largest holders are "
        "disconnected.",
    )
    unsent_bytes_max: int = _option(
        "serverUnsentBytesMax",
        256 * _MiB,
        "Bytes kept for all peers that do not read. From half of it slow peers are paused early; beyond it the "
        "largest holders are disconnected.",
    )
    requests_per_connection_max: int = _option(
        "serverRequestsPerConnectionMax",
        0,
        "Requests of one connection in progress; more are answered as busy. 0: a quarter of all.",
    )
    requests_per_address_max: int = _option(
        "serverRequestsPerAddressMax",
        0,
        "Requests of one source address in progress. 0: three quarters of all.",
    )

    def check_limits(self) -> None:
        """ConfigError when a limit is lower than ordinary clients need."""
        values = {
            "serverHeaderBytesMax": self.header_bytes_max,
            "serverUnfinishedBytesMax": self.unfinished_bytes_max,
            "serverUnsentBytesMax": self.unsent_bytes_max,
            "serverRequestsPerConnectionMax": self.requests_per_connection_max,
            "serverRequestsPerAddressMax": self.requests_per_address_max,
        }
        for key, value in values.items():
            if value < _LOWEST[key] and not (value == 0 and key in _DERIVED):
                raise ConfigError(f"{key} is {value}, the lowest value is {_LOWEST[key]}")
        if self.header_bytes_max > FRAME_BYTES_MAX:
            raise ConfigError(
                f"serverHeaderBytesMax is {self.header_bytes_max}, the highest value is {FRAME_BYTES_MAX}"
            )

    def limits(self, idle_seconds: int) -> Limits:
        return Limits(
            idle_ms=idle_seconds * 1000,
            header_bytes_max=self.header_bytes_max,
            unfinished_bytes_max=self.unfinished_bytes_max,
            unsent_bytes_max=self.unsent_bytes_max,
        )
