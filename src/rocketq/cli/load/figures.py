"""Figures of a run: counts, latencies in a histogram, and what was used of the processor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_STEPS_PER_E: Final = 50  # of the histogram: a step is 2 %
_STEPS: Final = 50 * 20


class Latencies:
    """Spans in microseconds, each known to 2 %, in memory that does not grow."""

    def __init__(self) -> None:
        self._counts = [0] * _STEPS
        self.count = 0
        self.max_us = 0.0

    def add(self, us: float, times: int = 1) -> None:
        step = int(math.log(us) * _STEPS_PER_E) if us > 1 else 0
        self._counts[min(step, _STEPS - 1)] += times
        self.count += times
        self.max_us = max(self.max_us, us)

    def percentile_us(self, part: float) -> float:
        """The latency that this share of requests did not exceed (0.99: all but one of a hundred)."""
        wanted, seen = part * self.count, 0
        for step, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(math.exp((step + 0.5) / _STEPS_PER_E), self.max_us)
        return self.max_us


@dataclass(slots=True)
class Tally:
    """What has been answered so far."""

    requests: int = 0
    messages: int = 0
    size_bytes: int = 0
    refused: int = 0
    refusal: str = ""
    unanswered: int = 0
    """Requests in flight on connections that were lost."""
    reconnects: int = 0
    gap_s: float = 0.0
    """The longest time that a lost connection and its replacement were without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results of a run; the brokers' CPU is None if their processes are unknown or were replaced."""

    seconds: float
    messages: int
    messages_per_s: float
    requests_per_s: float
    mb_per_s: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float
    refused: int
    unanswered: int
    reconnects: int
    gap_s: float
    client_cpu_us_per_message: float | None
    broker_cpu_us_per_message: float | None


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Seconds of the processor, by this process and by those of the brokers."""

    client_s: float
    broker_s: float | None

    def since(self, before: CpuUse) -> CpuUse:
        if self.broker_s is None or before.broker_s is None or self.broker_s < before.broker_s:
            return CpuUse(self.client_s - before.client_s, None)  # a thread or process that ended takes its time along
        return CpuUse(self.client_s - before.client_s, self.broker_s - before.broker_s)


def figures_of(tally: Tally, latencies: Latencies, seconds: float, cpu: CpuUse) -> Figures:
    seconds = max(seconds, 1e-9)
    p50, p90, p99, p999 = (latencies.percentile_us(part) for part in (0.5, 0.9, 0.99, 0.999))
    return Figures(
        seconds=round(seconds, 3),
        messages=tally.messages,
        messages_per_s=round(tally.messages / seconds, 1),
        requests_per_s=round(tally.requests / seconds, 1),
        mb_per_s=round(tally.size_bytes / seconds / 1e6, 2),
        p50_us=round(p50, 1),
        p90_us=round(p90, 1),
        p99_us=round(p99, 1),
        p999_us=round(p999, 1),
        max_us=round(latencies.max_us, 1),
        refused=tally.refused,
        unanswered=tally.unanswered,
        reconnects=tally.reconnects,
        gap_s=round(tally.gap_s, 3),
        client_cpu_us_per_message=_each_us(cpu.client_s, tally.messages),
        broker_cpu_us_per_message=_each_us(None if tally.reconnects else cpu.broker_s, tally.messages),
    )


def _each_us(total_s: float | None, count: int) -> float | None:
    return None if total_s is None or not count else round(total_s * 1e6 / count, 3)
