"""Which brokers are slow or failing at present, and are passed over for a while. Time comes in as an argument."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from rocketq.errors import ConfigError

LATENCIES_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
ABSENCES_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
ISOLATION_MS: Final = 10_000
"""A failure counts as an answer that took so long."""
PROBE_TIMEOUT_MS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultLatencyConfig:
    """A broker that took `latencies_ms[i]` or longer is passed over for `absences_ms[i]`; the defaults are 5.x's."""

    latencies_ms: tuple[int, ...] = LATENCIES_MS
    absences_ms: tuple[int, ...] = ABSENCES_MS
    isolation_ms: int = ISOLATION_MS
    probe_interval_ms: int | None = None
    """How often a broker that could not be reached is asked whether it can; None: the next send that tries it shows."""
    probe_timeout_ms: int = PROBE_TIMEOUT_MS

    def __post_init__(self) -> None:
        if not self.latencies_ms or len(self.latencies_ms) != len(self.absences_ms):
            raise ConfigError("latencies_ms and absences_ms are equally long and not empty")
        if list(self.latencies_ms) != sorted(self.latencies_ms):
            raise ConfigError("latencies_ms grow")
        if self.probe_timeout_ms < 1 or (self.probe_interval_ms is not None and self.probe_interval_ms < 1):
            raise ConfigError("probe_interval_ms and probe_timeout_ms are at least 1")

    def absence_ms(self, latency_ms: int) -> int:
        absence_ms = 0
        for threshold_ms, span_ms in zip(self.latencies_ms, self.absences_ms, strict=True):
            if latency_ms >= threshold_ms:
                absence_ms = span_ms
        return absence_ms


@dataclass(frozen=True, slots=True)
class Fault:
    """What the last attempt taught about a broker."""

    latency_ms: int
    back_ms: int
    reachable: bool


class FaultLatency:
    """Brokers by name. One that nothing is known about is available and reachable."""

    def __init__(self, config: FaultLatencyConfig | None = None) -> None:
        self.config = config or FaultLatencyConfig()
        self._faults: dict[str, Fault] = {}

    def record(
        self, broker_name: str, latency_ms: int, now_ms: int, *, isolated: bool = False, reachable: bool = True
    ) -> None:
        """An attempt ended after `latency_ms`; `isolated` because it failed."""
        absence_ms = self.config.absence_ms(self.config.isolation_ms if isolated else latency_ms)
        self._faults[broker_name] = Fault(latency_ms, now_ms + absence_ms, reachable)

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.back_ms

    def is_reachable(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or fault.reachable

    def unreachable(self) -> list[str]:
        return [name for name, fault in self._faults.items() if not fault.reachable]

    def reached(self, broker_name: str) -> None:
        """It answers again; how long it is passed over stays as it was."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            self._faults[broker_name] = Fault(fault.latency_ms, fault.back_ms, True)

    def keep_only(self, broker_names: Collection[str]) -> None:
        """Those that have left all routes are forgotten."""
        self._faults = {name: fault for name, fault in self._faults.items() if name in broker_names}

    def known(self) -> dict[str, Fault]:
        return dict(self._faults)
