"""Administration without await."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rocketq.client.aio.admin import AsyncAdmin
from rocketq.client.aio.admin_brokers import AsyncBrokers
from rocketq.client.aio.admin_groups import AsyncGroups
from rocketq.client.aio.admin_messages import AsyncMessages
from rocketq.client.aio.admin_offsets import AsyncOffsets
from rocketq.client.aio.admin_timers import AsyncTimers
from rocketq.client.aio.admin_topics import AsyncTopics
from rocketq.client.aio.admin_transactions import AsyncTransactions
from rocketq.client.aio.session import SessionConfig
from rocketq.client.name_server_addrs import parse_name_servers
from rocketq.client.sync.facade import Engine, Facade, blocking


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
    addr = blocking(AsyncBrokers.addr)
    status = blocking(AsyncBrokers.status)
    stats = blocking(AsyncBrokers.stats)
    config = blocking(AsyncBrokers.config)
    set_config = blocking(AsyncBrokers.set_config)
    producers = blocking(AsyncBrokers.producers)


class Transactions(Facade[AsyncAdmin, AsyncTransactions]):
    list = blocking(AsyncTransactions.list)


class Timers(Facade[AsyncAdmin, AsyncTimers]):
    list = blocking(AsyncTimers.list)
    cancel = blocking(AsyncTimers.cancel)


class Admin:
    """What AsyncAdmin does, from any thread, also while an event loop runs in it.

    with Admin("127.0.0.1:9876") as admin:
        admin.topics.create("Orders", queues=4)
    """

    def __init__(self, name_servers: str | Sequence[str] | None = None, *, config: SessionConfig | None = None) -> None:
        addrs = parse_name_servers(name_servers)  # here, so that a bad one is said before anything is asked
        self._engine = Engine(lambda: AsyncAdmin(addrs, config=config))
        self.topics = Topics(self._engine, lambda admin: admin.topics)
        self.groups = Groups(self._engine, lambda admin: admin.groups)
        self.offsets = Offsets(self._engine, lambda admin: admin.offsets)
        self.messages = Messages(self._engine, lambda admin: admin.messages)
        self.brokers = Brokers(self._engine, lambda admin: admin.brokers)
        self.transactions = Transactions(self._engine, lambda admin: admin.transactions)
        self.timers = Timers(self._engine, lambda admin: admin.timers)

    def close(self) -> None:
        self._engine.close(AsyncAdmin.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
