"""Interrupts of notebooks and threads of programs, with a real session: jobs end, streams go on, sources are found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import rocketq.spark
from rocketq.spark.notebooks import end_jobs
from tests.spark.filling import Filler

_Result = TypeVar("_Result")
HANG_S = 120


def in_thread(work: Callable[[], _Result]) -> Future[_Result]:
    """A thread of its own has one of its own in the JVM."""
    done: Future[_Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def asleep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(10 * HANG_S)
    yield from batches


def test_a_long_job_ends_and_a_running_stream_does_not(spark: SparkSession, filler: Filler) -> None:
    """Goal: what an interrupted cell has begun holds no core; a query is stopped by stop() alone."""
    topic, _ = filler.fill(10)
    source = spark.readStream.format("rocketmq").option("nameServer", filler.name_servers).option("subscribe", topic)
    query = source.option("startingOffsets", "earliest").load().writeStream.format("noop").start()
    query.processAllAvailable()
    long = in_thread(spark.range(0, 1, 1, 1).mapInArrow(asleep, "id long").collect)
    deadline = time.monotonic() + HANG_S
    while not long.done() and time.monotonic() < deadline:
        end_jobs(spark)  # it may not have begun yet
        time.sleep(0.1)
    with pytest.raises(Exception, match="cancelled"):
        long.result(timeout=0)
    filler.fill(10, topic=topic, first=10)
    query.processAllAvailable()
    assert query.isActive
    query.stop()


def test_a_thread_that_asks_for_the_session_streams_into_topics(
    spark: SparkSession, filler: Filler, tmp_path: Path
) -> None:
    """Goal: Spark looks for the source in the thread's active session, which a new thread has none of."""
    topic, _ = filler.fill(4)
    target = filler.topic()
    options = {"nameServer": filler.name_servers, "topic": target, "checkpointLocation": str(tmp_path / "checkpoint")}

    def copy() -> list[int]:
        assert SparkSession.getActiveSession() is None
        session = rocketq.spark.session()
        assert session is spark
        source = session.readStream.format("rocketmq").option("nameServer", filler.name_servers)
        rows = source.option("subscribe", topic).option("startingOffsets", "earliest").load().select("body")
        query = rows.writeStream.format("rocketmq").options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return [each.numInputRows for each in query.recentProgress]

    assert sum(in_thread(copy).result(timeout=HANG_S)) == 4
