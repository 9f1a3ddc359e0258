"""The columns of a source as Spark's types; Arrow's are those Spark itself would make of them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketq.spark.errors import SparkError

_TYPES: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "msgId": StringType(),
    "tags": StringType(),
    "keys": StringType(),
    "body": BinaryType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "reconsumeTimes": IntegerType(),
    "sysFlag": IntegerType(),
    "flag": IntegerType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
}
_LOG_OFFSET: Final = StructField("logOffset", LongType())
_PROPERTIES: Final = StructField("properties", MapType(StringType(), StringType()))


def source_schema(*, properties: bool, log_offset: bool = False) -> StructType:
    """What a read has when it is asked for nothing in particular."""
    fields = [StructField(name, kind) for name, kind in _TYPES.items()]
    if log_offset:
        fields.append(_LOG_OFFSET)
    return StructType([*fields, _PROPERTIES] if properties else fields)


def arrow_of(schema: StructType) -> pa.Schema:
    """The schema that Spark compares with the batches; any columns in any order, each with its type."""
    known = {**_TYPES, "properties": _PROPERTIES.dataType, "logOffset": _LOG_OFFSET.dataType}
    for field in schema.fields:
        if field.name not in known:
            raise SparkError(f"no column {field.name}; there are {', '.join(known)}")
        wanted = known[field.name]
        same = field.dataType == wanted or (isinstance(wanted, MapType) and _is_text_map(field.dataType))
        if not same:
            raise SparkError(f"column {field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}")
    return to_arrow_schema(schema, timezone="UTC")


def _is_text_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and kind.keyType == StringType() and kind.valueType == StringType()
