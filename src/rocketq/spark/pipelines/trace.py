"""Message traces as spans: senders, consumers, durations, and unconsumed messages.

messages of the trace topic -> events (a row per record) -> spans (a row per send or consumption)
                                                         -> deliveries (a send and a consumption of the same message)
                                                         -> latency (percentiles by topic and group)

`events` works on streams too; the others need tables, because a consumption may be reported long before its send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType

from rocketq.client.core.trace_records import TraceRecord, decode_trace
from rocketq.protocol.names import TRACE_TOPIC

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


EVENT_TYPE: Final = from_arrow_type(EVENT)
"""Not as text, which Spark would have to parse: definitions of spark-pipelines may not ask it anything."""
SEND, CONSUME, END_TRANSACTION, RECALL = "send", "consume", "endTransaction", "recall"
PERCENTILES: Final = {"p50Ms": 0.5, "p90Ms": 0.9, "p99Ms": 0.99}
_ACCURACY: Final = 10_000


def read_trace(
    spark: SparkSession, source: Mapping[str, str], *, topic: str = TRACE_TOPIC, streaming: bool = False
) -> DataFrame:
    """Bodies of the trace topic; `source` are options of format("rocketmq"), which may subscribe to something else."""
    reader = spark.readStream if streaming else spark.read
    start = {"startingOffsets": "earliest"} if streaming else {}
    named = {} if source.keys() & {"subscribePattern", "assign"} else {"subscribe": topic}
    given = {**start, **named, **source}
    return reader.format("rocketmq").schema("body binary").options(**given).load()


def events(messages: DataFrame) -> DataFrame:
    """A row per trace record of these messages; only their `body` is used."""
    decoded = arrow_udf(decode_bodies, ArrayType(EVENT_TYPE))  # type: ignore[call-overload]
    return messages.select(F.explode(decoded("body")).alias("event")).select("event.*")


def spans(events: DataFrame) -> DataFrame:
    """A row per send, consumption, end of a transaction and recall, without duplicates.

    A consumption without a known end has neither `success` nor `costMs`.
    """
    told = events.dropDuplicates(["kind", "msgId", "requestId", "group", "time"])
    return (
        _plain_spans(told, "Pub", SEND)
        .unionByName(_consumptions(told))
        .unionByName(_plain_spans(told, "EndTransaction", END_TRANSACTION))
        .unionByName(_plain_spans(told, "Recall", RECALL))
    )


def deliveries(spans: DataFrame) -> DataFrame:
    """Each consumption with the send of its message. `latencyMs`: from the start of the send to the listener's."""
    sends, consumed = spans.where(F.col("kind") == SEND), spans.where(F.col("kind") == CONSUME)
    sent = (
        sends.where(F.col("success"))
        .groupBy("msgId")
        .agg(
            F.min_by("topic", "startedAt").alias("topic"),
            F.min_by("tags", "startedAt").alias("tags"),
            F.min_by("keys", "startedAt").alias("keys"),
            F.min_by("group", "startedAt").alias("producerGroup"),
            F.min_by("messageType", "startedAt").alias("messageType"),
            F.min_by("costMs", "startedAt").alias("sendMs"),
            F.min("startedAt").alias("sentAt"),
        )
    )
    own = consumed.select(
        "msgId",
        F.col("group").alias("consumerGroup"),
        F.col("startedAt").alias("consumedAt"),
        "retryTimes",
        F.col("costMs").alias("consumeMs"),
        "success",
        "outcome",
    )
    latency_ms = F.unix_millis("consumedAt") - F.unix_millis("sentAt")
    return sent.join(own, "msgId").select("*", latency_ms.alias("latencyMs"))


def latency(deliveries: DataFrame, *, retries: bool = False) -> DataFrame:
    """Percentiles by topic, group and type of message; only of first consumptions unless `retries`.

    Delayed messages have separate rows, because their latency includes the delay.
    """
    counted = deliveries if retries else deliveries.where(F.coalesce("retryTimes", F.lit(0)) == 0)
    figures = [F.percentile_approx("latencyMs", share, _ACCURACY).alias(name) for name, share in PERCENTILES.items()]
    return (
        counted.groupBy("topic", "consumerGroup", "messageType")
        .agg(
            F.count("*").alias("messages"),
            *figures,
            F.max("latencyMs").alias("maxMs"),
            F.percentile_approx("consumeMs", 0.5, _ACCURACY).alias("consumeP50Ms"),
            F.sum(F.when(~F.col("success"), 1).otherwise(0)).alias("failed"),
        )
        .orderBy("topic", "consumerGroup", "messageType")
    )


def not_consumed(spans: DataFrame) -> DataFrame:
    """Messages that were sent and that no traced consumer has received."""
    sends = spans.where((F.col("kind") == SEND) & F.col("success"))
    consumed = spans.where(F.col("kind") == CONSUME).select("msgId").distinct()
    return sends.join(consumed, "msgId", "left_anti")


def _plain_spans(events: DataFrame, kind: str, name: str) -> DataFrame:
    return events.where(F.col("kind") == kind).select(
        F.lit(name).alias("kind"),
        "msgId",
        F.col("time").alias("startedAt"),
        "costMs",
        "success",
        F.col("state").alias("outcome"),
        "group",
        "topic",
        "tags",
        "keys",
        "messageType",
        "bodyBytes",
        "storeHost",
        "requestId",
        "retryTimes",
    )


def _consumptions(events: DataFrame) -> DataFrame:
    """Start and end share request and message; the end is a separate trace message, or missing."""
    begun = events.where(F.col("kind") == "SubBefore").select(
        "requestId", "msgId", F.col("time").alias("startedAt"), "group", "keys", "retryTimes"
    )
    ended = events.where(F.col("kind") == "SubAfter").select("requestId", "msgId", "costMs", "success", "outcome")
    return begun.join(ended.dropDuplicates(["requestId", "msgId"]), ["requestId", "msgId"], "left").select(
        F.lit(CONSUME).alias("kind"),
        "msgId",
        "startedAt",
        "costMs",
        "success",
        "outcome",
        "group",
        F.lit(None).cast("string").alias("topic"),
        F.lit(None).cast("string").alias("tags"),
        "keys",
        F.lit(None).cast("string").alias("messageType"),
        F.lit(None).cast("int").alias("bodyBytes"),
        F.lit(None).cast("string").alias("storeHost"),
        "requestId",
        "retryTimes",
    )
