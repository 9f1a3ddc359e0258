"""Counters of a broker, as its handlers and the fast path increment them."""

from __future__ import annotations

from collections.abc import Iterable

from rocketq.broker.stats.broker_metrics import NORMAL, BrokerMetrics
from rocketq.broker.stats.stats_table import SAMPLE_MS, StatName, StatsTable, group_key
from rocketq.broker.stats.totals import BrokerTotals
from rocketq.kernel.admission import SendGrant


class BrokerStats:
    def __init__(self, cluster: str, now_ms: int) -> None:
        self._cluster = cluster
        self.table = StatsTable(now_ms)
        self.totals = BrokerTotals(now_ms)
        self.metrics = BrokerMetrics()
        self._day: int | None = None
        self._sampled_ms = now_ms

    def tick(self, now_ms: int, day: int) -> Iterable[None]:
        """Sample the rates; called once a second. `day` is a number that changes at midnight.

        Returns the remaining work as steps, which the caller runs.
        """
        self.totals.sample(now_ms)
        if self._day not in (None, day):
            self.totals.begin_day()
        self._day = day
        if now_ms - self._sampled_ms < SAMPLE_MS:
            return ()
        self._sampled_ms = now_ms
        return self.table.sample(now_ms)

    def stored(
        self, topic: str, count: int, size_bytes: int, took_ms: int, times: int = 1, kind: str | None = NORMAL
    ) -> None:
        """Count `count` messages stored by `times` send requests; `kind` is their type in metrics (None: they are not
        counted there)."""
        self._add_stored(topic, count, size_bytes, took_ms, times)
        if kind is not None:
            self.metrics.stored(topic, kind, count, size_bytes, times)

    def stored_by_kernel(self, grant: SendGrant, kind: str) -> None:
        """Collect what the fast path stored by a grant."""
        topic = grant.topic.decode()
        count, size_bytes, times = grant.collect()
        self._add_stored(topic, count, size_bytes, 0, times)
        self.metrics.stored_by_kernel(topic, count, size_bytes, grant.collect_sizes(), kind)

    def _add_stored(self, topic: str, count: int, size_bytes: int, took_ms: int, times: int) -> None:
        self.totals.put(count, size_bytes, took_ms)
        self.table.add(StatName.TOPIC_PUT_COUNT, topic, count, times)
        self.table.add(StatName.TOPIC_PUT_BYTES, topic, size_bytes, times)
        self.table.add(StatName.BROKER_PUT_COUNT, self._cluster, count, times)

    def pulled(self, topic: str, group: str, count: int, size_bytes: int, took_ms: int, times: int = 1) -> None:
        """Count `count` messages returned to `times` pull requests."""
        self.totals.got(count, took_ms, times)
        if count:
            self.metrics.given(topic, group, count, size_bytes)
            key = group_key(topic, group)
            self.table.add(StatName.GROUP_GET_COUNT, key, count, times)
            self.table.add(StatName.GROUP_GET_BYTES, key, size_bytes, times)
            self.table.add(StatName.BROKER_GET_COUNT, self._cluster, count, times)

    def get_tps(self, topic: str, group: str) -> float:
        return self.table.tps(StatName.GROUP_GET_COUNT, group_key(topic, group))

    def put_tps(self, topic: str) -> float:
        return self.table.tps(StatName.TOPIC_PUT_COUNT, topic)

    def forget_topic(self, topic: str) -> None:
        self.table.forget_topic(topic)
        self.metrics.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        self.table.forget_group(group)
        self.metrics.forget_group(group)
