"""The columns a message has, by the names that people write in queries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from rocketq.errors import RocketQError

_TIME: Final = pa.timestamp("us", tz="UTC")

COLUMN_TYPES: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "logOffset": pa.int64(),
    "msgId": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "body": pa.binary(),
    "bornTimestamp": _TIME,
    "storeTimestamp": _TIME,
    "reconsumeTimes": pa.int32(),
    "sysFlag": pa.int32(),
    "flag": pa.int32(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
}


class UnknownColumnError(RocketQError):
    """A column was asked for that no message has, or as a type it cannot have."""


def arrow_schema(names: Iterable[str]) -> pa.Schema:
    """These columns, in this order."""
    wanted = list(names)
    for name in wanted:
        if name not in COLUMN_TYPES:
            raise UnknownColumnError(f"no column {name!r}; there are {', '.join(COLUMN_TYPES)}")
    return pa.schema([(name, COLUMN_TYPES[name]) for name in wanted])


def require_known(schema: pa.Schema) -> None:
    """A schema of the user's own choice: any columns in any order, each of its one type (body also as text)."""
    for field in schema:
        if field.name not in COLUMN_TYPES:
            raise UnknownColumnError(f"no column {field.name!r}; there are {', '.join(COLUMN_TYPES)}")
        if not _fits(field.type, COLUMN_TYPES[field.name]):
            raise UnknownColumnError(f"column {field.name} is {COLUMN_TYPES[field.name]}, not {field.type}")


def _fits(wanted: pa.DataType, own: pa.DataType) -> bool:
    if pa.types.is_map(own):
        return bool(pa.types.is_map(wanted) and (wanted.key_type, wanted.item_type) == (own.key_type, own.item_type))
    return bool(wanted == own)
