"""Message trace: records about each message, in the body of messages of the trace topic.

record = field *( 0x01 field ) 0x02            absent texts are written as `null`

Pub            timestamp region group topic msgId tags keys storeHost bodyLength costMs msgType offsetMsgId success
SubBefore      timestamp region group requestId msgId retryTimes keys
SubAfter       requestId msgId costMs success keys contextCode timestamp group        (4.x: without the last two)
EndTransaction timestamp region group topic msgId tags keys storeHost msgType transactionId state fromCheck
Recall         timestamp region group topic msgId success
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, Final

TRACE_BYTES_MAX: Final = 128_000
DEFAULT_REGION: Final = "DefaultRegion"
_FIELD_END: Final = "\x01"
_RECORD_END: Final = "\x02"
_NULL: Final = "null"


class TraceMessageType(IntEnum):
    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3


class ContextCode(IntEnum):
    """How a listener ended."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PubRecord:
    KIND: ClassVar = "Pub"
    timestamp_ms: int
    region: str = DEFAULT_REGION
    group: str
    topic: str
    message_id: str
    tag: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_bytes: int = 0
    cost_ms: int = 0
    message_type: TraceMessageType = TraceMessageType.NORMAL
    offset_message_id: str | None = None
    success: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SubBeforeRecord:
    KIND: ClassVar = "SubBefore"
    timestamp_ms: int
    region: str = DEFAULT_REGION
    group: str
    request_id: str
    message_id: str
    retry_times: int = 0
    keys: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAfterRecord:
    KIND: ClassVar = "SubAfter"
    request_id: str
    message_id: str
    cost_ms: int = 0
    success: bool = True
    keys: str | None = None
    context_code: ContextCode = ContextCode.SUCCESS
    timestamp_ms: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord:
    KIND: ClassVar = "EndTransaction"
    timestamp_ms: int
    region: str = DEFAULT_REGION
    group: str
    topic: str
    message_id: str
    tag: str | None = None
    keys: str | None = None
    store_host: str | None = None
    message_type: TraceMessageType = TraceMessageType.COMMIT
    transaction_id: str | None = None
    state: str = ""
    from_check: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRecord:
    KIND: ClassVar = "Recall"
    timestamp_ms: int
    region: str = DEFAULT_REGION
    group: str
    topic: str
    message_id: str
    success: bool = True


TraceRecord = PubRecord | SubBeforeRecord | SubAfterRecord | EndTransactionRecord | RecallRecord
_KINDS: Final[dict[str, type[TraceRecord]]] = {
    kind.KIND: kind for kind in (PubRecord, SubBeforeRecord, SubAfterRecord, EndTransactionRecord, RecallRecord)
}


def encode_trace(record: TraceRecord) -> str:
    values = (getattr(record, item.name) for item in fields(record))
    return _FIELD_END.join((record.KIND, *map(_text, values))) + _RECORD_END


def decode_trace(body: str) -> list[TraceRecord]:
    """All records that can be read; others, and fields beyond those we know, are left out."""
    found = (_decode_one(text.split(_FIELD_END)) for text in body.split(_RECORD_END) if text)
    return [record for record in found if record is not None]


def index_keys(record: TraceRecord) -> Iterable[str]:
    """What the trace of a message is found by."""
    yield record.message_id
    yield from (getattr(record, "keys", None) or "").split()


def pack(records: Sequence[TraceRecord], bytes_max: int = TRACE_BYTES_MAX) -> list[tuple[str, frozenset[str]]]:
    """Bodies of trace messages with their keys, none over `bytes_max`; a record beyond it is left out."""
    packed: list[tuple[str, frozenset[str]]] = []
    texts: list[str] = []
    keys: set[str] = set()
    total = 0
    for record in records:
        text = encode_trace(record)
        size = len(text.encode("utf-8", "replace"))
        if size > bytes_max:
            continue
        if texts and total + size > bytes_max:
            packed.append(("".join(texts), frozenset(keys)))
            texts, keys, total = [], set(), 0
        texts.append(text)
        keys.update(index_keys(record))
        total += size
    if texts:
        packed.append(("".join(texts), frozenset(keys)))
    return packed


def _text(value: object) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    return str(value).replace(_FIELD_END, " ").replace(_RECORD_END, " ")


def _decode_one(texts: list[str]) -> TraceRecord | None:
    kind = _KINDS.get(texts[0])
    if kind is None:
        return None
    if kind is PubRecord and len(texts) == 13:  # of clients before 4.5: no offset id in front of the last field
        texts = [*texts[:12], _NULL, texts[12]]
    try:
        return kind(
            **{item.name: _value(str(item.type), text) for item, text in zip(fields(kind), texts[1:], strict=False)}
        )
    except (TypeError, ValueError):
        return None


def _value(kind: str, text: str) -> Any:
    match kind:
        case "str":
            return text
        case "str | None":
            return None if text == _NULL else text
        case "bool":
            return text == "true"
        case "TraceMessageType":
            return TraceMessageType(int(text))
        case "ContextCode":
            return ContextCode(int(text))
    return int(text)
