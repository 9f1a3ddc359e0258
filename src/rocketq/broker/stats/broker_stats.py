"""Everything a broker counts, behind the few words its handlers use."""

from __future__ import annotations

from collections.abc import Iterable

from rocketq.broker.stats.meters import SAMPLE_MS, Meters, Statistic, group_key
from rocketq.broker.stats.totals import Traffic


class Figures:
    def __init__(self, cluster: str, now_ms: int) -> None:
        self._cluster = cluster
        self.meters = Meters(now_ms)
        self.traffic = Traffic(now_ms)
        self._day: int | None = None
        self._sampled_ms = now_ms

    def tick(self, now_ms: int, day: int) -> Iterable[None]:
        """Called every second; `day` is a number that changes at midnight. What is returned is left to be stepped
        through."""
        self.traffic.sample(now_ms)
        if self._day not in (None, day):
            self.traffic.begin_day()
        self._day = day
        if now_ms - self._sampled_ms < SAMPLE_MS:
            return ()
        self._sampled_ms = now_ms
        return self.meters.sample(now_ms)

    def stored(self, topic: str, count: int, size_bytes: int, took_ms: int, times: int = 1) -> None:
        """So many messages, by so many sends."""
        self.traffic.put(count, size_bytes, took_ms)
        self.meters.add(Statistic.TOPIC_PUT_COUNT, topic, count, times)
        self.meters.add(Statistic.TOPIC_PUT_BYTES, topic, size_bytes, times)
        self.meters.add(Statistic.BROKER_PUT_COUNT, self._cluster, count, times)

    def pulled(self, topic: str, group: str, count: int, size_bytes: int, took_ms: int, times: int = 1) -> None:
        """So many messages, by so many pulls."""
        self.traffic.got(count, took_ms, times)
        if count:
            key = group_key(topic, group)
            self.meters.add(Statistic.GROUP_GET_COUNT, key, count, times)
            self.meters.add(Statistic.GROUP_GET_BYTES, key, size_bytes, times)
            self.meters.add(Statistic.BROKER_GET_COUNT, self._cluster, count, times)

    def get_tps(self, topic: str, group: str) -> float:
        return self.meters.tps(Statistic.GROUP_GET_COUNT, group_key(topic, group))

    def put_tps(self, topic: str) -> float:
        return self.meters.tps(Statistic.TOPIC_PUT_COUNT, topic)
