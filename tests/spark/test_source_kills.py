"""Exactly once from topic to Parquet while executors, drivers and brokers are killed, each ten times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketq.client import Message
from rocketq.errors import RocketQError
from rocketq.testing import EmbeddedCluster
from tests.spark.filling import Filler, Place
from tests.spark.killable import BrokerProcess, kill_all_below
from tests.spark.reading import Archive, bodies, contents, reading, told

pytestmark = pytest.mark.slow

KILLS = 10
LIMIT_S = 1_200
ROOT = Path(__file__).parents[2]


def order(filler: Filler, topic: str, folder: Path, **more: Any) -> list[str]:
    told = {"nameServer": filler.name_servers, "topic": topic, "folder": str(folder), "master": "local[2,4]"}
    told |= {"killExecutors": 0, **more}
    return [sys.executable, "-m", "tests.spark.archive_app", json.dumps(told)]


def test_executors_killed_in_the_middle_of_batches(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: tasks that are done again read the same rows; none is missing, none comes twice."""
    topic, sent = filler.fill(24_000, body_bytes=100)
    command = order(filler, topic, tmp_path, master="local-cluster[2,1,768]", rowsPerBatch=2_000, killExecutors=KILLS)
    with (tmp_path / "app.log").open("wb") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, (tmp_path / "app.log").read_text()[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["killed"] == KILLS
    assert contents(spark.read.parquet(str(tmp_path / "rows"))) == bodies(sent)


def test_drivers_killed_between_batch_and_commit(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: what a dead driver had written and not committed is neither lost nor there twice."""
    topic, sent = filler.fill(12_000, body_bytes=100)
    command = order(filler, topic, tmp_path, rowsPerBatch=1_000)
    killed = 0
    deadline = time.monotonic() + LIMIT_S
    while True:
        with (tmp_path / "app.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log)
        if killed == KILLS:
            break
        killed += _kill_before_commit(process, tmp_path)
        assert time.monotonic() < deadline
    assert process.wait(LIMIT_S) == 0, (tmp_path / "app.log").read_text()[-3000:]
    assert contents(spark.read.parquet(str(tmp_path / "rows"))) == bodies(sent)


def _kill_before_commit(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Kill the driver once the sink has a batch that the checkpoint has not; False when it got through."""
    written, committed = folder / "rows" / "_spark_metadata", folder / "checkpoint" / "commits"
    known = _last(committed)
    while process.poll() is None:
        if _last(written) > max(known, _last(committed)):
            kill_all_below(process.pid)
            process.wait()
            return True
        time.sleep(0.002)
    assert process.returncode == 0
    return False


def _last(folder: Path) -> int:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(name.removesuffix(".compact")) for name in names if name[0].isdigit()), default=-1)


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


def test_brokers_killed_in_the_middle_of_a_stream(
    spark: SparkSession, killed_broker: tuple[Filler, BrokerProcess], tmp_path: Path
) -> None:
    """Goal: everything acknowledged is there once, with its contents; the query never dies."""
    filler, broker = killed_broker
    topic = filler.topic(queues=4)
    patient = {"fetchOffset__numRetries": "60", "fetchOffset__retryIntervalMs": "500"}
    archive = Archive(spark, filler, tmp_path, topic, maxOffsetsPerTrigger="500", **patient)
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
