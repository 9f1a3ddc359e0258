"""Counts and rates of a broker, and the requests that read them and the progress of groups."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.subsystem import GroupSubsystem
from rocketq.broker.stats import progress_handlers
from rocketq.broker.stats.broker_stats import Figures
from rocketq.broker.topics.table import TopicTable
from rocketq.remoting import Registry
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReader


class StatsSubsystem:
    """Most subsystems count in `figures`, which are therefore made before them."""

    def __init__(
        self,
        settings: Settings,
        topics: TopicTable,
        groups: GroupSubsystem,
        figures: Figures,
        store: StoreReader,
        clock: Clock,
    ) -> None:
        self.figures = figures
        self._clock = clock
        self._ports = progress_handlers.ProgressPorts(
            settings,
            topics,
            groups.table,
            groups.consumers,
            groups.offsets,
            groups.positions,
            figures,
            store,
            clock,
            cache={},
        )

    def attach(self, registry: Registry) -> None:
        progress_handlers.handlers.bind(registry, self._ports)

    def tick(self) -> Iterable[None]:
        """Once a second, in steps: rates, and the day's totals at midnight."""
        now_ms = self._clock.now_ms()
        return self.figures.tick(now_ms, datetime.fromtimestamp(now_ms / 1000).toordinal())
