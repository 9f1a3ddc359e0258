"""Brokers and a NameServer that do exactly what a test says, garbage included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import repeat

from rocketq.protocol.bodies.routes import BrokerData, QueueData, TopicRoute
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection, Dispatcher, Server

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
Script = Callable[[Command, Connection], Command | None]
ID = "7F00000100002A9F%016X"


class ScriptedBroker:
    """Answers sends by its script: a response code, or a function; anything else with success."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sends: list[Command] = []
        self.others: list[Command] = []
        self.script: list[int | Script] = []
        """Used up one by one; then sends succeed."""
        self.dispatcher = Dispatcher()
        """For requests that are no sends."""
        self.server: Server | None = None

    async def start(self) -> None:
        dispatcher = self.dispatcher = Dispatcher()
        for code in SENDS:
            dispatcher.register(code, self._send)
        for code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.END_TRANSACTION):
            dispatcher.register(code, self._other)
        self.server = Server(dispatcher)
        await self.server.start("127.0.0.1", 0)

    @property
    def addr(self) -> str:
        assert self.server is not None
        return self.server.addr

    async def stop(self) -> None:
        assert self.server is not None
        await self.server.stop(drain_ms=100)

    def _send(self, request: Command, connection: Connection) -> Command | None:
        self.sends.append(request)
        step = self.script.pop(0) if self.script else 0
        if not isinstance(step, int):
            return step(request, connection)
        return stored(request, len(self.sends) - 1, step)

    def _other(self, request: Command, connection: Connection) -> Command:
        self.others.append(request)
        return request.answer(0)


def stored(request: Command, queue_offset: int, code: int = 0) -> Command:
    if code not in (0, 10, 11, 12):
        return request.answer(code, remark=f"scripted {code}")
    fields = {"msgId": ID % queue_offset, "queueId": request.ext_fields["e"], "queueOffset": str(queue_offset)}
    return request.answer(code, ext_fields=fields)


def silence(request: Command, connection: Connection) -> None:
    """No answer at all."""


def garbage(request: Command, connection: Connection) -> None:
    connection.write(b"\xff" * 64)


def nonsense(request: Command, connection: Connection) -> Command:
    """A frame that is one, with an answer that is none."""
    return request.answer(0, ext_fields={"queueId": "many"})


def hang_up(request: Command, connection: Connection) -> None:
    connection.abort()


@asynccontextmanager
async def scripted_cluster(
    *names: str, queues: int = 2, ids: Iterator[int] | None = None
) -> AsyncIterator[tuple[str, list[ScriptedBroker]]]:
    """The NameServer's address, and brokers that have every topic. With `ids` each answer gives them the next id."""
    brokers = [ScriptedBroker(name) for name in names]
    for broker in brokers:
        await broker.start()
    broker_ids = ids or repeat(0)

    def route(request: Command, connection: Connection) -> Command:
        number = next(broker_ids)
        route = TopicRoute(
            queues=tuple(
                QueueData(broker_name=one.name, read_queue_count=queues, write_queue_count=queues, perm=6)
                for one in brokers
            ),
            brokers=tuple(BrokerData(cluster="c", broker_name=one.name, addrs={number: one.addr}) for one in brokers),
        )
        return request.answer(0, body=route.encode())

    dispatcher = Dispatcher()
    dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
    name_server = Server(dispatcher)
    await name_server.start("127.0.0.1", 0)
    try:
        yield name_server.addr, brokers
    finally:
        await name_server.stop(drain_ms=100)
        await asyncio.gather(*(broker.stop() for broker in brokers))
