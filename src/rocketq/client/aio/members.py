"""Who is in a session: its producers and consumers, announced to brokers and kept known there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

from rocketq.client.aio.scatter import outcomes
from rocketq.client.core.routes import MASTER_ID
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import ClientClosedError, GroupTakenError
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerData,
    Heartbeat,
    ProducerData,
    RunningConsumer,
)
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.groups import UnregisterClientRequest
from rocketq.protocol.headers.send import CheckTransactionRequest

if TYPE_CHECKING:
    from rocketq.client.aio.session import Session

log = logging.getLogger(__name__)

SOON_S: Final = 0.01
"""How long a heartbeat to a new connection waits for others that open at the same time."""


class Member(Protocol):
    """A producer or a consumer. Names are as brokers know them, with the namespace."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Collection[str]:
        """Whose routes are kept fresh."""
        ...

    def heartbeat_part(self) -> ProducerData | ConsumerData: ...


@runtime_checkable
class ChecksTransactions(Protocol):
    """What a broker asks a producer group about a half message; `addr` is where the verdict goes."""

    async def check_transaction(self, addr: str, header: CheckTransactionRequest, message: StoredMessage) -> None: ...


@runtime_checkable
class TakesReplies(Protocol):
    """True when somebody here waits for this reply."""

    def take_reply(self, correlation_id: str, reply: StoredMessage) -> bool: ...


@runtime_checkable
class Consumes(Protocol):
    """What brokers ask of a consumer."""

    def ids_changed(self) -> None: ...

    async def reset_offsets(self, topic: str, table: Mapping[MessageQueue, int]) -> None: ...

    def consume_positions(self, topic: str) -> Mapping[MessageQueue, int]: ...

    def running_info(self) -> RunningConsumer: ...

    async def consume_directly(self, message: StoredMessage) -> ConsumeDirectlyResult: ...


_Kind = TypeVar("_Kind")


class Members:
    """Members of one session. While there are any, heartbeats go to all brokers of their topics' routes.

    Brokers forget a client with its connection, so each new connection to one of them is followed by a heartbeat.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._members: dict[tuple[type, str], Member] = {}
        self._upkeep: asyncio.Task[None] | None = None
        self._greetings: dict[str, asyncio.Task[None]] = {}
        self._beating: set[str] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._members)

    def all(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    def producer(self, group: str) -> Member | None:
        return self._members.get((ProducerData, group))

    def consumer(self, group: str) -> Member | None:
        return self._members.get((ConsumerData, group))

    def topics(self) -> frozenset[str]:
        return frozenset(topic for member in self._members.values() for topic in member.topics())

    async def join(self, member: Member) -> None:
        """From now on brokers know of it; GroupTakenError when the session has such a member of this group."""
        if self._closed:
            raise ClientClosedError("the session")
        kind = type(member.heartbeat_part())
        if (kind, member.group) in self._members:
            raise GroupTakenError(member.group, "consumer" if kind is ConsumerData else "producer")
        self._members[kind, member.group] = member
        if self._upkeep is None:
            self._upkeep = asyncio.create_task(self._keep_up())
        try:
            await self.refresh_routes(member.topics())
            await self.heartbeat()
        except BaseException:
            self._members.pop((kind, member.group), None)
            raise

    async def leave(self, member: Member) -> None:
        """Every broker is told; one that cannot be told will notice by itself."""
        part = member.heartbeat_part()
        if self._members.get((type(part), member.group)) is not member:
            return
        addrs = self._addrs()
        del self._members[type(part), member.group]
        if self._closed:
            return
        consumes = isinstance(part, ConsumerData)
        farewell = UnregisterClientRequest(
            client_id=self._session.client_id,
            producer_group=None if consumes else member.group,
            consumer_group=member.group if consumes else None,
        )
        known = [addr for addr in addrs if self._session.is_connected(addr)]
        await _each((addr, self._session.call(addr, farewell)) for addr in known)

    async def heartbeat(self) -> None:
        """To all brokers, now; those that do not answer are left to the next one."""
        if self._members:
            await _each((addr, self._beat(addr)) for addr in self._addrs())

    async def refresh_routes(self, topics: Collection[str] | None = None) -> None:
        """Of these topics, or of all in use; what is not answered stays as it is."""
        chosen = self.topics() if topics is None else topics
        await _each((topic, self._session.routes.refresh(topic)) for topic in chosen)

    def connected(self, addr: str) -> None:
        """A connection was made; if a broker is there it hears of us soon."""
        if not self._members or self._closed or addr in self._beating or addr in self._greetings:
            return
        if addr in self._addrs():
            task = self._greetings[addr] = asyncio.create_task(self._greet(addr))
            task.add_done_callback(lambda _: self._greetings.pop(addr, None))

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._greetings.values(), *([self._upkeep] if self._upkeep is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def implementing(self, kind: type[_Kind]) -> Sequence[_Kind]:
        return [member for member in self._members.values() if isinstance(member, kind)]

    def _addrs(self) -> frozenset[str]:
        """Where members must be known: at masters for producers alone, everywhere for consumers."""
        masters_only = not any(kind is ConsumerData for kind, _ in self._members)
        topics = self.topics()
        return frozenset(
            addr
            for broker in self._session.routes.brokers(topics)
            for broker_id, addr in broker.addrs.items()
            if broker_id == MASTER_ID or not masters_only
        )

    async def _beat(self, addr: str) -> None:
        parts = [member.heartbeat_part() for member in self._members.values()]
        body = Heartbeat(
            client_id=self._session.client_id,
            producers=tuple(part for part in parts if isinstance(part, ProducerData)),
            consumers=tuple(part for part in parts if isinstance(part, ConsumerData)),
        )
        self._beating.add(addr)
        try:
            await self._session.call(addr, None, code=RequestCode.HEART_BEAT, body=body.encode())
        finally:
            self._beating.discard(addr)

    async def _greet(self, addr: str) -> None:
        await asyncio.sleep(SOON_S)
        if addr not in self._beating:
            await _each([(addr, self._beat(addr))])

    async def _keep_up(self) -> None:
        """Routes and heartbeats by turns; whatever fails is tried again at the next one."""
        config = self._session.config
        routes_ms, beat_ms = config.route_life_ms, config.heartbeat_interval_ms
        waited_routes_ms = waited_beat_ms = 0
        while True:
            step_ms = max(1, min(routes_ms - waited_routes_ms, beat_ms - waited_beat_ms))
            await asyncio.sleep(step_ms / 1000)
            waited_routes_ms += step_ms
            waited_beat_ms += step_ms
            try:
                if waited_routes_ms >= routes_ms:
                    waited_routes_ms = 0
                    await self.refresh_routes()
                if waited_beat_ms >= beat_ms:
                    waited_beat_ms = 0
                    await self.heartbeat()
            except Exception:  # upkeep must survive whatever a member's own code raises
                log.exception("the upkeep of a session failed")


async def _each(calls: Iterable[tuple[str, Awaitable[object]]]) -> None:
    """All of them at once; those that fail are only told to the log."""
    found = await outcomes({key: _awaited(call) for key, call in calls})
    for key, error in found.failures.items():
        log.debug("%s: %s", key, error)


async def _awaited(call: Awaitable[object]) -> None:
    try:
        await call
    except RocketQError:
        raise
    except Exception as error:  # one peer's garbage must not end what is done for the others
        log.warning("a background request failed: %s: %s", type(error).__name__, error)
