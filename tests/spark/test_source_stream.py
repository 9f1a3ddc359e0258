"""Streams: limits, runs that end, queues, topics and brokers that come and go, groups that are told, replay."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketq.spark import GroupProgress
from rocketq.testing import EmbeddedCluster
from tests.spark.filling import Filler
from tests.spark.killable import BrokerProcess
from tests.spark.reading import Archive, bodies, contents, following

MakeCluster = Callable[..., EmbeddedCluster]
WAIT_S = 90


def wait_for(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.1)


@pytest.fixture
def own(make_rocketq_cluster: MakeCluster) -> Iterator[tuple[EmbeddedCluster, Filler]]:
    """Two brokers that a test may stop."""
    cluster = make_rocketq_cluster(brokers=2)
    filler = Filler(cluster)
    yield cluster, filler
    filler.close()


Own = tuple[EmbeddedCluster, Filler]


def test_a_run_over_all_that_is_there_and_the_next_one_over_the_rest(
    spark: SparkSession, filler: Filler, tmp_path: Path
) -> None:
    """Goal: AvailableNow in limited batches, each row once, over restarts."""
    topic, sent = filler.fill(250)
    archive = Archive(spark, filler, tmp_path, topic, maxOffsetsPerTrigger="100")
    assert archive.catch_up() == [100, 100, 50]
    sent |= filler.fill(30, topic=topic, first=250)[1]
    assert archive.catch_up() == [30]
    assert archive.catch_up() == []
    assert archive.contents() == bodies(sent)


def test_bytes_limit_a_batch(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: about maxBytesPerTrigger each; the smaller limit counts when rows are limited too."""
    topic, sent = filler.fill(200, body_bytes=1000)
    archive = Archive(spark, filler, tmp_path, topic, maxBytesPerTrigger="60000")
    batches = archive.catch_up()
    assert 4 <= len(batches) <= 6
    assert max(batches) <= 60
    sent |= filler.fill(40, topic=topic, first=200, body_bytes=1000)[1]
    assert archive.catch_up(maxOffsetsPerTrigger="10") == [10, 10, 10, 10]
    assert archive.contents() == bodies(sent)


def test_few_rows_wait_until_the_delay_is_over(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: minOffsetsPerTrigger with maxTriggerDelay, at processing-time triggers."""
    topic, sent = filler.fill(20)
    archive = Archive(spark, filler, tmp_path, topic, minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    query = archive.writer().trigger(processingTime="100 milliseconds").start()
    try:
        wait_for(lambda: query.status["message"].startswith("Waiting"), "an idle query")
        time.sleep(1)
        assert not [progress for progress in query.recentProgress if progress.numInputRows]
        sent |= filler.fill(30, topic=topic, first=20)[1]
        wait_for(lambda: sum(each.numInputRows for each in query.recentProgress) == 50, "enough rows")
    finally:
        query.stop()
    filler.fill(1, topic=topic, first=50)
    hasty = archive.writer(maxTriggerDelay="1s").trigger(processingTime="100 milliseconds").start()
    try:
        wait_for(lambda: sum(each.numInputRows for each in hasty.recentProgress) == 1, "the delay")
    finally:
        hasty.stop()
    assert len(archive.contents()) == 51


def test_idle_triggers_make_no_batches(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: offsets are compared as texts; ours are the same text when nothing came."""
    topic, _ = filler.fill(12, queues=12)
    query = Archive(spark, filler, tmp_path, topic).writer().trigger(processingTime="50 milliseconds").start()
    try:
        wait_for(lambda: query.lastProgress and query.lastProgress.numInputRows == 0, "an idle trigger")
        time.sleep(1)
    finally:
        query.stop()
    assert len(list((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))) == 1


def test_new_queues_topics_and_lag(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: what appears while a query runs is read from its first message on; lag is in the progress."""
    topic, sent = filler.fill(10, queues=1)
    archive = Archive(spark, filler, tmp_path, None, subscribePattern=f"{topic}(Also)?")
    query = archive.writer().trigger(processingTime="200 milliseconds").start()
    try:
        wait_for(lambda: sum(each.numInputRows for each in query.recentProgress) >= 10, "the first rows")
        filler.admin.topics.create(topic, queues=3)
        wait_for(lambda: len(filler.queues(topic)) == 6, "the new route")
        sent |= filler.fill(60, topic=topic, first=10)[1]
        filler.fill(7, topic=filler.topic(name=f"{topic}Also"))
        wait_for(lambda: sum(each.numInputRows for each in query.recentProgress) >= 77, "the new rows")
        wait_for(lambda: json.loads(query.lastProgress.sources[0].latestOffset).keys() >= {f"{topic}Also"}, "lag")
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert contents(rows.where(f"topic = '{topic}'")) == bodies(sent)
    assert rows.where(f"topic = '{topic}Also'").count() == 7


def test_a_broker_that_is_stopped_and_started_again(spark: SparkSession, own: Own, tmp_path: Path) -> None:
    """Goal: its queues wait, the others go on; then they are read on, no row twice. Its address changes as well."""
    cluster, filler = own
    topic, sent = filler.fill(100)
    archive = Archive(spark, filler, tmp_path, topic, fetchOffset__retryIntervalMs="200")
    query = archive.writer().trigger(processingTime="200 milliseconds").start()

    def rows() -> int:
        assert query.exception() is None
        return sum(each.numInputRows for each in query.recentProgress)

    try:
        wait_for(lambda: rows() == 100, "the first rows")
        cluster.stop_broker(1)
        here = [queue for queue in filler.queues(topic) if queue.broker_name == "broker-0"]
        sent |= filler.send(filler.messages(topic, 40, first=100), here)
        wait_for(lambda: rows() == 140, "rows of the other broker")
        cluster.start_broker(1)
        wait_for(lambda: len(filler.queues(topic)) == 4, "the route")
        sent |= filler.fill(60, topic=topic, first=140)[1]
        wait_for(lambda: rows() == 200, "all rows")
    finally:
        query.stop()
    assert archive.contents() == bodies(sent)


def test_a_broker_that_joins_while_a_query_runs(spark: SparkSession, own: Own, tmp_path: Path) -> None:
    """Goal: its queues are read from their first message on, with nobody telling the query."""
    _, filler = own
    topic, sent = filler.fill(40, queues=1)
    archive = Archive(spark, filler, tmp_path, topic)
    joining = BrokerProcess(filler.name_servers, tmp_path / "joining")
    query = archive.writer().trigger(processingTime="200 milliseconds").start()
    try:
        wait_for(lambda: sum(each.numInputRows for each in query.recentProgress) >= 40, "the first rows")
        joining.start()
        wait_for(lambda: _has_queues(filler, topic), "its queues")
        there = [queue for queue in filler.queues(topic) if queue.broker_name == "killed"]
        sent |= filler.send(filler.messages(topic, 30, first=40), there)
        wait_for(lambda: sum(each.numInputRows for each in query.recentProgress) >= 70, "its rows")
    finally:
        query.stop()
        joining.kill()
    assert archive.contents() == bodies(sent)


def _has_queues(filler: Filler, topic: str) -> bool:
    """A broker that is new knows no topics: it is asked for one as soon as it is there."""
    filler.admin.topics.create(topic, queues=1)
    return any(queue.broker_name == "killed" for queue in filler.queues(topic))


def test_a_batch_that_is_done_again_is_the_same(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: a driver that died before the commit replays the batch from the log, whatever came since."""
    topic, sent = filler.fill(120)
    archive = Archive(spark, filler, tmp_path, topic, maxOffsetsPerTrigger="60")
    assert archive.catch_up() == [60, 60]
    for log in (tmp_path / "checkpoint" / "commits", tmp_path / "rows" / "_spark_metadata"):
        (log / "1").unlink()
        (log / ".1.crc").unlink(missing_ok=True)
    sent |= filler.fill(30, topic=topic, first=120)[1]
    assert archive.catch_up() == [60, 30]
    assert archive.contents() == bodies(sent)


@pytest.mark.parametrize(
    "options", [{"subExpression": "A"}, {"subExpression": "TAGS = 'A'", "subExpressionType": "sql92"}]
)
def test_gaps_of_filters_are_no_loss(
    spark: SparkSession, filler: Filler, tmp_path: Path, options: dict[str, str]
) -> None:
    """Goal: batches where no message passes, and ends of queues that do not pass, are read like any other."""
    topic, sent = filler.fill(40, tags=("A", "B", "B", "B", "B"))
    archive = Archive(spark, filler, tmp_path, topic, maxOffsetsPerTrigger="20", **options)
    archive.catch_up()
    filler.fill(20, topic=topic, tags=("B",), first=40)
    assert archive.catch_up() == []
    assert archive.contents() == {place: m.body for place, m in sent.items() if m.tag == "A"}


def committed(filler: Filler, group: str, topic: str) -> dict[tuple[str, int], int]:
    found = filler.admin.offsets.get(group, topic)
    told = {(each.queue.broker_name, each.queue.queue_id): each.committed for each in found}
    return {queue: offset for queue, offset in told.items() if offset is not None}


def test_a_group_is_told_by_the_source(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: commitOffsets=batch tells of every batch but the last of a run; startingOffsets=committed goes on there."""
    topic, _ = filler.fill(80)
    options = {"rocketmq__group__id": f"group-{topic}", "commitOffsets": "batch", "maxOffsetsPerTrigger": "20"}
    Archive(spark, filler, tmp_path / "a", topic, **options).catch_up()
    told = committed(filler, f"group-{topic}", topic)
    assert sum(told.values()) == 60
    archive = Archive(spark, filler, tmp_path / "b", topic, startingOffsets="committed", **options)
    assert sum(archive.catch_up()) == 20


def test_a_group_is_told_exactly_by_the_listener(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: GroupProgress commits the last batch too, and only for its queries; every broker lists the group."""
    topic, _ = filler.fill(50)
    group = f"listener-{topic}"
    listener = GroupProgress(group, {"nameServer": filler.name_servers, "subscribe": topic}, queries={"told"})
    spark.streams.addListener(listener)
    try:
        Archive(spark, filler, tmp_path / "other", topic).catch_up()
        writer = Archive(spark, filler, tmp_path / "told", topic, maxOffsetsPerTrigger="20").writer()
        listener.wait(writer.queryName("told").trigger(availableNow=True).start(), timeout_s=120)
        assert committed(filler, group, topic) == dict.fromkeys([("broker-0", 0), ("broker-0", 1)], 13) | dict.fromkeys(
            [("broker-1", 0), ("broker-1", 1)], 12
        )
        wait_for(lambda: set(filler.admin.groups.list().get(group, {})) == {"broker-0", "broker-1"}, "the groups")
    finally:
        spark.streams.removeListener(listener)


def test_a_stream_starts_at_the_end_by_default(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    topic, _ = filler.fill(20)
    archive = Archive(spark, filler, tmp_path, topic, startingOffsets="latest")
    assert archive.catch_up() == []
    filler.fill(5, topic=topic, first=20)
    assert archive.catch_up() == [5]


def test_columns_and_memory_sink(spark: SparkSession, filler: Filler) -> None:
    """Goal: a subset of columns by .schema(), and any sink."""
    topic, _ = filler.fill(10)
    reader: Any = spark.readStream.format("rocketmq").schema("keys string").option("nameServer", filler.name_servers)
    frame = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = frame.writeStream.format("memory").queryName("keys_only").trigger(availableNow=True).start()
    query.awaitTermination()
    assert {row["keys"] for row in spark.table("keys_only").collect()} == {f"k{n}" for n in range(10)}
    assert following(spark, filler, topic).isStreaming
