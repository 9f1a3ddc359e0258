"""Lag from brokers and from queries, as tables over time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.spark.pipelines import lag
from tests.spark.filling import Filler


def commit(filler: Filler, group: str, topic: str, offset: int) -> None:
    filler.admin.groups.set(group)
    filler.admin.offsets.set(group, dict.fromkeys(filler.queues(topic), offset))


def test_the_lag_of_a_group_is_a_table_of_its_queues(spark: SparkSession, filler: Filler) -> None:
    topic, _ = filler.fill(40, queues=1)
    commit(filler, "lag-table", topic, 5)
    rows = lag.sample(spark, filler.name_servers, ["lag-table"]).where(f"topic = '{topic}'").collect()
    assert sorted((row.brokerName, row.queueId, row.committed, row.maxOffset, row.lag) for row in rows) == [
        ("broker-0", 0, 5, 20, 15),
        ("broker-1", 0, 5, 20, 15),
    ]


def test_lag_over_time_tells_how_fast_it_changes(spark: SparkSession, filler: Filler) -> None:
    topic, _ = filler.fill(40, queues=1)
    commit(filler, "lag-time", topic, 0)
    first = lag.ask(filler.name_servers, ["lag-time"], at_ms=10_000)
    commit(filler, "lag-time", topic, 15)
    second = lag.ask(filler.name_servers, ["lag-time"], at_ms=20_000)
    rows = lag.over_time(lag.frame_of(spark, [*first, *second])).where(f"topic = '{topic}'").orderBy("at").collect()
    assert [(row.lag, row.queues, row.unknown, row.changePerS) for row in rows] == [(40, 2, 0, None), (10, 2, 0, -3.0)]


def test_a_group_that_committed_nothing_for_a_queue_is_unknown_there(spark: SparkSession, filler: Filler) -> None:
    topic, _ = filler.fill(8, queues=1)
    filler.admin.groups.set("lag-new")
    filler.admin.offsets.set("lag-new", {MessageQueue(topic=topic, broker_name="broker-0", queue_id=0): 1})
    rows = lag.sample(spark, filler.name_servers, ["lag-new"]).where(f"topic = '{topic}'").collect()
    assert {row.brokerName: row.lag for row in rows}["broker-0"] == 3


def test_a_group_that_is_not_there_is_an_error_in_one_line(spark: SparkSession, filler: Filler) -> None:
    with pytest.raises(PySparkException, match="consumer group lag-nobody was not found"):
        lag.sample(spark, filler.name_servers, ["lag-nobody"]).collect()


def test_queries_tell_their_lag_after_each_batch(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: a query that is held back shows what waits, and none at its end."""
    topic, _ = filler.fill(60, queues=1)
    listener = lag.QueryLag()
    spark.streams.addListener(listener)
    try:
        source = spark.readStream.format("rocketmq").option("nameServer", filler.name_servers)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest")
        stream = source.option("maxOffsetsPerTrigger", "20").load()
        writer = stream.writeStream.format("noop").queryName("held").option("checkpointLocation", str(tmp_path))
        listener.wait(writer.trigger(availableNow=True).start(), timeout_s=120)
    finally:
        spark.streams.removeListener(listener)
    frame = listener.frame(spark).where("query = 'held'")
    by_batch = frame.groupBy("batchId").sum("lag").orderBy("batchId").collect()
    assert [row["sum(lag)"] for row in by_batch][:3] == [40, 20, 0]
