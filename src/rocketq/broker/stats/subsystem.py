"""Counters and rates of a broker, and the handlers of requests that read them and consumer progress."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.subsystem import GroupSubsystem
from rocketq.broker.stats import progress_handlers
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.stats.unconsumed import UnconsumedWatch
from rocketq.broker.topics.table import TopicTable
from rocketq.remoting import Registry
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReader


class StatsSubsystem:
    """`stats` is constructed first, because most subsystems count in it."""

    def __init__(
        self,
        settings: Settings,
        topics: TopicTable,
        groups: GroupSubsystem,
        stats: BrokerStats,
        store: StoreReader,
        clock: Clock,
    ) -> None:
        self.broker_stats = stats
        self._clock = clock
        self._unconsumed = UnconsumedWatch(groups.offsets, store, stats.metrics)
        self._ports = progress_handlers.ProgressPorts(
            settings,
            topics,
            groups.table,
            groups.consumers,
            groups.offsets,
            groups.positions,
            stats,
            store,
            clock,
            cache={},
        )

    def attach(self, registry: Registry) -> None:
        progress_handlers.handlers.bind(registry, self._ports)

    def tick(self) -> Iterator[None]:
        """Sample rates, once a second and in steps; start a new day at midnight."""
        now_ms = self._clock.now_ms()
        yield from self._unconsumed.steps()
        yield from self.broker_stats.tick(now_ms, datetime.fromtimestamp(now_ms / 1000).toordinal())
