"""Constructs the group tables of a broker and registers their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups import (
    assignment_handlers,
    handlers,
    membership_handlers,
    offset_handlers,
    queue_locks,
    relay_handlers,
    reset_handlers,
)
from rocketq.broker.groups.change_notices import ChangeNotices, Later
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.members import ProducerGroups
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.groups.queue_locks import QueueLocks
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.pull.consumer_filters import ConsumerFilters
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.topics.table import TopicTable
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.remoting import Connection, Registry
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReader


class GroupSubsystem:
    def __init__(
        self,
        settings: Settings,
        topics: TopicTable,
        filters: ConsumerFilters,
        stats: BrokerStats,
        store: StoreReader,
        clock: Clock,
        *,
        changed: Callable[[], None],
        call_later: Later,
        may_lock: Callable[[], bool],
        find_route: Callable[[str], Awaitable[TopicRoute | None]],
    ) -> None:
        self._clock = clock
        self.table = GroupTable(is_copy=settings.config.is_slave, count_max=lambda: settings.config.group_count_max)
        self.consumers: ConsumerGroups[Connection] = ConsumerGroups(changed)
        self.producers: ProducerGroups[Connection] = ProducerGroups()
        self.offsets = OffsetTable()
        self.positions = PullPositions()
        self.locks = QueueLocks(lambda: settings.config.lock_life_ms)
        self._members = membership_handlers.MembershipPorts(
            settings,
            topics,
            self.table,
            self.consumers,
            self.producers,
            clock,
            filters,
            ChangeNotices(self.consumers.members, call_later),
        )
        self._groups = handlers.GroupPorts(
            settings, self.table, self.consumers, self.offsets, self.positions, stats, clock
        )
        self._offsets = offset_handlers.OffsetPorts(settings, topics, self.table, self.offsets, store, clock)
        self._locks = queue_locks.LockPorts(self.locks, clock, may_lock)
        self._relays = relay_handlers.RelayPorts(self.consumers, store)
        self._resets = reset_handlers.ResetPorts(settings, topics, self.table, self.consumers, self.offsets, store)
        self._assignments = assignment_handlers.AssignmentPorts(
            settings, topics, self.table, self.consumers, find_route
        )

    def attach(self, registry: Registry) -> None:
        membership_handlers.handlers.bind(registry, self._members)
        handlers.handlers.bind(registry, self._groups)
        offset_handlers.handlers.bind(registry, self._offsets)
        queue_locks.handlers.bind(registry, self._locks)
        relay_handlers.handlers.bind(registry, self._relays)
        reset_handlers.handlers.bind(registry, self._resets)
        assignment_handlers.handlers.bind(registry, self._assignments)

    def disconnected(self, connection: Connection) -> None:
        """The members behind a closed connection leave their groups."""
        membership_handlers.disconnected(connection, self._members)

    def expire(self) -> None:
        """Remove clients without heartbeats, and expired locks."""
        membership_handlers.expire(self._members)
        self.locks.expire(self._clock.monotonic_ms())
