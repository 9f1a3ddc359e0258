"""Which handler gets which ports. Only the composition root uses this."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from rocketq.broker.admin import handlers as operations
from rocketq.broker.admin import unsupported as refused
from rocketq.broker.admin.registration import Registrar
from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay import recall_handlers as recalls
from rocketq.broker.delay import timer_handlers as timers
from rocketq.broker.delay.level_service import DelayService
from rocketq.broker.delay.timer_service import TimerService
from rocketq.broker.groups import assignment_handlers as assignments
from rocketq.broker.groups import handlers as groups
from rocketq.broker.groups import lock_handlers as locks
from rocketq.broker.groups import membership_handlers as membership
from rocketq.broker.groups import offset_handlers as offsets
from rocketq.broker.groups import relay_handlers as relays
from rocketq.broker.groups import reset_handlers as resets
from rocketq.broker.groups.change_notices import ChangeNotices
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.groups.producer_groups import ProducerGroups
from rocketq.broker.groups.queue_locks import QueueLocks
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.ha.replicas import Replication
from rocketq.broker.pull import cold_handlers as cold
from rocketq.broker.pull import handlers as pulls
from rocketq.broker.pull import message_handlers as messages
from rocketq.broker.pull.cold_reads import ColdReads
from rocketq.broker.pull.consumer_filters import ConsumerFilters
from rocketq.broker.pull.disk_loads import DiskLoads
from rocketq.broker.pull.long_polling import LongPolling
from rocketq.broker.send import handlers as sends
from rocketq.broker.send import reply_handlers as replies
from rocketq.broker.send import send_back_handlers as send_back
from rocketq.broker.stats import progress_handlers as progress
from rocketq.broker.stats.broker_stats import Figures
from rocketq.broker.stats.runtime_info import RuntimeInfo
from rocketq.broker.topics import handlers as topics
from rocketq.broker.topics.table import TopicTable
from rocketq.broker.transaction import handlers as transactions
from rocketq.broker.transaction.checks import TransactionChecks
from rocketq.broker.transaction.service import Transactions
from rocketq.protocol.headers.pull import PullRequest
from rocketq.remoting import Connection, Registry, Request
from rocketq.runtime.clock import Clock
from rocketq.store import StateFiles, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a broker is made of."""

    settings: Settings
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    notices: ChangeNotices
    filters: ConsumerFilters
    producers: ProducerGroups[Connection]
    offsets: OffsetTable
    positions: PullPositions
    locks: QueueLocks
    figures: Figures
    files: StateFiles
    store: Store
    clock: Clock
    polling: LongPolling[Request[PullRequest]]
    delays: DelayService
    timer: TimerService
    registrar: Registrar
    loads: DiskLoads = field(default_factory=DiskLoads)
    cold_reads: ColdReads = field(default_factory=ColdReads)
    transactions: Transactions
    checks: TransactionChecks
    replication: Replication


def membership_ports(parts: Parts) -> membership.MembershipPorts:
    return membership.MembershipPorts(
        parts.settings,
        parts.topics,
        parts.groups,
        parts.consumers,
        parts.producers,
        parts.clock,
        parts.filters,
        parts.notices,
    )


def bind_pulls(parts: Parts, dispatcher: Registry) -> None:
    """Pulls are served at the main port only."""
    ports = pulls.PullPorts(
        parts.settings,
        parts.topics,
        parts.groups,
        parts.consumers,
        parts.offsets,
        parts.positions,
        parts.store,
        parts.figures,
        parts.clock,
        parts.polling,
        parts.loads,
        parts.cold_reads,
        parts.filters,
    )
    parts.polling.serve = lambda held, last: pulls.serve_held(held, last, ports)
    pulls.handlers.bind(dispatcher, ports)


def bind_all_but_pulls(parts: Parts, dispatcher: Registry) -> None:
    _bind_data(parts, dispatcher)
    _bind_groups(parts, dispatcher)
    _bind_administration(parts, dispatcher)
    refused.bind(dispatcher)


def _bind_data(parts: Parts, dispatcher: Registry) -> None:
    data = (parts.settings, parts.topics, parts.groups, parts.store, parts.figures, parts.clock, random.randrange)
    send_ports = sends.SendPorts(*data, parts.transactions)
    sends.handlers.bind(dispatcher, send_ports)
    send_back.handlers.bind(dispatcher, send_back.SendBackPorts(*data))
    replies.handlers.bind(dispatcher, replies.ReplyPorts(send_ports, parts.producers))
    recalls.handlers.bind(dispatcher, recalls.RecallPorts(parts.settings, parts.timer, parts.store, parts.clock))
    timers.handlers.bind(dispatcher, timers.TimerPorts(parts.settings, parts.timer))
    transactions.handlers.bind(dispatcher, transactions.TransactionPorts(parts.transactions, parts.store))
    offsets.handlers.bind(dispatcher, offsets.OffsetPorts(parts.settings, parts.offsets, parts.store))
    messages.handlers.bind(dispatcher, messages.MessagePorts(parts.store, parts.consumers, parts.filters))


def _bind_groups(parts: Parts, dispatcher: Registry) -> None:
    membership.handlers.bind(dispatcher, membership_ports(parts))
    locks.handlers.bind(dispatcher, locks.LockPorts(parts.locks, parts.clock, parts.replication.may_lock))
    relays.handlers.bind(dispatcher, relays.RelayPorts(parts.consumers, parts.store))
    resets.handlers.bind(
        dispatcher,
        resets.ResetPorts(parts.settings, parts.topics, parts.groups, parts.consumers, parts.offsets, parts.store),
    )
    assignments.handlers.bind(
        dispatcher,
        assignments.AssignmentPorts(
            parts.settings, parts.topics, parts.groups, parts.consumers, parts.registrar.find_route
        ),
    )


def _bind_administration(parts: Parts, dispatcher: Registry) -> None:
    meters, positions = parts.figures.meters, parts.positions
    topics.handlers.bind(
        dispatcher,
        topics.TopicPorts(
            parts.settings, parts.topics, parts.consumers, parts.offsets, positions, meters, parts.store, parts.clock
        ),
    )
    groups.handlers.bind(
        dispatcher,
        groups.GroupPorts(parts.settings, parts.groups, parts.consumers, parts.offsets, positions, meters, parts.clock),
    )
    progress.handlers.bind(
        dispatcher,
        progress.ProgressPorts(
            parts.settings,
            parts.topics,
            parts.groups,
            parts.consumers,
            parts.offsets,
            positions,
            parts.figures,
            parts.store,
            parts.clock,
        ),
    )
    cold.handlers.bind(dispatcher, cold.ColdPorts(parts.settings, parts.cold_reads, parts.clock))
    runtime = RuntimeInfo(
        parts.settings, parts.figures, parts.store, parts.clock, lambda: len(parts.polling), parts.delays.positions
    )
    operations.handlers.bind(
        dispatcher,
        operations.OperationPorts(
            parts.settings,
            runtime,
            parts.offsets,
            parts.delays.offsets,
            parts.store,
            parts.clock,
            parts.replication.state,
        ),
    )
