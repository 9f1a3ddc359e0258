"""A running Spark stream into Parquet while our replicated broker fails over."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketq.client.errors import NotFoundError
from rocketq.testing.etcd import PACKAGE, find_etcd
from tests.adversity.failover_history import TOPIC, Answers, check_nothing_lost
from tests.adversity.failover_load import HEAL_S, Watcher, grow, sending
from tests.adversity.failover_turns import FAULTS
from tests.adversity.replica_processes import NAME, ReplicaProcesses
from tests.spark.conftest import spark  # noqa: F401 - the fixture
from tests.spark.filling import Filler
from tests.spark.reading import Archive, contents, reading, told

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning"),
]

FAILOVERS = ("kill", "pause", "stop")
PATIENCE = {"fetchOffset__numRetries": "120", "fetchOffset__retryIntervalMs": "500"}
BATCH_S_MAX = 90


def test_a_stream_lives_through_three_failovers(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    """Goal: the query never dies; in the end Parquet holds every acknowledged message once, with its contents, and
    just what the topic holds."""
    answers = Answers()
    with ReplicaProcesses(tmp_path, flush="SYNC_FLUSH", etcd_members=3) as cluster:
        filler = Filler(cluster.name_server)
        try:
            make_topic(filler)
            archive = Archive(spark, filler, tmp_path / "archive", TOPIC, maxOffsetsPerTrigger="2000", **PATIENCE)
            query = archive.writer().trigger(processingTime="0 seconds").start()
            try:
                asyncio.run(fail_over(cluster, answers, query))
            finally:
                query.stop()
            archive.catch_up()
            found, there = archive.contents(), contents(reading(spark, filler, TOPIC))
        finally:
            filler.close()
        cluster.stop_brokers()
    assert found == there
    expected = {(NAME, *place): body for body, place in answers.acked.items()}
    assert {place: found.get(place) for place in expected} == expected
    check_nothing_lost(tmp_path, answers)


def make_topic(filler: Filler) -> None:
    """Once a master has been elected and has registered."""
    deadline = time.monotonic() + HEAL_S
    while True:
        try:
            filler.topic(name=TOPIC, queues=4)
            return
        except NotFoundError:
            assert time.monotonic() < deadline, "no master registers"
            time.sleep(0.2)


async def fail_over(cluster: ReplicaProcesses, answers: Answers, query: Any) -> None:
    async with Watcher(cluster) as watcher, sending(cluster.name_server, answers, senders=2, every_s=0.02):
        for kind in FAILOVERS:
            epoch, process = await watcher.master()
            await rows_come(query)
            await FAULTS[kind](process, watcher, epoch)
            await grow(answers, cluster, 50)
        await watcher.master()
        await rows_come(query)


async def rows_come(query: Any) -> None:
    """A batch with rows, of those that begin now."""
    last, deadline = query.lastProgress, time.monotonic() + BATCH_S_MAX
    known = last.batchId if last is not None else -1
    while (now := query.lastProgress) is None or now.batchId <= known or not now.numInputRows:
        assert query.isActive, told(query.exception())
        assert time.monotonic() < deadline, "the stream gets no rows any more"
        await asyncio.sleep(0.2)
