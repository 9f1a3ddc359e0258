"""Constructs what serves consumers: pulls, long polling, filters, cold reads, and single messages."""

from __future__ import annotations

from rocketq.broker.admin.autosave import FilterAutosave
from rocketq.broker.groups.subsystem import GroupSubsystem
from rocketq.broker.pipeline.admission import AdmissionTables
from rocketq.broker.pull import cold_handlers, handlers, message_handlers
from rocketq.broker.pull.cold_reads import ColdReads
from rocketq.broker.pull.consumer_filters import ConsumerFilters
from rocketq.broker.pull.disk_loads import DiskLoads
from rocketq.broker.pull.held_pulls import HeldPull
from rocketq.broker.pull.long_polling import LongPolling
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.protocol.bodies.groups import ConsumerFilterTable
from rocketq.protocol.headers.pull import PullRequest
from rocketq.remoting import Registry, Request
from rocketq.runtime.clock import Clock
from rocketq.store import StateFile, StoreWriter


class PullSubsystem:
    def __init__(
        self,
        admission: AdmissionTables,
        groups: GroupSubsystem,
        filters: ConsumerFilters,
        filter_file: StateFile[ConsumerFilterTable],
        stats: BrokerStats,
        store: StoreWriter,
        clock: Clock,
    ) -> None:
        settings = self._settings = admission.settings
        self._store = store
        self._clock = clock
        self.filters = filters
        self.filter_autosave = FilterAutosave(filter_file, filters)
        self.polling: LongPolling[Request[PullRequest]] = LongPolling(
            clock,
            lambda queue: store.max_offset(*queue),
            self._serve_held,
            limits=lambda: settings.config.hold_limits,
        )
        self.loads = DiskLoads()
        cold_reads = ColdReads()
        self._pulls = handlers.PullPorts(
            admission,
            groups.offsets,
            groups.positions,
            store,
            stats,
            clock,
            self.polling,
            self.loads,
            cold_reads,
            filters,
        )
        self._messages = message_handlers.MessagePorts(store, groups.consumers, filters)
        self._cold = cold_handlers.ColdPorts(settings, cold_reads, clock)
        store.calculate_bitmaps(self._bitmap)
        store.add_listener(self.polling.on_queue_grown)

    def attach_pulls(self, registry: Registry) -> None:
        """Pulls are served at the main port only."""
        handlers.handlers.bind(registry, self._pulls)

    def attach(self, registry: Registry) -> None:
        message_handlers.handlers.bind(registry, self._messages)
        cold_handlers.handlers.bind(registry, self._cold)

    def load_filters(self) -> None:
        """DamagedStateError when the file of filters and its backup cannot be read."""
        self.filter_autosave.load(self._clock.now_ms())
        self.clean_filters()
        self.filters.distrust_until(self._store.last_store_ms)

    def clean_filters(self) -> None:
        """Drop filters of groups that left long ago."""
        self.filters.clean(self._clock.now_ms(), self._settings.config.dead_filter_ms_max)

    def _serve_held(self, held: HeldPull[Request[PullRequest]], last: bool) -> bool:
        return handlers.serve_held(held, last, self._pulls)

    def _bitmap(self, topic: str, properties: bytes, store_ms: int) -> bytes:
        return self.filters.bitmap(topic, properties, store_ms) if self._settings.config.filter_bitmaps else b""
