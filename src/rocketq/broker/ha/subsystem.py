"""Constructs the replication that the settings select."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketq.broker.admin.registration import Registrar
from rocketq.broker.admin.settings import Settings
from rocketq.broker.ha.master_lease import MasterLease
from rocketq.broker.ha.master_tables import CopyPorts
from rocketq.broker.ha.replicas import MasterReplication, Replication, RoleOwner, SlaveReplication
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReplica

if TYPE_CHECKING:
    from rocketq.broker.ha.fenced_replicas import FencedReplication


class HaSubsystem:
    """Has no request handlers: other brokers connect to the port of `replication`."""

    def __init__(
        self,
        settings: Settings,
        store: StoreReplica,
        tables: CopyPorts,
        registrar: Registrar,
        clock: Clock,
        lease: MasterLease,
        owner: RoleOwner,
    ) -> None:
        self.replication: Replication
        self.fenced: FencedReplication | None = None
        """`replication` when replicas elect their master, otherwise None."""
        if settings.config.is_fenced:
            from rocketq.broker.ha.fenced_replicas import FencedReplication  # noqa: PLC0415 - loaded by fenced replicas only

            self.fenced = FencedReplication(settings, store, tables, registrar, clock, lease, owner)
            self.replication = self.fenced
        elif settings.config.is_slave:
            self.replication = SlaveReplication(settings, store, tables, registrar, clock)
        else:
            self.replication = MasterReplication(settings, store, clock)
        strict = settings.config.lease_mode == "strict"
        self.strict_lease = self.fenced.guard if self.fenced is not None and strict else None
        """The lease check of haLeaseMode=strict, otherwise None."""
