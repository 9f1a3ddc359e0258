"""Transactions put together with a broker's settings, tables and store."""

from __future__ import annotations

import secrets

from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay.placement import BadDelayError, place
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.stats.broker_stats import Figures
from rocketq.broker.topics.table import TopicTable
from rocketq.broker.transaction.ledger import CheckRules
from rocketq.broker.transaction.message_log import StoreIndex, TransactionLog
from rocketq.broker.transaction.service import Transactions
from rocketq.model import NewMessage
from rocketq.protocol.names import Property
from rocketq.protocol.properties import decode_properties
from rocketq.runtime.clock import Clock
from rocketq.store import AppendResult, Store

_HOUR_MS = 3_600_000


def open_transactions(
    settings: Settings, topics: TopicTable, offsets: OffsetTable, store: Store, figures: Figures, clock: Clock
) -> Transactions:
    """Not started: that reads the store, which may take a while."""

    def rules() -> CheckRules:
        return CheckRules(
            timeout_ms=settings.config.transaction_timeout_ms,
            checks_max=settings.config.transaction_checks_max,
            age_ms_max=store.config.reserved_hours * _HOUR_MS,
        )

    def where(message: NewMessage) -> NewMessage:
        properties = decode_properties(message.properties)
        if Property.DELAY not in properties:  # Apache's producers leave it out, and we remove it
            return message
        try:
            return place(message, properties, settings.config.delay_rules(len(store.config.delays_ms)), clock.now_ms())
        except BadDelayError:
            return message

    def count(message: NewMessage, result: AppendResult) -> None:
        figures.stored(message.topic, 1, result.size, 0)

    source = TransactionLog(store, StoreIndex(store), store.config.store_host)
    transactions = Transactions(
        source, topics, offsets, clock.now_ms, rules, make_key=lambda: secrets.token_hex(16).upper()
    )
    transactions.place, transactions.on_committed = where, count
    return transactions
