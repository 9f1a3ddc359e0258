"""Batch reads: what was sent is what a DataFrame holds, and the options say how much of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC

import pytest
from pyspark.sql import SparkSession

from rocketq.broker.pull import handlers as pulls
from rocketq.client import Message
from rocketq.protocol.headers.pull import PullResponse
from rocketq.runtime.machine import boot_id
from rocketq.store import ReadResult, Store
from tests.spark.filling import Filler, Place
from tests.spark.reading import bodies, contents, reading


@pytest.fixture(scope="module")
def thousand(filler: Filler) -> tuple[str, dict[Place, Message]]:
    """A topic of 1000 messages in four queues on two brokers."""
    return filler.fill(1_000, body_bytes=40)


Thousand = tuple[str, dict[Place, Message]]


def test_a_topic_is_read_whole(spark: SparkSession, filler: Filler, thousand: Thousand) -> None:
    """Goal: every message of every queue of every broker once, with its contents."""
    topic, sent = thousand
    frame = reading(spark, filler, topic)
    assert contents(frame) == bodies(sent)
    assert frame.rdd.getNumPartitions() == 4


@pytest.mark.skipif(not boot_id(), reason="this system does not say which kernel runs")
@pytest.mark.parametrize(("in_place", "placed"), [("true", 1_000), ("false", 0)])
def test_tasks_on_the_brokers_machine_read_in_its_files(
    spark: SparkSession,
    filler: Filler,
    thousand: Thousand,
    monkeypatch: pytest.MonkeyPatch,
    in_place: str,
    placed: int,
) -> None:
    """Goal: all rows, and the brokers (which run in this process) told only where their records are."""
    topic, sent = thousand
    counts: list[int] = []
    sound = pulls._placed

    def counted(answer: PullResponse, found: ReadResult, store: Store) -> PullResponse:
        counts.append(found.count)
        return sound(answer, found, store)

    monkeypatch.setattr(pulls, "_placed", counted)
    assert contents(reading(spark, filler, topic, readInPlace=in_place)) == bodies(sent)
    assert sum(counts) == placed


def test_every_column_is_what_was_sent(spark: SparkSession, filler: Filler, thousand: Thousand) -> None:
    topic, sent = thousand
    now_ms = time.time() * 1000
    for row in reading(spark, filler, topic, includeProperties="true").collect():
        message = sent[row.brokerName, row.queueId, row.queueOffset]
        assert row.topic == topic
        assert (row.tags, row.keys, bytes(row.body)) == (message.tag, message.keys[0], message.body)
        assert len(row.msgId) == 32
        assert row.properties["n"] == message.properties["n"]
        assert row.properties["KEYS"] == message.keys[0]
        assert (row.flag, row.reconsumeTimes) == (0, 0)
        assert row.bornHost.startswith("127.0.0.1:")
        assert row.storeHost.startswith("127.0.0.1:")
        stored_ms = row.storeTimestamp.replace(tzinfo=row.storeTimestamp.tzinfo or UTC).timestamp() * 1000
        assert abs(stored_ms - now_ms) < 14 * 3_600_000  # naive times are of the machine's zone


def test_the_map_may_have_what_the_application_set_alone(
    spark: SparkSession, filler: Filler, thousand: Thousand
) -> None:
    """Goal: what RocketMQ puts among the properties has columns of its own, and can be left out of the map."""
    topic, sent = thousand
    for row in reading(spark, filler, topic, includeProperties="user").collect():
        message = sent[row.brokerName, row.queueId, row.queueOffset]
        assert row.properties == dict(message.properties)
        assert row["keys"] == message.keys[0]


def test_any_columns_in_any_order(spark: SparkSession, filler: Filler, thousand: Thousand) -> None:
    """Goal: .schema() is the pruning of columns."""
    topic, sent = thousand
    reader = spark.read.format("rocketmq").option("nameServer", filler.name_servers).option("subscribe", topic)
    rows = reader.schema("properties map<string,string>, queueOffset long, keys string").load().collect()
    assert sorted((row.queueOffset, row["keys"]) for row in rows) == sorted(
        (offset, message.keys[0]) for (_, _, offset), message in sent.items()
    )
    assert rows[0].__fields__ == ["properties", "queueOffset", "keys"]
    assert reader.schema("body binary").load().count() == 1000


def test_offsets_by_queue(spark: SparkSession, filler: Filler, thousand: Thousand) -> None:
    topic, sent = thousand
    frame = reading(
        spark,
        filler,
        topic,
        startingOffsets=f'{{"{topic}": {{"broker-0": {{"0": 240}}}}}}',
        endingOffsets=f'{{"{topic}": {{"broker-0": {{"0": 245}}, "broker-1": {{"0": 0, "1": -1}}}}}}',
    )
    found = contents(frame)
    assert sorted(place for place in found if place[:2] == ("broker-0", 0)) == [
        ("broker-0", 0, n) for n in range(240, 245)
    ]
    assert len(found) == 5 + 250 + 250
    assert all(body == sent[place].body for place, body in found.items())


def test_assigned_queues_only(spark: SparkSession, filler: Filler, thousand: Thousand) -> None:
    topic, _ = thousand
    frame = reading(spark, filler, None, assign=f'{{"{topic}": {{"broker-1": [1]}}}}')
    assert {place[:2] for place in contents(frame)} == {("broker-1", 1)}


def test_several_topics_and_a_pattern(spark: SparkSession, filler: Filler) -> None:
    name = filler.fill(20)[0]
    filler.fill(30, topic=filler.topic(name=f"{name}Also"))
    rows = reading(spark, filler, f"{name}, {name}Also").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in rows} == {name: 20, f"{name}Also": 30}
    assert reading(spark, filler, None, subscribePattern=f"{name}A.*").count() == 30


def test_times_bound_a_read(spark: SparkSession, filler: Filler) -> None:
    """Goal: startingTimestamp is the first message at or after, endingTimestamp the first that is left out."""
    topic, first = filler.fill(40)
    time.sleep(0.05)
    middle_ms = int(time.time() * 1000)
    time.sleep(0.05)
    second = filler.fill(60, topic=topic, first=40)[1]
    assert contents(reading(spark, filler, topic, startingTimestamp=str(middle_ms))) == bodies(second)
    assert contents(reading(spark, filler, topic, endingTimestamp=str(middle_ms))) == bodies(first)
    by_queue = f'{{"{topic}": {{"broker-0": {{"0": {middle_ms}, "1": {middle_ms}}}}}}}'
    found = contents(reading(spark, filler, topic, startingOffsetsByTimestamp=by_queue))
    both = bodies({**first, **second})
    assert found == {place: both[place] for place in both if place[0] == "broker-1" or place in second}


def test_a_read_begins_where_a_group_is(spark: SparkSession, filler: Filler) -> None:
    """Goal: startingOffsets=committed; queues the group never read begin at their earliest message."""
    topic, sent = filler.fill(100)
    queue = filler.queues(topic)[0]
    filler.admin.offsets.set("batch-group", {queue: 20})
    frame = reading(spark, filler, topic, startingOffsets="committed", rocketmq__group__id="batch-group")
    passed = {(queue.broker_name, queue.queue_id, n) for n in range(20)}
    assert contents(frame) == {place: body for place, body in bodies(sent).items() if place not in passed}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subExpression": "A"}, lambda n: n % 2 == 0),
        ({"subExpression": "A || B"}, lambda n: True),
        ({"subExpression": "n > 90 AND TAGS = 'B'", "subExpressionType": "sql92"}, lambda n: n > 90 and n % 2),
    ],
)
def test_brokers_filter_by_tags_and_sql(
    spark: SparkSession, filler: Filler, options: dict[str, str], wanted: Callable[[int], bool]
) -> None:
    topic, sent = filler.fill(100)
    expected = {place: m.body for place, m in sent.items() if wanted(int(m.properties["n"]))}
    assert contents(reading(spark, filler, topic, **options)) == expected


def test_tasks_are_as_many_and_as_large_as_asked_for(spark: SparkSession, filler: Filler, thousand: Thousand) -> None:
    topic, sent = thousand
    many = reading(spark, filler, topic, minPartitions="10")
    assert 10 <= many.rdd.getNumPartitions() <= 13
    small = reading(spark, filler, topic, maxRecordsPerPartition="50")
    assert small.rdd.getNumPartitions() == 20
    assert contents(small) == bodies(sent) == contents(many)


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, filler: Filler) -> None:
    frame = reading(spark, filler, filler.topic())
    assert frame.count() == 0
    assert frame.columns[:4] == ["topic", "brokerName", "queueId", "queueOffset"]


def test_sql_views_and_large_bodies(spark: SparkSession, filler: Filler) -> None:
    """Goal: a temporary view carries the options; compressed bodies come as they were sent."""
    topic = filler.topic(queues=1)
    sent = filler.send([Message(topic=topic, body=bytes([n]) * 100_000) for n in range(20)])
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW large USING rocketmq "
        f"OPTIONS (nameServer '{filler.name_servers}', subscribe '{topic}')"
    )
    rows = spark.sql("SELECT brokerName, queueId, queueOffset, body FROM large").collect()
    assert {(row.brokerName, row.queueId, row.queueOffset): bytes(row.body) for row in rows} == bodies(sent)


def test_secrets_are_in_no_plan(spark: SparkSession, filler: Filler, thousand: Thousand) -> None:
    """Goal: explain and the plans in event logs show no key."""
    secrets = {"rocketmq__accessKey": "AccessX", "rocketmq__secretKey": "SecretX", "rocketmq__securityToken": "TokenX"}
    frame = reading(spark, filler, thousand[0], **secrets)
    text = frame._jdf.queryExecution().toString() + frame._jdf.queryExecution().explainString(
        spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")
    )
    assert not [value for value in secrets.values() if value in text]


def test_a_read_over_tls(spark: SparkSession, filler: Filler, thousand: Thousand) -> None:
    """Goal: driver and tasks speak TLS to NameServer and brokers."""
    topic, sent = thousand
    assert contents(reading(spark, filler, topic, rocketmq__tls__enable="true")) == bodies(sent)
