"""The push consumer: calls a listener with the messages of its queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from rocketq.client.consume import ConcurrentService, OrderlyService, SendBacks, ServicePorts
from rocketq.client.consumer import HALF_AN_HOUR_MS, check_consumer_group, check_sql, default_store
from rocketq.client.core.config import PushConfig, Start, TopicList, expressions_of, starting
from rocketq.client.core.consumer_stats import ConsumerStats, running_properties
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.process_queue import ProcessQueue
from rocketq.client.core.routes import queue_order
from rocketq.client.core.stored_messages import StoredMessage, delivered
from rocketq.client.core.subscriptions import ALL, SubscriptionTable, make_subscription
from rocketq.client.errors import ClientClosedError, ClientError
from rocketq.client.fetcher import GroupPulls, PullPorts
from rocketq.client.listener import Listener, ListenerRunner, accepts_two_arguments, call_directly
from rocketq.client.members import Member
from rocketq.client.offsets import ConsumerOffsets, OffsetStore, QueuePositions
from rocketq.client.push_queues import PushQueues, QueueLocks
from rocketq.client.rebalance import Rebalancer
from rocketq.client.session import Session, SessionConfig
from rocketq.client.trace import ConsumeTracer, TraceCollector
from rocketq.errors import ConfigError, RocketQError
from rocketq.protocol.bodies.clients import ConsumeDirectlyResult, ConsumerData, RunningConsumer, Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import SubscriptionRejectedError
from rocketq.protocol.flags import ConsumeType, ExpressionType, MessageModel
from rocketq.protocol.names import Property, retry_topic

log = logging.getLogger(__name__)

OVERDUE_CHECK_MS_MAX: Final = 60_000
FIRST_LOCK_RENEWAL_S: Final = 1.0


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
        self._start_ms = session.clock.now_ms()
        self.stats = ConsumerStats()
        self.resumed = asyncio.Event()
        if not paused:
            self.resumed.set()
        from_time_ms = config.from_time_ms
        self.group_offsets = ConsumerOffsets(
            offset_store or default_store(session, config, group),
            QueuePositions(session),
            group,
            from_where=config.from_where,
            from_time_ms=self._start_ms - HALF_AN_HOUR_MS if from_time_ms is None else from_time_ms,
        )
        self._trace: TraceCollector | None = None
        hooks = list(config.hooks)
        if config.trace:
            plain = self._namespace.plain(group)
            self._trace = TraceCollector(session, plain, "CONSUME", topic=config.trace_topic)
            hooks.append(ConsumeTracer(self._trace, session, plain))
        self._runner = ListenerRunner(listener, session.clock, hooks, config.consume_timeout_ms)
        ports = PullPorts(
            session=session,
            group=group,
            config=config,
            pulls=GroupPulls(session, group, self._namespace),
            subscriptions=self._subscriptions,
            offsets=self.group_offsets.table,
            commits_with_pulls=self.group_offsets.goes_with_pulls,
            stats=self.stats,
            resumed=self.resumed,
            submit=self._submit,
            moved=self._moved,
            rejected=self._rejected,
            window=config.window,
        )
        self.queues = PushQueues(ports, self.group_offsets, QueueLocks(session, group))
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
            runner=self._runner,
            send_backs=SendBacks(self._session, self._group, self._namespace, self._config.max_reconsume_times),
            offsets=self.group_offsets.table,
            stats=self.stats,
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
        await self.group_offsets.open()
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
            log.warning("group %s: some listeners still run; their messages will be delivered again", self._group)
        if self._trace is not None:
            await self._trace.close()
        await self.group_offsets.close()
        await self._session.members.leave(self._member)

    def announce(self, topic: str | None) -> None:
        """Subscriptions changed: send heartbeats and rebalance."""
        self._run(self._announce(topic))

    async def _announce(self, topic: str | None) -> None:
        subscription = self._subscriptions.get(topic) if topic is not None else None
        if subscription is not None:
            await self._session.members.refresh_routes([subscription.topic])
            if subscription.expression_type == ExpressionType.SQL92:
                try:
                    await check_sql(self._session, self._group, subscription)
                except SubscriptionRejectedError as error:
                    self._rejected(subscription, "", error)
                except RocketQError as error:
                    log.warning("group %s: the subscription to %s was not checked: %s", self._group, topic, error)
        await self._session.members.heartbeat()
        self.rebalancer.wake()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        log.info("group %s: offsets are reset: %s", self._group, dict(offsets))
        async with self.rebalancer.lock:
            await self.queues.move(offsets, self._config.reset_wait_ms)
        self.rebalancer.wake()

    async def _moved(self, held: ProcessQueue, offset: int) -> None:
        """The broker corrected an offset. Runs as a separate task, because it stops the pull loop that calls it."""
        log.warning("group %s: %s: offset out of range, continuing at %d", self._group, held.queue, offset)
        held.dropped = True
        task = asyncio.get_running_loop().create_task(self.reset({held.queue: offset}))
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    def _rejected(self, subscription: Subscription, broker_name: str, error: SubscriptionRejectedError) -> None:
        if not self._subscriptions.reject(subscription, broker_name, error):
            return
        log.error("group %s: the subscription to %s was rejected: %s", self._group, subscription.topic, error)
        if self._config.on_error is not None:
            try:
                self._config.on_error(error)
            except Exception:  # an application's failure must not end pulling
                log.exception("group %s: on_error failed", self._group)

    def _submit(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        self.service.submit(held, messages)

    async def _save_offsets(self) -> None:
        while True:
            await asyncio.sleep(self._config.persist_interval_ms / 1000)
            await self.group_offsets.save()

    async def _renew_locks(self) -> None:
        await asyncio.sleep(min(FIRST_LOCK_RENEWAL_S, self._config.lock_interval_ms / 1000))
        while True:
            try:
                async with self.rebalancer.lock:  # a queue that is being dropped must not be locked again
                    kept = await self.queues.renew_locks()
                    if not kept:
                        await self.queues.drop_unlocked()
                if not kept:
                    self.rebalancer.wake()
            except Exception:  # renewal continues after any failure
                log.exception("group %s: renewing locks failed", self._group)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.lock_interval_ms / 1000):
                    await self.queues.lock_lost.wait()

    async def _find_overdue(self, service: ConcurrentService) -> None:
        while True:
            await asyncio.sleep(min(self._config.consume_timeout_ms, OVERDUE_CHECK_MS_MAX) / 1000)
            try:
                await service.send_back_overdue(self.queues.held())
            except Exception:  # the check continues after any failure
                log.exception("group %s: sending back overdue messages failed", self._group)

    def running_info(self) -> RunningConsumer:
        clock, table = self._session.clock, self.group_offsets.table
        skew_ms = clock.now_ms() - clock.monotonic_ms()
        return RunningConsumer(
            properties=running_properties(
                name_servers=self._session.name_servers.addrs,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                orderly=self._config.orderly,
                workers=self._config.workers,
                start_ms=self._start_ms,
                settings=self._config,
            ),
            subscriptions=self._subscriptions.all(),
            queues={held.queue: held.report(table.get(held.queue) or 0, skew_ms) for held in self.queues.held()},
            rates=self.stats.rates(clock.monotonic_ms()),
        )

    async def consume_directly(self, message: StoredMessage) -> ConsumeDirectlyResult:
        """One call, whose outcome touches no offset."""
        first_topic = message.properties.get(Property.RETRY_TOPIC) or message.topic
        return await call_directly(
            self._runner.listener,
            delivered(message, topic=self._namespace.plain(first_topic)),
            self._namespace.plain(self._group),
            self._config,
            self._session.clock,
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    """One owned queue: the offset reached, what is held of it, and when it was last pulled."""

    committed: int | None
    held_count: int
    held_bytes: int
    pull_age_ms: int


class AsyncPushConsumer:
    """Calls `listener(messages, context)` with messages of the topics it is subscribed to.

        async with AsyncPushConsumer("orders", listener, topics={"Orders": "new || paid"}):
            ...

    The listener is a plain function, called in threads, or an asynchronous one. Returning means done; an exception or
    ConsumeResult.LATER means redelivery. Messages may be delivered twice: see docs/guide/duplicates.md.
    """

    def __init__(
        self,
        group: str,
        listener: Listener,
        *,
        topics: TopicList | None = None,
        start: Start | None = None,
        name_servers: str | Sequence[str] | None = None,
        session: Session | None = None,
        session_config: SessionConfig | None = None,
        config: PushConfig | None = None,
        orderly: bool | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        config = config or PushConfig()
        if not callable(listener):
            raise ConfigError(f"listener must be callable, got {type(listener).__name__}")
        if not accepts_two_arguments(listener):
            raise ConfigError("listener must accept two arguments: the messages and a context")
        check_consumer_group(group)
        if session is not None and (name_servers is not None or session_config is not None):
            raise ConfigError("pass either session, or name_servers and session_config: not both")
        self._listener = listener
        self._owns_session = session is None
        self.session = session if session is not None else Session(name_servers, config=session_config)
        config = starting(config, start, self.session.clock.now_ms())
        self.config = config if orderly is None else replace(config, orderly=orderly)
        self._namespace = self.session.namespace
        self.group = self._namespace.group(group)
        """As brokers know it."""
        self._subscriptions = SubscriptionTable()
        self._offset_store = offset_store
        self._paused = False
        self._engine: PushEngine | None = None
        self._closed = False
        for topic, expression in expressions_of(topics).items():
            self.subscribe(topic, expression)

    # life cycle

    async def start(self) -> None:
        """Registered with brokers and assigned its first queues when this returns."""
        if self._closed:
            raise ClientClosedError(f"consumer {self.group}")
        if self._engine is not None:
            raise ClientError(f"consumer {self.group} was started already")
        engine = self._engine = PushEngine(
            self,
            self._listener,
            self.session,
            self._namespace,
            self._subscriptions,
            self.config,
            self._offset_store,
            paused=self._paused,
        )
        try:
            await engine.start()
        except BaseException:
            self._engine = None
            await engine.stop(wait_ms=0)
            raise

    async def close(self) -> None:
        """Wait for running listeners, save offsets, release locks, and unregister.

        Raises SubscriptionRejectedError where a broker rejects a subscription and `on_error` is not set.
        """
        closes = not self._closed
        await self.leave()
        rejection = self._subscriptions.rejection
        if closes and rejection is not None and self.config.on_error is None:
            raise rejection.with_traceback(None)

    async def leave(self) -> None:
        """Close without raising a rejected subscription."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._engine is not None:
                await self._engine.stop(self.config.shutdown_wait_ms)
        finally:
            if self._owns_session:
                await self.session.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if error is None else self.leave())

    # public methods

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """To all messages, those of tags (`a || b`), or those an SQL92 expression is true for. At any time.

        SubscriptionInvalidError has the position of the error in an expression. What brokers reject, such as SQL92
        without enablePropertyFilter, raises SubscriptionRejectedError from `start`; after the start it is passed to
        `PushConfig.on_error` or raised by `close`.
        """
        named = self._namespace.topic(topic) if isinstance(topic, str) else topic
        subscription = make_subscription(named, expression, sql, self.session.clock.now_ms())
        self._subscriptions.put(subscription)
        if self._engine is not None:
            self._engine.announce(subscription.topic)

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming the topic."""
        if self._subscriptions.remove(self._namespace.topic(topic)) and self._engine is not None:
            self._engine.announce(None)

    def pause(self) -> None:
        """Stop pulling; held messages are still consumed."""
        self._paused = True
        if self._engine is not None:
            self._engine.resumed.clear()

    def resume(self) -> None:
        self._paused = False
        if self._engine is not None:
            self._engine.resumed.set()
            self._engine.rebalancer.wake()

    @property
    def is_paused(self) -> bool:
        return self._paused

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues assigned now, without retry queues."""
        engine = self._engine
        retries = retry_topic(self.group)
        owned = [queue for queue in engine.queues.owned() if queue.topic != retries] if engine is not None else []
        return tuple(sorted((self._namespace.plain_queue(queue) for queue in owned), key=queue_order))

    def health(self) -> Mapping[str, Any]:
        """For `session.health()`: every assigned queue with its QueueHealth."""
        told: dict[str, Any] = {"kind": "push consumer", "group": self._namespace.plain(self.group)}
        told["paused"] = self._paused
        if (denial := self.session.members.denial) is not None:
            told["denied"] = str(denial)
        if self._engine is None:
            return {**told, "assignment": {}}
        now_ms, table = self.session.clock.monotonic_ms(), self._engine.group_offsets.table
        queues = {
            self._namespace.plain_queue(held.queue): QueueHealth(
                committed=table.get(held.queue),
                held_count=held.count,
                held_bytes=held.bytes,
                pull_age_ms=now_ms - held.last_pull_ms,
            )
            for held in self._engine.queues.held()
        }
        return {**told, "assignment": queues}

    async def commit(self) -> None:
        """Save the reached offsets now instead of at the next interval."""
        if self._engine is not None:
            await self._engine.group_offsets.save()

    # called by the session and by brokers

    def topics(self) -> Collection[str]:
        return self._subscriptions.topics()

    def heartbeat_part(self) -> ConsumerData:
        return ConsumerData(
            group=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            model=self.config.model,
            from_where=self.config.from_where,
            subscriptions=self._subscriptions.all(),
            unit_mode=self.session.config.unit_mode,
        )

    def ids_changed(self) -> None:
        if self._engine is not None:
            self._engine.rebalancer.wake()

    async def reset_offsets(self, topic: str, table: Mapping[MessageQueue, int]) -> None:
        if self._engine is not None:
            await self._engine.reset({queue: offset for queue, offset in table.items() if queue.topic == topic})

    def consume_positions(self, topic: str) -> Mapping[MessageQueue, int]:
        if self._engine is None:
            return {}
        return {
            queue: offset for queue, offset in self._engine.group_offsets.table.all().items() if queue.topic == topic
        }

    def running_info(self) -> RunningConsumer:
        return self._engine.running_info() if self._engine is not None else RunningConsumer()

    async def consume_directly(self, message: StoredMessage) -> ConsumeDirectlyResult:
        if self._engine is None:
            raise ClientClosedError(f"consumer {self.group}")
        return await self._engine.consume_directly(message)
