"""Replay: messages of an archive, of dead letters or of any DataFrame are sent again to their original topic.

A replayed message has a new id; the property ORIGIN_MESSAGE_ID holds the old one. Properties of one delivery (delays,
retries, transactions) are removed. At least once: a retried task sends again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from rocketq.client.core.messages import NOT_COPIED
from rocketq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, Property, topic_fault
from rocketq.spark.errors import OptionError, plain_rows, plainly
from rocketq.spark.reader import client_of
from rocketq.spark.sink_options import SinkOptions, parse_sink
from rocketq.spark.sink_schema import check_schema
from rocketq.spark.writer import TaskId, TaskWriter

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_LEFT_BEHIND: Final = sorted(NOT_COPIED | {Property.SHARDING_KEY, Property.ORIGIN_MESSAGE_ID})
MESSAGE_COLUMNS: Final = ("topic", "msgId", "body", "tags", "keys", "properties")
"""Of a message whose properties were read too."""
_SENT: Final = "messages long, bytes long"


@dataclass(frozen=True, slots=True)
class Replayed:
    messages: int
    body_bytes: int


def prepared(messages: DataFrame, *, topic: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """The input of the sink: the columns of a copy. `messages` needs topic, body and msgId; tags, keys and properties
    are kept if present.

    Without a `topic` each message goes to its original topic: a dead letter to the topic it was consumed from.
    `columns` lists the columns: definitions of spark-pipelines may not ask a DataFrame for them.
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


@plainly
def replay(prepared: DataFrame, sink: Mapping[str, str], *, rows_per_s: float | None = None) -> Replayed:
    """Send them; `sink` are options of format("rocketmq") such as nameServer. Returns when all are stored."""
    if rows_per_s is not None:
        return _replay_paced(prepared, sink, rows_per_s)
    counted = Observation()
    size = F.octet_length("body")
    rows = prepared.observe(counted, F.count(F.lit(1)).alias("messages"), F.sum(size).alias("bytes"))
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
    """For a stream: replay what is new since the last run with this checkpoint, then end; with another `trigger` the
    query continues."""
    if rows_per_s is None:
        writer = prepared.writeStream.format("rocketmq").options(**sink)
    else:
        writer = prepared.writeStream.foreachBatch(lambda rows, _: _send_batch(rows, sink, rows_per_s))
    return writer.option("checkpointLocation", checkpoint).trigger(**(trigger or {"availableNow": True})).start()


def _send_batch(rows: DataFrame, sink: Mapping[str, str], rows_per_s: float) -> None:
    _replay_paced(rows, sink, rows_per_s)


def _replay_paced(prepared: DataFrame, sink: Mapping[str, str], rows_per_s: float) -> Replayed:
    """In one task, because several could not share a rate limit. It sends directly: Spark buffers rows on the way to
    a sink, which would cause bursts."""
    if rows_per_s <= 0:
        raise OptionError(f"a rate is a number above 0, not {rows_per_s}")
    options = parse_sink(sink, streaming=False)
    check_schema(prepared.schema, options)

    def sent(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chunks = paced_batches(batches, rows_per_s, now_s=time.monotonic, pause=time.sleep)
        return plain_rows(_sent_chunk(chunk, options) for chunk in chunks)

    counted = prepared.coalesce(1).mapInArrow(sent, _SENT)
    messages, size = counted.agg(F.sum("messages"), F.sum("bytes")).collect()[0]
    return Replayed(messages=messages or 0, body_bytes=size or 0)


def _sent_chunk(chunk: pa.RecordBatch, options: SinkOptions) -> pa.RecordBatch:
    """Stored by brokers when it returns."""
    written = TaskWriter(client_of(options.connection), options, TaskId(0)).write([chunk])
    size = pc.sum(pc.binary_length(chunk.column("body"))).as_py() or 0
    return pa.RecordBatch.from_pylist([{"messages": written.rows, "bytes": size}])


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


def chunk_rows(rows_per_s: float) -> int:
    """Rows sent together: those of a tenth of a second."""
    return max(1, int(rows_per_s / 10))


def paced_batches(
    batches: Iterable[pa.RecordBatch],
    rows_per_s: float,
    *,
    now_s: Callable[[], float],
    pause: Callable[[float], None],
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, no faster than that at any time: what was not used is not made up for."""
    next_s, step = now_s(), chunk_rows(rows_per_s)
    for batch in batches:
        for at in range(0, batch.num_rows, step):
            now = now_s()
            if now < next_s:
                pause(next_s - now)
            part = batch.slice(at, step)
            next_s = max(now, next_s) + part.num_rows / rows_per_s
            yield part
