"""The pull consumer: `poll`, iteration, seeks and commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

from rocketq.client.consumer import HALF_AN_HOUR_MS, check_consumer_group, check_sql, default_store
from rocketq.client.core.config import (
    Milliseconds,
    PullConfig,
    Start,
    TopicList,
    expressions_of,
    milliseconds,
    starting,
)
from rocketq.client.core.consumer_stats import ConsumerStats, running_properties
from rocketq.client.core.offsets import ResetTo
from rocketq.client.core.process_queue import PulledQueue
from rocketq.client.core.routes import queue_order, subscribe_queues
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscriptions import ALL, SubscriptionTable, make_subscription
from rocketq.client.errors import ClientClosedError, ClientError
from rocketq.client.fetcher import COUNT_MAX, PULL_TIMEOUT_MS, GroupPulls, PullResult
from rocketq.client.members import Member
from rocketq.client.message_batch import MessageBatch
from rocketq.client.offsets import ConsumerOffsets, OffsetStore, QueuePositions
from rocketq.client.pull_queues import PullQueuePorts, PullQueues
from rocketq.client.rebalance import Rebalancer
from rocketq.client.session import Session, SessionConfig
from rocketq.errors import ConfigError, RocketQError
from rocketq.protocol.bodies.clients import ConsumeDirectlyResult, ConsumerData, RunningConsumer
from rocketq.protocol.bodies.clients import ProcessQueue as QueueReport
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import SubscriptionRejectedError
from rocketq.protocol.flags import ConsumeType, ExpressionType

log = logging.getLogger(__name__)


class PullEngine:
    """Belongs to one event loop; made when the consumer starts."""

    def __init__(self, member: Member, ports: PullQueuePorts, start_ms: int) -> None:
        self._member = member
        self._ports = ports
        self._session = ports.session
        self._group = ports.group
        self._config = config = ports.config
        self._group_offsets = ports.group_offsets
        self._subscriptions = ports.subscriptions
        self._start_ms = start_ms
        self.queues = PullQueues(ports)
        self.rebalancer = Rebalancer(
            ports.session,
            ports.group,
            self.queues,
            ports.subscriptions,
            model=config.model,
            strategy=config.strategy,
            broker_assigns=config.broker_assigns,
            interval_ms=config.rebalance_interval_ms,
        )
        self._wanted: Collection[MessageQueue] = ()
        self._sharing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._raised: SubscriptionRejectedError | None = None
        self.commit_is_due = False
        """Whether the interval of automatic commits has passed."""

    # life

    async def start(self, assigned: Collection[MessageQueue] | None) -> None:
        """Start with rebalanced queues, or with the queues that were assigned manually."""
        for subscription in self._subscriptions.all():
            if subscription.expression_type == ExpressionType.SQL92:
                await check_sql(self._session, self._group, subscription)
        await self._group_offsets.open()
        await self._session.members.join(self._member)
        if assigned is None:
            await self.rebalancer.round()
            self._sharing = self._run(self.rebalancer.run())
        else:
            self._wanted = assigned
            await self._apply()
        self._run(self._save_now_and_then())
        if self._config.auto_commit:
            self._run(self._watch_commits())

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.queues.stop()
        if self._config.auto_commit:
            self.update_offsets()
        await self._group_offsets.save()
        await self._group_offsets.close()
        await self._session.members.leave(self._member)

    # which queues

    def assign(self, queues: Collection[MessageQueue]) -> None:
        self._wanted = queues
        self._run(self._apply())

    async def _apply(self) -> None:
        if self._sharing is not None:
            self._sharing.cancel()
        await self._session.members.refresh_routes(self._member.topics())
        wanted = self._wanted
        for queue in self.queues.owned():
            if queue not in wanted:
                await self.queues.drop(queue)
        for queue in sorted(wanted, key=queue_order):
            self.queues.add(queue)

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
                    self.queues.reject(subscription, "", error)
                except RocketQError as error:
                    log.warning("group %s: the subscription to %s was not checked: %s", self._group, topic, error)
        await self._session.members.heartbeat()
        self.rebalancer.wake()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self.rebalancer.lock:
            for queue, offset in offsets.items():
                if self.queues.get(queue) is not None:
                    await self.queues.seek(queue, offset)
                    await self._group_offsets.set(queue, offset)

    # which offsets

    def raise_denial(self) -> None:
        """Raise AccessDeniedError where brokers deny pulls or heartbeats: waiting for messages is in vain."""
        denial = self.queues.denial or self._session.members.denial
        if denial is not None:
            raise denial

    def raise_rejection(self) -> None:
        """Raise SubscriptionRejectedError while a broker rejects a subscription."""
        rejection = self._subscriptions.rejection
        if rejection is not None:
            self._raised = rejection
            raise rejection.with_traceback(None)

    def raise_rejection_once(self) -> None:
        """As `raise_rejection`, unless the application got it before."""
        if self._subscriptions.rejection is not self._raised:
            self.raise_rejection()

    def mark_consumed(self) -> None:
        """Everything returned so far counts as consumed."""
        for one in self.queues.all():
            one.mark_consumed()

    def update_offsets(self) -> None:
        for one in self.queues.all():
            if one.consumed is not None:
                self._group_offsets.table.update(one.queue, one.consumed)

    async def auto_commit(self) -> None:
        """Save the offsets of consumed messages, if that is due."""
        if self.commit_is_due:
            self.commit_is_due = False
            self.update_offsets()
            await self._group_offsets.save()

    async def _watch_commits(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            self.commit_is_due = True

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config.persist_interval_ms / 1000)
            await self._group_offsets.save()

    # what operators ask

    def running_info(self) -> RunningConsumer:
        clock = self._session.clock
        skew_ms = clock.now_ms() - clock.monotonic_ms()
        return RunningConsumer(
            properties=running_properties(
                name_servers=self._session.name_servers.addrs,
                consume_type=ConsumeType.CONSUME_ACTIVELY,
                orderly=False,
                workers=0,
                start_ms=self._start_ms,
                settings=self._config,
            ),
            subscriptions=self._subscriptions.all(),
            queues={one.queue: self._report(one, skew_ms) for one in self.queues.all()},
            rates=self._ports.stats.rates(clock.monotonic_ms()),
        )

    def _report(self, one: PulledQueue, skew_ms: int) -> QueueReport:
        return QueueReport(
            commit_offset=self._group_offsets.table.get(one.queue) or 0,
            cached_min_offset=one.position or 0,
            cached_max_offset=one.pull_offset or 0,
            cached_count=one.count,
            cached_mib=one.bytes >> 20,
            last_pull_ms=one.last_pull_ms + skew_ms,
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class NotAssignedError(ClientError):
    """The queue is not assigned to this consumer."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(f"{queue} is not assigned to this consumer")
        self.queue = queue


class OffsetOutOfRangeError(ClientError):
    """The offset is outside of the queue."""

    def __init__(self, queue: MessageQueue, offset: int, low: int, high: int) -> None:
        super().__init__(f"{queue} has offsets from {low} to {high}, not {offset}")
        self.queue, self.offset, self.low, self.high = queue, offset, low, high


class AsyncPullConsumer:
    """Returns messages of subscribed topics, shared with the group, or of manually assigned queues.

        async with AsyncPullConsumer("reports", topics=["Orders"], start="earliest") as consumer:
            async for message in consumer:
                ...

    A message counts as consumed when the next one is requested. With `auto_commit`, offsets are saved every few seconds
    and at close; if the block is left by an exception, the current message does not count as consumed.
    """

    def __init__(
        self,
        group: str,
        *,
        topics: TopicList | None = None,
        start: Start | None = None,
        name_servers: str | Sequence[str] | None = None,
        session: Session | None = None,
        session_config: SessionConfig | None = None,
        config: PullConfig | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        check_consumer_group(group)
        if session is not None and (name_servers is not None or session_config is not None):
            raise ConfigError("pass either session, or name_servers and session_config: not both")
        self._owns_session = session is None
        self.session = session if session is not None else Session(name_servers, config=session_config)
        self.config = starting(config or PullConfig(), start, self.session.clock.now_ms())
        self._namespace = self.session.namespace
        self.group = self._namespace.group(group)
        self._subscriptions = SubscriptionTable()
        self._assigned: set[MessageQueue] | None = None
        self._start_ms = self.session.clock.now_ms()
        self._positions = QueuePositions(self.session)
        self._pulls = GroupPulls(self.session, self.group, self._namespace)
        from_time_ms = self.config.from_time_ms
        self._group_offsets = ConsumerOffsets(
            offset_store or default_store(self.session, self.config, self.group),
            self._positions,
            self.group,
            from_where=self.config.from_where,
            from_time_ms=self._start_ms - HALF_AN_HOUR_MS if from_time_ms is None else from_time_ms,
        )
        self._engine: PullEngine | None = None
        self._last: PulledQueue | None = None
        self._closed = False
        for topic, expression in expressions_of(topics).items():
            self.subscribe(topic, expression)

    # life

    async def start(self) -> None:
        """Registered with brokers and assigned its first queues when this returns."""
        if self._closed:
            raise ClientClosedError(f"consumer {self.group}")
        if self._engine is not None:
            raise ClientError(f"consumer {self.group} was started already")
        ports = PullQueuePorts(
            session=self.session,
            group=self.group,
            namespace=self._namespace,
            config=self.config,
            pulls=self._pulls,
            subscriptions=self._subscriptions,
            group_offsets=self._group_offsets,
            stats=ConsumerStats(),
        )
        self._engine = PullEngine(self, ports, self._start_ms)
        await self._engine.start(self._assigned)

    async def close(self) -> None:
        """Count returned messages as consumed, save offsets, and unregister.

        Raises SubscriptionRejectedError where a broker rejects a subscription, unless `poll` or iteration raised it.
        """
        await self.leave(consumed=True)

    async def leave(self, *, consumed: bool) -> None:
        """Close; with `consumed=False` the last returned messages are delivered again."""
        if self._closed:
            return
        if consumed:
            self._mark_consumed()
        self._closed = True
        try:
            if self._engine is not None:
                await self._engine.stop()
        finally:
            if self._owns_session:
                await self.session.close()
        if consumed and self._engine is not None:
            self._engine.raise_rejection_once()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(consumed=error is None)

    # which messages

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Consume the topic, sharing its queues with the group. Not together with `assign`."""
        if self._assigned is not None:
            raise ClientError("queues were assigned: use either subscribe() or assign(), not both")
        named = self._namespace.topic(topic) if isinstance(topic, str) else topic
        subscription = make_subscription(named, expression, sql, self.session.clock.now_ms())
        self._subscriptions.put(subscription)
        if self._engine is not None:
            self._engine.announce(subscription.topic)

    def unsubscribe(self, topic: str) -> None:
        if self._subscriptions.remove(self._namespace.topic(topic)) and self._engine is not None:
            self._engine.announce(None)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Consume exactly these queues, without rebalancing. Not together with `subscribe`."""
        if self._subscriptions.topics():
            raise ClientError("topics were subscribed to: use either subscribe() or assign(), not both")
        self._assigned = {self._namespace.queue(queue) for queue in queues}
        if self._engine is not None:
            self._engine.assign(self._assigned)

    def assignment(self) -> tuple[MessageQueue, ...]:
        queues = self._engine.queues.owned() if self._engine is not None else ()
        return tuple(sorted((self._namespace.plain_queue(queue) for queue in queues), key=queue_order))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All readable queues of a topic."""
        named = self._namespace.topic(topic)
        found = subscribe_queues(named, await self.session.routes.get(named))
        return tuple(self._namespace.plain_queue(queue) for queue in found)

    # getting them

    async def poll(self, timeout_ms: Milliseconds | None = None, count_max: int | None = None) -> list[StoredMessage]:
        """Messages of one or more queues, each in order; an empty list on timeout.

        Messages returned before count as consumed. SubscriptionRejectedError, also from iteration, while a broker
        rejects a subscription.
        """
        engine = self._running()
        self._mark_consumed()
        await engine.auto_commit()
        loop = asyncio.get_running_loop()
        wait_ms = self.config.poll_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        deadline_s = loop.time() + wait_ms / 1000
        limit = self.config.poll_max if count_max is None else count_max
        engine.raise_rejection()
        while not (taken := engine.queues.take(limit)):
            engine.raise_denial()
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                break
            await engine.queues.arrival(left_s)
            self._running()
            engine.raise_rejection()
        return taken

    def put_back(self, messages: Sequence[StoredMessage]) -> None:
        """Return the last messages unread: they are delivered again."""
        self._running().queues.put_back(messages)

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        return self

    async def __anext__(self) -> StoredMessage:
        last = self._last
        if last is not None:
            last.consumed = last.position
            engine = self._engine
            if engine is not None and not engine.commit_is_due and (message := last.take_next()) is not None:
                return message
        return await self._next()

    async def _next(self) -> StoredMessage:
        """The first message of another batch."""
        engine = self._running()
        await engine.auto_commit()
        engine.raise_rejection()
        while (taken := engine.queues.take_next()) is None:
            engine.raise_denial()
            await engine.queues.arrival(1.0)
            await engine.auto_commit()
            self._running()
            engine.raise_rejection()
        self._last, message = taken
        return message

    async def batches(self, max_count: int = 500, max_wait_ms: int = 100) -> AsyncIterator[MessageBatch]:
        """Batches of at most `max_count` messages of one queue, without end.

        A batch with fewer messages is returned after `max_wait_ms`, 0 for at once. It counts as consumed when the next
        one is asked for, or by its `commit()`.
        """
        while True:
            yield await self.next_batch(max_count, max_wait_ms)

    async def next_batch(self, max_count: int = 500, max_wait_ms: int = 100) -> MessageBatch:
        """The next of `batches`."""
        if max_count < 1 or max_wait_ms < 0:
            raise ConfigError("max_count is at least 1, max_wait_ms is not negative")
        loop = asyncio.get_running_loop()
        engine = self._running()
        self._mark_consumed()
        await engine.auto_commit()
        engine.raise_rejection()
        taken = engine.queues.take_parts(max_count, max_count if max_wait_ms else 1)
        deadline_s = loop.time() + max_wait_ms / 1000
        while taken is None:
            left_s = deadline_s - loop.time()
            await engine.queues.next_arrival(left_s if left_s > 0 else 1.0)
            engine = self._running()
            await engine.auto_commit()
            engine.raise_rejection()
            engine.raise_denial()
            taken = engine.queues.take_parts(max_count, max_count if loop.time() < deadline_s else 1)
        one, parts = taken
        return MessageBatch(
            self._namespace.plain_queue(one.queue), parts, commit=partial(self._commit_to, one, one.position)
        )

    async def _commit_to(self, one: PulledQueue, offset: int | None) -> None:
        """Save this offset of a queue, whose messages before it were consumed."""
        if offset is not None:
            one.consumed = max(offset, one.consumed or 0)
            await self.commit({self._namespace.plain_queue(one.queue): offset})

    async def pull(
        self,
        queue: MessageQueue,
        expression: str,
        offset: int,
        count_max: int = COUNT_MAX,
        *,
        block: bool = False,
        timeout_ms: int = PULL_TIMEOUT_MS,
    ) -> PullResult:
        """One pull of any queue; changes no position. With `block` the broker waits for a first message."""
        if offset < 0 or count_max <= 0:
            raise ValueError(f"no pull of {count_max} messages at offset {offset}")
        named = self._namespace.queue(queue)
        subscription = make_subscription(named.topic, expression, None, 0)
        return await self._pulls.pull(
            named,
            offset,
            subscription,
            count_max=count_max,
            hold_ms=self.config.hold_ms if block else 0,
            tags=frozenset(subscription.tags) or None,
            with_expression=True,
            timeout_ms=self.config.pull_timeout_ms if block else timeout_ms,
        )

    # moving

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at this offset; held messages of the queue are discarded."""
        one = self._mine(queue)
        bounds = await self._positions.bounds(one.queue)
        if not bounds.min_offset <= offset <= bounds.max_offset:
            raise OffsetOutOfRangeError(queue, offset, bounds.min_offset, bounds.max_offset)
        await self._running().queues.seek(self._mine(queue).queue, offset)

    async def seek_to_time(self, queue: MessageQueue, time_ms: int | datetime) -> None:
        """Move to the first message stored at or after this time."""
        if isinstance(time_ms, datetime):
            time_ms = round(time_ms.timestamp() * 1000)
        await self._seek_to(queue, ResetTo.at_time(time_ms))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self._seek_to(queue, ResetTo.earliest())

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self._seek_to(queue, ResetTo.latest())

    async def _seek_to(self, queue: MessageQueue, to: ResetTo) -> None:
        _, offset = await self._positions.resolve(self._mine(queue).queue, to)
        await self._running().queues.seek(self._mine(queue).queue, offset)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset after the last returned message; None before the queue has started."""
        return self._mine(queue).position

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Return no messages of these queues, or of all."""
        self._set_paused(queues, True)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._set_paused(queues, False)

    def _set_paused(self, queues: Iterable[MessageQueue] | None, paused: bool) -> None:
        running = self._running().queues
        chosen = running.owned() if queues is None else [self._namespace.queue(queue) for queue in queues]
        running.pause(chosen, paused)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Save these offsets, or those of everything returned. RocketQError if that failed."""
        if offsets is None:
            self._mark_consumed()
            if self._engine is not None:
                self._engine.update_offsets()
        for queue, offset in (offsets or {}).items():
            self._group_offsets.table.update(self._namespace.queue(queue), offset)
        if not await self._group_offsets.save():
            raise ClientError(f"group {self.group}: some offsets were not saved; the log says why")

    async def committed(self, queue: MessageQueue) -> int | None:
        """What is saved of this queue; None where nothing ever was."""
        named = self._namespace.queue(queue)
        known = self._group_offsets.table.get(named)
        return known if known is not None else await self._group_offsets.peek(named)

    def health(self) -> Mapping[str, Any]:
        """For `session.health()`: the queues that are ours and what is held of them."""
        queues = self._engine.queues.all() if self._engine is not None else []
        held = {self._namespace.plain_queue(one.queue): one.count for one in queues}
        return {"kind": "pull consumer", "group": self._namespace.plain(self.group), "assignment": held}

    # what a session and brokers ask

    def topics(self) -> Collection[str]:
        by_hand = {queue.topic for queue in self._assigned or ()}
        return {*self._subscriptions.topics(), *by_hand}

    def heartbeat_part(self) -> ConsumerData:
        return ConsumerData(
            group=self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            model=self.config.model,
            from_where=self.config.from_where,
            subscriptions=self._subscriptions.all(),
            unit_mode=self.session.config.unit_mode,
        )

    def ids_changed(self) -> None:
        if self._engine is not None and self._assigned is None:
            self._engine.rebalancer.wake()

    async def reset_offsets(self, topic: str, table: Mapping[MessageQueue, int]) -> None:
        if self._engine is not None:
            await self._engine.reset({queue: offset for queue, offset in table.items() if queue.topic == topic})

    def consume_positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: offset for queue, offset in self._group_offsets.table.all().items() if queue.topic == topic}

    def running_info(self) -> RunningConsumer:
        return self._engine.running_info() if self._engine is not None else RunningConsumer()

    async def consume_directly(self, message: StoredMessage) -> ConsumeDirectlyResult:
        raise ClientError(f"group {self.group} pulls here: there is no listener to call")

    # inside

    def _running(self) -> PullEngine:
        if self._closed:
            raise ClientClosedError(f"consumer {self.group}")
        if self._engine is None:
            raise ClientError(f"consumer {self.group} was not started")
        return self._engine

    def _mine(self, queue: MessageQueue) -> PulledQueue:
        one = self._running().queues.get(self._namespace.queue(queue))
        if one is None:
            raise NotAssignedError(queue)
        return one

    def _mark_consumed(self) -> None:
        self._last = None
        if self._engine is not None:
            self._engine.mark_consumed()
