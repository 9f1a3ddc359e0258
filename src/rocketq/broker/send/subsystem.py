"""Constructs what serves sends: messages, replies, and send-backs."""

from __future__ import annotations

import random

from rocketq.broker.groups.subsystem import GroupSubsystem
from rocketq.broker.pipeline.admission import AdmissionTables
from rocketq.broker.pipeline.answer_templates import SendAnswers
from rocketq.broker.send import handlers, reply_handlers, send_back_handlers
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.transaction.service import Transactions
from rocketq.remoting import Registry
from rocketq.runtime.clock import Clock
from rocketq.store import StoreWriter


class SendSubsystem:
    def __init__(
        self,
        admission: AdmissionTables,
        groups: GroupSubsystem,
        transactions: Transactions,
        stats: BrokerStats,
        store: StoreWriter,
        clock: Clock,
    ) -> None:
        settings, topics = admission.settings, admission.topics
        self._sends = handlers.SendPorts(
            admission,
            settings,
            topics,
            groups.table,
            store,
            stats,
            clock,
            random.randrange,
            SendAnswers(settings),
            transactions,
        )
        self._send_backs = send_back_handlers.SendBackPorts(
            settings, topics, groups.table, store, stats, clock, random.randrange
        )
        self._replies = reply_handlers.ReplyPorts(self._sends, groups.producers)

    def attach(self, registry: Registry) -> None:
        handlers.handlers.bind(registry, self._sends)
        send_back_handlers.handlers.bind(registry, self._send_backs)
        reply_handlers.handlers.bind(registry, self._replies)
