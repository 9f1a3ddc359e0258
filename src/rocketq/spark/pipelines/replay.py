"""Messages sent once more: of an archive, of dead letters, of any DataFrame, to the topic they were meant for.

A replayed message has a new id; where it came from stays in its property ORIGIN_MESSAGE_ID. What brokers and clients
said about one way of it (delays, retries, transactions) is left behind. At least once: a task that is tried again
sends again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from rocketq.client.core.messages import NOT_COPIED
from rocketq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, Property, topic_fault
from rocketq.spark.errors import OptionError
from rocketq.spark.pipelines.pacing import paced_batches

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LEFT_BEHIND: Final = sorted(NOT_COPIED | {Property.SHARDING_KEY, Property.ORIGIN_MESSAGE_ID})
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_ROWS_MAX: Final = 10_000
MESSAGE_COLUMNS: Final = ("topic", "msgId", "body", "tags", "keys", "properties")
"""Of a message whose properties were read too."""
SINK_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("body", BinaryType()),
        StructField("tags", StringType()),
        StructField("keys", StringType()),
        StructField("shardingKey", StringType()),
        StructField("properties", MapType(StringType(), StringType())),
    ]
)


@dataclass(frozen=True, slots=True)
class Replayed:
    messages: int
    body_bytes: int


def prepared(messages: DataFrame, *, topic: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """What the sink is given: of each message what a copy has. `messages` needs topic, body and msgId; tags, keys and
    properties are kept where they are there.

    Without a `topic` each goes where it was first sent to: a dead letter to the topic it was consumed from. `columns`
    says which there are: definitions of spark-pipelines may not ask a DataFrame for them.
    """
    columns = messages.columns if columns is None else columns
    _check(columns, topic)
    properties = F.col("properties") if "properties" in columns else _no_properties()
    properties = F.coalesce(properties, _no_properties())
    kept = F.map_filter(properties, lambda name, _: ~name.isin(_LEFT_BEHIND))
    origin_id = F.coalesce(F.try_element_at(properties, F.lit(Property.ORIGIN_MESSAGE_ID)), F.col("msgId"))
    with_origin = F.when(origin_id.isNull(), kept).otherwise(
        F.map_concat(kept, F.create_map(F.lit(Property.ORIGIN_MESSAGE_ID), origin_id))
    )
    return messages.select(
        (F.lit(topic) if topic is not None else _first_topic(properties)).alias("topic"),
        "body",
        _column(columns, "tags").alias("tags"),
        _column(columns, "keys").alias("keys"),
        F.try_element_at(properties, F.lit(Property.SHARDING_KEY)).alias("shardingKey"),
        with_origin.alias("properties"),
    )


def plan(prepared: DataFrame) -> DataFrame:
    """What a replay would send, by topic and tag; nothing is sent."""
    size = F.octet_length("body")
    return (
        prepared.groupBy("topic", "tags")
        .agg(F.count("*").alias("messages"), F.sum(size).alias("bodyBytes"))
        .orderBy("topic", "tags")
    )


def replay(prepared: DataFrame, sink: Mapping[str, str], *, rows_per_s: float | None = None) -> Replayed:
    """Send them; `sink` are options of format("rocketmq") such as nameServer. Returns when all are stored."""
    counted = Observation()
    rows = _paced(prepared, rows_per_s).observe(
        counted, F.count(F.lit(1)).alias("messages"), F.sum(F.octet_length("body")).alias("bytes")
    )
    with _small_batches(prepared.sparkSession, rows_per_s):
        rows.write.format("rocketmq").options(**sink).mode("append").save()
    found = counted.get
    return Replayed(messages=found["messages"], body_bytes=found["bytes"] or 0)


def replay_stream(
    prepared: DataFrame,
    sink: Mapping[str, str],
    *,
    checkpoint: str,
    rows_per_s: float | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Of a stream: what was not replayed yet since the last run with this checkpoint, then the query ends; another
    `trigger` lets it go on."""
    writer = _paced(prepared, rows_per_s).writeStream.format("rocketmq").options(**sink)
    started = writer.option("checkpointLocation", checkpoint).trigger(**(trigger or {"availableNow": True})).start()
    return started


def _paced(prepared: DataFrame, rows_per_s: float | None) -> DataFrame:
    """In one task: as many as would share the rate could not know of each other."""
    if rows_per_s is None:
        return prepared
    if rows_per_s <= 0:
        raise OptionError(f"a rate is a number above 0, not {rows_per_s}")

    def pace(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return paced_batches(batches, rows_per_s, now_s=time.monotonic, pause=time.sleep)

    return prepared.coalesce(1).mapInArrow(pace, SINK_SCHEMA)


@contextmanager
def _small_batches(spark: SparkSession, rows_per_s: float | None) -> Iterator[None]:
    """Spark gathers rows on their way to a sink: no more than those of a second, or slow rates would come in lumps."""
    if rows_per_s is None:
        yield
        return
    before = spark.conf.get(_BATCH_ROWS, str(_BATCH_ROWS_MAX)) or str(_BATCH_ROWS_MAX)
    spark.conf.set(_BATCH_ROWS, str(max(1, min(_BATCH_ROWS_MAX, int(rows_per_s)))))
    try:
        yield
    finally:
        spark.conf.set(_BATCH_ROWS, before)


def _check(columns: Sequence[str], topic: str | None) -> None:
    missing = [name for name in ("topic", "body", "msgId") if name not in columns]
    if missing:
        raise OptionError(f"messages to replay need the columns topic, body and msgId: {', '.join(missing)} is missing")
    if topic is not None and (fault := topic_fault(topic)) is not None:
        raise OptionError(fault)


def _first_topic(properties: Column) -> Column:
    topic = F.col("topic")
    again = topic.startswith(DLQ_PREFIX) | topic.startswith(RETRY_PREFIX)
    first = F.coalesce(
        F.try_element_at(properties, F.lit(Property.DLQ_ORIGIN_TOPIC)),
        F.try_element_at(properties, F.lit(Property.RETRY_TOPIC)),
        topic,
    )
    return F.when(again, first).otherwise(topic)


def _column(columns: Sequence[str], name: str) -> Column:
    return F.col(name) if name in columns else F.lit(None).cast("string")


def _no_properties() -> Column:
    return F.create_map().cast("map<string,string>")
