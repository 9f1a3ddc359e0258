"""Consumer statistics and the running info that operators request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from rocketq.client.core.config import PullConfig, PushConfig
from rocketq.protocol.bodies.clients import ConsumeRates
from rocketq.protocol.flags import ConsumeType
from rocketq.protocol.versions import OUR_VERSION, version_name

_SLOTS: Final = 60


class Sliding:
    """Counts and totals of the last 60 slots of time."""

    def __init__(self, slot_ms: int) -> None:
        self._slot_ms = slot_ms
        self._counts = [0] * _SLOTS
        self._totals = [0] * _SLOTS
        self._slot = 0

    def add(self, now_ms: int, count: int, total: int = 0) -> None:
        at = self._advance(now_ms)
        self._counts[at] += count
        self._totals[at] += total

    def sums(self, now_ms: int) -> tuple[int, int]:
        """Of counts and of totals."""
        self._advance(now_ms)
        return sum(self._counts), sum(self._totals)

    def _advance(self, now_ms: int) -> int:
        slot = now_ms // self._slot_ms
        if slot > self._slot:
            for passed in range(max(self._slot + 1, slot - _SLOTS + 1), slot + 1):
                self._counts[passed % _SLOTS] = self._totals[passed % _SLOTS] = 0
            self._slot = slot
        return self._slot % _SLOTS


class TopicStats:
    """Of one topic, for one group. Times are those of the clock that never goes back.

    What falls into one second is added up first: this is done for every call of a listener.
    """

    def __init__(self, now_ms: int) -> None:
        self._start_ms = now_ms
        self._pulls = Sliding(1_000)
        self._pulled = Sliding(1_000)
        self._calls = Sliding(1_000)
        self._done = Sliding(1_000)
        self._failed = Sliding(1_000)
        self._failed_in_hour = Sliding(60_000)
        self._second = now_ms // 1_000
        self._calls_now = self._calls_ms_now = self._done_now = 0
        self.pulled_total = 0
        self.failed_total = 0
        self._done_total = 0

    @property
    def done_total(self) -> int:
        return self._done_total + self._done_now

    def pulled(self, now_ms: int, count: int, elapsed_ms: int) -> None:
        self._pulls.add(now_ms, 1, elapsed_ms)
        self._pulled.add(now_ms, count)
        self.pulled_total += count

    def consumed(self, now_ms: int, done: int, failed: int, elapsed_ms: int, calls: int = 1) -> None:
        """A call of the listener, or several of them added up."""
        if now_ms // 1_000 != self._second:
            self._add_up(now_ms)
        self._calls_now += calls
        self._calls_ms_now += elapsed_ms
        self._done_now += done
        if failed:
            self._failed.add(now_ms, failed)
            self._failed_in_hour.add(now_ms, failed)
            self.failed_total += failed

    def _add_up(self, now_ms: int) -> None:
        then_ms = self._second * 1_000
        self._calls.add(then_ms, self._calls_now, self._calls_ms_now)
        self._done.add(then_ms, self._done_now)
        self._done_total += self._done_now
        self._calls_now = self._calls_ms_now = self._done_now = 0
        self._second = now_ms // 1_000

    def rates(self, now_ms: int) -> ConsumeRates:
        """As brokers and tools ask for them; per second over the last minute, or since the start when that is less."""
        self._add_up(now_ms)
        span_s = max(1.0, min(60.0, (now_ms - self._start_ms) / 1000))
        return ConsumeRates(
            pull_rt=_mean(self._pulls.sums(now_ms)),
            pull_tps=self._pulled.sums(now_ms)[0] / span_s,
            consume_rt=_mean(self._calls.sums(now_ms)),
            consume_ok_tps=self._done.sums(now_ms)[0] / span_s,
            consume_failed_tps=self._failed.sums(now_ms)[0] / span_s,
            consume_failed_count=self._failed_in_hour.sums(now_ms)[0],
        )


def _mean(sums: tuple[int, int]) -> float:
    count, total = sums
    return total / count if count else 0.0


class ConsumerStats:
    """Of all topics of one consumer."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicStats] = {}

    def of(self, topic: str, now_ms: int) -> TopicStats:
        stats = self._topics.get(topic)
        if stats is None:
            stats = self._topics[topic] = TopicStats(now_ms)
        return stats

    def rates(self, now_ms: int) -> dict[str, ConsumeRates]:
        return {topic: stats.rates(now_ms) for topic, stats in sorted(self._topics.items())}


def running_properties(
    *,
    name_servers: Sequence[str],
    consume_type: ConsumeType,
    orderly: bool,
    workers: int,
    start_ms: int,
    settings: PushConfig | PullConfig,
) -> dict[str, str]:
    """The names Apache's tools look for, and every setting by its own name."""
    known = {
        "PROP_NAMESERVER_ADDR": "".join(f"{addr};" for addr in name_servers),
        "PROP_CONSUME_TYPE": consume_type.value,
        "PROP_CONSUMEORDERLY": "true" if orderly else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(workers),
        "PROP_CONSUMER_START_TIMESTAMP": str(start_ms),
        "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
    }
    return known | {item.name: str(getattr(settings, item.name)) for item in fields(settings)}
