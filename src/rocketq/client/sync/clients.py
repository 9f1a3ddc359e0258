"""Producer, consumers and admin without await."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.access import AsyncAccess
from rocketq.client.admin.brokers import AsyncBrokers
from rocketq.client.admin.dead_letters import AsyncDeadLetters
from rocketq.client.admin.groups import AsyncGroups
from rocketq.client.admin.messages import AsyncMessages
from rocketq.client.admin.offsets import AsyncOffsets
from rocketq.client.admin.overview import AsyncOverview
from rocketq.client.admin.pending import AsyncTimers, AsyncTransactions
from rocketq.client.admin.topics import AsyncTopics
from rocketq.client.admin.traces import AsyncTraces
from rocketq.client.blocking.direct_send import SendConnections
from rocketq.client.consumer import check_consumer_group
from rocketq.client.core.config import ProducerConfig, PullConfig, PushConfig, check_group
from rocketq.client.core.messages import Message
from rocketq.client.core.send_flow import SendHook, SendResult
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscriptions import ALL, make_subscription
from rocketq.client.listener import Listener
from rocketq.client.message_batch import BlockingMessageBatch
from rocketq.client.offsets import OffsetStore
from rocketq.client.producer import AsyncProducer, Select
from rocketq.client.pull_consumer import AsyncPullConsumer
from rocketq.client.push_consumer import AsyncPushConsumer
from rocketq.client.session import Session, SessionConfig, SessionHealth
from rocketq.client.sync.facade import Engine, Facade, blocking
from rocketq.client.sync.shared import MemberKey, SharedSession, check_session, join_session
from rocketq.client.transactions import TransactionListener
from rocketq.protocol.bodies.queues import MessageQueue


class Producer(Facade[AsyncProducer, AsyncProducer]):
    """AsyncProducer without await: callable from any thread, also while an event loop runs; restarts in a forked child.

    with Producer("orders", name_servers="127.0.0.1:9876") as producer:
        result = producer.send(Message(topic="Orders", body=b"..."))
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        session: SharedSession | None = None,
        session_config: SessionConfig | None = None,
        config: ProducerConfig | None = None,
        transaction: TransactionListener | None = None,
        hooks: Sequence[SendHook] = (),
    ) -> None:
        check_group(group)
        addrs = check_session(f"producer {group}", session, name_servers, session_config)
        member = MemberKey("producer", group, is_exclusive=transaction is not None)

        def make() -> tuple[AsyncProducer, Callable[[], None]]:
            joined, leave = join_session(session, addrs, session_config, member)
            return AsyncProducer(group, session=joined, config=config, transaction=transaction, hooks=hooks), leave

        super().__init__(Engine(make, AsyncProducer.start, f"producer {group}"), lambda producer: producer)
        tls = session_config.tls if session_config is not None else None
        self._sockets = SendConnections(tls.context() if tls is not None else None)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | None = None,
        select: Select | None = None,
        arg: Any = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """The result once a broker has stored it, on another broker when one fails; see AsyncProducer.send.

        The first try is made on a socket of the calling thread. Every thread may send at the same time.
        """
        if queue is None and sharding_key is None and select is None:
            producer = self._engine.owner_here()
            if producer is not None:
                sent = producer.send_directly(message, timeout_ms, self._sockets.exchange)
                if isinstance(sent, SendResult):
                    return sent
                if sent is not None:
                    rest = sent
                    return self._run(lambda producer: rest)
        return self._run(
            lambda producer: producer.send(
                message, queue=queue, sharding_key=sharding_key, select=select, arg=arg, timeout_ms=timeout_ms
            )
        )

    send_oneway = blocking(AsyncProducer.send_oneway)
    send_batch = blocking(AsyncProducer.send_batch)
    send_many = blocking(AsyncProducer.send_many)
    flush = blocking(AsyncProducer.flush)
    send_in_transaction = blocking(AsyncProducer.send_in_transaction)
    recall = blocking(AsyncProducer.recall)
    request = blocking(AsyncProducer.request)
    reply = blocking(AsyncProducer.reply)
    queues = blocking(AsyncProducer.queues)

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | None = None,
        select: Select | None = None,
        arg: Any = None,
        timeout_ms: int | None = None,
    ) -> Future[SendResult]:
        """As `send`, without waiting: the future has the result or the exception."""
        return self._engine.submit(
            lambda producer: producer.send(
                message, queue=queue, sharding_key=sharding_key, select=select, arg=arg, timeout_ms=timeout_ms
            )
        )

    def start(self) -> Self:
        """Optional: the first call starts it. An early start reports errors early."""
        self._engine.start()
        return self

    def health(self) -> SessionHealth:
        """Connections, routes and members of the session."""

        async def ask(producer: AsyncProducer) -> SessionHealth:
            return producer.session.health()

        return self._run(ask)

    def close(self) -> None:
        """Wait for sends in flight. May be called again."""
        self._engine.close(AsyncProducer.close)
        self._sockets.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
    ) -> None:
        check_consumer_group(group)
        what = f"consumer {group}"
        addrs = check_session(what, session, name_servers, session_config)
        member = MemberKey("consumer", group, is_exclusive=True)
        self._subscribed: dict[str, tuple[str, str | None]] = {}
        self._started_in = -1

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

    with PushConsumer("orders", listener, name_servers="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders", "new || paid")
        wait_until_the_program_ends()
    """

    def __init__(
        self,
        group: str,
        listener: Listener,
        *,
        name_servers: str | Sequence[str] | None = None,
        session: SharedSession | None = None,
        session_config: SessionConfig | None = None,
        config: PushConfig | None = None,
        orderly: bool | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        def make(joined: Session) -> AsyncPushConsumer:
            return AsyncPushConsumer(
                group, listener, session=joined, config=config, orderly=orderly, offset_store=offset_store
            )

        super().__init__(group, make, AsyncPushConsumer.start, session, name_servers, session_config)

    commit = blocking(AsyncPushConsumer.commit)

    def pause(self) -> None:
        """Stop pulling; held messages are still consumed."""
        self._do(AsyncPushConsumer.pause)

    def resume(self) -> None:
        self._do(AsyncPushConsumer.resume)

    def close(self) -> None:
        """Wait for running listeners, save offsets, release locks, and unregister."""
        self._engine.close(AsyncPushConsumer.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PullConsumer(_Subscribing[AsyncPullConsumer]):
    """AsyncPullConsumer without await.

    with PullConsumer("reports", name_servers="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")
        for message in consumer:
            ...
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        session: SharedSession | None = None,
        session_config: SessionConfig | None = None,
        config: PullConfig | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        self._assigned: list[MessageQueue] | None = None
        self._ahead: list[StoredMessage] = []

        def make(joined: Session) -> AsyncPullConsumer:
            consumer = AsyncPullConsumer(group, session=joined, config=config, offset_store=offset_store)
            if self._assigned is not None:
                consumer.assign(self._assigned)
            return consumer

        super().__init__(group, make, AsyncPullConsumer.start, session, name_servers, session_config)

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


class Topics(Facade[AsyncAdmin, AsyncTopics]):
    create = blocking(AsyncTopics.create)
    list = blocking(AsyncTopics.list)
    route = blocking(AsyncTopics.route)
    configs = blocking(AsyncTopics.configs)
    stats = blocking(AsyncTopics.stats)
    consumers = blocking(AsyncTopics.consumers)
    delete = blocking(AsyncTopics.delete)


class Groups(Facade[AsyncAdmin, AsyncGroups]):
    list = blocking(AsyncGroups.list)
    set = blocking(AsyncGroups.set)
    delete = blocking(AsyncGroups.delete)
    status = blocking(AsyncGroups.status)
    connections = blocking(AsyncGroups.connections)
    producer_connections = blocking(AsyncGroups.producer_connections)
    running = blocking(AsyncGroups.running)
    consume_directly = blocking(AsyncGroups.consume_directly)
    time_spans = blocking(AsyncGroups.time_spans)


class Offsets(Facade[AsyncAdmin, AsyncOffsets]):
    get = blocking(AsyncOffsets.get)
    set = blocking(AsyncOffsets.set)
    reset = blocking(AsyncOffsets.reset)


class Messages(Facade[AsyncAdmin, AsyncMessages]):
    get = blocking(AsyncMessages.get)
    by_key = blocking(AsyncMessages.by_key)
    by_unique_key = blocking(AsyncMessages.by_unique_key)
    by_time = blocking(AsyncMessages.by_time)
    resend = blocking(AsyncMessages.resend)


class Brokers(Facade[AsyncAdmin, AsyncBrokers]):
    cluster = blocking(AsyncBrokers.cluster)
    by_name_server = blocking(AsyncBrokers.by_name_server)
    addr = blocking(AsyncBrokers.addr)
    status = blocking(AsyncBrokers.status)
    stats = blocking(AsyncBrokers.stats)
    config = blocking(AsyncBrokers.config)
    set_config = blocking(AsyncBrokers.set_config)
    producers = blocking(AsyncBrokers.producers)
    replication = blocking(AsyncBrokers.replication)
    clean = blocking(AsyncBrokers.clean)
    set_writable = blocking(AsyncBrokers.set_writable)


class Transactions(Facade[AsyncAdmin, AsyncTransactions]):
    list = blocking(AsyncTransactions.list)
    check = blocking(AsyncTransactions.check)
    decide = blocking(AsyncTransactions.decide)


class Timers(Facade[AsyncAdmin, AsyncTimers]):
    list = blocking(AsyncTimers.list)
    cancel = blocking(AsyncTimers.cancel)


class Overview(Facade[AsyncAdmin, AsyncOverview]):
    take = blocking(AsyncOverview.take)


class DeadLetters(Facade[AsyncAdmin, AsyncDeadLetters]):
    groups = blocking(AsyncDeadLetters.groups)
    list = blocking(AsyncDeadLetters.list)
    get = blocking(AsyncDeadLetters.get)


class Traces(Facade[AsyncAdmin, AsyncTraces]):
    get = blocking(AsyncTraces.get)
    by_key = blocking(AsyncTraces.by_key)


class Access(Facade[AsyncAdmin, AsyncAccess]):
    users = blocking(AsyncAccess.users)
    user = blocking(AsyncAccess.user)
    create_user = blocking(AsyncAccess.create_user)
    update_user = blocking(AsyncAccess.update_user)
    delete_user = blocking(AsyncAccess.delete_user)
    policies = blocking(AsyncAccess.policies)
    policies_of = blocking(AsyncAccess.policies_of)
    put_policies = blocking(AsyncAccess.put_policies)
    delete_policies = blocking(AsyncAccess.delete_policies)
    accounts = blocking(AsyncAccess.accounts)


class Admin:
    """AsyncAdmin without await: callable from any thread, also while an event loop runs.

    with Admin("127.0.0.1:9876") as admin:
        admin.topics.create("Orders", queues=4)
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        config: SessionConfig | None = None,
        session: SharedSession | None = None,
    ) -> None:
        addrs = check_session("admin", session, name_servers, config)
        member = MemberKey("admin", "", is_exclusive=False)

        def make() -> tuple[AsyncAdmin, Callable[[], None]]:
            joined, leave = join_session(session, addrs, config, member)
            return AsyncAdmin(session=joined), leave

        self._engine = Engine(make, what="admin")
        self.topics = Topics(self._engine, lambda admin: admin.topics)
        self.groups = Groups(self._engine, lambda admin: admin.groups)
        self.offsets = Offsets(self._engine, lambda admin: admin.offsets)
        self.messages = Messages(self._engine, lambda admin: admin.messages)
        self.brokers = Brokers(self._engine, lambda admin: admin.brokers)
        self.transactions = Transactions(self._engine, lambda admin: admin.transactions)
        self.timers = Timers(self._engine, lambda admin: admin.timers)
        self.overview = Overview(self._engine, lambda admin: admin.overview)
        self.dead_letters = DeadLetters(self._engine, lambda admin: admin.dead_letters)
        self.traces = Traces(self._engine, lambda admin: admin.traces)
        self.access = Access(self._engine, lambda admin: admin.access)

    def close(self) -> None:
        self._engine.close(AsyncAdmin.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
