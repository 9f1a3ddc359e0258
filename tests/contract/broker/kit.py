"""Clients that speak raw frames to a live broker, and the few requests most tests begin with."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from rocketq.broker import Broker, BrokerConfig
from rocketq.broker.free_port import VIP_STEP
from rocketq.broker.pipeline.access import Access
from rocketq.model import Record
from rocketq.protocol.bodies.clients import ConsumerData, Heartbeat, ProducerData, Subscription
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import CommandFlag, Language, PullFlag
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.messages import decode_records
from rocketq.protocol.properties import decode_properties
from rocketq.store import Store, StoreConfig

JAVA_497 = 407
JAVA_533 = 479
WAIT_S = 10

AsyncTest = Callable[..., Coroutine[Any, Any, None]]


def over_loopback(test: AsyncTest) -> Callable[..., None]:
    """An asynchronous test on a loop of its own; the cluster runs on another."""

    @functools.wraps(test)
    def run(*args: Any, **given: Any) -> None:
        asyncio.run(test(*args, **given))

    return run


class Peer:
    """One connection. Answers find whoever asked; what the broker asks by itself is in `pushes`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader, self._writer, self._version = reader, writer, version
        self._opaques = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self.pushes: asyncio.Queue[Command] = asyncio.Queue()
        self.closed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def addr(self) -> str:
        host, port = self._writer.get_extra_info("sockname")
        return f"{host}:{port}"

    def start(
        self, code: int, ext_fields: dict[str, Any] | None = None, body: bytes = b"", **members: Any
    ) -> asyncio.Future[Command]:
        """Send a request; its answer comes with the future."""
        request = self.request(code, ext_fields, body, **members)
        self.send(request)
        return self.answer_to(request)

    def request(
        self, code: int, ext_fields: dict[str, Any] | None = None, body: bytes = b"", **members: Any
    ) -> Command:
        """A request that is not sent yet."""
        texts = {name: str(value) for name, value in (ext_fields or {}).items() if value is not None}
        given: dict[str, Any] = {"language": Language.JAVA, "version": self._version, **members}
        return Command(code=code, opaque=next(self._opaques), ext_fields=texts, body=body, **given)

    def answer_to(self, request: Command) -> asyncio.Future[Command]:
        self._waiting[request.opaque] = answer = asyncio.get_running_loop().create_future()
        return answer

    async def ask_together(self, *requests: Command) -> list[Command]:
        """Send requests in one write; their answers, in the order of the requests."""
        answers = [self.answer_to(request) for request in requests]
        self.write(b"".join(encode_command(request) for request in requests))
        return await asyncio.wait_for(asyncio.gather(*answers), WAIT_S)

    async def ask(
        self, code: int, ext_fields: dict[str, Any] | None = None, body: bytes = b"", **members: Any
    ) -> Command:
        return await asyncio.wait_for(self.start(code, ext_fields, body, **members), WAIT_S)

    def send(self, command: Command) -> None:
        self._writer.write(encode_command(command))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def pushed(self, code: int) -> Command:
        """The next request of this code from the broker; others before it are skipped."""
        while True:
            push = await asyncio.wait_for(self.pushes.get(), WAIT_S)
            if push.code == code:
                return push

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
        await self._reading

    async def _read(self) -> None:
        decoder = FrameDecoder()
        with suppress(ConnectionError):
            while data := await self._reader.read(1 << 20):
                for command in decoder.feed(data):
                    if not command.is_response:
                        self.pushes.put_nowait(command)
                    elif (answer := self._waiting.pop(command.opaque, None)) is not None:
                        answer.set_result(command)
        self.closed.set()


@asynccontextmanager
async def connected(*addrs: str, version: int = JAVA_497) -> AsyncIterator[tuple[Peer, ...]]:
    """A connection to each address."""
    peers = []
    for addr in addrs:
        host, _, port = addr.rpartition(":")
        peers.append(Peer(*await asyncio.open_connection(host, int(port)), version))
    try:
        yield tuple(peers)
    finally:
        for peer in peers:
            await peer.close()


@asynccontextmanager
async def running_broker(folder: Path, access: Access | None = None, **settings: str) -> AsyncIterator[Broker]:
    """A broker on the test's own loop, without a NameServer and with small files."""
    given = {"mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "60000", "maxIndexNum": "4000"}
    given |= {"maxHashSlotNum": "1000", "maxMessageSize": str(512 << 10), **settings}
    config = BrokerConfig.from_java(given, port=0)
    broker = Broker(config, StoreConfig.from_java(given, root=folder), access=access)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop(drain_ms=100)


def vip_addr(broker: Broker) -> str:
    """The broker's second port."""
    host, _, port = broker.addr.rpartition(":")
    return f"{host}:{int(port) + VIP_STEP}"


def props(**values: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())


def send_fields(topic: str, queue_id: int = 0, **given: Any) -> dict[str, Any]:
    """Long names, as code 10 has them."""
    return {
        "producerGroup": "p",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": 1_700_000_000_123,
        "flag": 0,
        "properties": props(TAGS="TagA"),
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
        **given,
    }


_NAMES = (
    "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
    "reconsumeTimes unitMode maxReconsumeTimes batch bname"
)
_LETTERS = dict(zip(_NAMES.split(), "abcdefghijklmn", strict=True))


def letters(fields: dict[str, Any]) -> dict[str, Any]:
    return {_LETTERS[name]: value for name, value in fields.items()}


async def send(peer: Peer, topic: str, body: bytes = b"body", queue_id: int = 0, **given: Any) -> Command:
    """As Java clients do."""
    return await peer.ask(RequestCode.SEND_MESSAGE_V2, letters(send_fields(topic, queue_id, **given)), body)


async def make_topic(peer: Peer, topic: str, queues: int = 4, perm: int = 6, **given: Any) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": perm,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        **given,
    }
    answer = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == 0, answer


def pull_fields(topic: str, offset: int = 0, *, group: str = "g", queue_id: int = 0, **given: Any) -> dict[str, Any]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": int(PullFlag.SUBSCRIPTION),
        "commitOffset": 0,
        "suspendTimeoutMillis": 5_000,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        **given,
    }


async def pull(peer: Peer, topic: str, offset: int = 0, **given: Any) -> Command:
    return await peer.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, offset, **given))


def hold(peer: Peer, topic: str, offset: int = 0, **given: Any) -> asyncio.Future[Command]:
    """A pull that waits for messages."""
    fields = {"sysFlag": int(PullFlag.SUBSCRIPTION | PullFlag.HOLD), **given}
    return peer.start(RequestCode.PULL_MESSAGE, pull_fields(topic, offset, **fields))


def records(answer: Command) -> list[Record]:
    assert answer.code == 0, answer
    return decode_records(answer.body)


def properties(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)


def beat(client_id: str, *groups: str, topic: str | None = None, version: int = 1, expression: str = "*") -> bytes:
    """A heartbeat of a consumer of these groups."""
    subscriptions = () if topic is None else (Subscription(topic=topic, version=version, expression=expression),)
    return Heartbeat(
        client_id=client_id,
        producers=(ProducerData(group="CLIENT_INNER_PRODUCER"),),
        consumers=tuple(ConsumerData(group=group, subscriptions=subscriptions) for group in groups),
    ).encode()


async def heartbeat(peer: Peer, client_id: str, *groups: str, **given: Any) -> None:
    answer = await peer.ask(RequestCode.HEART_BEAT, body=beat(client_id, *groups, **given))
    assert (answer.code, answer.body, dict(answer.ext_fields)) == (0, b"", {})


async def route(peer: Peer, topic: str) -> TopicRoute | None:
    """Asked of a NameServer."""
    answer = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return TopicRoute.decode(answer.body) if answer.code == 0 else None


async def eventually(look: Callable[[], Coroutine[Any, Any, bool]], within_s: float = WAIT_S) -> None:
    """Until it is so, or fail."""
    async with asyncio.timeout(within_s):
        while not await look():
            await asyncio.sleep(0.02)


async def drop_finished_segments(store: Store) -> None:
    """As if their time were over: the log begins at the segment that is being written."""
    log = store.log
    store.retention._first_may_go = lambda *given, **more: log.is_finished(log.files.first or 0)  # type: ignore[method-assign]
    await asyncio.to_thread(store.clean)


ONEWAY = int(CommandFlag.ONEWAY)
