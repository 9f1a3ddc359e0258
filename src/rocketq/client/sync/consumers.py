"""Consumers without await."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketq.client.consumer import check_consumer_group
from rocketq.client.core.config import PullConfig, PushConfig, Start, TopicList, expressions_of, starting
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscriptions import ALL, make_subscription
from rocketq.client.listener import Listener
from rocketq.client.message_batch import BlockingMessageBatch
from rocketq.client.offsets import OffsetStore
from rocketq.client.pull_consumer import AsyncPullConsumer
from rocketq.client.push_consumer import AsyncPushConsumer
from rocketq.client.session import Session, SessionConfig
from rocketq.client.sync.facade import Engine, Facade, blocking
from rocketq.client.sync.shared import MemberKey, SharedSession, check_session, join_session
from rocketq.protocol.bodies.queues import MessageQueue

_Consumer = TypeVar("_Consumer", bound=AsyncPushConsumer | AsyncPullConsumer)
_Result = TypeVar("_Result")


class _Subscribing(Facade[_Consumer, _Consumer]):
    """Shared by both consumers. Keeps the subscriptions: in a forked child the consumer is created again."""

    def __init__(
        self,
        group: str,
        make: Callable[[Session], _Consumer],
        start: Any,
        session: SharedSession | None,
        name_servers: str | Sequence[str] | None,
        session_config: SessionConfig | None,
        topics: TopicList | None,
    ) -> None:
        check_consumer_group(group)
        what = f"consumer {group}"
        addrs = check_session(what, session, name_servers, session_config)
        member = MemberKey("consumer", group, is_exclusive=True)
        self._subscribed: dict[str, tuple[str, str | None]] = {}
        self._started_in = -1
        for topic, expression in expressions_of(topics).items():
            make_subscription(topic, expression, None, 0)
            self._subscribed[topic] = (expression, None)

        def made() -> tuple[_Consumer, Callable[[], None]]:
            joined, leave = join_session(session, addrs, session_config, member)
            try:
                consumer = make(joined)
                for topic, (expression, sql) in self._subscribed.items():
                    consumer.subscribe(topic, expression, sql=sql)
            except BaseException:
                leave()
                raise
            return consumer, leave

        super().__init__(Engine(made, start, what), lambda consumer: consumer)

    def start(self) -> Self:
        self._engine.start()
        self._started_in = os.getpid()
        return self

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Subscribe to all messages, to tags (`a || b`), or by an SQL92 expression."""
        make_subscription(topic, expression, sql, 0)
        self._subscribed[topic] = (expression, sql)
        if self._is_started:
            self._do(lambda consumer: consumer.subscribe(topic, expression, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        self._subscribed.pop(topic, None)
        if self._is_started:
            self._do(lambda consumer: consumer.unsubscribe(topic))

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The assigned queues."""
        return self._do(lambda consumer: consumer.assignment())

    def health(self) -> Mapping[str, Any]:
        """The assigned queues and their progress."""
        return self._do(lambda consumer: consumer.health())

    @property
    def _is_started(self) -> bool:
        return self._started_in == os.getpid()

    def _do(self, work: Callable[[_Consumer], _Result]) -> _Result:
        """Run on the loop of the consumer."""

        async def run(consumer: _Consumer) -> _Result:
            return work(consumer)

        return self._run(run)

    def __enter__(self) -> Self:
        return self.start()


class PushConsumer(_Subscribing[AsyncPushConsumer]):
    """AsyncPushConsumer without await; listeners run in threads.

    with PushConsumer("orders", listener, topics={"Orders": "new || paid"}):
        wait_until_the_program_ends()
    """

    def __init__(
        self,
        group: str,
        listener: Listener,
        *,
        topics: TopicList | None = None,
        start: Start | None = None,
        name_servers: str | Sequence[str] | None = None,
        session: SharedSession | None = None,
        session_config: SessionConfig | None = None,
        config: PushConfig | None = None,
        orderly: bool | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        starting(config or PushConfig(), start, 0)  # checked here, so that the constructor raises

        def make(joined: Session) -> AsyncPushConsumer:
            return AsyncPushConsumer(
                group,
                listener,
                start=start,
                session=joined,
                config=config,
                orderly=orderly,
                offset_store=offset_store,
            )

        super().__init__(group, make, AsyncPushConsumer.start, session, name_servers, session_config, topics)

    commit = blocking(AsyncPushConsumer.commit)

    def pause(self) -> None:
        """Stop pulling; held messages are still consumed."""
        self._do(AsyncPushConsumer.pause)

    def resume(self) -> None:
        self._do(AsyncPushConsumer.resume)

    def close(self) -> None:
        """Wait for running listeners, save offsets, release locks, and unregister; see AsyncPushConsumer.close."""
        self._engine.close(AsyncPushConsumer.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.close(AsyncPushConsumer.close if error is None else AsyncPushConsumer.leave)


class PullConsumer(_Subscribing[AsyncPullConsumer]):
    """AsyncPullConsumer without await.

    with PullConsumer("reports", topics=["Orders"], start="earliest") as consumer:
        for message in consumer:
            ...
    """

    def __init__(
        self,
        group: str,
        *,
        topics: TopicList | None = None,
        start: Start | None = None,
        name_servers: str | Sequence[str] | None = None,
        session: SharedSession | None = None,
        session_config: SessionConfig | None = None,
        config: PullConfig | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        self._assigned: list[MessageQueue] | None = None
        self._ahead: list[StoredMessage] = []

        starting(config or PullConfig(), start, 0)

        def make(joined: Session) -> AsyncPullConsumer:
            consumer = AsyncPullConsumer(group, start=start, session=joined, config=config, offset_store=offset_store)
            if self._assigned is not None:
                consumer.assign(self._assigned)
            return consumer

        super().__init__(group, make, AsyncPullConsumer.start, session, name_servers, session_config, topics)

    queues = blocking(AsyncPullConsumer.queues)
    pull = blocking(AsyncPullConsumer.pull)
    committed = blocking(AsyncPullConsumer.committed)
    poll = blocking(AsyncPullConsumer.poll)
    commit = blocking(AsyncPullConsumer.commit)
    seek = blocking(AsyncPullConsumer.seek)
    seek_to_time = blocking(AsyncPullConsumer.seek_to_time)
    seek_to_begin = blocking(AsyncPullConsumer.seek_to_begin)
    seek_to_end = blocking(AsyncPullConsumer.seek_to_end)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Consume exactly these queues, without rebalancing. Not together with `subscribe`."""
        self._assigned = list(queues)
        if self._is_started:
            self._do(lambda consumer: consumer.assign(self._assigned or ()))

    def position(self, queue: MessageQueue) -> int | None:
        """The offset after the last returned message; None before the queue has started."""
        return self._do(lambda consumer: consumer.position(queue))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Return no messages of these queues, or of all."""
        self._do(lambda consumer: consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._do(lambda consumer: consumer.resume(queues))

    def next_batch(self, max_count: int = 500, max_wait_ms: int = 100) -> BlockingMessageBatch:
        """The next of `batches`."""
        batch = self._run(lambda consumer: consumer.next_batch(max_count, max_wait_ms))
        return BlockingMessageBatch(batch, lambda: self._run(lambda consumer: batch.commit()))

    def batches(self, max_count: int = 500, max_wait_ms: int = 100) -> Iterator[BlockingMessageBatch]:
        """Batches of at most `max_count` messages of one queue, without end; see AsyncPullConsumer.batches."""
        while True:
            yield self.next_batch(max_count, max_wait_ms)

    def __iter__(self) -> Iterator[StoredMessage]:
        """Iterate without end. Messages are fetched in groups; unread ones are delivered again."""
        while True:
            ahead = self.poll()
            ahead.reverse()
            self._ahead = ahead
            while ahead:
                yield ahead.pop()
                if self._ahead is not ahead:  # another method ran and returned the unread messages
                    break

    def close(self) -> None:
        """Count returned messages as consumed, save offsets, and unregister."""
        self._leave(consumed=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(consumed=error is None)

    def _run(self, work: Any) -> Any:
        """Return prefetched unread messages before anything else."""
        left, self._ahead = self._ahead[::-1], []

        async def run(consumer: AsyncPullConsumer) -> Any:
            if left:
                consumer.put_back(left)
            return await work(consumer)

        return self._engine.run(run)

    def _leave(self, *, consumed: bool) -> None:
        left, self._ahead = self._ahead[::-1], []

        async def closing(consumer: AsyncPullConsumer) -> None:
            if left:
                consumer.put_back(left)
            await consumer.leave(consumed=consumed)

        self._engine.close(closing)
