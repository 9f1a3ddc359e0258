"""Composition of a broker: constructs all subsystems in dependency order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rocketq.access.service import AccessService
from rocketq.broker.access.subsystem import AccessSubsystem
from rocketq.broker.admin.autosave import TableAutosave
from rocketq.broker.admin.registration import Registrar
from rocketq.broker.admin.settings import Settings
from rocketq.broker.admin.subsystem import AdminSubsystem
from rocketq.broker.config import BrokerConfig
from rocketq.broker.delay.subsystem import DelaySubsystem
from rocketq.broker.groups.subsystem import GroupSubsystem
from rocketq.broker.ha.master_lease import MasterLease
from rocketq.broker.ha.master_tables import CopyPorts
from rocketq.broker.ha.replicas import RoleOwner
from rocketq.broker.ha.subsystem import HaSubsystem
from rocketq.broker.pipeline.access import Access, ControlledAccess, OpenAccess
from rocketq.broker.pipeline.admission import AdmissionTables
from rocketq.broker.pipeline.quotas import Quotas, parse_quotas
from rocketq.broker.pull.consumer_filters import ConsumerFilters
from rocketq.broker.pull.subsystem import PullSubsystem
from rocketq.broker.send.subsystem import SendSubsystem
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.stats.subsystem import StatsSubsystem
from rocketq.broker.topics.subsystem import TopicSubsystem, topic_table
from rocketq.broker.transaction.subsystem import TransactionSubsystem
from rocketq.filter import load_parser
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.remoting import ClientTls, Registry
from rocketq.runtime.clock import Clock
from rocketq.store import StateFiles, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsystems:
    """The subsystems of a broker with an open store. Only `Broker` holds all of them."""

    settings: Settings
    store: Store
    files: StateFiles
    clock: Clock
    registrar: Registrar
    autosave: TableAutosave
    lease: MasterLease
    admission: AdmissionTables
    topics: TopicSubsystem
    groups: GroupSubsystem
    send: SendSubsystem
    pull: PullSubsystem
    delay: DelaySubsystem
    transactions: TransactionSubsystem
    stats: StatsSubsystem
    ha: HaSubsystem
    access: AccessSubsystem
    admin: AdminSubsystem

    def attach(self, registry: Registry) -> None:
        """Register the handlers of all requests but pulls, which the main port alone serves."""
        self.topics.attach(registry)
        self.groups.attach(registry)
        self.send.attach(registry)
        self.pull.attach(registry)
        self.delay.attach(registry)
        self.transactions.attach(registry)
        self.stats.attach(registry)
        self.access.attach(registry)
        self.admin.attach(registry)


def compose(
    config: BrokerConfig,
    store: Store,
    settings_path: Path,
    access: Access | AccessService | None,
    clock: Clock,
    owner: RoleOwner,
    *,
    client_tls: ClientTls | None = None,
) -> Subsystems:
    """Construct all subsystems and load saved tables; start nothing. DamagedStateError if a table cannot be read.

    Shared state comes first (settings, stats, tables), then the subsystems that use it. Every change of state that
    admission depends on bumps the store's generation.
    """
    if config.property_filter:
        load_parser()
    version = DataVersion().next(clock.now_ms())
    settings = Settings(config, store.config, settings_path, version=version, reconfigure=store.reconfigure)
    files = store.state_files()
    stats = BrokerStats(config.cluster, clock.now_ms())
    lease = MasterLease(settings, clock)
    topics = topic_table(settings, store.config)
    filters = ConsumerFilters(config.bloom_geometry)
    registrar = Registrar(settings, topics, clock, tls=client_tls)
    quotas, changed = Quotas(parse_quotas(config.quotas)), store.generation.bump
    service = access if isinstance(access, AccessService) else None
    policy = ControlledAccess(access.control, store) if isinstance(access, AccessService) else access or OpenAccess()

    groups = GroupSubsystem(
        settings,
        topics,
        filters,
        stats,
        store,
        clock,
        changed=changed,
        call_later=asyncio.get_running_loop().call_later,
        may_lock=lease.is_valid,
        find_route=registrar.find_route,
    )
    admission = AdmissionTables(settings, topics, groups.table, groups.consumers, policy, quotas)
    settings.listeners.append(quotas.follow)
    for listeners in (settings.listeners, topics.listeners, groups.table.listeners):
        listeners.append(changed)
    transactions = TransactionSubsystem(
        settings,
        topics,
        groups.offsets,
        groups.producers,
        stats,
        store,
        clock,
        may_check=lease.is_valid,
        check_access=policy.check,
    )
    delay = DelaySubsystem(settings, files.delay_offsets, stats, store, clock, may_deliver=lease.is_valid)
    pull = PullSubsystem(admission, groups, filters, files.consumer_filters, stats, store, clock)
    tables = CopyPorts(
        topics,
        groups.table,
        groups.offsets,
        files,
        store,
        access=service,
        credentials=config.access.inner_credentials,
        tls=client_tls,
    )
    ha = HaSubsystem(settings, store, tables, registrar, clock, lease, owner)
    parts = Subsystems(
        settings=settings,
        store=store,
        files=files,
        clock=clock,
        registrar=registrar,
        autosave=TableAutosave(files, topics, groups.table, groups.offsets),
        lease=lease,
        admission=admission,
        topics=TopicSubsystem(settings, topics, groups, stats, store, clock),
        groups=groups,
        send=SendSubsystem(admission, groups, transactions.service, stats, store, clock),
        pull=pull,
        delay=delay,
        transactions=transactions,
        stats=StatsSubsystem(settings, topics, groups, stats, store, clock),
        ha=ha,
        access=AccessSubsystem(service, settings, clock),
        admin=AdminSubsystem(
            settings,
            groups.offsets,
            delay,
            stats,
            store,
            clock,
            held_pulls=lambda: len(pull.polling),
            replication=ha.replication.state,
        ),
    )
    parts.autosave.load()
    pull.load_filters()
    return parts
