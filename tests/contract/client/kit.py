"""What the client's tests share: an admin on a loop of its own, members of a group that are only heartbeats."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rocketq.client import AsyncAdmin, Message, Sender, SendResult
from rocketq.protocol.bodies.clients import ConsumerData, Heartbeat, ProducerData, Subscription
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection, ConnectionPool, Dispatcher

HANG_S = 90
"""Longer than any test takes on a busy machine."""

AsyncTest = Callable[..., Coroutine[Any, Any, None]]


def on_a_loop(test: AsyncTest) -> Callable[..., None]:
    """An asynchronous test on a loop of its own; the cluster runs on another."""

    @functools.wraps(test)
    def run(*args: Any, **given: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **given), HANG_S))

    return run


async def send(admin: AsyncAdmin, topic: str, count: int = 1, **given: Any) -> list[SendResult]:
    sender = Sender(admin.session, "p")
    return [await sender.send(Message(topic=topic, body=b"body-%d" % at, **given)) for at in range(count)]


class Member:
    """A consumer as far as brokers know; what they push to it is in `pushes`."""

    def __init__(self, pool: ConnectionPool, pushes: asyncio.Queue[Command]) -> None:
        self.pool, self.pushes = pool, pushes

    async def pushed(self, code: int) -> Command:
        """The next push of this code; others before it are skipped."""
        while True:
            push = await asyncio.wait_for(self.pushes.get(), 10)
            if push.code == code:
                return push


@asynccontextmanager
async def member(addrs: list[str], group: str, topic: str, client_id: str = "10.0.0.9@member") -> AsyncIterator[Member]:
    """A connected member of a group, on each of these brokers."""
    pushes: asyncio.Queue[Command] = asyncio.Queue()
    dispatcher = Dispatcher()

    def keep(command: Command, connection: Connection) -> None:
        pushes.put_nowait(command)

    for code in (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET):
        dispatcher.register(code, keep)
    pool = ConnectionPool(dispatcher)
    beat = Heartbeat(
        client_id=client_id,
        producers=(ProducerData(group="P-" + group),),
        consumers=(ConsumerData(group=group, subscriptions=(Subscription(topic=topic, version=1),)),),
    )
    try:
        for addr in addrs:
            answer = await pool.invoke(addr, Command(code=RequestCode.HEART_BEAT, body=beat.encode()))
            assert answer.code == 0
        yield Member(pool, pushes)
    finally:
        await pool.close()


def closed_port() -> str:
    """An address of this host where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"
