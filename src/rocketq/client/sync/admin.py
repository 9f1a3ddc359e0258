"""The admin without await."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

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
from rocketq.client.session import SessionConfig
from rocketq.client.sync.facade import Engine, Facade, blocking
from rocketq.client.sync.shared import MemberKey, SharedSession, check_session, join_session


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
    consume_stats = blocking(AsyncBrokers.consume_stats)
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
