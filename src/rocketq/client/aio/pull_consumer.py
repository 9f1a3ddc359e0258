"""A consumer that is asked for messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rocketq.client.aio.group_pulls import GroupPulls
from rocketq.client.aio.lite_queues import LitePorts
from rocketq.client.aio.offset_keeper import OffsetKeeper
from rocketq.client.aio.offset_store import OffsetStore
from rocketq.client.aio.pull_engine import PullEngine
from rocketq.client.aio.puller import COUNT_MAX, PULL_TIMEOUT_MS, PullResult
from rocketq.client.aio.push_consumer import check_consumer_group
from rocketq.client.aio.push_engine import HALF_AN_HOUR_MS, default_store
from rocketq.client.aio.queue_positions import QueuePositions
from rocketq.client.aio.session import Session, SessionConfig
from rocketq.client.core.client_figures import ClientFigures
from rocketq.client.core.consumer_config import PullConfig
from rocketq.client.core.pulled_queue import PulledQueue
from rocketq.client.core.resets import ResetTo
from rocketq.client.core.routes import queue_order, subscribe_queues
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscription_table import SubscriptionTable, make_subscription
from rocketq.client.core.subscriptions import ALL
from rocketq.client.errors import ClientClosedError, ClientError
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.clients import ConsumeDirectlyResult, ConsumerData, RunningConsumer
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeType


class NotAssignedError(ClientError):
    """The queue is not (or no more) one of this consumer's."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(f"{queue} is not assigned to this consumer")
        self.queue = queue


class OffsetOutOfRangeError(ClientError):
    """The queue has no such offset."""

    def __init__(self, queue: MessageQueue, offset: int, low: int, high: int) -> None:
        super().__init__(f"{queue} has offsets from {low} to {high}, not {offset}")
        self.queue, self.offset, self.low, self.high = queue, offset, low, high


class AsyncPullConsumer:
    """Hands out messages of subscribed topics, shared with the group, or of queues assigned by hand.

        async with AsyncPullConsumer("reports", name_servers="127.0.0.1:9876") as consumer:
            consumer.subscribe("Orders")
            async for message in consumer:
                ...

    A message counts as dealt with when the next one is asked for. With `auto_commit` that is saved every few seconds
    and at the end; a block that is left by an exception does not count the message it was busy with.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        session: Session | None = None,
        session_config: SessionConfig | None = None,
        config: PullConfig | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        check_consumer_group(group)
        if session is not None and (name_servers is not None or session_config is not None):
            raise ConfigError("a consumer shares a session, or makes one of its own: not both")
        self.config = config or PullConfig()
        self._owns_session = session is None
        self.session = session if session is not None else Session(name_servers, config=session_config)
        self._namespace = self.session.namespace
        self.group = self._namespace.group(group)
        self._subscriptions = SubscriptionTable()
        self._assigned: set[MessageQueue] | None = None
        self._began_ms = self.session.clock.now_ms()
        self._positions = QueuePositions(self.session)
        self._pulls = GroupPulls(self.session, self.group, self._namespace)
        from_time_ms = self.config.from_time_ms
        self._keeper = OffsetKeeper(
            offset_store or default_store(self.session, self.config, self.group),
            self._positions,
            self.group,
            from_where=self.config.from_where,
            from_time_ms=self._began_ms - HALF_AN_HOUR_MS if from_time_ms is None else from_time_ms,
        )
        self._engine: PullEngine | None = None
        self._last: PulledQueue | None = None
        self._closed = False

    # life

    async def start(self) -> None:
        """Known to brokers, with its first queues, when this returns."""
        if self._closed:
            raise ClientClosedError(f"consumer {self.group}")
        if self._engine is not None:
            raise ClientError(f"consumer {self.group} was started already")
        ports = LitePorts(
            session=self.session,
            group=self.group,
            namespace=self._namespace,
            config=self.config,
            pulls=self._pulls,
            subscriptions=self._subscriptions,
            keeper=self._keeper,
            figures=ClientFigures(),
        )
        self._engine = PullEngine(self, ports, self._began_ms)
        await self._engine.start(self._assigned)

    async def close(self) -> None:
        """What was handed out is dealt with; offsets are saved, brokers told."""
        await self.leave(settled=True)

    async def leave(self, *, settled: bool) -> None:
        """Closing; with `settled` False what was handed out last comes again."""
        if self._closed:
            return
        if settled:
            self._settle()
        self._closed = True
        try:
            if self._engine is not None:
                await self._engine.stop()
        finally:
            if self._owns_session:
                await self.session.close()

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
        await self.leave(settled=error is None)

    # which messages

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Queues of the topic are shared with the group. Not together with `assign`."""
        if self._assigned is not None:
            raise ClientError("queues were assigned: a consumer subscribes or is assigned, not both")
        named = self._namespace.topic(topic) if isinstance(topic, str) else topic
        subscription = make_subscription(named, expression, sql, self.session.clock.now_ms())
        self._subscriptions.put(subscription)
        if self._engine is not None:
            self._engine.announce(subscription.topic)

    def unsubscribe(self, topic: str) -> None:
        if self._subscriptions.remove(self._namespace.topic(topic)) and self._engine is not None:
            self._engine.announce(None)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Exactly these queues from now on, whatever the group has. Not together with `subscribe`."""
        if self._subscriptions.topics():
            raise ClientError("topics were subscribed to: a consumer subscribes or is assigned, not both")
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

    async def poll(self, timeout_ms: int | None = None, count_max: int | None = None) -> list[StoredMessage]:
        """What is there, of several queues maybe, each in its order; nothing when nothing comes in time.

        What was handed out before counts as dealt with.
        """
        engine = self._running()
        self._settle()
        await engine.auto_commit()
        loop = asyncio.get_running_loop()
        wait_ms = self.config.poll_timeout_ms if timeout_ms is None else timeout_ms
        deadline_s = loop.time() + wait_ms / 1000
        limit = self.config.poll_max if count_max is None else count_max
        while not (taken := engine.queues.take(limit)):
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                break
            await engine.queues.arrival(left_s)
            self._running()
        return taken

    def give_back(self, messages: Sequence[StoredMessage]) -> None:
        """The last messages handed out were not looked at: they are handed out again."""
        self._running().queues.give_back(messages)

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        return self

    async def __anext__(self) -> StoredMessage:
        engine = self._running()
        if self._last is not None:
            self._last.settle()
        if engine.commit_is_due:
            await engine.auto_commit()
        while not (taken := engine.queues.take(1)):
            await engine.queues.arrival(1.0)
            await engine.auto_commit()
            self._running()
        self._last = engine.queues.get(self._namespace.queue(taken[0].queue))
        return taken[0]

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
        """One pull of any queue, which moves nothing. With `block` the broker waits for a message if there is none."""
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
        """Go on at this offset; what is held of the queue is forgotten."""
        one = self._mine(queue)
        bounds = await self._positions.bounds(one.queue)
        if not bounds.min_offset <= offset <= bounds.max_offset:
            raise OffsetOutOfRangeError(queue, offset, bounds.min_offset, bounds.max_offset)
        await self._running().queues.seek(self._mine(queue).queue, offset)

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """At the first message stored then or later."""
        await self._seek_to(queue, ResetTo.at_time(time_ms))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self._seek_to(queue, ResetTo.earliest())

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self._seek_to(queue, ResetTo.latest())

    async def _seek_to(self, queue: MessageQueue, to: ResetTo) -> None:
        _, offset = await self._positions.resolve(self._mine(queue).queue, to)
        await self._running().queues.seek(self._mine(queue).queue, offset)

    def position(self, queue: MessageQueue) -> int | None:
        """Behind the last message handed out; None while the queue is not begun."""
        return self._mine(queue).position

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Nothing of these queues, or of all, is handed out."""
        self._set_paused(queues, True)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._set_paused(queues, False)

    def _set_paused(self, queues: Iterable[MessageQueue] | None, paused: bool) -> None:
        running = self._running().queues
        chosen = running.owned() if queues is None else [self._namespace.queue(queue) for queue in queues]
        running.pause(chosen, paused)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """These offsets, or everything handed out; saved when this returns. RocketQError where that failed."""
        if offsets is None:
            self._settle()
            if self._engine is not None:
                self._engine.commit_settled()
        for queue, offset in (offsets or {}).items():
            self._keeper.table.update(self._namespace.queue(queue), offset)
        if not await self._keeper.save():
            raise ClientError(f"group {self.group}: some offsets were not saved; the log says why")

    async def committed(self, queue: MessageQueue) -> int | None:
        """What is saved of this queue; None where nothing ever was."""
        named = self._namespace.queue(queue)
        known = self._keeper.table.get(named)
        return known if known is not None else await self._keeper.peek(named)

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
        )

    def ids_changed(self) -> None:
        if self._engine is not None and self._assigned is None:
            self._engine.rebalancer.wake()

    async def reset_offsets(self, topic: str, table: Mapping[MessageQueue, int]) -> None:
        if self._engine is not None:
            await self._engine.reset({queue: offset for queue, offset in table.items() if queue.topic == topic})

    def consume_positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: offset for queue, offset in self._keeper.table.all().items() if queue.topic == topic}

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

    def _settle(self) -> None:
        self._last = None
        if self._engine is not None:
            self._engine.settle()
