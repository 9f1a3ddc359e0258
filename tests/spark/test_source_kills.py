"""Exactly once from topic to Parquet while executors and brokers are killed, each ten times."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketq.client import Message
from rocketq.errors import RocketQError
from rocketq.spark.archive.folder import STAGING
from rocketq.spark.pipelines.archive import read_archive
from rocketq.testing import EmbeddedCluster
from tests.spark.class_archive import make_archive
from tests.spark.filling import Filler, Place
from tests.spark.killable import BrokerProcess
from tests.spark.reading import Archive, bodies, contents, reading, told
from tests.spark.sinking import bodies as topic_bodies

pytestmark = pytest.mark.slow

KILLS, ARCHIVE_KILLS = 10, 4
LIMIT_S = 1_200
ROOT = Path(__file__).parents[2]


def test_executors_killed_in_the_middle_of_batches_of_sources_sinks_and_archive_runs(
    spark: SparkSession, filler: Filler, tmp_path: Path
) -> None:
    """Goal: tasks that are done again read the same rows: none is missing, none comes twice, in Parquet by Spark, in a
    topic written exactly once, and in archives by the pipeline, of which nothing but whole files is left; a topic
    written at least once has them all."""
    make_archive()
    topic, sent = filler.fill(24_000, body_bytes=100)
    at_least, exactly = filler.topic(), filler.topic()
    order = {"nameServer": filler.name_servers, "topic": topic, "atLeast": at_least, "exactly": exactly}
    order |= {"folder": str(tmp_path), "rowsPerBatch": 2_000, "kills": KILLS, "archiveKills": ARCHIVE_KILLS}
    command = [sys.executable, "-m", "tests.spark.archive_app", json.dumps(order)]
    with (tmp_path / "app.log").open("wb") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, timeout=LIMIT_S, check=False)
    told_last = (tmp_path / "app.log").read_text()[-3000:]
    assert done.returncode == 0, told_last
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["stream"], found["sinks"], found["archive"]) == (KILLS, KILLS, ARCHIVE_KILLS), told_last
    assert contents(spark.read.parquet(str(tmp_path / "rows"))) == bodies(sent)
    expected = Counter(bodies(sent).values())
    assert topic_bodies(filler.name_servers, exactly) == expected
    assert set(topic_bodies(filler.name_servers, at_least)) == set(expected)
    for target in found["targets"]:
        assert contents(read_archive(spark, target)) == bodies(sent)
        assert not list((Path(target) / STAGING).rglob("*.parquet"))


@pytest.fixture
def killed_broker(tmp_path: Path) -> Iterator[tuple[Filler, BrokerProcess]]:
    with EmbeddedCluster(brokers=0) as cluster:
        broker = BrokerProcess(cluster.name_server_addr, tmp_path / "broker")
        broker.start()
        filler = Filler(cluster)
        yield filler, broker
        filler.close()
        broker.kill()


class Sender(threading.Thread):
    """Sends until it is told to stop; keeps what was acknowledged."""

    def __init__(self, filler: Filler, topic: str) -> None:
        super().__init__(daemon=True)
        self._filler, self._topic = filler, topic
        self.acknowledged: dict[Place, Message] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(0.01):
            message = Message(topic=self._topic, body=b"%d" % number)
            number += 1
            try:
                result = self._filler.producer.send(message)
            except RocketQError:
                continue
            self.acknowledged[result.queue.broker_name, result.queue.queue_id, result.queue_offset] = message


@pytest.mark.parametrize("in_place", ["true", "false"])
def test_brokers_killed_in_the_middle_of_a_stream(
    spark: SparkSession, killed_broker: tuple[Filler, BrokerProcess], tmp_path: Path, in_place: str
) -> None:
    """Goal: everything acknowledged is there once, with its contents; the query never dies."""
    filler, broker = killed_broker
    topic = filler.topic(queues=4)
    patient = {"fetchOffset__numRetries": "60", "fetchOffset__retryIntervalMs": "500"}
    archive = Archive(spark, filler, tmp_path, topic, maxOffsetsPerTrigger="500", readInPlace=in_place, **patient)
    query = archive.writer().trigger(processingTime="0 seconds").start()
    sender = Sender(filler, topic)
    sender.start()
    try:
        while not any(progress.numInputRows for progress in query.recentProgress):
            assert query.isActive, told(query.exception())
            time.sleep(0.2)
        for kill in range(KILLS):
            time.sleep(1 + kill % 3 * 0.4)
            broker.kill()
            time.sleep(0.3 * (kill % 2))
            broker.start()
            assert query.isActive, told(query.exception())
        time.sleep(1)
    finally:
        sender.stopping.set()
        sender.join()
        query.stop()
    archive.catch_up()
    found = archive.contents()
    assert {place: found.get(place) for place in sender.acknowledged} == bodies(sender.acknowledged)
    assert found == contents(reading(spark, filler, topic))
    assert len(sender.acknowledged) > KILLS * 10
