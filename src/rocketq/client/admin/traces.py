"""The life of one message: what its clients traced, and what the store knows when they did not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rocketq.client.admin.messages import AsyncMessages
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.trace_records import (
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TraceMessageType,
    TraceRecord,
    decode_trace,
)
from rocketq.client.errors import NotFoundError
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.names import Property

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_RECORDS_MAX: Final = 64


class TraceState(StrEnum):
    FOUND = "found"
    NONE = "no-trace"
    OFF = "tracing-off"
    FAILED = "query-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One step. `kind`: `born`, `sent`, `stored`, `delivered`, `transaction`, `recalled`. `cost_ms` may be unknown."""

    kind: str
    start_ms: int
    cost_ms: int | None = None
    ok: bool | None = None
    group: str | None = None
    client: str | None = None
    place: str | None = None
    attempt: int | None = None
    detail: str | None = None
    message_id: str | None = None
    source: str = "trace"
    """`trace`: a client said so. `store`: the broker's record says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """`state` distinguishes "no trace", "tracing was off" and "the query failed"."""

    message_id: str
    state: TraceState
    reason: str | None = None
    topic: str | None = None
    keys: tuple[str, ...] = ()
    tag: str | None = None
    traceparent: str | None = None
    events: tuple[TraceEvent, ...] = ()


def trace_events(records: Iterable[tuple[TraceRecord, str]], message_id: str) -> tuple[TraceEvent, ...]:
    """Events of one message in the order of time; each record comes with the address it was traced from."""
    before: dict[str, tuple[SubBeforeRecord, str]] = {}
    after: dict[str, SubAfterRecord] = {}
    events: list[TraceEvent] = []
    for record, client in records:
        if record.message_id != message_id:
            continue
        match record:
            case PubRecord():
                detail = None if record.message_type is TraceMessageType.NORMAL else record.message_type.name.lower()
                events.append(
                    TraceEvent(
                        kind="sent",
                        start_ms=record.timestamp_ms,
                        cost_ms=record.cost_ms,
                        ok=record.success,
                        group=record.group,
                        client=client,
                        place=record.store_host,
                        detail=detail,
                        message_id=record.message_id,
                    )
                )
            case SubBeforeRecord():
                before[record.request_id] = record, client
            case SubAfterRecord():
                after[record.request_id] = record
            case EndTransactionRecord():
                events.append(
                    TraceEvent(
                        kind="transaction",
                        start_ms=record.timestamp_ms,
                        group=record.group,
                        client=client,
                        detail=record.state,
                        message_id=record.message_id,
                    )
                )
            case RecallRecord():
                events.append(
                    TraceEvent(
                        kind="recalled",
                        start_ms=record.timestamp_ms,
                        ok=record.success,
                        group=record.group,
                        client=client,
                    )
                )
    events += _deliveries(before, after)
    return tuple(sorted(set(events), key=lambda event: (event.start_ms, event.kind)))


def _deliveries(before: dict[str, tuple[SubBeforeRecord, str]], after: dict[str, SubAfterRecord]) -> list[TraceEvent]:
    found = []
    for request_id in {**before, **after}:
        start, client = before.get(request_id, (None, ""))
        end = after.get(request_id)
        start_ms = start.timestamp_ms if start is not None else end.timestamp_ms - end.cost_ms if end is not None else 0
        found.append(
            TraceEvent(
                kind="delivered",
                start_ms=start_ms,
                cost_ms=end.cost_ms if end is not None else None,
                ok=end.success if end is not None else None,
                group=start.group if start is not None else end.group if end is not None else None,
                client=client or None,
                attempt=start.retry_times if start is not None else None,
                detail=end.context_code.name.lower() if end is not None else "no end was traced",
                message_id=start.message_id if start is not None else None,
            )
        )
    return found


def stored_events(message: StoredMessage) -> list[TraceEvent]:
    """What the record itself says."""
    place = f"{message.queue.broker_name}:{message.queue.queue_id}@{message.queue_offset}"
    born = TraceEvent(kind="born", start_ms=message.born_ms, client=str(message.born_host), source="store", ok=True)
    stored = TraceEvent(
        kind="stored",
        start_ms=message.store_ms,
        place=f"{message.queue.topic} {place}",
        client=str(message.store_host),
        source="store",
        ok=True,
        message_id=message.offset_message_id,
    )
    return [born, stored]


class AsyncTraces:
    def __init__(self, session: Session) -> None:
        self._messages = AsyncMessages(session)

    async def get(self, message_id: str, *, topic: str | None = None, trace_topic: str = TRACE_TOPIC) -> MessageTrace:
        """By the id users see (the unique key); with `topic` the stored message is looked up as well."""
        stored = await self._stored(message_id, topic)
        unique = stored[-1].message_id if stored else message_id
        try:
            carriers = await self._messages.by_key(trace_topic, unique, count_max=_RECORDS_MAX)
            state, reason = TraceState.FOUND, None
        except TopicNotFoundError:
            carriers, state = (), TraceState.OFF
            reason = f"topic {trace_topic} does not exist: set traceTopicEnable=true and enable traces in the clients"
        except RocketQError as error:
            carriers, state, reason = (), TraceState.FAILED, str(error)
        events = trace_events(_records(carriers), unique)
        if state is TraceState.FOUND and not events:
            state = TraceState.NONE
            off = bool(stored) and stored[-1].properties.get(Property.TRACE_ON) == "false"
            if off:
                state, reason = TraceState.OFF, "the broker that stored it had traces switched off"
            else:
                reason = "no client traced it: producers and consumers must have traces enabled"
        topic = topic or next((record.topic for record, _ in _records(carriers) if isinstance(record, PubRecord)), None)
        if not stored and topic is not None:
            stored = await self._stored(message_id, topic)
        if not stored and not events and state is TraceState.NONE and topic is not None:
            raise NotFoundError("message", message_id, f"topic {topic} has none with that id")
        from_store = [event for message in stored for event in stored_events(message)]
        last = stored[-1] if stored else None
        return MessageTrace(
            message_id=unique,
            state=state,
            reason=reason,
            topic=topic,
            keys=last.keys if last is not None else (),
            tag=last.tag if last is not None else None,
            traceparent=last.properties.get("traceparent") if last is not None else None,
            events=tuple(sorted((*events, *from_store), key=lambda event: event.start_ms)),
        )

    async def by_key(self, key: str, *, trace_topic: str = TRACE_TOPIC) -> tuple[str, ...]:
        """Ids of traced messages with this key, oldest first."""
        carriers = await self._messages.by_key(trace_topic, key, count_max=_RECORDS_MAX)
        found = {
            record.message_id: None
            for record, _ in _records(carriers)
            if isinstance(record, PubRecord) and key in (record.keys or "").split()
        }
        return tuple(found)

    async def _stored(self, message_id: str, topic: str | None) -> Sequence[StoredMessage]:
        try:
            if topic is not None:
                found = await self._messages.by_unique_key(topic, message_id)
                if found:
                    return found
            return (await self._messages.get(message_id, topic),)
        except RocketQError:
            return ()


def _records(carriers: Iterable[StoredMessage]) -> list[tuple[TraceRecord, str]]:
    return [
        (record, str(carrier.born_host))
        for carrier in carriers
        for record in decode_trace(carrier.body.decode("utf-8", "replace"))
    ]
