"""Dead letters: found by pattern, told by group and cause, and counted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rocketq.client import Message
from rocketq.spark.pipelines import dlq
from tests.spark.dead_letters import dead
from tests.spark.filling import Filler


def test_what_a_consumer_gave_up_on_is_told_by_group_error_tag_and_retries(spark: SparkSession, filler: Filler) -> None:
    """Goal: from a real consumer's failures to the table a person looks at first."""
    topic = filler.topic()
    messages = [
        Message(
            topic=topic,
            body=b"%d" % n,
            tag="bad" if n % 2 else "good",
            keys=(f"k{n}",),
            properties={"ERROR": f"card {n:016d} was refused after {n} ms"},
        )
        for n in range(10)
    ]
    dead(filler, "dlq-billing", topic, messages, dies=["bad"])
    found = dlq.dead_letters(dlq.read_dlq(spark, {"nameServer": filler.name_servers}, groups=["dlq-billing"]))
    rows = found.collect()
    assert sorted(row.keys for row in rows) == ["k1", "k3", "k5", "k7", "k9"]
    assert {(row.group, row.originTopic, row.tags, row.retries) for row in rows} == {("dlq-billing", topic, "bad", 1)}
    assert {row.cause for row in rows} == {"card # was refused after # ms"}
    assert all(len(row.originMessageId) == 32 for row in rows)
    (cause,) = dlq.causes(found).collect()
    assert (cause.group, cause.originTopic, cause.tags, cause.retries, cause.messages) == (
        "dlq-billing",
        topic,
        "bad",
        1,
        5,
    )
    assert cause.lastError in {row.error for row in rows}
    assert cause.firstDiedAt <= cause.lastDiedAt


def test_all_groups_are_found_and_nothing_but_dead_letters(spark: SparkSession, filler: Filler) -> None:
    topic = filler.topic()
    for group in ("dlq-a", "dlq-b"):
        filler.admin.groups.set(group)
    dead(filler, "dlq-a", topic, [Message(topic=topic, body=b"1", tag="bad")], dies=["bad"])
    dead(filler, "dlq-b", topic, [Message(topic=topic, body=b"2", tag="bad")], dies=["bad"])
    found = dlq.dead_letters(dlq.read_dlq(spark, {"nameServer": filler.name_servers}))
    assert {"dlq-a", "dlq-b"} <= {row.group for row in found.select("group").collect()}
    none = dlq.read_dlq(spark, {"nameServer": filler.name_servers}, groups=["dlq"])
    assert none.count() == 0, "a group is its whole name"


def test_dead_letters_stream(spark: SparkSession, filler: Filler) -> None:
    """Goal: the same functions on a stream, so that a table is kept up to date."""
    topic = filler.topic()
    dead(filler, "dlq-stream", topic, [Message(topic=topic, body=b"x", tag="bad")] * 3, dies=["bad"])
    stream = dlq.read_dlq(spark, {"nameServer": filler.name_servers}, groups=["dlq-stream"], streaming=True)
    writer = dlq.causes(dlq.dead_letters(stream)).writeStream.format("memory").queryName("dead_causes")
    writer.outputMode("complete").trigger(availableNow=True).start().awaitTermination(120)
    assert [(row.group, row.messages) for row in spark.table("dead_causes").collect()] == [("dlq-stream", 3)]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (None, None),
        ("timeout after 30.5 ms", "timeout after # ms"),
        ("order 7f9c2ba4-e88f-4a9b-b05c-1c2d3e4f5a6b is gone\n  at line 3", "order # is gone"),
        ("ValueError: decade of facade", "ValueError: decade of facade"),
        ("10.0.0.1:9876 at 2026-11-15, card 4711-7", "# at #, card #"),
    ],
)
def test_equal_causes_are_told_apart_from_their_numbers(
    spark: SparkSession, error: str | None, cause: str | None
) -> None:
    (row,) = spark.range(1).select(dlq.cause(F.lit(error)).alias("cause")).collect()
    assert row.cause == cause


def test_letters_of_other_brokers_without_origins_are_shown_all_the_same(spark: SparkSession) -> None:
    """Goal: only topic and properties are needed to be there, not what is in them."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [("%DLQ%g", None, 16, at, "m1"), ("Orders", {"ERROR": "x"}, 0, at, "m2")]
    schema = "topic string, properties map<string,string>, reconsumeTimes int, storeTimestamp timestamp, msgId string"
    (row,) = dlq.dead_letters(spark.createDataFrame(rows, schema)).collect()
    assert (row.group, row.originTopic, row.error, row.retries, row.msgId) == ("g", None, None, 16, "m1")
