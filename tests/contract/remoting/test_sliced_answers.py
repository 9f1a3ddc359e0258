"""Long answers over loopback: others are served between two slices, and nothing is made for a peer that has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from rocketq.protocol.bodies.topics import TopicList
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import Dispatcher, Handlers, Reply, Request

from .conftest import Run
from .peers import ECHO, echo, raw_peer, serving

LONG, ENDLESS, BAD, BODY, LATER = (
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPIC_NAME_LIST,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
)
TOPICS = TopicList(topics=tuple(f"T{number}" for number in range(20_000)))


class Ports:
    def __init__(self) -> None:
        self.pieces = 0
        self.closed = asyncio.Event()


handlers: Handlers[Ports] = Handlers()


@handlers.on(ENDLESS)
def endless(request: Request[None], ports: Ports) -> Reply:
    def pieces() -> Iterator[str]:
        try:
            while True:
                ports.pieces += 1
                yield ""
        finally:
            ports.closed.set()

    return Reply(body=pieces())


@handlers.on(LONG)
def long(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=(str(number % 10) for number in range(50_000)))


@handlers.on(BAD)
def bad(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=(str(1 // (3 - number)) for number in range(9)))


@handlers.on(BODY)
def body(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=TOPICS)


@handlers.on(LATER)
async def later(request: Request[None], ports: Ports) -> Reply:
    await asyncio.sleep(0)
    return Reply(body=TOPICS)


def bound(ports: Ports) -> Dispatcher:
    dispatcher = Dispatcher()
    handlers.bind(dispatcher, ports)
    dispatcher.register(ECHO, echo)
    return dispatcher


def test_long_answers_are_whole_and_do_not_hold_up_others(run: Run) -> None:
    """Goal: a request behind three long ones is answered before them, and each of these in full."""

    async def main() -> None:
        async with serving(bound(Ports())) as server, raw_peer(server.addr) as peer:
            peer.send(*(Command(code=code, opaque=code) for code in (LONG, BODY, LATER)), Command(code=ECHO, opaque=1))
            answers = {answer.opaque: answer for answer in [await peer.receive() for _ in range(4)]}
            assert next(iter(answers)) == 1
            assert answers[LONG].body == b"0123456789" * 5_000
            assert answers[BODY].body == answers[LATER].body == TOPICS.encode()

    run(main())


def test_a_failure_while_an_answer_is_made_is_the_answer(run: Run) -> None:
    async def main() -> None:
        async with serving(bound(Ports())) as server, raw_peer(server.addr) as peer:
            answer = await peer.ask(Command(code=BAD, opaque=9))
            assert answer.code == 1
            assert "ZeroDivisionError" in (answer.remark or "")

    run(main())


def test_nothing_is_made_for_a_peer_that_has_gone(run: Run) -> None:
    """Goal: an answer that would never end ends with its connection."""

    async def main() -> None:
        ports = Ports()
        async with serving(bound(ports)) as server:
            async with raw_peer(server.addr) as peer:
                peer.send(Command(code=ENDLESS, opaque=1), Command(code=ECHO, opaque=2))
                assert (await peer.receive()).opaque == 2
            await ports.closed.wait()
            assert ports.pieces > 0

    run(main())
