"""A consumer that calls a listener with what brokers have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from rocketq.client.aio.listener_calls import Listener, takes_two
from rocketq.client.aio.offset_store import OffsetStore
from rocketq.client.aio.push_engine import PushEngine
from rocketq.client.aio.session import Session, SessionConfig
from rocketq.client.core.consumer_config import PushConfig
from rocketq.client.core.routes import queue_order
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscription_table import SubscriptionTable, make_subscription
from rocketq.client.core.subscriptions import ALL
from rocketq.client.errors import ClientClosedError, ClientError
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.clients import ConsumeDirectlyResult, ConsumerData, RunningConsumer
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeType
from rocketq.protocol.names import DLQ_PREFIX, group_fault, is_system_group, retry_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    """One owned queue: the offset reached, what is held of it, and when it was last pulled."""

    committed: int | None
    held_count: int
    held_bytes: int
    pull_age_ms: int


class AsyncPushConsumer:
    """Calls `listener(messages, context)` with messages of the topics it is subscribed to.

        async with AsyncPushConsumer("orders", listener, name_servers="127.0.0.1:9876") as consumer:
            consumer.subscribe("Orders", "new || paid")

    The listener is a plain function, called in threads, or an asynchronous one. Returning means done; an exception or
    ConsumeResult.LATER means that the messages come again. Messages may come twice: see docs/guide/duplicates.md.
    """

    def __init__(
        self,
        group: str,
        listener: Listener,
        *,
        name_servers: str | Sequence[str] | None = None,
        session: Session | None = None,
        session_config: SessionConfig | None = None,
        config: PushConfig | None = None,
        orderly: bool | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        config = config or PushConfig()
        self.config = config if orderly is None else replace(config, orderly=orderly)
        if not callable(listener):
            raise ConfigError(f"a listener is called, {type(listener).__name__} cannot be")
        if not takes_two(listener):
            raise ConfigError("a listener is called with two arguments, the messages and a context: this one cannot be")
        check_consumer_group(group)
        if session is not None and (name_servers is not None or session_config is not None):
            raise ConfigError("a consumer shares a session, or makes one of its own: not both")
        self._listener = listener
        self._owns_session = session is None
        self.session = session if session is not None else Session(name_servers, config=session_config)
        self._namespace = self.session.namespace
        self.group = self._namespace.group(group)
        """As brokers know it."""
        self._subscriptions = SubscriptionTable()
        self._offset_store = offset_store
        self._paused = False
        self._engine: PushEngine | None = None
        self._closed = False

    # life

    async def start(self) -> None:
        """Known to brokers, with its first queues, when this returns."""
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
        """Listeners under way come to their end, offsets are saved, locks given back, brokers told."""
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
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # what users do

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """To all messages, those of tags (`a || b`), or those an SQL92 expression is true for. At any time.

        SubscriptionInvalidError says what is wrong with an expression and where. A broker without property filters
        refuses SQL92: that is raised by `start`, later it is logged.
        """
        named = self._namespace.topic(topic) if isinstance(topic, str) else topic
        subscription = make_subscription(named, expression, sql, self.session.clock.now_ms())
        self._subscriptions.put(subscription)
        if self._engine is not None:
            self._engine.announce(subscription.topic)

    def unsubscribe(self, topic: str) -> None:
        """Its queues are given away."""
        if self._subscriptions.remove(self._namespace.topic(topic)) and self._engine is not None:
            self._engine.announce(None)

    def pause(self) -> None:
        """Nothing more is pulled; what is held is still consumed."""
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
        """The queues that are ours now; those of retries are not listed."""
        engine = self._engine
        retries = retry_topic(self.group)
        owned = [queue for queue in engine.queues.owned() if queue.topic != retries] if engine is not None else []
        return tuple(sorted((self._namespace.plain_queue(queue) for queue in owned), key=queue_order))

    def health(self) -> Mapping[str, Any]:
        """For `session.health()`: every queue that is ours, with a QueueHealth each."""
        told = {"kind": "push consumer", "group": self._namespace.plain(self.group), "paused": self._paused}
        if self._engine is None:
            return {**told, "assignment": {}}
        now_ms, table = self.session.clock.monotonic_ms(), self._engine.keeper.table
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
        """Save the offsets reached now instead of within the next seconds."""
        if self._engine is not None:
            await self._engine.keeper.save()

    # what a session and brokers ask

    def topics(self) -> Collection[str]:
        return self._subscriptions.topics()

    def heartbeat_part(self) -> ConsumerData:
        return ConsumerData(
            group=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            model=self.config.model,
            from_where=self.config.from_where,
            subscriptions=self._subscriptions.all(),
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
        return {queue: offset for queue, offset in self._engine.keeper.table.all().items() if queue.topic == topic}

    def running_info(self) -> RunningConsumer:
        return self._engine.running_info() if self._engine is not None else RunningConsumer()

    async def consume_directly(self, message: StoredMessage) -> ConsumeDirectlyResult:
        if self._engine is None:
            raise ClientClosedError(f"consumer {self.group}")
        return await self._engine.consume_directly(message)


def check_consumer_group(group: str) -> None:
    """ConfigError for a name no broker would take."""
    if not isinstance(group, str):
        raise ConfigError(f"a group is a text, not {type(group).__name__}")
    if (fault := group_fault(group)) is not None:
        raise ConfigError(fault)
    if is_system_group(group) or group.startswith(DLQ_PREFIX):
        raise ConfigError(f"group {group} is reserved: choose another name")
