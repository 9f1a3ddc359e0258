"""Store directories of real Apache brokers through Spark: while the broker runs, and after it was killed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (it comes with rocketq[spark])")

from pyspark.sql import SparkSession

from rocketq.model.ids import decode_message_id
from rocketq.spark import session
from rocketq.spark.archive import Archive
from rocketq.spark.pipelines.archive import archive_store
from rocketq.spark.pipelines.verify import verify

from . import driver
from .conftest import StartBroker
from .messages import Acknowledged

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings(
        "ignore:unclosed <socket:ResourceWarning",
        r"ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning",
    ),
]

VERSIONS = ["4.9.7", "5.3.3"]
STREAMED_COUNT = 1000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    made = session("rocketq-interop", master="local[2,4]", conf={"spark.driver.memory": "1g"})
    yield made
    made.stop()


def require_all(spark: SparkSession, store_dir: Path, sent: Iterable[Acknowledged]) -> None:
    """Every acknowledged message at the place its id names, with its body as it was sent."""
    columns = "logOffset long, topic string, queueId int, queueOffset long, keys string, tags string, body binary"
    reader = spark.read.format("rocketmq_commitlog").schema(columns).option("maxPartitionBytes", "300000")
    rows = {row.logOffset: row for row in reader.option("mode", "failfast").load(str(store_dir)).collect()}
    for message in sent:
        row = rows[decode_message_id(message.message_id)[1]]
        assert (row.topic, row.queueId, row.queueOffset) == (message.topic, message.queue_id, message.queue_offset)
        assert hashlib.sha256(bytes(row.body)).hexdigest() == message.body_sha256
        assert (row.tags or None) == (message.tags or None)
        assert (row.keys or "").split() == (message.keys or "").split()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_of_apache_is_read_while_it_is_written_and_after_a_kill(
    spark: SparkSession, apache: StartBroker, store_dir: Path, tmp_path: Path, version: str
) -> None:
    """Goal: nothing acknowledged is missing, nothing read is damaged; archive and verification agree."""
    with apache(version) as broker:
        sent = driver.produce(broker, prefix="Interop", seed=1)
        require_all(spark, store_dir, sent)
        with driver.streaming(broker, prefix="Live") as stream:
            stream.await_count(STREAMED_COUNT)
            require_all(spark, store_dir, sent)
            broker.kill()
            stream.await_end()
            sent += stream.acknowledged()
    require_all(spark, store_dir, sent)
    done = archive_store(spark, str(store_dir), tmp_path / "archive", broker_name="broker-a", range_bytes=400_000)
    assert done.damage == () or all("unfinished" in each for each in done.damage)
    kept = Archive(tmp_path / "archive")
    found = {message.message_id for message in sent if kept.by_id(message.message_id).num_rows == 1}
    system = ("SCHEDULE", "RMQ_SYS", "rmq_sys")
    assert {message.message_id for message in sent if not message.topic.startswith(system)} <= found
    assert verify(spark, store_dir, range_bytes=400_000).ok
