"""Messages that are not visible yet, for operators: undecided transactions and waiting timers."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Final

from rocketq.client.admin.brokers import BrokerDirectory
from rocketq.client.admin.groups import GroupLookup
from rocketq.client.core.messages import decode_recall_handle
from rocketq.client.core.routes import subscribe_queues
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.fan_out import on_each
from rocketq.client.fetcher import Puller, PullStatus
from rocketq.client.offsets import QueuePositions
from rocketq.client.session import Session
from rocketq.errors import ConfigError
from rocketq.model import decode_message_id
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.handles import RecallHandle
from rocketq.protocol.headers.send import EndTransactionRequest, RecallRequest, RecallResponse, ResumeCheckRequest
from rocketq.protocol.names import HALF_OP_TOPIC, HALF_TOPIC, TIMER_TOPIC, Property


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHalf:
    """A half message without a decision. `checks`: how often the broker asked a producer of its group."""

    broker_name: str
    topic: str
    queue_id: int
    group: str
    unique_key: str
    offset_message_id: str
    queue_offset: int
    born_ms: int
    checks: int
    body_bytes: int


def open_halves(halves: Iterable[StoredMessage], ops: Iterable[StoredMessage]) -> tuple[OpenHalf, ...]:
    """Of one broker, oldest first. A half that was asked about has copies: the newest counts."""
    settled = {offset for op in ops for offset in _op_offsets(op.body)}
    newest: dict[int, StoredMessage] = {}
    for half in halves:
        if half.queue_offset not in settled:
            root = _int_or(half.properties.get(Property.TRANSACTION_PREPARED_OFFSET, ""), half.queue_offset)
            newest.pop(root, None)
            newest[root] = half
    return tuple(_open_half(half) for half in newest.values())


def _open_half(half: StoredMessage) -> OpenHalf:
    properties = half.properties
    return OpenHalf(
        broker_name=half.queue.broker_name,
        topic=properties.get(Property.REAL_TOPIC, ""),
        queue_id=_int_or(properties.get(Property.REAL_QUEUE_ID, ""), 0),
        group=properties.get(Property.PRODUCER_GROUP, ""),
        unique_key=properties.get(Property.UNIQUE_KEY, ""),
        offset_message_id=half.offset_message_id,
        queue_offset=half.queue_offset,
        born_ms=half.born_ms,
        checks=_int_or(properties.get(Property.TRANSACTION_CHECK_TIMES, ""), 0),
        body_bytes=len(half.stored_body),
    )


def _op_offsets(body: bytes) -> list[int]:
    """`7`, or from brokers of 5.x `7,9,`."""
    return [int(part) for part in body.split(b",") if part.isdigit()]


def _int_or(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() else otherwise


TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""As this group brokers keep how far they are done with halves and op messages."""


class AsyncTransactions:
    """Of Apache's brokers too: the list is read from what they keep."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)
        self._groups = GroupLookup(session)
        self._positions = QueuePositions(session)
        self._puller = Puller(session)

    async def list(self) -> tuple[OpenHalf, ...]:
        """Half messages that are neither committed nor rolled back, oldest first on each broker. A broker of 5.x may be
        some seconds late in noting a decision."""
        queues = await self._queues(HALF_TOPIC)
        found = await on_each({queue: self._of(queue) for queue in queues})
        return tuple(half for queue in queues for half in found[queue])

    async def check(self, half: OpenHalf) -> None:
        """Have the broker ask the producers of its group again, from the first check on."""
        addr = await self._directory.addr(half.broker_name)
        await self._session.call(addr, ResumeCheckRequest(message_id=half.offset_message_id, topic=HALF_TOPIC))

    async def decide(self, half: OpenHalf, state: TransactionState) -> None:
        """Commit or roll back in place of the producer. The decision cannot be taken back."""
        if state not in (TransactionState.COMMIT, TransactionState.ROLLBACK):
            raise ConfigError("a transaction is decided by COMMIT or ROLLBACK")
        _, half_log_offset = decode_message_id(half.offset_message_id)
        request = EndTransactionRequest(
            group=half.group,
            half_queue_offset=half.queue_offset,
            half_log_offset=half_log_offset,
            state=int(state),
            from_check=True,
            message_id=half.unique_key,
            transaction_id=half.unique_key,
            topic=half.topic,
            broker_name=half.broker_name,
        )
        await self._session.call(await self._directory.addr(half.broker_name), request)

    async def _of(self, queue: MessageQueue) -> tuple[OpenHalf, ...]:
        """Op messages first: a half message that moves during the scan is then found at its new position."""
        ops: Sequence[StoredMessage] = ()
        for other in await self._queues(HALF_OP_TOPIC):
            if (other.broker_name, other.queue_id) == (queue.broker_name, queue.queue_id):
                ops = await self._undone(other)
        return open_halves(await self._undone(queue), ops)

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            route = await self._session.routes.refresh(topic)
        except TopicNotFoundError:  # no broker has ever had one
            return ()
        return tuple(sorted(subscribe_queues(topic, route), key=lambda queue: (queue.broker_name, queue.queue_id)))

    async def _undone(self, queue: MessageQueue) -> Sequence[StoredMessage]:
        """Everything from what the broker is done with to the end."""
        bounds = await self._positions.bounds(queue)
        kept = await self._groups.committed(TRANSACTION_GROUP, queue)
        offset = min(max(bounds.min_offset, kept or 0), bounds.max_offset)
        found: tuple[StoredMessage, ...] = ()
        while offset < bounds.max_offset:
            result = await self._puller.pull(queue, offset)
            found += result.messages
            if result.next_offset <= offset or result.status is PullStatus.NO_NEW_MESSAGE:
                break
            offset = result.next_offset
        return found


SLOT_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTimer:
    """`due_ms` is the end of the second it is due in. `handle` takes it back; None where it has no unique key."""

    topic: str
    queue_id: int
    broker_name: str
    due_ms: int
    unique_key: str | None
    born_ms: int
    body_bytes: int
    handle: str | None


def waiting_timers(broker_name: str, messages: Iterable[StoredMessage], now_ms: int) -> list[WaitingTimer]:
    """In the order they were sent; one that was put on its way again counts once, one that was taken back not."""
    found: dict[object, WaitingTimer] = {}
    for message in messages:
        properties = message.properties
        if (taken_back := properties.get(Property.TIMER_DELETES)) is not None:
            found.pop(taken_back, None)
            continue
        slot_text = properties.get(Property.TIMER_OUT_MS, "")
        topic = properties.get(Property.REAL_TOPIC)
        if topic is None or not slot_text.isdigit() or int(slot_text) + SLOT_MS <= now_ms:
            continue
        key = properties.get(Property.UNIQUE_KEY)
        name: object = f"{topic}+{key}" if key else message.queue_offset
        handle = RecallHandle(topic, broker_name, int(slot_text), key).encode() if key else None
        found[name] = WaitingTimer(
            topic=topic,
            queue_id=int(properties.get(Property.REAL_QUEUE_ID, "0")),
            broker_name=broker_name,
            due_ms=int(slot_text) + SLOT_MS,
            unique_key=key,
            born_ms=message.born_ms,
            body_bytes=len(message.body),
            handle=handle,
        )
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Recalled:
    topic: str
    unique_key: str
    broker_name: str


class AsyncTimers:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)
        self._positions = QueuePositions(session)
        self._puller = Puller(session)

    async def list(self, topic: str | None = None) -> tuple[WaitingTimer, ...]:
        """Messages that wait for their time on any broker, the next one first; of one topic, or of all. Everything in
        the brokers' timer topics is read for this."""
        now_ms = self._session.clock.now_ms()
        found = [
            timer
            for name in await self._directory.masters()
            for timer in waiting_timers(name, await self._read(name), now_ms)
            if topic in (None, timer.topic)
        ]
        return tuple(sorted(found, key=lambda timer: (timer.due_ms, timer.unique_key or "")))

    async def cancel(self, handle: str) -> Recalled:
        """Cancel a timed message by the handle of its send result; raises the broker's error if it is too late."""
        place = decode_recall_handle(handle)
        addr = await self._directory.addr(place.broker_name)
        answer = await self._session.call(addr, RecallRequest(topic=place.topic, handle=handle))
        return Recalled(place.topic, RecallResponse.decode(answer.ext_fields).message_id, place.broker_name)

    async def _read(self, broker_name: str) -> Sequence[StoredMessage]:
        queue = MessageQueue(topic=TIMER_TOPIC, broker_name=broker_name, queue_id=0)
        bounds = await self._positions.bounds(queue)
        offset = bounds.min_offset
        found: MutableSequence[StoredMessage] = []
        while offset < bounds.max_offset:
            result = await self._puller.pull(queue, offset)
            found.extend(result.messages)
            if result.next_offset <= offset or result.status is PullStatus.NO_NEW_MESSAGE:
                break
            offset = result.next_offset
        return found
