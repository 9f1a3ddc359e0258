"""Traces of real clients become spans, deliveries and percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rocketq.client import Message, Producer, ProducerConfig
from rocketq.client.core.trace_records import (
    PubRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TraceMessageType,
    TraceRecord,
    encode_trace,
)
from rocketq.spark.pipelines import trace
from tests.spark.dead_letters import consume_all
from tests.spark.filling import Filler


def messages_of(spark: SparkSession, *bodies: Sequence[TraceRecord]) -> DataFrame:
    rows = [(bytearray("".join(map(encode_trace, records)).encode()),) for records in bodies]
    return spark.createDataFrame(rows, "body binary")


def sent(message_id: str, at_ms: int, **fields: object) -> PubRecord:
    return PubRecord(timestamp_ms=at_ms, group="shop", topic="T", message_id=message_id, **fields)  # type: ignore[arg-type]


def consumed(message_id: str, at_ms: int, *, success: bool = True, retry_times: int = 0) -> list[TraceRecord]:
    request = f"R-{message_id}-{at_ms}"
    begun = SubBeforeRecord(
        timestamp_ms=at_ms, group="mail", request_id=request, message_id=message_id, retry_times=retry_times
    )
    return [begun, SubAfterRecord(request_id=request, message_id=message_id, cost_ms=5, success=success)]


@pytest.fixture
def story(spark: SparkSession) -> DataFrame:
    """100 messages whose latencies are 1 to 100 ms, one retried, one delayed, one never consumed; the end of one
    consumption is missing, and one trace message came twice."""
    sends: list[TraceRecord] = [sent(f"m{n}", 1_000_000 + n) for n in range(100)]
    ends = [record for n in range(100) for record in consumed(f"m{n}", 1_000_000 + n + n + 1, success=n != 0)]
    again = consumed("m0", 1_090_000, retry_times=1)
    late = [sent("late", 1_000_000, message_type=TraceMessageType.DELAY), *consumed("late", 1_010_000)]
    rest: list[TraceRecord] = [sent("lost", 1_000_000), sent("refused", 1_000_000, success=False)]
    return trace.spans(trace.events(messages_of(spark, sends, ends[:-1], ends[:2], again, late, rest, sends[:1])))


def test_what_was_told_twice_is_one_span_and_an_end_that_is_missing_is_not_made_up(story: DataFrame) -> None:
    counted = {row.kind: row["count"] for row in story.groupBy("kind").count().collect()}
    assert counted == {"send": 103, "consume": 102}
    (open_end,) = story.where("msgId = 'm99' and kind = 'consume'").collect()
    assert (open_end.success, open_end.costMs) == (None, None)


def test_latencies_are_those_of_first_deliveries_by_type(story: DataFrame) -> None:
    rows = {row.messageType: row for row in trace.latency(trace.deliveries(story)).collect()}
    normal, delayed = rows["normal"], rows["delay"]
    assert (normal.topic, normal.consumerGroup, normal.messages, normal.failed) == ("T", "mail", 100, 1)
    assert (normal.p50Ms, normal.p90Ms, normal.p99Ms, normal.maxMs) == (50, 90, 99, 100)
    assert (delayed.messages, delayed.maxMs) == (1, 10_000)
    retried = trace.latency(trace.deliveries(story), retries=True).where("messageType = 'normal'").collect()
    assert retried[0].messages == 101


def test_what_nobody_consumed_is_named(story: DataFrame) -> None:
    assert [row.msgId for row in trace.not_consumed(story).collect()] == ["lost"]


def test_real_clients_are_traced_from_send_to_consumption(spark: SparkSession, filler: Filler) -> None:
    """Goal: what our producer and consumer write is what the pipeline reads, through the broker."""
    topic, group = filler.topic(), "trace-group"
    config = ProducerConfig(trace=True)
    with Producer("trace-shop", name_servers=filler.name_servers, config=config) as producer:
        ids = [producer.send(Message(topic=topic, body=b"%d" % n, keys=(f"k{n}",))).message_id for n in range(20)]
    consume_all(filler, group, topic, 20, trace=True)
    spans = trace.spans(trace.events(trace.read_trace(spark, {"nameServer": filler.name_servers}))).cache()
    found = trace.deliveries(spans).where(F.col("topic") == topic)
    rows = found.collect()
    assert sorted(row.msgId for row in rows) == sorted(ids)
    assert {(row.producerGroup, row.consumerGroup, row.success) for row in rows} == {("trace-shop", group, True)}
    assert all(row.latencyMs >= 0 and isinstance(row.sentAt, datetime) for row in rows)
    spans.unpersist()


def test_trace_events_stream(spark: SparkSession, filler: Filler) -> None:
    topic = filler.topic()
    text = "".join(map(encode_trace, [sent("s1", 5), *consumed("s1", 9)]))
    filler.send([Message(topic=topic, body=text.encode())])
    source = {"nameServer": filler.name_servers}
    stream = trace.events(trace.read_trace(spark, source, topic=topic, streaming=True))
    query = stream.writeStream.format("memory").queryName("traced").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(row.kind for row in spark.table("traced").collect()) == ["Pub", "SubAfter", "SubBefore"]
