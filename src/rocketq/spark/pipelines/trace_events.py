"""Trace messages as columns: each record that a client wrote is a row.

One body holds many records; a record that cannot be read is left out, as in every tool that shows traces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from rocketq.client.core.trace_records import TraceRecord, decode_trace

_TIME: Final = pa.timestamp("us", tz="UTC")
EVENT: Final = pa.struct(
    [
        ("kind", pa.string()),
        ("time", _TIME),
        ("region", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("msgId", pa.string()),
        ("requestId", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("storeHost", pa.string()),
        ("bodyBytes", pa.int32()),
        ("costMs", pa.int32()),
        ("messageType", pa.string()),
        ("offsetMsgId", pa.string()),
        ("success", pa.bool_()),
        ("retryTimes", pa.int32()),
        ("outcome", pa.string()),
        ("transactionId", pa.string()),
        ("state", pa.string()),
        ("fromCheck", pa.bool_()),
    ]
)
_FIELDS: Final = {
    "kind": "KIND",
    "time": "timestamp_ms",
    "region": "region",
    "group": "group",
    "topic": "topic",
    "msgId": "message_id",
    "requestId": "request_id",
    "tags": "tag",
    "keys": "keys",
    "storeHost": "store_host",
    "bodyBytes": "body_bytes",
    "costMs": "cost_ms",
    "messageType": "message_type",
    "offsetMsgId": "offset_message_id",
    "success": "success",
    "retryTimes": "retry_times",
    "outcome": "context_code",
    "transactionId": "transaction_id",
    "state": "state",
    "fromCheck": "from_check",
}
_ENUMS: Final = frozenset({"messageType", "outcome"})
_INT_MAX: Final = 2**31 - 1
_TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of year 9999: what is beyond is no time."""


def event_rows(body: bytes) -> list[dict[str, Any]]:
    """The records of one trace message, by column; a batch that was sent as one is a row per message."""
    return [row for record in decode_trace(body.decode("utf-8", "replace")) for row in _rows_of(record)]


def decode_bodies(bodies: pa.Array) -> pa.Array:
    """The records of each body, as a list of structs."""
    rows = [event_rows(body) if body is not None else [] for body in bodies.to_pylist()]
    return pa.array(rows, pa.list_(EVENT))


def _rows_of(record: TraceRecord) -> Iterator[dict[str, Any]]:
    row = {column: _value(column, getattr(record, name, None)) for column, name in _FIELDS.items()}
    for message_id in record.message_id.split(","):
        yield {**row, "msgId": message_id}


def _value(column: str, value: Any) -> Any:
    if value is None or value == "":
        return None
    if column == "time":
        return value * 1000 if 0 < value <= _TIME_MS_MAX else None
    if column in _ENUMS:
        return value.name.lower()
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(int(value), -_INT_MAX), _INT_MAX)
    return value
