"""Everything that runs while a push consumer is started: pulls, calls, shares, offsets, locks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from rocketq.client.aio.consume_service import ConcurrentService, ServicePorts
from rocketq.client.aio.consume_tracer import ConsumeTracer
from rocketq.client.aio.direct_calls import call_directly
from rocketq.client.aio.group_pulls import GroupPulls
from rocketq.client.aio.listener_calls import Calling, Listener
from rocketq.client.aio.members import Member
from rocketq.client.aio.offset_keeper import OffsetKeeper
from rocketq.client.aio.offset_store import FileOffsets, MemoryOffsets, OffsetStore, RemoteOffsets
from rocketq.client.aio.orderly_service import OrderlyService
from rocketq.client.aio.push_queues import PushQueues
from rocketq.client.aio.queue_locks import QueueLocks
from rocketq.client.aio.queue_positions import QueuePositions
from rocketq.client.aio.queue_pulling import PullPorts
from rocketq.client.aio.rebalancer import Rebalancer
from rocketq.client.aio.send_backs import SendBacks
from rocketq.client.aio.session import Session
from rocketq.client.aio.sql_check import check_sql
from rocketq.client.aio.trace import TraceCollector
from rocketq.client.core.client_figures import ClientFigures
from rocketq.client.core.consumer_config import PullConfig, PushConfig
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.process_queue import ProcessQueue
from rocketq.client.core.running_report import running_properties
from rocketq.client.core.stored_messages import StoredMessage, delivered
from rocketq.client.core.subscription_table import SubscriptionTable, make_subscription
from rocketq.client.core.subscriptions import ALL
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.clients import ConsumeDirectlyResult, RunningConsumer
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeType, ExpressionType, MessageModel
from rocketq.protocol.names import Property, retry_topic

HALF_AN_HOUR_MS: Final = 30 * 60_000
OVERDUE_CHECK_MS_MAX: Final = 60_000
FIRST_LOCK_RENEWAL_S: Final = 1.0

log = logging.getLogger(__name__)


class PushEngine:
    """Belongs to one event loop; made when the consumer starts."""

    def __init__(
        self,
        member: Member,
        listener: Listener,
        session: Session,
        namespace: Namespace,
        subscriptions: SubscriptionTable,
        config: PushConfig,
        offset_store: OffsetStore | None,
        *,
        paused: bool,
    ) -> None:
        self._member = member
        self._config = config
        self._session = session
        self._namespace = namespace
        self._group = group = member.group
        self._subscriptions = subscriptions
        self._began_ms = session.clock.now_ms()
        self.figures = ClientFigures()
        self.resumed = asyncio.Event()
        if not paused:
            self.resumed.set()
        from_time_ms = config.from_time_ms
        self.keeper = OffsetKeeper(
            offset_store or default_store(session, config, group),
            QueuePositions(session),
            group,
            from_where=config.from_where,
            from_time_ms=self._began_ms - HALF_AN_HOUR_MS if from_time_ms is None else from_time_ms,
        )
        self._trace: TraceCollector | None = None
        hooks = list(config.hooks)
        if config.trace:
            plain = self._namespace.plain(group)
            self._trace = TraceCollector(session, plain, "CONSUME", topic=config.trace_topic)
            hooks.append(ConsumeTracer(self._trace, session, plain))
        self._calling = Calling(listener, session.clock, hooks, config.consume_timeout_ms)
        ports = PullPorts(
            session=session,
            group=group,
            config=config,
            pulls=GroupPulls(session, group, self._namespace),
            subscriptions=self._subscriptions,
            offsets=self.keeper.table,
            commits_with_pulls=self.keeper.goes_with_pulls,
            figures=self.figures,
            resumed=self.resumed,
            submit=self._submit,
            moved=self._moved,
            window=config.window,
        )
        self.queues = PushQueues(ports, self.keeper, QueueLocks(session, group))
        self.service = self.queues.service = self._make_service()
        self.rebalancer = Rebalancer(
            session,
            group,
            self.queues,
            self._subscriptions,
            model=config.model,
            strategy=config.strategy,
            broker_assigns=config.broker_assigns,
            interval_ms=config.rebalance_interval_ms,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._moves: set[asyncio.Task[None]] = set()

    def _make_service(self) -> ConcurrentService | OrderlyService:
        ports = ServicePorts(
            group=self._namespace.plain(self._group),
            config=self._config,
            clock=self._session.clock,
            calling=self._calling,
            send_backs=SendBacks(self._session, self._group, self._namespace, self._config.max_reconsume_times),
            offsets=self.keeper.table,
            figures=self.figures,
            freed=self.queues.freed,
        )
        if self._config.orderly:
            return OrderlyService(ports, self.queues.relock)
        return ConcurrentService(ports)

    async def start(self) -> None:
        now_ms = self._session.clock.now_ms()
        if self._config.model is MessageModel.CLUSTERING:
            self._subscriptions.put(make_subscription(retry_topic(self._group), ALL, None, now_ms))
        for subscription in self._subscriptions.all():
            if subscription.expression_type == ExpressionType.SQL92:
                await check_sql(self._session, self._group, subscription)
        await self._session.members.join(self._member)
        await self.rebalancer.round()
        self._run(self.rebalancer.run())
        self._run(self._save_offsets())
        if isinstance(self.service, OrderlyService):
            if self._config.model is MessageModel.CLUSTERING:
                self._run(self._renew_locks())
        else:
            self._run(self._find_overdue(self.service))

    async def stop(self, wait_ms: int) -> None:
        tasks = [*self._tasks, *self._moves]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not await self.queues.stop(wait_ms):
            log.warning("group %s: listeners still run; their messages come again elsewhere", self._group)
        if self._trace is not None:
            await self._trace.close()
        await self._session.members.leave(self._member)

    def announce(self, topic: str | None) -> None:
        """Subscriptions changed: brokers are told, and queues shared anew."""
        self._run(self._announce(topic))

    async def _announce(self, topic: str | None) -> None:
        subscription = self._subscriptions.get(topic) if topic is not None else None
        if subscription is not None:
            await self._session.members.refresh_routes([subscription.topic])
            if subscription.expression_type == ExpressionType.SQL92:
                try:
                    await check_sql(self._session, self._group, subscription)
                except RocketQError as error:
                    log.error("group %s: the subscription to %s is refused: %s", self._group, topic, error)
        await self._session.members.heartbeat()
        self.rebalancer.wake()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        log.info("group %s: offsets are reset: %s", self._group, dict(offsets))
        async with self.rebalancer.lock:
            await self.queues.move(offsets, self._config.reset_wait_ms)
        self.rebalancer.wake()

    async def _moved(self, held: ProcessQueue, offset: int) -> None:
        """A broker says where a queue goes on. Not awaited by its pulling, which is ended by it."""
        log.warning("group %s: %s has no offset we asked for; it goes on at %d", self._group, held.queue, offset)
        held.dropped = True
        task = asyncio.get_running_loop().create_task(self.reset({held.queue: offset}))
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    def _submit(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        self.service.submit(held, messages)

    async def _save_offsets(self) -> None:
        while True:
            await asyncio.sleep(self._config.persist_interval_ms / 1000)
            await self.keeper.save()

    async def _renew_locks(self) -> None:
        await asyncio.sleep(min(FIRST_LOCK_RENEWAL_S, self._config.lock_interval_ms / 1000))
        while True:
            try:
                async with self.rebalancer.lock:  # a queue that is just given away must not be locked again
                    kept = await self.queues.renew_locks()
                    if not kept:
                        await self.queues.drop_unlocked()
                if not kept:
                    self.rebalancer.wake()
            except Exception:  # renewal must go on, whatever failed this time
                log.exception("group %s: renewing locks failed", self._group)
            await asyncio.sleep(self._config.lock_interval_ms / 1000)

    async def _find_overdue(self, service: ConcurrentService) -> None:
        while True:
            await asyncio.sleep(min(self._config.consume_timeout_ms, OVERDUE_CHECK_MS_MAX) / 1000)
            try:
                await service.send_back_overdue(self.queues.held())
            except Exception:  # the search must go on, whatever failed this time
                log.exception("group %s: sending back late messages failed", self._group)

    def running_info(self) -> RunningConsumer:
        clock, table = self._session.clock, self.keeper.table
        skew_ms = clock.now_ms() - clock.monotonic_ms()
        return RunningConsumer(
            properties=running_properties(
                name_servers=self._session.name_servers.addrs,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                orderly=self._config.orderly,
                workers=self._config.workers,
                began_ms=self._began_ms,
                settings=self._config,
            ),
            subscriptions=self._subscriptions.all(),
            queues={held.queue: held.report(table.get(held.queue) or 0, skew_ms) for held in self.queues.held()},
            rates=self.figures.rates(clock.monotonic_ms()),
        )

    async def consume_directly(self, message: StoredMessage) -> ConsumeDirectlyResult:
        """One call, whose outcome touches no offset."""
        first_topic = message.properties.get(Property.RETRY_TOPIC) or message.topic
        return await call_directly(
            self._calling.listener,
            delivered(message, topic=self._namespace.plain(first_topic)),
            self._namespace.plain(self._group),
            self._config,
            self._session.clock,
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def default_store(session: Session, config: PushConfig | PullConfig, group: str) -> OffsetStore:
    if config.model is MessageModel.CLUSTERING:
        return RemoteOffsets(session)
    if config.offset_dir is not None:
        return FileOffsets(config.offset_dir)
    log.warning(
        "group %s: a broadcasting consumer without offset_dir keeps its offsets in memory and starts anew each time",
        group,
    )
    return MemoryOffsets()
