"""Constructs the topic handlers, and applies changed settings to the topic table."""

from __future__ import annotations

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.broker.groups.subsystem import GroupSubsystem
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.topics import handlers
from rocketq.broker.topics.table import TopicTable, builtin_topics
from rocketq.protocol.names import AUTO_CREATE_TOPIC
from rocketq.remoting import Registry
from rocketq.runtime.clock import Clock
from rocketq.store import StoreConfig, StoreWriter


def topic_table(settings: Settings, store: StoreConfig) -> TopicTable:
    """A table with the built-in topics; saved ones are loaded later."""
    config = settings.config
    return TopicTable(
        builtin_topics(config.topic_rules(len(store.delays_ms))),
        is_copy=config.is_slave,
        count_max=lambda: settings.config.topic_count_max,
    )


class TopicSubsystem:
    def __init__(
        self,
        settings: Settings,
        table: TopicTable,
        groups: GroupSubsystem,
        stats: BrokerStats,
        store: StoreWriter,
        clock: Clock,
    ) -> None:
        self.table = table
        self._store = store
        self._clock = clock
        self._ports = handlers.TopicPorts(
            settings, table, groups.consumers, groups.offsets, groups.positions, stats, store, clock
        )
        settings.listeners.append(self._settings_changed)

    def attach(self, registry: Registry) -> None:
        handlers.handlers.bind(registry, self._ports)

    def _settings_changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        if after.is_slave:
            return
        if after.auto_create_topics and AUTO_CREATE_TOPIC not in self.table:
            rules = after.topic_rules(len(self._store.config.delays_ms))
            template = [topic for topic in builtin_topics(rules) if topic.topic == AUTO_CREATE_TOPIC]
            self.table.put(*template, now_ms=self._clock.now_ms())
        if before.perm != after.perm:
            self.table.touch(self._clock.now_ms())
