"""A broker put together: its tables, its store, its handlers, two servers, and what it does by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableSequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketq.broker.admin.autosave import TableAutosave
from rocketq.broker.admin.periodic import PeriodicJobs
from rocketq.broker.composition import Subsystems, compose
from rocketq.broker.config import BrokerConfig, BrokerRole
from rocketq.broker.fastpath.fast_path import BrokerFastPath, FastPathPorts
from rocketq.broker.free_port import REPLICATION_STEP, VIP_STEP, pick_port
from rocketq.broker.ha.reject_on_replica import RejectOnReplica
from rocketq.broker.pipeline.access import Access, OpenAccess
from rocketq.broker.pipeline.persist_before_reply import PersistBeforeReply
from rocketq.broker.pull.handlers import PULL_CODES
from rocketq.broker.pull.long_polling import RECHECK_MS
from rocketq.errors import StoreError, UnreachableError
from rocketq.model import Host
from rocketq.protocol.command import Command
from rocketq.remoting import Check, Connection, Dispatcher, Limits, Server, TlsConfig
from rocketq.remoting.address import join_addr
from rocketq.runtime.clock import Clock, SystemClock
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
    """Where settings changed on request are kept when there is no config file."""
    return root / "config" / "broker.properties"


def reject_dledger(root: Path) -> None:
    """A directory of DLedger's holds messages that we do not read: going on beside them would look like losing them."""
    found = sorted(path.name for path in root.glob("dledger-*")) if root.is_dir() else []
    if found:
        reason = "is a log of DLedger, which cannot be read here: failover is haProtocol=fenced, with a log of its own"
        raise StoreError(f"{root / found[0]} {reason}")


class Broker:
    """Runs on the event loop it is started on."""

    def __init__(
        self,
        config: BrokerConfig,
        store: StoreConfig,
        *,
        settings_path: Path | None = None,
        tls: TlsConfig | None = None,
        access: Access | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self._store_config = store
        self._settings_path = settings_path or kept_settings_path(store.root)
        self._tls = tls
        self._access: Access = access or OpenAccess()
        self._clock: Clock = clock or SystemClock()
        self._jobs = PeriodicJobs()
        self._parts: Subsystems | None = None
        self._autosave: TableAutosave | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._fenced: FencedReplication | None = None
        """Its part among replicas; what that takes is loaded only by a broker that has one."""
        self._servers: list[Server] = []
        self._dispatchers: list[Dispatcher] = []
        self.fast_paths: list[BrokerFastPath] = []
        self.guards: MutableSequence[Check] = ObservedList(self.invalidate_grants)
        """Rules of the program that runs this broker: each is called with a request and its connection, at both ports,
        and returns the answer that rejects it, or None. Sends and pulls that pass are not asked about again for the
        same connection, code, topic and group, until `invalidate_grants()` is called; one that is rejected may be
        asked about twice."""

    @property
    def addr(self) -> str:
        """What clients reach this broker by."""
        return join_addr(self.config.ip, self.config.port)

    def invalidate_grants(self) -> None:
        """Something that guards or access control decide by has changed: ask again for the next request. Any thread may
        call this."""
        if self._parts is not None:
            self._parts.store.generation.bump()

    @property
    def parts(self) -> Subsystems:
        """For tests and tools that look inside."""
        assert self._parts is not None, "the broker is not started"
        return self._parts

    async def start(self) -> None:
        """Recover, serve, register; `addr` tells where. Port 0 picks a free one with its neighbours."""
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
        """What only a master does by itself: it writes."""
        self.parts.delay.start()
        self.parts.transactions.checks.start()

    async def stop(self, drain_ms: int = 3_000) -> None:
        """Clients hear of it first from the NameServers; requests under way are finished and answered."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        if self._parts is None:
            return
        parts = self._parts
        if self._fenced is not None:
            await self._fenced.retire()  # whoever takes over registers before we say goodbye
        await self._close(parts, drain_ms)

    async def _close(self, parts: Subsystems, drain_ms: int) -> None:
        await self._jobs.stop()
        await parts.delay.stop()
        await parts.registrar.stop()
        parts.pull.polling.stop()
        if self.config.is_slave:
            await parts.ha.replication.stop()
        await asyncio.gather(*(server.stop(drain_ms) for server in self._servers))
        await parts.transactions.checks.stop()
        if not self.config.is_slave:
            await parts.ha.replication.stop()  # last, so that slaves have what was answered
        self._collect()
        try:
            await parts.autosave.save()
            await parts.pull.filter_autosave.save()
        except (OSError, StoreError):
            log.exception("broker %s: the last changes of its tables could not be saved", self.config.name)
        await parts.pull.loads.stop()
        await asyncio.to_thread(parts.store.close)
        self._parts = None
        log.info("broker %s stopped", self.config.name)

    # among replicas

    async def begin_mastership(self, timers: tuple[TimerPoint, int] | None) -> None:
        """This broker was elected: what only a master does begins, timers where the master before it had them."""
        await asyncio.to_thread(self.parts.transactions.service.start)
        if timers is not None and self.config.timer_enabled:
            await asyncio.to_thread(self.parts.delay.timers.take_over, *timers)
        self._start_deliveries()

    def end_mastership(self) -> None:
        """A master no more: everything it did by itself is begun anew as a slave's, from what is on disk."""
        self._restart(anew=False)

    async def save_tables(self) -> None:
        assert self._autosave is not None
        await self._autosave.wait_saved()

    def restart_empty(self) -> None:
        """The store cannot be used: it is put aside, and this replica starts empty."""
        self._restart(anew=True)

    def _restart(self, *, anew: bool) -> None:
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.get_running_loop().create_task(self._start_again(anew=anew))

    async def _start_again(self, *, anew: bool) -> None:
        await self._close(self.parts, 0)
        self.fast_paths.clear()
        if anew:
            from rocketq.replication.replica_files import move_store_aside  # noqa: PLC0415 - imported only when a store is moved aside

            await asyncio.to_thread(move_store_aside, self._store_config, self._clock.now_ms())
        while True:
            try:
                await self.start()
                return
            except Exception:  # a replica that cannot open its store now may later; others serve meanwhile
                log.exception("broker %s cannot start again as a slave, it is tried again", self.config.name)
                await asyncio.sleep(_RETRY_S)

    # the start

    async def _start_at(self, port: int) -> None:
        config = replace(self.config, port=port, ha_port=self.config.ha_port or port + REPLICATION_STEP)
        if config.is_fenced:
            from rocketq.broker.ha.fenced_replicas import UNKNOWN_ID  # noqa: PLC0415 - loaded by replicas only

            config = replace(config, role=BrokerRole.SLAVE, broker_id=config.broker_id or UNKNOWN_ID)
        store = await self._open_store(config)
        parts: Subsystems | None = None
        try:
            parts = compose(config, store, self._settings_path, self._access, self._clock, self)
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

    async def _open_store(self, config: BrokerConfig) -> Store:
        """On another thread: recovery may take a while."""
        store_config = replace(self._store_config, store_host=Host.of(config.ip, config.port))
        reject_dledger(store_config.root)
        try:
            store = await asyncio.to_thread(Store.open, store_config, clock=self._clock)
            store.reject_appends("this broker is a slave" if config.is_slave else None)
            return store
        except OSError as error:
            raise StoreError(f"the store cannot be opened: {error}") from error

    def _follow(self, parts: Subsystems) -> None:
        """Take over what changes while the broker runs: its settings."""
        self._autosave, self._fenced = parts.autosave, parts.ha.fenced
        parts.settings.listeners.append(self._settings_changed)

    async def _serve(self, parts: Subsystems) -> None:
        config = parts.settings.config
        limits = Limits(idle_ms=config.idle_seconds * 1000)
        main, vip = (self._make_dispatcher(parts) for _ in range(2))
        self._dispatchers = [main, vip]
        main.add_work(parts.pull.loads.finish)
        parts.pull.attach_pulls(main)
        self._servers = []
        for dispatcher, port in ((main, config.port), (vip, config.port + VIP_STEP)):
            parts.attach(dispatcher)
            server = Server(
                dispatcher,
                limits=limits,
                tls=self._tls,
                feed=self._fast_path_of(parts, dispatcher),
                draining=parts.store.generation.bump,
            )
            server.add_close_callback(self._disconnected)
            await server.start(config.host, port)
            self._servers.append(server)

    def _make_dispatcher(self, parts: Subsystems) -> Dispatcher:
        """What every request passes on its way to a handler, in this order."""
        shares = [parts.registrar.settle]
        if self._fenced is not None:
            shares.insert(0, self._fenced.tables_shared)
        return Dispatcher(
            handlers_max=parts.settings.config.sends_waiting_max,
            checks=(
                self._access.check,
                self._check_guards,
                *(() if parts.ha.strict_lease is None else (parts.ha.strict_lease,)),
                RejectOnReplica(parts.settings),
            ),
            middleware=(PersistBeforeReply(parts.autosave, shares, unshared=PULL_CODES),),
            changed=parts.store.generation.bump,
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
        self._jobs.every(HOUSEKEEPING_MS, self.expire_idle)
        self._jobs.every(lambda: self.config.delay_save_interval_ms, parts.delay.levels.save)
        self._jobs.every(lambda: self.config.delay_save_interval_ms, parts.delay.timers.save)
        self._jobs.every(lambda: self.config.offset_save_interval_ms, parts.autosave.save)
        self._jobs.every(FILTER_SAVE_MS, parts.pull.filter_autosave.save)

    # what it does by itself

    def expire_idle(self) -> None:
        """Part with clients that fell silent, with locks nobody renewed, and with filters of groups long gone."""
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
        for dispatcher in self._dispatchers:
            dispatcher.handlers_max = after.sends_waiting_max
