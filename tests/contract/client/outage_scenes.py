"""Clients while NameServers, brokers and locks fail. The same scenes run with our broker and with Apache's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from rocketq.client import (
    AsyncAdmin,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ConsumeContext,
    Message,
    PullConfig,
    SendStatus,
    Session,
    SessionConfig,
    StoredMessage,
)
from rocketq.protocol.bodies.assignment import LockAnswer, LockRequest
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import BrokerError
from rocketq.protocol.headers.nameserver import RouteRequest
from rocketq.remoting import Connection, Dispatcher, Server
from rocketq.testing.fault_proxy import FaultProxy

from .consuming import FIRST, QUICK, Remembers, fill, numbers, until

Scene = Callable[[str, str, str], Awaitable[None]]

OFTEN: Final = SessionConfig(route_life_ms=300, heartbeat_interval_ms=300, control_timeout_ms=1_000)


class ProxiedCluster:
    """A cluster behind proxies: its NameServer answers routes that lead to a FaultProxy for each broker."""

    def __init__(self, admin: AsyncAdmin, stack: AsyncExitStack) -> None:
        self._admin = admin
        self._stack = stack
        self._server: Server | None = None
        self.proxies: dict[str, FaultProxy] = {}
        self.without_master = False
        """Whether routes name brokers as slaves only, as during a failover."""

    @property
    def addr(self) -> str:
        assert self._server is not None
        return self._server.addr

    async def start_name_server(self) -> None:
        dispatcher = Dispatcher()
        dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        port = int(self.addr.rpartition(":")[2]) if self._server is not None else 0
        self._server = Server(dispatcher)
        await self._server.start("127.0.0.1", port)

    async def stop_name_server(self) -> None:
        assert self._server is not None
        await self._server.stop(drain_ms=100)

    def stop_brokers(self) -> None:
        for proxy in self.proxies.values():
            proxy.refuse()
            proxy.cut()

    def start_brokers(self) -> None:
        for proxy in self.proxies.values():
            proxy.restore()

    async def _route(self, request: Command, connection: Connection) -> Command:
        try:
            topic = request.ext_fields["topic"]
            answer = await self._admin.session.call_name_server(RouteRequest(topic=topic, strict_json=True))
        except BrokerError as error:
            return request.answer(error.code, remark=error.remark)
        route = TopicRoute.decode(answer.body)
        brokers = tuple(
            replace(broker, addrs={number: self._proxied(addr) for number, addr in broker.addrs.items()})
            for broker in route.brokers
        )
        if self.without_master:
            brokers = tuple(
                replace(one, addrs={number + 1: addr for number, addr in one.addrs.items()}) for one in brokers
            )
        return request.answer(0, body=replace(route, brokers=brokers).encode())

    def _proxied(self, addr: str) -> str:
        if addr not in self.proxies:
            self.proxies[addr] = self._stack.enter_context(FaultProxy(addr))
        return self.proxies[addr].addr


@asynccontextmanager
async def proxied(addr: str) -> AsyncIterator[ProxiedCluster]:
    async with AsyncExitStack() as stack:
        cluster = ProxiedCluster(await stack.enter_async_context(AsyncAdmin(addr)), stack)
        await cluster.start_name_server()
        stack.push_async_callback(cluster.stop_name_server)
        yield cluster


async def clients_resume_without_name_servers(addr: str, topic: str, group: str) -> None:
    """Goal: with every NameServer down, consumers and producers continue as soon as their broker is back."""
    await fill(addr, topic, 0)
    async with proxied(addr) as cluster, Session(cluster.addr, config=OFTEN) as session:
        push, pulled = Remembers(), set[bytes]()
        config = PullConfig(from_where=FIRST, retry_ms=100, hold_ms=1_000)
        pull = AsyncPullConsumer(f"{group}-pull", session=session, config=config)
        pull.subscribe(topic)
        consumer = AsyncPushConsumer(group, push, session=session, config=replace(QUICK, hold_ms=1_000))
        consumer.subscribe(topic)
        async with AsyncProducer(f"{group}-p", session=session) as producer, consumer, pull:

            async def send(start: int, end: int) -> None:
                for number in range(start, end):
                    await producer.send(Message(topic=topic, body=b"%d" % number), timeout_ms=5_000)

            async def both_have(count: int) -> None:
                await push.until(count, 15)
                async with asyncio.timeout(15):
                    while len(pulled) < count:
                        pulled.update(message.body for message in await pull.poll(timeout_ms=200))

            await send(0, 8)
            await both_have(8)
            await cluster.stop_name_server()
            cluster.stop_brokers()
            await asyncio.sleep(1.0)  # pulls and heartbeats fail; routes expire
            cluster.start_brokers()
            await send(8, 24)
            await both_have(24)
            assert set(push.bodies) == pulled == numbers(0, 24)
            await cluster.start_name_server()


async def a_new_topic_is_remembered_after_its_first_send(addr: str, topic: str, group: str) -> None:
    """Goal: the send that creates a topic also gives the producer its route."""
    async with (
        proxied(addr) as cluster,
        AsyncProducer(f"{group}-p", name_servers=cluster.addr, session_config=OFTEN) as producer,
    ):
        await producer.send(Message(topic=topic, body=b"first"))
        await cluster.stop_name_server()
        sent = await producer.send(Message(topic=topic, body=b"second"))
        assert sent.status is SendStatus.SEND_OK
        await cluster.start_name_server()


async def a_send_waits_for_a_master(addr: str, topic: str, group: str) -> None:
    """Goal: a failover shorter than the timeout of a send costs time, not messages."""
    await fill(addr, topic, 0)
    async with (
        proxied(addr) as cluster,
        AsyncProducer(f"{group}-p", name_servers=cluster.addr, session_config=OFTEN) as producer,
    ):
        await producer.send(Message(topic=topic, body=b"before"))
        cluster.without_master = True
        cluster.stop_brokers()
        waiting = [
            asyncio.create_task(producer.send(Message(topic=topic, body=b"%d" % number), timeout_ms=8_000))
            for number in range(20)
        ]
        await asyncio.sleep(1.2)
        assert not any(task.done() for task in waiting)
        cluster.without_master = False
        cluster.start_brokers()
        results = await asyncio.gather(*waiting)
        assert {result.status for result in results} == {SendStatus.SEND_OK}


async def a_rejected_lock_stops_its_queue(addr: str, topic: str, group: str) -> None:
    """Goal: when another member has the locks, no further message is consumed here, until it releases them."""
    await fill(addr, topic, 120)
    listener = Remembers()

    async def listen(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        await asyncio.sleep(0.05)
        await listener(messages, context)

    config = replace(QUICK, lock_interval_ms=100, orderly=True)
    consumer = AsyncPushConsumer(group, listen, name_servers=addr, config=config)
    consumer.subscribe(topic)
    async with consumer, Session(addr) as other:
        await until(lambda: len(listener.messages) >= 8)
        queues = consumer.assignment()
        master = next(iter((await other.routes.get(topic)).brokers)).addrs[0]

        async def lock(code: RequestCode, client_id: str) -> set[object]:
            body = LockRequest(group=group, client_id=client_id, queues=queues).encode()
            answer = await other.call(master, None, code=code, body=body)
            return set(LockAnswer.decode(answer.body).queues) if code is RequestCode.LOCK_BATCH_MQ else set()

        async with asyncio.timeout(10):
            locked: set[object] = set()
            while locked != set(queues):  # a renewal may come between the two requests
                await lock(RequestCode.UNLOCK_BATCH_MQ, consumer.session.client_id)
                locked = await lock(RequestCode.LOCK_BATCH_MQ, "10.0.0.9@other")
        await until(lambda: not consumer.assignment(), 5)
        count = len(listener.messages)
        await asyncio.sleep(1.0)
        assert len(listener.messages) == count, "messages were consumed without a lock"
        await lock(RequestCode.UNLOCK_BATCH_MQ, "10.0.0.9@other")
        await listener.until(120)
        assert set(consumer.assignment()) == set(queues)
        assert count < 120


OUTAGES: Final[tuple[Scene, ...]] = (
    clients_resume_without_name_servers,
    a_new_topic_is_remembered_after_its_first_send,
    a_send_waits_for_a_master,
    a_rejected_lock_stops_its_queue,
)
