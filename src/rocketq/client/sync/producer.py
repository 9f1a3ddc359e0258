"""Producers without await."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from rocketq.client.aio.health import SessionHealth
from rocketq.client.aio.producer import AsyncProducer, Select
from rocketq.client.aio.session import SessionConfig
from rocketq.client.core.hooks import SendHook
from rocketq.client.core.messages import Message
from rocketq.client.core.producer_config import ProducerConfig, check_group
from rocketq.client.core.send_results import SendResult
from rocketq.client.core.transactions import TransactionListener
from rocketq.client.name_server_addrs import parse_name_servers
from rocketq.client.sync.facade import Engine, Facade, blocking
from rocketq.protocol.bodies.queues import MessageQueue


class Producer(Facade[AsyncProducer, AsyncProducer]):
    """What AsyncProducer does, from any thread, also while an event loop runs in it; in a forked child it starts anew.

    with Producer("orders", name_servers="127.0.0.1:9876") as producer:
        result = producer.send(Message(topic="Orders", body=b"..."))
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        session_config: SessionConfig | None = None,
        config: ProducerConfig | None = None,
        transaction: TransactionListener | None = None,
        hooks: Sequence[SendHook] = (),
    ) -> None:
        check_group(group)
        addrs = parse_name_servers(name_servers)  # here, so that a bad one is said before anything is sent

        def make() -> AsyncProducer:
            return AsyncProducer(
                group,
                name_servers=addrs,
                session_config=session_config,
                config=config,
                transaction=transaction,
                hooks=hooks,
            )

        super().__init__(Engine(make, AsyncProducer.start, f"producer {group}"), lambda producer: producer)

    send = blocking(AsyncProducer.send)
    send_oneway = blocking(AsyncProducer.send_oneway)
    send_batch = blocking(AsyncProducer.send_batch)
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
        """As `send`, without waiting: the future has the result, or what was raised."""
        return self._engine.submit(
            lambda producer: producer.send(
                message, queue=queue, sharding_key=sharding_key, select=select, arg=arg, timeout_ms=timeout_ms
            )
        )

    def start(self) -> Self:
        """Not needed: the first call does it. Done at once it shows early what is wrong."""
        self._engine.start()
        return self

    def health(self) -> SessionHealth:
        """What it is connected to."""

        async def ask(producer: AsyncProducer) -> SessionHealth:
            return producer.session.health()

        return self._run(ask)

    def close(self) -> None:
        """What is under way ends first. May be called again."""
        self._engine.close(AsyncProducer.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
