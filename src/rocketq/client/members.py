"""Producers and consumers of a session: heartbeats, and requests that brokers send to them."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

from rocketq.client.core.routes import MASTER_ID
from rocketq.client.core.stored_messages import StoredMessage, stored_message
from rocketq.client.errors import ClientClosedError, GroupTakenError
from rocketq.client.fan_out import outcomes
from rocketq.client.replies import pushed_reply
from rocketq.errors import RemoteProtocolError, RocketQError
from rocketq.protocol.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerData,
    Heartbeat,
    ProducerData,
    RunningConsumer,
)
from rocketq.protocol.bodies.offsets import ConsumerStatus, ResetOffsets
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.failures import AccessDeniedError
from rocketq.protocol.headers.groups import (
    ConsumeDirectlyRequest,
    ConsumersChangedRequest,
    RunningInfoRequest,
    UnregisterClientRequest,
)
from rocketq.protocol.headers.offsets import ClientStatusRequest, ResetClientOffsetRequest
from rocketq.protocol.headers.send import CheckTransactionRequest, PushReplyRequest
from rocketq.protocol.messages import decode_records
from rocketq.protocol.names import Property
from rocketq.remoting import Handlers, Reply, Request, RequestRejected

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from rocketq.client.session import Session

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
    """A broker's check of a half message; the decision is sent to `addr`."""

    async def check_transaction(self, addr: str, header: CheckTransactionRequest, message: StoredMessage) -> None: ...


@runtime_checkable
class ReceivesReplies(Protocol):
    """True if a request of this client waits for this reply."""

    def on_reply(self, correlation_id: str, reply: StoredMessage) -> bool: ...


@runtime_checkable
class Consumes(Protocol):
    """Requests of brokers to a consumer."""

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

    def __init__(self, session: Session, *, several_producers: bool = False) -> None:
        self._session = session
        self._several_producers = several_producers
        self._members: dict[tuple[type, str], list[Member]] = {}
        self._maintenance: asyncio.Task[None] | None = None
        self._pending_heartbeats: dict[str, asyncio.Task[None]] = {}
        self._beating: set[str] = set()
        self._denials: dict[str, AccessDeniedError] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> tuple[Member, ...]:
        return tuple(member for members in self._members.values() for member in members)

    @property
    def denial(self) -> AccessDeniedError | None:
        """Why no broker accepts the heartbeats; None when one does."""
        return next(iter(self._denials.values())) if self._denials and self._denials.keys() >= self._addrs() else None

    def producer(self, group: str) -> Member | None:
        return next(iter(self._members.get((ProducerData, group), ())), None)

    def consumer(self, group: str) -> Member | None:
        return next(iter(self._members.get((ConsumerData, group), ())), None)

    def topics(self) -> frozenset[str]:
        return frozenset(topic for member in self.all() for topic in member.topics())

    async def join(self, member: Member) -> None:
        """Register a member with brokers; GroupTakenError if the session has such a member of this group."""
        if self._closed:
            raise ClientClosedError("the session")
        kind = type(member.heartbeat_part())
        may_share = self._several_producers and kind is ProducerData
        if (kind, member.group) in self._members and not may_share:
            raise GroupTakenError(member.group, "consumer" if kind is ConsumerData else "producer")
        self._members.setdefault((kind, member.group), []).append(member)
        if self._maintenance is None:
            self._maintenance = asyncio.create_task(self._maintain())
        try:
            await self.refresh_routes(member.topics())
            await self.heartbeat()
            if kind is ConsumerData and self.denial is not None:
                raise self.denial
        except BaseException:
            self._remove(kind, member)
            raise

    async def leave(self, member: Member) -> None:
        """Unregister at every broker; one that is unreachable notices the closed connection."""
        part = member.heartbeat_part()
        addrs = self._addrs()
        if not self._remove(type(part), member) or self._closed:
            return
        consumes = isinstance(part, ConsumerData)
        closing = UnregisterClientRequest(
            client_id=self._session.client_id,
            producer_group=None if consumes else member.group,
            consumer_group=member.group if consumes else None,
        )
        known = [addr for addr in addrs if self._session.is_connected(addr)]
        await _each((addr, self._session.call(addr, closing)) for addr in known)

    def _remove(self, kind: type, member: Member) -> bool:
        """True if it was the last member of its kind and group."""
        members = self._members.get((kind, member.group), [])
        if member not in members:
            return False
        members.remove(member)
        if not members:
            del self._members[kind, member.group]
        return not members

    async def heartbeat(self) -> None:
        """Send a heartbeat to all brokers now; those that fail get the next one."""
        if self._members:
            await _each((addr, self._send_heartbeat(addr)) for addr in self._addrs())

    async def refresh_routes(self, topics: Collection[str] | None = None) -> None:
        """Refresh the routes of these topics, or of all in use; a route stays as it is if the lookup fails."""
        chosen = self.topics() if topics is None else topics
        await _each((topic, self._session.routes.refresh(topic)) for topic in chosen)

    def connected(self, addr: str) -> None:
        """A connection was opened; if the peer is a broker it gets a heartbeat soon."""
        if not self._members or self._closed or addr in self._beating or addr in self._pending_heartbeats:
            return
        if addr in self._addrs():
            task = self._pending_heartbeats[addr] = asyncio.create_task(self._heartbeat_soon(addr))
            task.add_done_callback(lambda _: self._pending_heartbeats.pop(addr, None))

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._pending_heartbeats.values(), *([self._maintenance] if self._maintenance is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def implementing(self, kind: type[_Kind]) -> Sequence[_Kind]:
        return [member for member in self.all() if isinstance(member, kind)]

    def _addrs(self) -> frozenset[str]:
        """Brokers that need heartbeats: masters if there are only producers, all if there is a consumer."""
        masters_only = not any(kind is ConsumerData for kind, _ in self._members)
        topics = self.topics()
        return frozenset(
            addr
            for broker in self._session.routes.brokers(topics)
            for broker_id, addr in broker.addrs.items()
            if broker_id == MASTER_ID or not masters_only
        )

    async def _send_heartbeat(self, addr: str) -> None:
        parts = [members[0].heartbeat_part() for members in self._members.values()]
        body = Heartbeat(
            client_id=self._session.client_id,
            producers=tuple(part for part in parts if isinstance(part, ProducerData)),
            consumers=tuple(part for part in parts if isinstance(part, ConsumerData)),
        )
        self._beating.add(addr)
        try:
            await self._session.call(addr, None, code=RequestCode.HEART_BEAT, body=body.encode())
            self._denials.pop(addr, None)
        except AccessDeniedError as error:
            if addr not in self._denials:
                groups = ", ".join(sorted(group for _, group in self._members))
                log.error("groups %s: the broker denies their heartbeat, they receive nothing: %s", groups, error)
            self._denials[addr] = error
            raise
        finally:
            self._beating.discard(addr)

    async def _heartbeat_soon(self, addr: str) -> None:
        await asyncio.sleep(SOON_S)
        if addr not in self._beating:
            await _each([(addr, self._send_heartbeat(addr))])

    async def _maintain(self) -> None:
        """Refresh routes and send heartbeats; failures are retried at the next interval."""
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
            except Exception:  # maintenance must survive exceptions of a member's code
                log.exception("session maintenance failed")


async def _each(calls: Iterable[tuple[str, Awaitable[object]]]) -> None:
    """Run all concurrently; failures are only logged."""
    found = await outcomes({key: _awaited(call) for key, call in calls})
    for key, error in found.failures.items():
        log.debug("%s: %s", key, error)


async def _awaited(call: Awaitable[object]) -> None:
    try:
        await call
    except RocketQError:
        raise
    except Exception as error:  # one peer's garbage must not stop the requests to others
        log.warning("a background request failed: %s: %s", type(error).__name__, error)


handlers: Handlers[Members] = Handlers()


@handlers.on(RequestCode.CHECK_TRANSACTION_STATE)
async def check_transaction(request: Request[CheckTransactionRequest], members: Members) -> Reply:
    """A one-way request: an unknown producer, or one without an answer, sends nothing."""
    message = _message(request.body, request.header.broker_name)
    producer = members.producer(message.properties.get(Property.PRODUCER_GROUP, ""))
    if isinstance(producer, ChecksTransactions):
        await producer.check_transaction(request.connection.peer_addr, request.header, message)
    return Reply()


@handlers.on(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
def on_reply(request: Request[PushReplyRequest], members: Members) -> Reply:
    """A reply that no request waits for is not an error of the broker."""
    reply = pushed_reply(request.header, request.body)
    correlation_id = reply.properties.get(Property.CORRELATION_ID, "")
    for member in members.implementing(ReceivesReplies):  # type: ignore[type-abstract]
        if member.on_reply(correlation_id, reply):
            break
    return Reply()


@handlers.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
def ids_changed(request: Request[ConsumersChangedRequest], members: Members) -> Reply:
    consumer = members.consumer(request.header.group)
    if isinstance(consumer, Consumes):
        consumer.ids_changed()
    return Reply()


@handlers.on(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
async def reset_offsets(request: Request[ResetClientOffsetRequest], members: Members) -> Reply:
    consumer = members.consumer(request.header.group)
    if isinstance(consumer, Consumes):
        await consumer.reset_offsets(request.header.topic, ResetOffsets.decode(request.body).offsets)
    return Reply()


@handlers.on(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
def consume_positions(request: Request[ClientStatusRequest], members: Members) -> Reply:
    positions = _consumer(members, request.header.group).consume_positions(request.header.topic)
    return Reply(body=ConsumerStatus(queues=dict(positions)))


@handlers.on(RequestCode.GET_CONSUMER_RUNNING_INFO)
def running_info(request: Request[RunningInfoRequest], members: Members) -> Reply:
    running = _consumer(members, request.header.group).running_info()
    if request.header.with_stacks:
        running = replace(running, stacks=_stacks())
    return Reply(body=running)


@handlers.on(RequestCode.CONSUME_MESSAGE_DIRECTLY)
async def consume_directly(request: Request[ConsumeDirectlyRequest], members: Members) -> Reply:
    consumer = _consumer(members, request.header.group)
    return Reply(body=await consumer.consume_directly(_message(request.body, request.header.broker_name)))


def _consumer(members: Members, group: str) -> Consumes:
    consumer = members.consumer(group)
    if not isinstance(consumer, Consumes):
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"consumer group {group} is not in this client")
    return consumer


def _message(body: bytes, broker_name: str | None) -> StoredMessage:
    records = decode_records(body)
    if len(records) != 1:
        raise RemoteProtocolError(f"expected one message, got {len(records)}")
    return stored_message(records[0], broker_name or "")


def _stacks() -> str:
    """The stack of every thread, for operators."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
