"""A broker put together: its tables, its store, its handlers, two servers, and what it does by itself."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketq.broker import wiring
from rocketq.broker.admin.autosave import StateKeeper
from rocketq.broker.admin.periodic import Timers
from rocketq.broker.admin.registration import Registrar
from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig, BrokerRole
from rocketq.broker.delay.level_service import DelayService
from rocketq.broker.delay.timer_service import TimerService
from rocketq.broker.fastpath.hot_feed import HotFeed, HotPorts
from rocketq.broker.fastpath.hot_routes import Routes
from rocketq.broker.free_port import REPLICATION_STEP, VIP_STEP, pick_port
from rocketq.broker.groups import membership_handlers as membership
from rocketq.broker.groups.change_notices import ChangeNotices
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.groups.producer_groups import ProducerGroups
from rocketq.broker.groups.queue_locks import QueueLocks
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.ha.master_tables import CopyPorts
from rocketq.broker.ha.reject_on_replica import SlaveRefusals
from rocketq.broker.ha.replicas import MasterReplication, Replication, SlaveReplication
from rocketq.broker.pipeline.persist_before_reply import SavedAnswers
from rocketq.broker.pull.consumer_filters import ConsumerFilters
from rocketq.broker.pull.filter_autosave import FilterKeeper
from rocketq.broker.pull.long_polling import RECHECK_MS, LongPolling
from rocketq.broker.stats.broker_stats import Figures
from rocketq.broker.topics.table import TopicTable, builtin_topics
from rocketq.broker.transaction.checks import TransactionChecks
from rocketq.broker.transaction.setup import open_transactions
from rocketq.errors import StoreError, UnreachableError
from rocketq.filter import load_parser
from rocketq.model import Host
from rocketq.protocol.bodies.queues import DataVersion, KeyValues
from rocketq.protocol.names import AUTO_CREATE_TOPIC
from rocketq.remoting import Connection, Dispatcher, Guard, Limits, Server, TlsConfig
from rocketq.remoting.address import join_addr
from rocketq.runtime.clock import Clock, SystemClock
from rocketq.runtime.slices import collect
from rocketq.store import StateFiles, Store, StoreConfig
from rocketq.store.timer_files import TimerPoint

if TYPE_CHECKING:
    from rocketq.broker.ha.fenced_replicas import FencedReplication

log = logging.getLogger(__name__)

FIGURES_MS: Final = 1_000
HOUSEKEEPING_MS: Final = 10_000
FILTER_SAVE_MS: Final = 10_000
_START_TRIES: Final = 5
_RETRY_S: Final = 2


def kept_settings_path(root: Path) -> Path:
    """Where settings changed on request are kept when there is no config file."""
    return root / "config" / "broker.properties"


def refuse_dledger(root: Path) -> None:
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
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self._store_config = store
        self._settings_path = settings_path or kept_settings_path(store.root)
        self._tls = tls
        self._clock: Clock = clock or SystemClock()
        self._timers = Timers()
        self._parts: wiring.Parts | None = None
        self._keeper: StateKeeper | None = None
        self._filter_keeper: FilterKeeper | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._fenced: FencedReplication | None = None
        """Its part among replicas; what that takes is loaded only by a broker that has one."""
        self._lease_guard: Guard | None = None
        self._servers: list[Server] = []
        self._dispatchers: list[Dispatcher] = []
        self.feeds: list[HotFeed] = []
        self.guards: list[Guard] = []
        """Asked before every handler, at both ports; the place for access control."""

    @property
    def addr(self) -> str:
        """What clients reach this broker by."""
        return join_addr(self.config.ip, self.config.port)

    @property
    def parts(self) -> wiring.Parts:
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
        self._start_timers()
        if self._fenced is not None:
            self._fenced.serving.set()
        elif not self.config.is_slave:
            self._start_deliveries()
        log.info("broker %s serves at %s as %s", self.config.name, self.addr, self.config.role.value)

    def _start_deliveries(self) -> None:
        """What only a master does by itself: it writes."""
        self.parts.delays.start()
        if self.config.timer_enabled:
            self.parts.timer.start()
        self.parts.checks.start()

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

    async def _close(self, parts: wiring.Parts, drain_ms: int) -> None:
        await self._timers.stop()
        await parts.delays.stop()
        await parts.timer.stop()
        await parts.registrar.stop()
        parts.polling.stop()
        if self.config.is_slave:
            await parts.replication.stop()
        await asyncio.gather(*(server.stop(drain_ms) for server in self._servers))
        await parts.checks.stop()
        if not self.config.is_slave:
            await parts.replication.stop()  # last, so that slaves have what was answered
        assert self._keeper is not None
        assert self._filter_keeper is not None
        try:
            await self._keeper.save()
            await self._filter_keeper.save()
        except (OSError, StoreError):
            log.exception("broker %s: the last changes of its tables could not be saved", self.config.name)
        await asyncio.to_thread(parts.store.close)
        self._parts = None
        log.info("broker %s stopped", self.config.name)

    # among replicas

    def _guard_lease(self, guard: Guard | None) -> None:
        """Instead of the one of an earlier start."""
        if self._lease_guard is not None:
            self.guards.remove(self._lease_guard)
        if guard is not None:
            self.guards.append(guard)
        self._lease_guard = guard

    async def begin_mastership(self, timers: tuple[TimerPoint, int] | None) -> None:
        """This broker was elected: what only a master does begins, timers where the master before it had them."""
        await asyncio.to_thread(self.parts.transactions.start)
        if timers is not None and self.config.timer_enabled:
            await asyncio.to_thread(self.parts.timer.take_over, *timers)
        self._start_deliveries()

    def end_mastership(self) -> None:
        """A master no more: everything it did by itself is begun anew as a slave's, from what is on disk."""
        self._restart(anew=False)

    async def save_tables(self) -> None:
        assert self._keeper is not None
        await self._keeper.settle()

    def begin_anew(self) -> None:
        """The store cannot be used: it is put aside, and this replica starts empty."""
        self._restart(anew=True)

    def _restart(self, *, anew: bool) -> None:
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.get_running_loop().create_task(self._start_again(anew=anew))

    async def _start_again(self, *, anew: bool) -> None:
        await self._close(self.parts, 0)
        self.feeds.clear()
        if anew:
            from rocketq.replication.replica_files import put_aside  # noqa: PLC0415 - only here is one put aside

            await asyncio.to_thread(put_aside, self._store_config, self._clock.now_ms())
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
        parts: wiring.Parts | None = None
        try:
            parts = self._assemble(config, store)
            if not config.is_slave:
                await asyncio.to_thread(parts.transactions.start)
            await parts.replication.start()
            await self._serve(parts)
        except BaseException:
            if parts is not None:
                await parts.replication.stop()
            for server in self._servers:
                await server.stop(0)
            await asyncio.to_thread(store.close)
            raise
        self.config, self._parts = parts.settings.config, parts

    async def _open_store(self, config: BrokerConfig) -> Store:
        """On another thread: recovery may take a while."""
        store_config = replace(self._store_config, store_host=Host.of(config.ip, config.port))
        refuse_dledger(store_config.root)
        try:
            store = await asyncio.to_thread(Store.open, store_config, clock=self._clock)
            store.health.follows = "this broker is a slave" if config.is_slave else None
            return store
        except OSError as error:
            raise StoreError(f"the store cannot be opened: {error}") from error

    def _assemble(self, config: BrokerConfig, store: Store) -> wiring.Parts:
        if config.property_filter:
            load_parser()
        clock, now_ms = self._clock, self._clock.now_ms()
        version = DataVersion().next(now_ms)
        settings = Settings(config, store.config, self._settings_path, version=version, reconfigure=store.reconfigure)
        topics, offsets = TopicTable(builtin_topics(config.topic_rules(len(store.config.delays_ms)))), OffsetTable()
        registrar = Registrar(settings, topics, on_orders=self._take_orders)
        files, figures = StateFiles(store.config.root, store.disk), Figures(config.cluster, now_ms)
        producers: ProducerGroups[Connection] = ProducerGroups()
        consumers: ConsumerGroups[Connection] = ConsumerGroups()
        transactions = open_transactions(settings, topics, offsets, store, figures, clock)
        groups = GroupTable()
        topics.is_copy = groups.is_copy = config.is_slave
        replication: Replication = MasterReplication(settings, store, clock)
        ports = CopyPorts(topics, groups, offsets, files, store)
        self._fenced = None
        if config.is_fenced:
            from rocketq.broker.ha.fenced_replicas import FencedReplication  # noqa: PLC0415 - loaded by replicas only

            replication = self._fenced = FencedReplication(settings, ports, registrar, clock, self)
            self._guard_lease(self._fenced.guard if config.lease_mode == "strict" else None)
        elif config.is_slave:
            replication = SlaveReplication(settings, ports, registrar, clock)
        parts = wiring.Parts(
            settings=settings,
            topics=topics,
            groups=groups,
            consumers=consumers,
            notices=ChangeNotices(consumers.members, asyncio.get_running_loop().call_later),
            filters=ConsumerFilters(config.bloom_geometry),
            producers=producers,
            offsets=offsets,
            positions=PullPositions(),
            locks=QueueLocks(config.lock_life_ms),
            figures=figures,
            files=files,
            store=store,
            clock=clock,
            polling=LongPolling(
                clock, lambda queue: store.max_offset(*queue), held_max=lambda: settings.config.held_pulls_max
            ),
            delays=DelayService(store, files.delay_offsets, figures, clock),
            timer=TimerService(store, figures, clock),
            registrar=registrar,
            transactions=transactions,
            checks=TransactionChecks(transactions, producers, store, settings, clock),
            replication=replication,
        )
        if self._fenced is not None:
            parts.delays.may_deliver = parts.timer.may_deliver = parts.checks.may_check = self._fenced.may_work
        self._keeper = StateKeeper(parts.files, topics, parts.groups, parts.offsets)
        self._keeper.load()
        self._filter_keeper = FilterKeeper(parts.files.consumer_filters, parts.filters)
        self._filter_keeper.load(now_ms)
        parts.filters.clean(now_ms, config.dead_filter_ms_max)
        parts.filters.distrust_until(store.points.last_store_ms)
        store.calculate_bitmaps(
            lambda *message: parts.filters.bitmap(*message) if settings.config.filter_bitmaps else b""
        )
        store.add_listener(parts.polling.on_queue_grown)
        topics.listeners.append(registrar.announce)
        settings.listeners.append(self._settings_changed)
        return parts

    async def _serve(self, parts: wiring.Parts) -> None:
        config = parts.settings.config
        limits = Limits(idle_ms=config.idle_seconds * 1000)
        assert self._keeper is not None
        main, vip = (Dispatcher(handlers_max=config.sends_waiting_max) for _ in range(2))
        self._dispatchers = [main, vip]
        wiring.bind_pulls(parts, SavedAnswers(main, self._keeper))
        shares = [parts.registrar.settle]
        if self._fenced is not None:
            shares.insert(0, self._fenced.tables_shared)
        self._servers = []
        for dispatcher, port in ((main, config.port), (vip, config.port + VIP_STEP)):
            registry = SlaveRefusals(SavedAnswers(dispatcher, self._keeper, *shares), parts.settings)
            wiring.bind_all_but_pulls(parts, registry)
            dispatcher.guards = self.guards
            server = Server(dispatcher, limits=limits, tls=self._tls, feed=self._feed_of(parts, dispatcher))
            server.add_close_callback(self._disconnected)
            await server.start(config.host, port)
            self._servers.append(server)

    def _feed_of(self, parts: wiring.Parts, dispatcher: Dispatcher) -> HotFeed:
        routes = Routes(parts.settings, parts.topics, parts.groups, parts.consumers, parts.store)
        ports = HotPorts(
            routes, parts.offsets, parts.positions, parts.figures, parts.clock, waiting=lambda: len(parts.polling) > 0
        )
        feed = HotFeed(ports, dispatcher)
        self.feeds.append(feed)
        return feed

    def _start_timers(self) -> None:
        parts, keeper, filter_keeper = self.parts, self._keeper, self._filter_keeper
        assert keeper is not None
        assert filter_keeper is not None
        self._timers.every(FIGURES_MS, self._tick)
        self._timers.every(RECHECK_MS, parts.polling.recheck)
        self._timers.every(HOUSEKEEPING_MS, self.keep_house)
        self._timers.every(lambda: self.config.delay_save_interval_ms, parts.delays.save)
        self._timers.every(lambda: self.config.delay_save_interval_ms, parts.timer.save)
        self._timers.every(lambda: self.config.offset_save_interval_ms, keeper.save)
        self._timers.every(FILTER_SAVE_MS, filter_keeper.save)

    # what it does by itself

    def keep_house(self) -> None:
        """Part with clients that fell silent, with locks nobody renewed, and with filters of groups long gone."""
        membership.expire(wiring.membership_ports(self.parts))
        self.parts.locks.expire(self._clock.monotonic_ms())
        self.parts.filters.clean(self._clock.now_ms(), self.config.dead_filter_ms_max)

    async def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        for feed in self.feeds:
            feed.count()
        await collect(self.parts.figures.tick(now_ms, datetime.fromtimestamp(now_ms / 1000).toordinal()))

    def _disconnected(self, connection: Connection) -> None:
        if self._parts is not None:
            self._parts.polling.forget(connection)
            membership.disconnected(connection, wiring.membership_ports(self._parts))

    def _take_orders(self, orders: KeyValues) -> None:
        if self._parts is not None and not self.config.is_slave:
            self._parts.topics.set_orders(orders.table, now_ms=self._clock.now_ms())

    def _settings_changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        self.config = after
        if self._parts is None:
            return
        parts = self._parts
        parts.locks.life_ms = after.lock_life_ms
        for dispatcher in self._dispatchers:
            dispatcher.handlers_max = after.sends_waiting_max
        if after.auto_create_topics and not after.is_slave and AUTO_CREATE_TOPIC not in parts.topics:
            rules = after.topic_rules(len(parts.store.config.delays_ms))
            template = [topic for topic in builtin_topics(rules) if topic.topic == AUTO_CREATE_TOPIC]
            parts.topics.put(*template, now_ms=self._clock.now_ms())
        if before.perm != after.perm and not after.is_slave:
            parts.topics.touch(self._clock.now_ms())
        if before.name_servers != after.name_servers:
            parts.registrar.announce()
