"""Single messages: by their place in the log, by key, and the entries of a queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketq.broker.consumer_filters import ConsumerFilters
from rocketq.broker.consumer_groups import ConsumerGroups
from rocketq.broker.tag_filter import tag_codes
from rocketq.model import Record
from rocketq.protocol.bodies.heartbeat import Subscription
from rocketq.protocol.bodies.stats import QueueEntries, QueueEntry
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.fastjson import dumps
from rocketq.protocol.headers import messages as headers
from rocketq.protocol.messages import encode_record
from rocketq.remoting import Connection, Handlers, Refusal, Reply, Request
from rocketq.store import Store

ANSWER_BYTES_MAX: Final = 12 << 20
_UNIQUE_COUNT_MAX: Final = 32
_ENTRIES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class MessagePorts:
    store: Store
    consumers: ConsumerGroups[Connection]
    filters: ConsumerFilters


handlers: Handlers[MessagePorts] = Handlers()


@handlers.on(RequestCode.VIEW_MESSAGE_BY_ID)
def view(request: Request[headers.ViewMessageRequest], ports: MessagePorts) -> Reply:
    record = ports.store.message_at(request.header.log_offset)
    if record is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"no message starts at log offset {request.header.log_offset}")
    return Reply(body=encode_record(record))


@handlers.on(RequestCode.QUERY_MESSAGE)
def query(request: Request[headers.QueryMessageRequest], ports: MessagePorts) -> Reply:
    header = request.header
    count_max = _UNIQUE_COUNT_MAX if header.by_unique_key else max(1, header.count_max)
    found = ports.store.query(
        header.topic, header.key, count_max=count_max, begin_ms=header.begin_ms, end_ms=header.end_ms
    )
    answer = headers.QueryMessageResponse(index_updated_ms=found.index_end_ms, index_log_offset=found.index_end_offset)
    if not found.records:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"no message of {header.topic} has that key", answer.encode())
    return Reply(header=answer, body=_join(found.records))


def _join(records: Iterable[Record]) -> bytes:
    """As many as fit in an answer, the first in any case."""
    parts: list[bytes] = []
    room = ANSWER_BYTES_MAX
    for record in records:
        data = encode_record(record)
        room -= len(data)
        if parts and room < 0:
            break
        parts.append(data)
    return b"".join(parts)


@handlers.on(RequestCode.QUERY_CONSUME_QUEUE)
def queue_entries(request: Request[headers.QueryQueueRequest], ports: MessagePorts) -> Reply:
    header = request.header
    queue = ports.store.queues.get(header.topic, header.queue_id)
    if queue is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"there is no queue {header.queue_id} of {header.topic} on disk")
    low, high = queue.min_offset, ports.store.max_offset(header.topic, header.queue_id)
    subscription = ports.consumers.subscription(header.group, header.topic) if header.group else None
    start = max(low, header.queue_offset)
    units = (queue.unit(at) for at in range(start, min(high, start + min(header.count_max, _ENTRIES_MAX))))
    return Reply(
        body=QueueEntries(
            subscription=subscription,
            filter_data=_filter_text(header.group, header.topic, ports.filters),
            entries=tuple(_entry(unit, subscription) for unit in units if unit is not None),
            max_offset=high,
            min_offset=low,
        )
    )


def _filter_text(group: str | None, topic: str, filters: ConsumerFilters) -> str:
    """A group's condition as the file has it. Whether messages meet it is not looked up: entries do not say."""
    known = filters.kept(group, topic) if group else None
    return "null" if known is None else dumps(known.to_json(), pretty=True).decode()


def _entry(unit: tuple[int, int, int], subscription: Subscription | None) -> QueueEntry:
    log_offset, size, tags_code = unit
    codes = None if subscription is None else tag_codes(subscription)
    passes = subscription is not None and (codes is None or tags_code in codes)
    return QueueEntry(log_offset=log_offset, size=size, tags_code=tags_code, passes=passes)
