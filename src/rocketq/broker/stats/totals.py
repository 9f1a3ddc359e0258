"""Totals of a broker: rates over 10, 60 and 600 seconds, day totals, the distribution of append times."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

_SPANS_S: Final = (10, 60, 600)
_BUCKETS_MS: Final = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
_BUCKET_NAMES: Final = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s", "4~5s",
    "5~10s", "10s~",
)  # fmt: skip


@dataclass(slots=True)
class Totals:
    """Counts since the start. Transferred messages are those returned to pulls."""

    at_ms: int = 0
    put: int = 0
    put_bytes: int = 0
    put_failed: int = 0
    found: int = 0
    missed: int = 0
    transferred: int = 0


class BrokerTotals:
    """Totals with one sample per second; `begin_day` is called at midnight."""

    def __init__(self, now_ms: int) -> None:
        self.now = Totals(at_ms=now_ms)
        self.started_ms = now_ms
        self.put_ms_max = 0
        self.get_ms_max = 0
        self._samples = deque((replace(self.now),), maxlen=_SPANS_S[-1] + 1)
        self._buckets = [0] * len(_BUCKET_NAMES)
        self._this_morning = replace(self.now)
        self._yesterday_morning = replace(self.now)

    def put(self, count: int, size_bytes: int, took_ms: int) -> None:
        self.now.put += count
        self.now.put_bytes += size_bytes
        self.put_ms_max = max(self.put_ms_max, took_ms)
        self._buckets[bisect_left(_BUCKETS_MS, took_ms)] += count

    def put_failed(self) -> None:
        self.now.put_failed += 1

    def got(self, count: int, took_ms: int, times: int = 1) -> None:
        """Count `times` pulls that were answered with `count` messages."""
        if count:
            self.now.found += times
            self.now.transferred += count
        else:
            self.now.missed += times
        self.get_ms_max = max(self.get_ms_max, took_ms)

    def sample(self, now_ms: int) -> None:
        self.now.at_ms = now_ms
        self._samples.append(replace(self.now))

    def begin_day(self) -> None:
        self._yesterday_morning, self._this_morning = self._this_morning, replace(self.now)

    def rates(self, *counters: str) -> str:
        """Events per second over each span; empty for a span longer than the uptime."""
        return " ".join(self._rate(span_s, counters) for span_s in _SPANS_S)

    def _rate(self, span_s: int, counters: tuple[str, ...]) -> str:
        last, first_index = self._samples[-1], len(self._samples) - 1 - span_s
        if first_index < 0:
            return ""
        first = self._samples[first_index]
        span_ms = max(1, last.at_ms - first.at_ms)
        return str(sum(getattr(last, name) - getattr(first, name) for name in counters) * 1000 / span_ms)

    def distribution(self) -> str:
        pairs = zip(_BUCKET_NAMES, self._buckets, strict=True)
        return "".join(f"[{name}]:{count} " for name, count in pairs)

    def day_totals(self) -> dict[str, str]:
        now, morning, yesterday = self.now, self._this_morning, self._yesterday_morning
        return {
            "msgPutTotalTodayNow": str(now.put),
            "msgPutTotalTodayMorning": str(morning.put),
            "msgPutTotalYesterdayMorning": str(yesterday.put),
            "msgGetTotalTodayNow": str(now.transferred),
            "msgGetTotalTodayMorning": str(morning.transferred),
            "msgGetTotalYesterdayMorning": str(yesterday.transferred),
        }
