"""Replay: what a copy has, where it goes, how fast, and what a dry run shows."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketq.spark.errors import OptionError
from rocketq.spark.pipelines import replay

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
