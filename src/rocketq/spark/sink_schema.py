"""The columns a sink takes, checked before anything is sent."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from rocketq.spark.errors import SparkError
from rocketq.spark.sink_options import SinkOptions

COLUMNS: Final[dict[str, str]] = {
    "body": "binary or string",
    "topic": "string",
    "tags": "string",
    "keys": "string",
    "properties": "map<string,string>",
    "shardingKey": "string",
    "queueId": "int",
    "brokerName": "string",
    "delayTimeLevel": "int",
    "deliverTimestamp": "timestamp or bigint (milliseconds)",
}
DELAYS: Final = ("delayTimeLevel", "deliverTimestamp")


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """SparkError in one line for a DataFrame that cannot be sent."""
    names = schema.fieldNames()
    if len(set(names)) != len(names):
        raise SparkError(f"columns come twice: {', '.join(sorted({name for name in names if names.count(name) > 1}))}")
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise SparkError(f"no column {field.name} can be sent; select some of {', '.join(COLUMNS)}")
        if not _fits(field.name, field.dataType):
            wanted = COLUMNS[field.name]
            raise SparkError(f"column {field.name} must be {wanted}, not {field.dataType.simpleString()}")
    if "body" not in names:
        raise SparkError(f"column body is missing; there is {', '.join(names) or 'none'}")
    if options.topic is None and "topic" not in names:
        raise SparkError("no topic to send to: give the option topic or a column of that name")
    if options.is_exactly_once and (delayed := [name for name in DELAYS if name in names]):
        raise SparkError(f"column {delayed[0]} does not go with exactly-once: a message that is held back until its "
                         "batch is committed cannot be delayed as well")  # fmt: skip


def _fits(name: str, kind: DataType) -> bool:
    match name:
        case "body":
            return isinstance(kind, BinaryType | StringType)
        case "properties":
            return isinstance(kind, MapType) and all(
                isinstance(each, StringType) for each in (kind.keyType, kind.valueType)
            )
        case "queueId" | "delayTimeLevel":
            return isinstance(kind, IntegralType)
        case "deliverTimestamp":
            return isinstance(kind, TimestampType | LongType)
    return isinstance(kind, StringType)
