"""Message trace of producers and consumers: records are buffered and sent to the trace topic in the background."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from typing import Final, Literal

from rocketq.client.core.consume_results import ConsumeEvent, ConsumeOutcome
from rocketq.client.core.messages import EncodeOptions, Message, prepare
from rocketq.client.core.send_flow import SendContext, SendMode, SendResult, TransactionResult
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.trace_records import (
    DEFAULT_REGION,
    ContextCode,
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TraceMessageType,
    TraceRecord,
    pack,
)
from rocketq.client.send import SendPath
from rocketq.client.session import Session
from rocketq.model import decode_message_id
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.names import TRACE_TOPIC, Property

log = logging.getLogger(__name__)

RECORDS_MAX: Final = 2_048
BATCH_RECORDS: Final = 100
FLUSH_S: Final = 1.0
SEND_TIMEOUT_MS: Final = 5_000
CLOSE_TIMEOUT_S: Final = 3.0
KEYS_CHARS_MAX: Final = 16_000
_STATE_NAMES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
"""As Java spells them."""
_NOT_COMPRESSED: Final = EncodeOptions(compress_from_bytes=1 << 30)


class TraceCollector:
    """Holds a bounded number of records; with more they are dropped and counted. Belongs to one loop."""

    def __init__(
        self, session: Session, group: str, kind: Literal["PRODUCE", "CONSUME"], *, topic: str = TRACE_TOPIC
    ) -> None:
        self._session = session
        self._topic = topic
        self._path = SendPath(session, f"_INNER_TRACE_PRODUCER-{group}-{kind}")
        self._records: deque[TraceRecord] = deque()
        self._full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.dropped_count = 0

    @property
    def topic(self) -> str:
        return self._topic

    def add(self, record: TraceRecord) -> None:
        """Never waits, never fails."""
        if self._closing or len(self._records) >= RECORDS_MAX:
            self.dropped_count += 1
            return
        self._records.append(record)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        if len(self._records) >= BATCH_RECORDS:
            self._full.set()

    async def close(self) -> None:
        """What is held is still sent, if that does not take long."""
        self._closing = True
        self._full.set()
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._records or not self._closing:
            try:
                async with asyncio.timeout(FLUSH_S):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._full.clear()
            try:
                await self._flush()
            except Exception as error:  # trace records may be lost, but must not fail a send
                log.debug("trace records were not sent: %s", error)

    async def _flush(self) -> None:
        records = [self._records.popleft() for _ in range(len(self._records))]
        for body, keys in pack(records):
            message = Message(topic=self._topic, body=body.encode("utf-8", "replace"), keys=_short(keys))
            unique_key = self._session.unique_ids.next(self._session.clock.now_ms())
            outgoing = prepare(message, unique_key, _NOT_COMPRESSED)
            await self._path.anywhere(self._topic, outgoing, SEND_TIMEOUT_MS)


def _short(keys: frozenset[str]) -> tuple[str, ...]:
    """As many as fit the properties of one message."""
    kept, total = [], 0
    for key in sorted(keys):
        total += len(key.encode("utf-8", "replace")) + 1
        if total > KEYS_CHARS_MAX:
            break
        kept.append(key)
    return tuple(kept)


class SendTracer:
    """Makes a record of every message that was sent."""

    def __init__(self, collector: TraceCollector, session: Session, group: str) -> None:
        self._collector = collector
        self._session = session
        self._group = group

    def before_send(self, context: SendContext) -> None:
        pass

    def after_send(self, context: SendContext) -> None:
        if context.mode is SendMode.ONEWAY or len(context.results) != len(context.messages):
            return
        for message, result in zip(context.messages, context.results, strict=True):
            if result.trace_on and message.topic != self._collector.topic:
                self._collector.add(self._record(context, message, result))

    def transaction_ended(self, message: Message, result: TransactionResult) -> None:
        sent = result.sent
        if sent.trace_on and message.topic != self._collector.topic:
            self._collector.add(
                EndTransactionRecord(
                    timestamp_ms=self._session.clock.now_ms(),
                    region=sent.region or DEFAULT_REGION,
                    group=self._group,
                    topic=message.topic,
                    message_id=sent.message_id,
                    tag=message.tag,
                    keys=" ".join(message.keys) or None,
                    store_host=_store_host(sent),
                    transaction_id=sent.transaction_id or sent.message_id,
                    state=_STATE_NAMES[result.state],
                )
            )

    def recalled(self, topic: str, message_id: str, success: bool) -> None:
        """A message was to be taken back."""
        now_ms = self._session.clock.now_ms()
        self._collector.add(
            RecallRecord(timestamp_ms=now_ms, group=self._group, topic=topic, message_id=message_id, success=success)
        )

    def _record(self, context: SendContext, message: Message, result: SendResult) -> PubRecord:
        kind = TraceMessageType.NORMAL
        if context.mode is SendMode.HALF:
            kind = TraceMessageType.HALF
        elif message.is_delayed:
            kind = TraceMessageType.DELAY
        return PubRecord(
            timestamp_ms=self._session.clock.now_ms() - context.elapsed_ms,
            region=result.region or DEFAULT_REGION,
            group=self._group,
            topic=message.topic,
            message_id=result.message_id,
            tag=message.tag,
            keys=message.properties.get(Property.KEYS) or " ".join(message.keys) or None,
            store_host=_store_host(result),
            body_bytes=len(message.body),
            cost_ms=context.elapsed_ms,
            message_type=kind,
            offset_message_id=result.offset_message_id,
        )


def _store_host(result: SendResult) -> str | None:
    try:
        return str(decode_message_id(result.offset_message_id)[0])
    except ValueError:
        return None


_CODES: Final = {outcome: ContextCode[outcome.name] for outcome in ConsumeOutcome}


class ConsumeTracer:
    """A ConsumeHook, made on the event loop; listeners and their hooks may run in threads."""

    def __init__(self, collector: TraceCollector, session: Session, group: str) -> None:
        self._collector = collector
        self._session = session
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()

    def before_consume(self, event: ConsumeEvent) -> None:
        request_id = event.notes[self] = self._session.unique_ids.next(self._session.clock.now_ms())
        for message in self._traced(event):
            record = SubBeforeRecord(
                timestamp_ms=self._session.clock.now_ms(),
                region=message.properties.get(Property.REGION) or DEFAULT_REGION,
                group=self._group,
                request_id=request_id,
                message_id=message.message_id,
                retry_times=message.reconsume_times,
                keys=message.properties.get(Property.KEYS),
            )
            self._add(record)

    def after_consume(self, event: ConsumeEvent) -> None:
        outcome = event.outcome or ConsumeOutcome.EXCEPTION
        for message in self._traced(event):
            record = SubAfterRecord(
                request_id=event.notes.get(self, ""),
                message_id=message.message_id,
                cost_ms=event.elapsed_ms,
                success=event.success,
                keys=message.properties.get(Property.KEYS),
                context_code=_CODES[outcome],
                timestamp_ms=self._session.clock.now_ms(),
                group=self._group,
            )
            self._add(record)

    def _traced(self, event: ConsumeEvent) -> list[StoredMessage]:
        topic = self._collector.topic
        wanted = (message for message in event.messages if message.topic != topic)
        return [message for message in wanted if message.properties.get(Property.TRACE_ON) != "false"]

    def _add(self, record: TraceRecord) -> None:
        if threading.get_ident() == self._thread_id:
            self._collector.add(record)
        else:
            self._loop.call_soon_threadsafe(self._collector.add, record)
