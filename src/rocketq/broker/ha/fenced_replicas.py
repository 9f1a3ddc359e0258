"""Broker side of failover: changes the broker's role when its replica follows, leads or steps down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path
from typing import Final

from rocketq.broker.admin.registration import Registrar
from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig, BrokerRole
from rocketq.broker.ha.master_lease import LeaseGuard, MasterLease
from rocketq.broker.ha.master_tables import CopyPorts, MasterTables
from rocketq.broker.ha.replicas import RoleOwner
from rocketq.broker.topics.deleted_topics import PushedTables
from rocketq.errors import ConfigError, StoreError
from rocketq.protocol.bodies.stats import MasterLink, ReplicaLink, ReplicationState
from rocketq.remoting.address import join_addr
from rocketq.replication.actions import Follow
from rocketq.replication.agent import AgentSettings, Role
from rocketq.replication.confirm import SyncRules
from rocketq.replication.control import ControlStore
from rocketq.replication.control_etcd import EtcdControl
from rocketq.replication.election import LeaseMode, LeaseTimes
from rocketq.replication.epochs import EpochList
from rocketq.replication.etcd_gateway import EtcdConfig
from rocketq.replication.fenced_auth import SECRET_BYTES_MIN
from rocketq.replication.fenced_replica import FencedReplica
from rocketq.replication.replica_files import FencedStore
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import finish
from rocketq.store import FlushType, StoreReplica

log = logging.getLogger(__name__)

UNKNOWN_ID: Final = 1
"""Placeholder until the control store grants an id; never registered."""
TABLES_MS: Final = 1_000
JOIN_S_MAX: Final = 30


def agent_settings(config: BrokerConfig, flush_type: FlushType) -> AgentSettings:
    return AgentSettings(
        addr=join_addr(config.ip, config.port),
        ha_addr=join_addr(config.ha_ip or config.ip, config.ha_port),
        times=LeaseTimes(valid_ms=config.lease_trusted_ms, ttl_ms=config.lease_ttl_ms),
        lease_mode=LeaseMode(config.lease_mode),
        rules=SyncRules(
            min_in_sync=config.min_in_sync,
            all_ack=config.all_ack,
            sync_flush=flush_type is FlushType.SYNC_FLUSH,
            behind_ms_max=config.ha_catch_up_ms,
            gone_ms_max=config.ha_gone_ms,
        ),
    )


def load_secret(path: str) -> bytes | None:
    """The secret of haSecretFile; None when the setting is empty."""
    if not path:
        return None
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"haSecretFile {path} cannot be read: {error.strerror or error}") from None
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"haSecretFile {path} has {len(secret)} bytes, at least {SECRET_BYTES_MIN} are required")
    return secret


def replication_tls(config: BrokerConfig) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """Contexts of the server's and the client's side; both require a certificate of haTlsCa. None: no TLS."""
    if not config.ha_tls_ca:
        return None
    contexts = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.check_hostname = False  # addresses are IPs; the authority signs replicas only
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(config.ha_tls_ca)
            context.load_cert_chain(config.ha_tls_cert, config.ha_tls_key, password="")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the files of haTlsCa, haTlsCert and haTlsKey cannot be loaded: {error}") from None
        contexts.append(context)
    return contexts[0], contexts[1]


def control_store(config: BrokerConfig) -> ControlStore:
    return EtcdControl(
        EtcdConfig.from_url(
            config.ha_control,
            user=config.ha_control_user,
            password=config.ha_control_password,
            ca_path=config.ha_control_ca,
            cert_path=config.ha_control_cert,
            key_path=config.ha_control_key,
        )
    )


class FencedReplication:
    """The replica and the broker's work in each role."""

    def __init__(
        self,
        settings: Settings,
        store: StoreReplica,
        ports: CopyPorts,
        registrar: Registrar,
        clock: Clock,
        lease: MasterLease,
        owner: RoleOwner,
    ) -> None:
        self._settings = settings
        self._store = store
        self._ports = ports
        self._registrar = registrar
        self._clock = clock
        self._owner = owner
        self._tables = MasterTables(ports, self._epochs)
        self._copying: asyncio.Task[None] | None = None
        self._replica: FencedReplica | None = None
        self._retiring = False
        self.guard = LeaseGuard(settings, lambda: self.replica.agent, clock)
        lease.depend_on(self)
        ports.topics.listeners.append(self._tables_changed)
        ports.groups.listeners.append(self._tables_changed)
        if ports.access is not None:
            ports.access.follow_changes(self._tables_changed, self.tables_shared)
        self.serving = asyncio.Event()
        """Set when the broker serves; role changes wait for it."""

    @property
    def replica(self) -> FencedReplica:
        assert self._replica is not None, "the replica is not started"
        return self._replica

    def _epochs(self) -> EpochList:
        return self.replica.replica.load_epochs()

    # as Replication

    async def start(self) -> None:
        """Return when this replica has an id; role changes follow asynchronously."""
        config, store = self._settings.config, self._store
        settings = agent_settings(config, store.config.flush_type)
        own = await asyncio.to_thread(FencedStore, store, config.cluster, config.name)
        self._replica = FencedReplica(
            own,
            settings,
            control_store(config),
            self._clock,
            self,
            answer_timeout_ms=config.slave_timeout_ms,
            secret=load_secret(config.ha_secret_path),
            tls=replication_tls(config),
        )
        await self._replica.start(config.host, config.ha_port)
        try:
            async with asyncio.timeout(JOIN_S_MAX):
                while not self._replica.agent.broker_id:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise StoreError(
                f"haControlStore {config.ha_control} granted no id within {JOIN_S_MAX} s: is etcd reachable?"
            ) from None
        self._settings.become(BrokerRole.SLAVE, self._replica.agent.broker_id)

    async def retire(self) -> None:
        """Stop cleanly: hand over to another replica first."""
        self._retiring = True
        if self._replica is not None:
            await self._replica.stop()

    async def stop(self) -> None:
        await self._stop_copying()
        if self._replica is not None:
            await self._replica.stop(cleanly=False)
        await self._tables.close()

    def state(self) -> ReplicationState:
        replica, end = self.replica, self._store.log_end
        term = replica.agent.term
        if term is None:
            followed = replica.agent.followed
            link = MasterLink(
                log_end=end, addr=followed.ha_addr if followed else "", active=replica.follower.connection is not None
            )
            return ReplicationState(is_master=False, log_end=end, master=link)
        links = tuple(
            ReplicaLink(
                addr=link.addr,
                confirmed_to=link.acked.written,
                behind_bytes=end - link.acked.written,
                in_sync=link.slave_id in term.in_sync,
                sent_to=link.acked.written,
            )
            for link in sorted(replica.listener.links, key=lambda link: link.slave_id)
            if link.acked is not None
        )
        return ReplicationState(log_end=end, in_sync_count=len(term.in_sync) - 1, replicas=links)

    # as RoleListener

    async def lead(self, epoch: int) -> None:
        await self.serving.wait()
        if self.replica.agent.role is not Role.LEADING:
            return
        await self._stop_copying()
        missing = await self._tables.begin_mastership()
        self._ports.topics.become_original()
        self._ports.groups.become_original()
        if missing:
            self._ports.topics.put(*missing, now_ms=self._clock.now_ms())
        await self._owner.begin_mastership(self._tables.timer_point)
        self._settings.become(BrokerRole.SYNC_MASTER, 0)
        self._registrar.set_state_version(epoch)
        log.info("broker %s is master in epoch %d", self._settings.config.name, epoch)

    async def follow(self, master: Follow) -> None:
        await self.serving.wait()
        await self._stop_copying()
        self._settings.become(BrokerRole.SLAVE, self.replica.agent.broker_id)
        self._registrar.set_state_version(master.epoch)
        self._copying = asyncio.get_running_loop().create_task(self._copy_tables(master.addr))

    async def step_down(self, reason: str) -> None:
        await self.serving.wait()
        was_master = not self._settings.config.is_slave
        self._settings.become(BrokerRole.SLAVE, self.replica.agent.broker_id)
        if was_master and not self._retiring:
            self._owner.end_mastership()

    def tables(self) -> bytes:
        term = self.replica.agent.term
        return self._tables.snapshot(term.epoch if term is not None else 0).encode()

    async def replace_tables(self, body: bytes) -> None:
        await self._tables.take(await finish(PushedTables.decode_steps(body)))
        await self._owner.save_tables()

    def _tables_changed(self) -> None:
        if self._replica is not None:
            if not self._ports.topics.is_copy:
                self._tables.record_deletions()
            self._replica.tables_changed()

    async def tables_shared(self) -> None:
        """Wait until every replica that can be elected has stored the change of topics or groups."""
        if self._replica is not None and not self._settings.config.is_slave:
            await self._replica.tables_shared()

    async def _copy_tables(self, addr: str) -> None:
        """Copy offsets and timers while the master's stream is connected: only then is the address the master's."""
        failure: str | None = None
        while True:
            if self.replica.follower.connection is not None:
                before, failure = failure, await self._tables.copy(addr)
                if failure is not None and before is None:
                    log.warning("copying the master's tables failed, retrying: %s", failure)
            await asyncio.sleep(TABLES_MS / 1000)

    async def _stop_copying(self) -> None:
        if self._copying is not None:
            self._copying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._copying
            self._copying = None

    async def unrelated(self, reason: str) -> None:
        """This log has no common epoch with the master's: move the store aside when haAutoResync allows it."""
        await self.serving.wait()
        agent = self.replica.agent
        state = agent.view.state
        in_sync = state is None or agent.broker_id in state.value.in_sync
        if self._settings.config.auto_resync and not in_sync:
            log.warning("replica %d moves its store aside and copies the master's: %s", agent.broker_id, reason)
            self._owner.restart_empty()
        else:
            log.error(
                "replica %d cannot follow: %s. Empty its data directory or set haAutoResync=true to copy it again",
                agent.broker_id,
                reason,
            )

    # as LeaseOwner

    @property
    def is_leading(self) -> bool:
        return self.replica.agent.role is Role.LEADING

    def has_lease(self, now_ms: int) -> bool:
        return self.replica.agent.has_lease(now_ms)
