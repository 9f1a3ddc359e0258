"""Constructs the transaction service, its checks and handlers."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay.placement import BadDelayError, place
from rocketq.broker.groups.members import ProducerGroups
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.stats.broker_metrics import TRANSACTION
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.topics.table import TopicTable
from rocketq.broker.transaction import handlers
from rocketq.broker.transaction.checks import TransactionChecks
from rocketq.broker.transaction.ledger import CheckRules, Outcome
from rocketq.broker.transaction.message_log import StoreIndex, TransactionLog
from rocketq.broker.transaction.service import Transactions
from rocketq.model import NewMessage
from rocketq.protocol.names import Property
from rocketq.protocol.properties import decode_properties
from rocketq.remoting import Check, Connection, Registry
from rocketq.runtime.clock import Clock
from rocketq.store import AppendResult, StoreWriter

_HOUR_MS = 3_600_000


class TransactionSubsystem:
    def __init__(
        self,
        settings: Settings,
        topics: TopicTable,
        offsets: OffsetTable,
        producers: ProducerGroups[Connection],
        stats: BrokerStats,
        store: StoreWriter,
        clock: Clock,
        *,
        may_check: Callable[[], bool],
        check_access: Check = lambda request, connection: None,
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._store = store
        self._clock = clock
        self.service = Transactions(
            TransactionLog(store, StoreIndex(store), store.config.store_host),
            topics,
            offsets,
            clock.now_ms,
            self._rules,
            make_key=lambda: secrets.token_hex(16).upper(),
            place=self._place,
            on_committed=self._count,
            on_finished=self._finished,
        )
        self.checks = TransactionChecks(self.service, producers, store, settings, clock, may_check=may_check)
        self._ports = handlers.TransactionPorts(self.service, store, check_access)

    def attach(self, registry: Registry) -> None:
        handlers.handlers.bind(registry, self._ports)

    def _rules(self) -> CheckRules:
        return CheckRules(
            timeout_ms=self._settings.config.transaction_timeout_ms,
            checks_max=self._settings.config.transaction_checks_max,
            age_ms_max=self._store.config.reserved_hours * _HOUR_MS,
        )

    def _place(self, message: NewMessage) -> NewMessage:
        properties = decode_properties(message.properties)
        if Property.DELAY not in properties:  # never set by Apache's producers, and removed from halves here
            return message
        rules = self._settings.config.delay_rules(len(self._store.config.delays_ms))
        try:
            return place(message, properties, rules, self._clock.now_ms())
        except BadDelayError:
            return message

    def _count(self, message: NewMessage, result: AppendResult) -> None:
        self._stats.stored(message.topic, 1, result.size, 0, kind=TRANSACTION)

    def _finished(self, topic: str, outcome: Outcome, took_ms: int) -> None:
        self._stats.metrics.transaction_finished(topic, committed=outcome is Outcome.COMMITTED, took_ms=took_ms)
