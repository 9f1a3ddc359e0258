"""Messages for later: delay levels and timers, and the requests about them."""

from __future__ import annotations

from collections.abc import Callable

from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay import timer_handlers
from rocketq.broker.delay.level_service import DelayService
from rocketq.broker.delay.timer_service import TimerService
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.protocol.bodies.offsets import DelayOffsets
from rocketq.remoting import Registry
from rocketq.runtime.clock import Clock
from rocketq.store import StateFile, StoreWriter


class DelaySubsystem:
    def __init__(
        self,
        settings: Settings,
        offset_file: StateFile[DelayOffsets],
        stats: BrokerStats,
        store: StoreWriter,
        clock: Clock,
        *,
        may_deliver: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self.levels = DelayService(store, offset_file, stats, clock, may_deliver=may_deliver)
        self.timers = TimerService(store, stats, clock, may_deliver=may_deliver)
        self._ports = timer_handlers.TimerPorts(settings, self.timers, store, clock)

    def attach(self, registry: Registry) -> None:
        timer_handlers.handlers.bind(registry, self._ports)

    def start(self) -> None:
        """Deliver; only a master does."""
        self.levels.start()
        if self._settings.config.timer_enabled:
            self.timers.start()

    async def stop(self) -> None:
        await self.levels.stop()
        await self.timers.stop()
