"""The broker: opens the store, composes subsystems, runs two servers and periodic jobs, stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableSequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketq.access.config import require_safe_address
from rocketq.access.service import RELOAD_MS, AccessService, open_access
from rocketq.broker.admin.autosave import TableAutosave
from rocketq.broker.admin.periodic import PeriodicJobs
from rocketq.broker.composition import Subsystems, compose
from rocketq.broker.config import BrokerConfig, BrokerRole
from rocketq.broker.fastpath.fast_path import BrokerFastPath, FastPathPorts
from rocketq.broker.free_port import REPLICATION_STEP, VIP_STEP, pick_port
from rocketq.broker.ha.reject_on_replica import RejectOnReplica
from rocketq.broker.observability import BrokerObservability
from rocketq.broker.pipeline.access import Access
from rocketq.broker.pipeline.persist_before_reply import PersistBeforeReply
from rocketq.broker.pull.handlers import PULL_CODES
from rocketq.broker.pull.long_polling import RECHECK_MS
from rocketq.errors import StoreError, UnreachableError
from rocketq.model import Host
from rocketq.protocol.command import Command
from rocketq.remoting import Check, ClientTls, Connection, Dispatcher, Server, TlsConfig
from rocketq.remoting.address import join_addr
from rocketq.runtime.clock import Clock, SystemClock
from rocketq.runtime.log_levels import apply_levels
from rocketq.runtime.observed_list import ObservedList
from rocketq.runtime.slices import collect
from rocketq.store import Store, StoreConfig
from rocketq.store.timer_files import TimerPoint

if TYPE_CHECKING:
    from rocketq.broker.ha.fenced_replicas import FencedReplication

log = logging.getLogger(__name__)

STATS_MS: Final = 1_000
HOUSEKEEPING_MS: Final = 10_000
FILTER_SAVE_MS: Final = 10_000
_START_TRIES: Final = 5
_RETRY_S: Final = 2


def kept_settings_path(root: Path) -> Path:
    """Where changed settings are saved if the broker has no config file."""
    return root / "config" / "broker.properties"


def reject_dledger(root: Path) -> None:
    """Raise StoreError for a DLedger directory: its messages cannot be read, and an empty store would look like data
    loss."""
    found = sorted(path.name for path in root.glob("dledger-*")) if root.is_dir() else []
    if found:
        reason = "is a DLedger log, which is not supported: use haProtocol=fenced for failover, in an empty directory"
        raise StoreError(f"{root / found[0]} {reason}")


class Broker:
    """A broker on the event loop that starts it."""

    def __init__(
        self,
        config: BrokerConfig,
        store: StoreConfig,
        *,
        settings_path: Path | None = None,
        tls: TlsConfig | None = None,
        client_tls: ClientTls | None = None,
        access: Access | AccessService | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self._store_config = store
        self._settings_path = settings_path or kept_settings_path(store.root)
        self._tls = tls
        self._client_tls = client_tls
        self._access = access
        self._clock: Clock = clock or SystemClock()
        self._jobs = PeriodicJobs()
        self._parts: Subsystems | None = None
        self._autosave: TableAutosave | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._fenced: FencedReplication | None = None
        """Set for fenced replicas only; the modules are imported on demand."""
        self._servers: list[Server] = []
        self._dispatchers: list[Dispatcher] = []
        self.fast_paths: list[BrokerFastPath] = []
        self.observability = BrokerObservability(config)
        self.guards: MutableSequence[Check] = ObservedList(self.invalidate_grants)
        """Checks added by the embedding program. Each is called with a request and its connection, at both ports, and
        returns a rejecting answer or None. For sends and pulls the result is cached per connection, code, topic and
        group until `invalidate_grants()` is called; a rejected request may be checked twice."""

    @property
    def log_identity(self) -> tuple[str, str]:
        """Name and role, as log lines have them."""
        return self.config.name, "slave" if self.config.is_slave else "master"

    @property
    def addr(self) -> str:
        """The address that clients connect to."""
        return join_addr(self.config.ip, self.config.port)

    def invalidate_grants(self) -> None:
        """Check the next request of each connection again, after guards or access rules changed. Thread-safe."""
        if self._parts is not None:
            self._parts.store.generation.bump()

    @property
    def parts(self) -> Subsystems:
        """The subsystems, for tests and tools."""
        assert self._parts is not None, "the broker is not started"
        return self._parts

    async def start(self) -> None:
        """Recover the store, serve and register. Port 0 picks a port that is free together with its neighbours."""
        apply_levels("", self.config.log_level)
        await self.observability.start()
        if self.observability.port:
            self.config = replace(self.config, metrics_port=self.observability.port)
        try:
            await self._start()
        except BaseException:
            if self._restarting is None:
                await self.observability.stop()
            raise

    async def _start(self) -> None:
        for left in reversed(range(_START_TRIES if self.config.port == 0 else 1)):
            try:
                await self._start_at(self.config.port or pick_port(self.config.host))
                break
            except UnreachableError:
                if not left:
                    raise
        await self.parts.registrar.start()
        self._start_jobs()
        if self._fenced is not None:
            self._fenced.serving.set()
        elif not self.config.is_slave:
            self._start_deliveries()
        log.info("broker %s serves at %s as %s", self.config.name, self.addr, self.config.role.value)

    def _start_deliveries(self) -> None:
        """Start the services that write, which only a master runs."""
        self.parts.delay.start()
        self.parts.transactions.checks.start()

    async def stop(self, drain_ms: int = 3_000) -> None:
        """Deregister from the NameServers first, then finish and answer requests in progress."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        if self._parts is None:
            return
        parts = self._parts
        if self._fenced is not None:
            await self._fenced.retire()  # the next master registers before this broker deregisters
        await self._close(parts, drain_ms)
        await self.observability.stop()
        if isinstance(self._access, AccessService):
            await self._access.stop()

    async def _close(self, parts: Subsystems, drain_ms: int) -> None:
        self.observability.detach()
        await self._jobs.stop()
        await parts.delay.stop()
        await parts.registrar.stop()
        parts.pull.polling.stop()
        if self.config.is_slave:
            await parts.ha.replication.stop()
        await asyncio.gather(*(server.stop(drain_ms) for server in self._servers))
        await parts.transactions.checks.stop()
        if not self.config.is_slave:
            await parts.ha.replication.stop()  # last, so that slaves receive everything that was answered
        self._collect()
        try:
            await parts.autosave.save()
            await parts.pull.filter_autosave.save()
        except (OSError, StoreError):
            log.exception("broker %s: the last changes of its tables could not be saved", self.config.name)
        await parts.pull.loads.stop()
        if isinstance(self._access, AccessService):
            await self._access.save()
        await asyncio.to_thread(parts.store.close)
        self._parts = None
        log.info("broker %s stopped", self.config.name)

    # fenced replicas

    async def begin_mastership(self, timers: tuple[TimerPoint, int] | None) -> None:
        """Start the master's services after an election; timers continue from the previous master's point."""
        await asyncio.to_thread(self.parts.transactions.service.start)
        if timers is not None and self.config.timer_enabled:
            await asyncio.to_thread(self.parts.delay.timers.take_over, *timers)
        self._start_deliveries()

    def end_mastership(self) -> None:
        """Restart as a slave from the state on disk."""
        self._restart(empty=False)

    async def save_tables(self) -> None:
        assert self._autosave is not None
        await self._autosave.wait_saved()

    def restart_empty(self) -> None:
        """Move the unusable store to another directory and restart this replica empty."""
        self._restart(empty=True)

    def _restart(self, *, empty: bool) -> None:
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.get_running_loop().create_task(self._restart_as_slave(empty=empty))

    async def _restart_as_slave(self, *, empty: bool) -> None:
        await self._close(self.parts, 0)
        self.fast_paths.clear()
        if empty:
            from rocketq.replication.replica_files import move_store_aside  # noqa: PLC0415 - imported only when a store is moved aside

            await asyncio.to_thread(move_store_aside, self._store_config, self._clock.now_ms())
        while True:
            try:
                await self.start()
                return
            except Exception:  # retried: the other replicas serve until the store opens
                log.exception("broker %s cannot restart as a slave, retrying", self.config.name)
                await asyncio.sleep(_RETRY_S)

    # the start

    async def _start_at(self, port: int) -> None:
        config = replace(self.config, port=port, ha_port=self.config.ha_port or port + REPLICATION_STEP)
        if config.is_fenced:
            from rocketq.broker.ha.fenced_replicas import UNKNOWN_ID  # noqa: PLC0415 - loaded by fenced replicas only

            config = replace(config, role=BrokerRole.SLAVE, broker_id=config.broker_id or UNKNOWN_ID)
        store = await self._open_store(config)
        parts: Subsystems | None = None
        try:
            await self._open_access(config)
            parts = compose(
                config, store, self._settings_path, self._access, self._clock, self, client_tls=self._client_tls
            )
            self._follow(parts)
            if not config.is_slave:
                await asyncio.to_thread(parts.transactions.service.start)
            await parts.ha.replication.start()
            await self._serve(parts)
        except BaseException:
            if parts is not None:
                await parts.ha.replication.stop()
                await parts.pull.loads.stop()
            for server in self._servers:
                await server.stop(0)
            await asyncio.to_thread(store.close)
            raise
        self.config, self._parts = parts.settings.config, parts
        self.observability.attach(parts, lambda: self._servers, self.fast_paths, self._collect)

    async def _open_access(self, config: BrokerConfig) -> None:
        """Once; a broker that starts again goes on with what it has."""
        if self._access is None or isinstance(self._access, AccessService):
            require_safe_address(config.host, config.access, f"broker {config.name}")
        if self._access is None:
            root = self._store_config.root
            self._access = await asyncio.to_thread(open_access, config.access, root, config.cluster, self._clock)
        if isinstance(self._access, AccessService) and self.invalidate_grants not in self._access.control.listeners:
            self._access.control.listeners.append(self.invalidate_grants)
            self._access.start()

    async def _open_store(self, config: BrokerConfig) -> Store:
        """Open the store on another thread: recovery may take minutes."""
        store_config = replace(self._store_config, store_host=Host.of(config.ip, config.port))
        reject_dledger(store_config.root)
        try:
            store = await asyncio.to_thread(Store.open, store_config, clock=self._clock)
            store.reject_appends("this broker is a slave" if config.is_slave else None)
            return store
        except OSError as error:
            raise StoreError(f"the store cannot be opened: {error}") from error

    def _follow(self, parts: Subsystems) -> None:
        """Follow changes of the settings."""
        self._autosave, self._fenced = parts.autosave, parts.ha.fenced
        parts.settings.listeners.append(self._settings_changed)

    async def _serve(self, parts: Subsystems) -> None:
        config = parts.settings.config
        limits = config.limits(config.idle_seconds)
        main, vip = (self._make_dispatcher(parts) for _ in range(2))
        self._dispatchers = [main, vip]
        main.add_pending_work(parts.pull.loads.finish)
        parts.pull.attach_pulls(main)
        self._servers = []
        for dispatcher, port in ((main, config.port), (vip, config.port + VIP_STEP)):
            parts.attach(dispatcher)
            server = Server(
                dispatcher,
                limits=limits,
                tls=self._tls,
                frame_reader=self._fast_path_of(parts, dispatcher),
                draining=parts.store.generation.bump,
            )
            server.add_close_callback(self._disconnected)
            await server.start(config.host, port)
            self._servers.append(server)

    def _make_dispatcher(self, parts: Subsystems) -> Dispatcher:
        """The checks and middleware of every request, in order."""
        shares = [parts.registrar.wait_registered]
        if self._fenced is not None:
            shares.insert(0, self._fenced.tables_shared)
        return Dispatcher(
            handlers_max=parts.settings.config.sends_waiting_max,
            handlers_per_connection_max=parts.settings.config.requests_per_connection_max,
            handlers_per_address_max=parts.settings.config.requests_per_address_max,
            checks=(
                parts.admission.access.check,
                self._check_guards,
                *(() if parts.ha.strict_lease is None else (parts.ha.strict_lease,)),
                RejectOnReplica(parts.settings, parts.stats.broker_stats.metrics.refused_send),
            ),
            middleware=(PersistBeforeReply(parts.autosave, shares, unshared=PULL_CODES),),
            changed=parts.store.generation.bump,
            observe=parts.stats.broker_stats.metrics.answered,
        )

    def _check_guards(self, request: Command, connection: Connection) -> Command | None:
        for guard in self.guards:
            if (rejection := guard(request, connection)) is not None:
                return rejection
        return None

    def _fast_path_of(self, parts: Subsystems, dispatcher: Dispatcher) -> BrokerFastPath:
        polling = parts.pull.polling
        ports = FastPathPorts(
            parts.admission,
            parts.store,
            parts.groups.offsets,
            parts.groups.positions,
            parts.stats.broker_stats,
            parts.clock,
            self._collect,
            lease=parts.ha.strict_lease,
            is_guarded=lambda: len(self.guards) > 0,
            waiting=lambda: len(polling) > 0,
        )
        fast_path = BrokerFastPath(ports, dispatcher)
        self.fast_paths.append(fast_path)
        return fast_path

    def _start_jobs(self) -> None:
        parts = self.parts
        self._jobs.every(STATS_MS, self._tick)
        self._jobs.every(RECHECK_MS, parts.pull.polling.recheck)
        if isinstance(self._access, AccessService):
            self._jobs.every(RELOAD_MS, self._access.reload)
        self._jobs.every(HOUSEKEEPING_MS, self.expire_idle)
        self._jobs.every(lambda: self.config.delay_save_interval_ms, parts.delay.levels.save)
        self._jobs.every(lambda: self.config.delay_save_interval_ms, parts.delay.timers.save)
        self._jobs.every(lambda: self.config.offset_save_interval_ms, parts.autosave.save)
        self._jobs.every(FILTER_SAVE_MS, parts.pull.filter_autosave.save)

    # periodic jobs

    def expire_idle(self) -> None:
        """Remove expired clients, queue locks and filters."""
        self.parts.groups.expire()
        self.parts.pull.clean_filters()

    def _collect(self) -> None:
        for fast_path in self.fast_paths:
            fast_path.collect()

    async def _tick(self) -> None:
        for fast_path in self.fast_paths:
            fast_path.tick()
        await collect(self.parts.stats.tick())

    def _disconnected(self, connection: Connection) -> None:
        if self._parts is not None:
            self._parts.pull.polling.forget(connection)
            self._parts.groups.disconnected(connection)

    def _settings_changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        self.config = after
        if before.log_level != after.log_level:
            apply_levels(before.log_level, after.log_level)
        for dispatcher in self._dispatchers:
            dispatcher.set_handlers_max(after.sends_waiting_max)
