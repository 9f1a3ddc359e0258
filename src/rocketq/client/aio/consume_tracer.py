"""Message trace of consumers: a record before and one after each call of the listener, for each message."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from rocketq.client.aio.session import Session
from rocketq.client.aio.trace import TraceCollector
from rocketq.client.core.consume_hooks import ConsumeEvent
from rocketq.client.core.consume_results import ConsumeOutcome
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.trace_records import (
    DEFAULT_REGION,
    ContextCode,
    SubAfterRecord,
    SubBeforeRecord,
    TraceRecord,
)
from rocketq.protocol.names import Property

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
