"""Replay: what a copy has, where it goes, how fast, and what a dry run shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketq.client import Message
from rocketq.spark.errors import OptionError
from rocketq.spark.pipelines import dlq, replay
from tests.spark.dead_letters import dead
from tests.spark.filling import Filler
from tests.spark.reading import reading

SCHEMA = "topic string, msgId string, body binary, tags string, keys string, properties map<string,string>"


@pytest.fixture
def messages(spark: SparkSession) -> DataFrame:
    dead = {
        "DLQ_ORIGIN_TOPIC": "Orders",
        "DLQ_ORIGIN_MESSAGE_ID": "first",
        "ORIGIN_MESSAGE_ID": "first",
        "RETRY_TOPIC": "Orders",
        "REAL_TOPIC": "x",
        "DELAY": "3",
        "UNIQ_KEY": "u",
        "WAIT": "false",
        "TAGS": "paid",
        "KEYS": "k1",
        "MAX_RECONSUME_TIMES": "2",
        "__SHARDINGKEY": "customer-7",
        "shop": "Berlin",
    }
    rows = [
        ("%DLQ%billing", "m1", bytearray(b"dead"), "paid", "k1", dead),
        ("%RETRY%billing", "m2", bytearray(b"again"), None, None, {"RETRY_TOPIC": "Sales"}),
        ("Visits", "m3", bytearray(b"plain"), "new", "k3", {"RETRY_TOPIC": "not this one"}),
        ("Visits", "m4", bytearray(b"bare"), None, None, None),
    ]
    return spark.createDataFrame(rows, SCHEMA)


def test_a_copy_goes_where_it_was_meant_to_and_keeps_what_is_its_own(messages: DataFrame) -> None:
    """Goal: no order to brokers (delay, retry, transaction) is carried along; the first id is."""
    rows = {bytes(row.body): row for row in replay.prepared(messages).collect()}
    dead = rows[b"dead"]
    assert (dead.topic, dead.tags, dead.keys, dead.shardingKey) == ("Orders", "paid", "k1", "customer-7")
    assert dead.properties == {"ORIGIN_MESSAGE_ID": "first", "shop": "Berlin"}
    assert (rows[b"again"].topic, rows[b"again"].properties) == ("Sales", {"ORIGIN_MESSAGE_ID": "m2"})
    assert (rows[b"plain"].topic, rows[b"plain"].properties) == ("Visits", {"ORIGIN_MESSAGE_ID": "m3"})
    assert (rows[b"bare"].topic, rows[b"bare"].properties) == ("Visits", {"ORIGIN_MESSAGE_ID": "m4"})


def test_one_topic_for_all(messages: DataFrame) -> None:
    assert {row.topic for row in replay.prepared(messages, topic="Again").collect()} == {"Again"}


def test_columns_that_are_not_there_are_done_without(messages: DataFrame) -> None:
    rows = replay.prepared(messages.select("msgId", "body", "topic"), topic="T").collect()
    assert {(row.tags, row.keys, len(row.properties)) for row in rows} == {(None, None, 1)}


def test_a_dry_run_tells_topics_and_tags(messages: DataFrame) -> None:
    rows = [tuple(row) for row in replay.plan(replay.prepared(messages)).collect()]
    assert rows == [("Orders", "paid", 1, 4), ("Sales", None, 1, 5), ("Visits", None, 1, 4), ("Visits", "new", 1, 5)]


def test_what_cannot_be_replayed_is_said_before_anything_is_sent(messages: DataFrame) -> None:
    with pytest.raises(OptionError, match="body, msgId is missing"):
        replay.prepared(messages.select("topic"))
    with pytest.raises(OptionError, match="may only have letters"):
        replay.prepared(messages, topic="no topic")
    with pytest.raises(OptionError, match="a rate is a number above 0"):
        replay.replay(replay.prepared(messages), {}, rows_per_s=0)


# to brokers


def copies_of(spark: SparkSession, filler: Filler, topic: str) -> DataFrame:
    return reading(spark, filler, topic, includeProperties="true")


def test_dead_letters_go_back_where_they_came_from_with_their_first_id(spark: SparkSession, filler: Filler) -> None:
    """Goal: from a consumer's failure to a second chance, through the broker; ids of the first way are kept."""
    topic, group = filler.topic(), "replay-billing"
    sent = [
        Message(topic=topic, body=b"%d" % n, tag="bad", keys=(f"k{n}",), properties={"n": str(n)}) for n in range(6)
    ]
    dead(filler, group, topic, sent, dies=["bad"])
    letters = dlq.read_dlq(spark, {"nameServer": filler.name_servers}, groups=[group])
    first_ids = {row.keys: row.properties["ORIGIN_MESSAGE_ID"] for row in letters.collect()}
    done = replay.replay(replay.prepared(letters), {"nameServer": filler.name_servers})
    assert (done.messages, done.body_bytes) == (6, 6)
    copies = [row for row in copies_of(spark, filler, topic).collect() if "ORIGIN_MESSAGE_ID" in row.properties]
    assert {row.keys: row.properties["ORIGIN_MESSAGE_ID"] for row in copies} == first_ids
    assert {(row.tags, row.reconsumeTimes, row.properties["n"] == row.keys[1:]) for row in copies} == {("bad", 0, True)}


def test_a_rate_is_kept(spark: SparkSession, filler: Filler) -> None:
    """Goal: the broker sees them over the time the rate means, not at once."""
    source, _ = filler.fill(60)
    target = filler.topic()
    copies = replay.prepared(copies_of(spark, filler, source), topic=target)
    assert replay.replay(copies, {"nameServer": filler.name_servers}, rows_per_s=20).messages == 60
    times = sorted(row.storeTimestamp for row in copies_of(spark, filler, target).collect())
    assert len(times) == 60
    assert (times[-1] - times[0]).total_seconds() >= 2.5
    assert len({time.replace(microsecond=0) for time in times}) >= 3, "over all the time, not in lumps"


def test_a_checkpoint_replays_what_is_new(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    source, _ = filler.fill(20)
    target = filler.topic()
    sink = {"nameServer": filler.name_servers}

    def run(rows_per_s: float | None) -> int:
        stream = spark.readStream.format("rocketmq").options(
            nameServer=filler.name_servers, subscribe=source, startingOffsets="earliest", includeProperties="true"
        )
        copies = replay.prepared(stream.load(), topic=target)
        query = replay.replay_stream(copies, sink, checkpoint=str(tmp_path / "c"), rows_per_s=rows_per_s)
        assert query.awaitTermination(120)
        return copies_of(spark, filler, target).count()

    assert run(None) == 20
    filler.fill(5, topic=source, first=20)
    assert run(100) == 25
