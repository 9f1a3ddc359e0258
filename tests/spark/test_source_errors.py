"""What goes wrong is one line, and the last one: topic, broker, queue and offset in it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketq.client.blocking import BlockingClient
from rocketq.protocol.codes import RequestCode
from rocketq.testing import EmbeddedCluster
from tests.spark.filling import Filler
from tests.spark.killable import BrokerProcess
from tests.spark.reading import Archive, contents, reading, told

MakeCluster = Callable[..., EmbeddedCluster]
IMPATIENT = {"fetchOffset__numRetries": "1", "fetchOffset__retryIntervalMs": "50"}


@pytest.fixture
def own(make_rocketq_cluster: MakeCluster) -> Iterator[tuple[EmbeddedCluster, Filler]]:
    """A cluster that a test may break, with log files of 256 KiB that age at once."""
    settings = {"mappedFileSizeCommitLog": str(256 << 10), "maxMessageSize": str(64 << 10), "fileReservedTime": "0"}
    cluster = make_rocketq_cluster(settings=settings)
    filler = Filler(cluster)
    yield cluster, filler
    filler.close()


Own = tuple[EmbeddedCluster, Filler]


def failure(run: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        run()
    return told(caught.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"startingOffset": "earliest"}, "option startingoffset is unknown; did you mean startingOffsets?"),
        ({"startingTimestamp": "5", "startingOffsets": "earliest"}, "contradict each other"),
        ({"endingOffsets": "earliest"}, "option endingOffsets cannot be earliest"),
    ],
)
def test_bad_options(spark: SparkSession, filler: Filler, options: dict[str, str], line: str) -> None:
    topic = filler.topic()
    assert line in failure(lambda: reading(spark, filler, topic, **options).count())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"startingOfsets": "earliest"}, "option startingofsets is unknown; did you mean startingOffsets?"),
        ({"endingOffsets": "latest"}, "option endingOffsets is for batch reads: a stream has no end"),
    ],
    ids=["unknown", "contradictory"],
)
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "1 second"}], ids=["now", "time"])
def test_bad_options_of_a_stream(
    spark: SparkSession, filler: Filler, tmp_path: Path, options: dict[str, str], line: str, trigger: dict[str, Any]
) -> None:
    """Goal: our line is the last here too; Spark stumbles over a reader that is not made and tells of that instead."""
    query = Archive(spark, filler, tmp_path, filler.topic()).writer(**options).trigger(**trigger).start()
    assert line in failure(query.awaitTermination)


def test_unknown_topics_and_queues(spark: SparkSession, filler: Filler) -> None:
    line = failure(lambda: reading(spark, filler, "Missing").count())
    assert line.endswith(": topic Missing does not exist, or no broker that has it is there")
    topic = filler.topic()
    assigned = f'{{"{topic}": {{"broker-0": [9]}}}}'
    line = failure(lambda: reading(spark, filler, None, assign=assigned).count())
    assert line.endswith(f": option assign names {topic} queue 9 of broker-0, which is not there")
    offsets = f'{{"{topic}": {{"broker-9": {{"0": 3}}}}}}'
    line = failure(lambda: reading(spark, filler, topic, startingOffsets=offsets).count())
    assert f"offsets are given for {topic} queue 0 of broker-9" in line


def test_missing_options(spark: SparkSession) -> None:
    """Goal: a table made by CREATE TABLE, whose options Spark drops, says what is missing."""
    line = failure(lambda: spark.read.format("rocketmq").load().count())
    assert line.endswith("option rocketmq.nameserver.address is missing")


def test_columns_that_do_not_exist(spark: SparkSession, filler: Filler) -> None:
    topic = filler.topic()
    reader = spark.read.format("rocketmq").option("nameServer", filler.name_servers).option("subscribe", topic)
    assert "no column price; there are topic," in failure(lambda: reader.schema("price double").load().count())
    line = failure(lambda: reader.schema("body string").load().count())
    assert line.endswith("column body is binary, not string")


def test_no_name_server(spark: SparkSession, filler: Filler) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", "127.0.0.1:1").option("subscribe", "T")
    reader = reader.option("fetchOffset.numRetries", "0")
    assert "127.0.0.1:1: no NameServer answered: " in failure(lambda: reader.load().count())


def test_a_broker_that_goes_down(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: down at planning or before a task runs, its name is told, with topic, queue and offset."""
    with EmbeddedCluster(brokers=0) as names:
        broker, filler = BrokerProcess(names.name_server_addr, tmp_path), Filler(names)
        broker.start()
        topic, _ = filler.fill(10, queues=1)
        planned = reading(spark, filler, topic, **IMPATIENT)
        assert planned.count() == 10
        broker.kill()
        assert f"{topic} queue 0 of killed at offset 0: TOPIC_NOT_EXIST" in failure(planned.count)
        line = failure(reading(spark, filler, topic, **IMPATIENT).count)
        assert f"topic {topic} does not exist, or no broker that has it is there" in line
        filler.close()


def test_a_broker_that_dies_in_the_middle_of_a_task(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: topic, queue, broker and the offset that was next are told, not rows that are short of some."""
    with EmbeddedCluster(brokers=0) as names:
        broker, filler = BrokerProcess(names.name_server_addr, tmp_path), Filler(names)
        broker.start()
        topic, _ = filler.fill(20_000, queues=1, body_bytes=1_000)
        pid = broker.pid

        def deadly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(batches):
                if number == 0:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                yield batch

        frame = reading(spark, filler, topic, pullBatchSize="100", **IMPATIENT)
        line = failure(frame.mapInArrow(deadly, frame.schema).count)
        found = re.search(rf"{topic} queue 0 of killed at offset (\d+): ", line)
        assert found, line
        assert 0 <= int(found[1]) < 20_000
        broker.kill()
        filler.close()


def age_out(cluster: EmbeddedCluster, filler: Filler, topic: str) -> int:
    """More messages until the first log files are gone; the earliest offset then."""
    queue = filler.queues(topic)[0]
    for _ in range(50):
        filler.fill(200, topic=topic, body_bytes=100)
        with BlockingClient(filler.name_servers) as client:
            client.call(cluster.broker_addr, None, code=RequestCode.DELETE_EXPIRED_COMMITLOG)
        low = filler.admin.topics.stats(topic).queues[queue].min_offset
        if low > 0:
            return low
    raise AssertionError("nothing aged out")


def test_offsets_that_have_aged_out(spark: SparkSession, own: Own) -> None:
    """Goal: the exact range is told; failOnDataLoss=false reads the rest; earliest is never a loss."""
    cluster, filler = own
    topic = filler.topic(queues=1)
    low = age_out(cluster, filler, topic)
    from_zero = f'{{"{topic}": {{"broker-0": {{"0": 0}}}}}}'
    line = failure(lambda: reading(spark, filler, topic, startingOffsets=from_zero).count())
    assert f"messages no longer exist: {topic} queue 0 of broker-0: offsets 0 to " in line
    rest = reading(spark, filler, topic, startingOffsets=from_zero, failOnDataLoss="false")
    assert min(place[2] for place in contents(rest)) >= low
    assert reading(spark, filler, topic).count() > 0


def test_a_stream_whose_offsets_have_aged_out(spark: SparkSession, own: Own, tmp_path: Path) -> None:
    cluster, filler = own
    topic = filler.fill(10, queues=1)[0]
    archive = Archive(spark, filler, tmp_path, topic)
    assert archive.catch_up() == [10]
    age_out(cluster, filler, topic)
    assert f"messages no longer exist: {topic} queue 0 of broker-0: offsets 10 to " in failure(archive.catch_up)
    assert sum(archive.catch_up(failOnDataLoss="false")) > 0


def test_a_topic_that_is_deleted_between_batches(spark: SparkSession, own: Own, tmp_path: Path) -> None:
    """Goal: gone, it is told; made anew and shorter, the lost offsets are told."""
    _, filler = own
    topic = filler.fill(10, queues=1)[0]
    archive = Archive(spark, filler, tmp_path, topic)
    assert archive.catch_up() == [10]
    filler.admin.topics.delete(topic)
    assert failure(archive.catch_up).endswith(f"topic {topic} does not exist, or no broker that has it is there")
    assert archive.catch_up(failOnDataLoss="false") == []
    filler.fill(4, topic=filler.topic(name=topic, queues=1))
    line = failure(archive.catch_up)
    assert "queues are shorter than what was read of them" in line
    assert f"lost are {topic} queue 0 of broker-0: offsets 4 to 9" in line
    assert archive.catch_up(failOnDataLoss="false") == []
    filler.fill(3, topic=topic)
    assert archive.catch_up() == [3]
