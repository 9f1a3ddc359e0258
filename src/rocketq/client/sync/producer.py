"""The producer without await."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from rocketq.client.blocking.direct_send import SendConnections
from rocketq.client.core.config import Milliseconds, ProducerConfig, check_group
from rocketq.client.core.messages import Message
from rocketq.client.core.send_flow import SendHook, SendResult
from rocketq.client.producer import AsyncProducer, Select
from rocketq.client.session import SessionConfig, SessionHealth
from rocketq.client.sync.facade import Engine, Facade, blocking
from rocketq.client.sync.shared import MemberKey, SharedSession, check_session, join_producer
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
        self._sockets: SendConnections | None = None
        addrs = check_session(f"producer {group}", session, name_servers, session_config)
        member = MemberKey("producer", group, is_exclusive=transaction is not None)

        def make() -> tuple[AsyncProducer, Callable[[], None]]:
            joined, self._sockets, leave = join_producer(session, addrs, session_config, member)
            return AsyncProducer(group, session=joined, config=config, transaction=transaction, hooks=hooks), leave

        super().__init__(Engine(make, AsyncProducer.start, f"producer {group}"), lambda producer: producer)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | None = None,
        select: Select | None = None,
        arg: Any = None,
        timeout_ms: Milliseconds | None = None,
    ) -> SendResult:
        """The result once a broker has stored it, on another broker when one fails; see AsyncProducer.send.

        The first try is made on a socket of the calling thread. Every thread may send at the same time.
        """
        if queue is None and sharding_key is None and select is None:
            producer = self._engine.owner_here()
            if producer is not None and self._sockets is not None:
                sent = producer.send_directly(message, timeout_ms, self._sockets.exchange)
                if isinstance(sent, SendResult):
                    return sent
                if sent is not None:
                    rest = sent
                    return self._run(lambda producer: rest())
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
        timeout_ms: Milliseconds | None = None,
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

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
