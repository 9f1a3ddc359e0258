"""Requests for single messages: by log offset, by key, and queue entries."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.pull.consumer_filters import ConsumerFilter, ConsumerFilters
from rocketq.broker.pull.filters import tag_codes
from rocketq.model import Record
from rocketq.protocol.bodies import lazy_tuple
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.stats import QueueEntries, QueueEntry
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.fastjson import dumps
from rocketq.protocol.headers import pull as headers
from rocketq.protocol.messages import encode_record
from rocketq.remoting import Connection, Handlers, Reply, Request, RequestRejected
from rocketq.store import StoreReader
from rocketq.store.queue_extensions import Extension, is_address, position_of

ANSWER_BYTES_MAX: Final = 12 << 20
_UNIQUE_COUNT_MAX: Final = 32
_ENTRIES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class MessagePorts:
    store: StoreReader
    consumers: ConsumerGroups[Connection]
    filters: ConsumerFilters


handlers: Handlers[MessagePorts] = Handlers()


@handlers.on(RequestCode.VIEW_MESSAGE_BY_ID)
def view(request: Request[headers.ViewMessageRequest], ports: MessagePorts) -> Reply:
    record = ports.store.queued_message_at(request.header.log_offset)
    if record is None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no message starts at log offset {request.header.log_offset}")
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
        raise RequestRejected(
            ResponseCode.QUERY_NOT_FOUND, f"no message of {header.topic} has that key", answer.encode()
        )
    return Reply(header=answer, body=_join(found.records))


def _join(records: Iterable[Record]) -> bytes:
    """Join records up to the size limit of an answer, at least one."""
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
    topic, queue_id, store = header.topic, header.queue_id, ports.store
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if low < 0:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"queue {header.queue_id} of topic {header.topic} does not exist"
        )
    subscription = ports.consumers.subscription(header.group, header.topic) if header.group else None
    known = ports.filters.get(header.group, header.topic) if header.group else None
    wanted = _Wanted(subscription, known, ports.filters)
    find = partial(store.queue_extension, topic, queue_id)
    start = max(low, header.queue_offset)
    units = [
        store.queue_unit(topic, queue_id, at)
        for at in range(start, min(high, start + min(header.count_max, _ENTRIES_MAX)))
    ]
    entry = partial(_entry, find=find, wanted=wanted)
    return Reply(
        body=QueueEntries(
            subscription=subscription,
            filter_data=_filter_text(header.group, header.topic, ports.filters),
            entries=lazy_tuple(entry, [unit for unit in units if unit is not None]),
            max_offset=high,
            min_offset=low,
        )
    )


def _filter_text(group: str | None, topic: str, filters: ConsumerFilters) -> str:
    """The group's condition in the JSON form of consumerFilter.json."""
    known = filters.kept(group, topic) if group else None
    return "null" if known is None else dumps(known.to_json(), pretty=True).decode()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Whether queue entries pass a group's subscription, without reading records."""

    subscription: Subscription | None
    known: ConsumerFilter | None
    filters: ConsumerFilters

    def has(self, tags_code: int) -> bool:
        codes = None if self.subscription is None else tag_codes(self.subscription)
        return self.subscription is not None and (codes is None or tags_code in codes)

    def has_extended(self, unit: Extension) -> bool:
        may_match = self.known is None or self.filters.may_match(self.known, unit.bitmap, unit.store_ms)
        return self.has(unit.tags_code) and may_match


def _entry(unit: tuple[int, int, int], find: Callable[[int], Extension | None], wanted: _Wanted) -> QueueEntry:
    log_offset, size, tags_code = unit
    if not is_address(tags_code):
        return QueueEntry(log_offset=log_offset, size=size, tags_code=tags_code, passes=wanted.has(tags_code))
    found = find(tags_code)
    if found is None:
        text = f"there is no extension at {position_of(tags_code)}"
        return QueueEntry(log_offset=log_offset, size=size, tags_code=tags_code, text=text)
    return QueueEntry(
        log_offset=log_offset,
        size=size,
        tags_code=found.tags_code,  # as in 5.x; 4.x shows the address
        extended=_extension_text(found),
        bit_map=_bits(found.bitmap) if found.bitmap else None,
        passes=wanted.has_extended(found),
    )


def _extension_text(unit: Extension) -> str:
    shown: dict[str, object] = {"filterBitMap": b64encode(unit.bitmap).decode()} if unit.bitmap else {}
    return dumps(shown | {"msgStoreTime": unit.store_ms, "size": unit.size, "tagsCode": unit.tags_code}).decode()


def _bits(bitmap: bytes) -> str:
    """In the form of Apache's tools: the last byte first, eight bytes per line."""
    lines = [bitmap[at : at + 8] for at in range(0, len(bitmap), 8)]
    return "".join("".join(f"{byte:08b}" for byte in reversed(line)) + "\n" for line in reversed(lines))
