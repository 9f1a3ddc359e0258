"""Store files as DataFrames: directories of Apache's brokers, a running broker's own, damaged ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rocketq.testing import EmbeddedCluster
from tests.golden.stores import NAMES, body_of, unpack
from tests.spark.filling import Filler
from tests.unit.spark.log_writing import overwrite, record, write_log

FILE_BYTES = 1 << 20
CORRUPT = "_corrupt struct<reason: string, file: string, logOffset: long, bytes: long>"


def reading(spark: SparkSession, path: Path | str, schema: str | None = None, **options: object) -> DataFrame:
    reader = spark.read.format("rocketmq_commitlog").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize("name", NAMES)
def test_directories_of_apache_hold_what_their_producers_were_told(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    """Goal: every acknowledged message at its log offset, with topic, queue, offset, tag, keys and plain body."""
    golden = unpack(name, tmp_path)
    columns = "logOffset long, topic string, queueId int, queueOffset long, tags string, keys string, body binary"
    rows = reading(spark, golden.root, columns, maxPartitionBytes=200_000, mode="failfast").collect()
    found = {row.logOffset: row for row in rows}
    assert len(found) == len(rows) == golden.facts["recordsInLog"]
    for entry in golden.manifest:
        row = found[entry["logOffset"]]
        assert row.topic == entry.get("storedTopic", entry["topic"])
        assert row.queueId == entry.get("storedQueueId", entry["queueId"])
        assert row.queueOffset == entry["queueOffset"]
        assert bytes(row.body) == body_of(entry)
        assert (row.tags or None) == (entry["tags"] or None)
        assert (row.keys or "").split() == (entry["keys"] or "").split()


def test_a_running_broker_is_read_beside_it(spark: SparkSession, cluster: EmbeddedCluster, filler: Filler) -> None:
    """Goal: what a live broker has stored is there, without asking or locking it, and it goes on storing."""
    topic, sent = filler.fill(400)
    for _ in range(2):
        found = {}
        for index in range(2):
            frame = reading(spark, cluster.store_dir(index), brokerName=f"broker-{index}", includeProperties=True)
            for row in frame.where(F.col("topic") == topic).collect():
                found[row.brokerName, row.queueId, row.queueOffset] = (bytes(row.body), row.properties["n"])
        assert found == {place: (message.body, message.properties["n"]) for place, message in sent.items()}
        sent |= filler.fill(100, topic=topic, first=400)[1]


@pytest.mark.usefixtures("pushdown")
def test_filters_give_the_same_rows_pushed_down_or_not(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: topic, queue, offset and time are answered by the reader exactly as Spark answers them."""
    log = tmp_path / "commitlog"
    placed = write_log(log, map(record, range(600)), file_bytes=1 << 14)
    overwrite(log, 1 << 14, placed[9].log_offset + 4, b"????")
    schema = f"topic string, queueId int, queueOffset long, storeTimestamp timestamp, tags string, {CORRUPT}"
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=300)
    conditions = [
        F.col("topic") == "T1",
        F.col("topic").isin("T0", "nope") & (F.col("queueId") == 2),
        F.col("storeTimestamp") >= F.lit(at),
        (F.col("storeTimestamp") < F.lit(at)) & (F.col("tags") == "b") & F.col("queueOffset").between(20, 500),
        F.col("topic").isNull(),
        F.col("_corrupt").isNotNull(),
        F.col("queueId") != 1,
    ]
    for condition in conditions:
        found = []
        for enabled in ("true", "false"):
            spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
            frame = reading(spark, tmp_path, schema, storeTimeSlackMs=0, filterPushdown="always")
            rows = frame.where(condition).collect()
            found.append(sorted(rows, key=str))
        assert found[0] == found[1]
        assert found[0]


@pytest.mark.usefixtures("pushdown")
def test_one_dataframe_serves_several_queries_with_pushdown_on(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: Spark keeps one plan for all scans of a DataFrame; a filter of one query must not be that of another."""
    write_log(tmp_path / "commitlog", map(record, range(100)), file_bytes=1 << 14)
    frame = reading(spark, tmp_path)
    assert frame.where("topic = 'T1'").count() == 50
    assert frame.count() == 100
    assert frame.where("topic = 'T1'").union(frame.where("topic = 'T0'")).distinct().count() == 100


def test_damage_is_rows_when_asked_for_and_an_error_when_told_so(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: reason, file and offset of each corrupt stretch, never a wrong message; one line in failfast mode."""
    log = tmp_path / "commitlog"
    placed = write_log(log, map(record, range(2000)), file_bytes=1 << 15)
    overwrite(log, 1 << 15, placed[100].log_offset + 4, b"????")
    overwrite(log, 1 << 15, placed[1500].log_offset + 88, b"!")
    assert reading(spark, tmp_path).count() == 1998
    bad = reading(spark, tmp_path, f"{CORRUPT}, body binary").where("_corrupt is not null").select("_corrupt.*", "body")
    rows = sorted(bad.collect(), key=lambda row: row.logOffset)
    assert [(row.logOffset, row.bytes) for row in rows] == [(placed[n].log_offset, placed[n].size) for n in (100, 1500)]
    assert rows[0].body is None
    assert bytes(rows[1].body) == b"!ody 1500"
    assert Path(rows[0].file).parent == log
    assert reading(spark, tmp_path, includeCorrupt=True).where("_corrupt is not null").count() == 2
    with pytest.raises(PySparkException) as caught:
        reading(spark, tmp_path, mode="failfast").count()
    assert f"at log offset {placed[100].log_offset}: no record begins here" in str(caught.value)


def test_options_choose_topics_and_times_without_pushdown(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: a reader that is told what to read reads no more, and the same DataFrame serves any number of queries."""
    write_log(tmp_path / "commitlog", map(record, range(600)), file_bytes=1 << 14)
    chosen = {"subscribe": "T1, T9", "startingTimestamp": 100_000, "endingTimestamp": 200_000, "storeTimeSlackMs": 0}
    frame = reading(spark, tmp_path, **chosen)
    assert frame.where("queueId = 0").count() == len(range(105, 200, 6))
    assert frame.count() == 50
    assert frame.where("queueId = 0").union(frame.where("queueId = 1")).distinct().count() == 33


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "/nowhere/store"}, "/nowhere/store does not exist"),
        ({}, "no path: give load() a store directory"),
        ({"path": "/tmp", "mode": "lenient"}, "option mode must be one of permissive, failfast"),
        ({"path": "s3://bucket/store"}, "not from s3"),
    ],
)
def test_wrong_options_are_told_in_one_line(spark: SparkSession, options: dict[str, str], text: str) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("rocketmq_commitlog").options(**options).load().count()
    assert text in str(caught.value)


def test_a_copy_made_while_the_broker_runs_is_read_too(
    spark: SparkSession, cluster: EmbeddedCluster, filler: Filler, tmp_path: Path
) -> None:
    topic, sent = filler.fill(50)
    for index in range(2):
        shutil.copytree(cluster.store_dir(index) / "commitlog", tmp_path / str(index) / "commitlog")
    frame = spark.read.format("rocketmq_commitlog").load([str(tmp_path / "0"), str(tmp_path / "1")])
    assert frame.where(F.col("topic") == topic).count() == len(sent)
