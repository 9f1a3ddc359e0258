"""Admin requests about the broker itself, and request codes that it rejects with a reason."""

from __future__ import annotations

from collections.abc import Callable

from rocketq.broker.admin import handlers, unsupported
from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay.subsystem import DelaySubsystem
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.stats.runtime_info import RuntimeInfo
from rocketq.protocol.bodies.stats import ReplicationState
from rocketq.remoting import Registry
from rocketq.runtime.clock import Clock
from rocketq.store import StoreWriter


class AdminSubsystem:
    def __init__(
        self,
        settings: Settings,
        offsets: OffsetTable,
        delay: DelaySubsystem,
        stats: BrokerStats,
        store: StoreWriter,
        clock: Clock,
        *,
        held_pulls: Callable[[], int],
        replication: Callable[[], ReplicationState],
    ) -> None:
        runtime = RuntimeInfo(settings, stats, store, clock, held_pulls, delay.levels.positions)
        self._ports = handlers.OperationPorts(
            settings, runtime, offsets, delay.levels.offsets, store, clock, replication
        )

    def attach(self, registry: Registry) -> None:
        handlers.handlers.bind(registry, self._ports)
        unsupported.bind(registry)
