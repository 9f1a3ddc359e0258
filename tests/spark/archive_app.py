"""A driver on a local cluster: streams a topic into Parquet, then into two topics, one at least once and one exactly
once, and then archives it again and again, while its executors are killed, so many times during each.

argv: JSON with nameServer, topic, atLeast, exactly, folder, rowsPerBatch, kills, archiveKills
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rocketq.spark.pipelines.archive import archive
from rocketq.spark.worker_python import worker_python
from tests.spark.class_archive import java_options
from tests.spark.killable import executors_below, kill


def session(order: dict[str, Any]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python(os.environ)
    builder = SparkSession.builder.master("local-cluster[2,1,768]").appName("archive-app")
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": java_options(),
        "spark.executor.extraJavaOptions": java_options(),
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "100",
        "spark.stage.maxConsecutiveAttempts": "100",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.log.level": "ERROR",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.local.dir": str(Path(order["folder"]) / "local"),
        "spark.sql.warehouse.dir": str(Path(order["folder"]) / "warehouse"),
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """So that a kill finds a task in its middle."""
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        time.sleep(0.5)
        yield batch.slice(half)


def rows(spark: SparkSession, order: dict[str, Any], per_batch: int) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", order["nameServer"])
    reader = reader.option("subscribe", order["topic"]).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", per_batch).load()
    return frame.mapInArrow(slow, frame.schema)


class ExecutorKiller(threading.Thread):
    """Kills an executor whenever it finds tasks running, so many times; all of them, where so many run at once."""

    def __init__(self, spark: SparkSession, times: int, *, running: int = 1) -> None:
        super().__init__(daemon=True)
        self._tracker = spark.sparkContext.statusTracker()
        self._left, self._running = times, running
        self.killed = 0

    def run(self) -> None:
        while self._left:
            time.sleep(0.3)
            stages = [self._tracker.getStageInfo(each) for each in self._tracker.getActiveStageIds()]
            executors = executors_below(os.getpid())
            active = sum(stage.numActiveTasks for stage in stages if stage is not None)
            if len(executors) >= self._running and active >= self._running:
                time.sleep(0.3)
                died = [kill(each) for each in executors[: self._running]]
                if all(died):
                    self._left, self.killed = self._left - 1, self.killed + 1
                    time.sleep(2)


def stream(spark: SparkSession, order: dict[str, Any], folder: Path) -> int:
    killer = ExecutorKiller(spark, order["kills"])
    killer.start()
    writer = (
        rows(spark, order, order["rowsPerBatch"]).writeStream.format("parquet").option("path", str(folder / "rows"))
    )
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return killer.killed


def sinks(spark: SparkSession, order: dict[str, Any], folder: Path) -> int:
    """A task each, so that both are at work on the two executors, which die together."""
    killer, queries = ExecutorKiller(spark, order["kills"], running=2), []
    for guarantee, topic in (("at-least-once", order["atLeast"]), ("exactly-once", order["exactly"])):
        frame = rows(spark, order, 3 * order["rowsPerBatch"]).select("body").coalesce(1)
        writer = frame.writeStream.format("rocketmq").option("nameServer", order["nameServer"]).option("topic", topic)
        writer = writer.option("deliveryGuarantee", guarantee)
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{guarantee}"))
        queries.append(writer.trigger(availableNow=True).start())
    killer.start()
    for query in queries:
        query.awaitTermination()
    return killer.killed


def archives(spark: SparkSession, order: dict[str, Any], folder: Path) -> tuple[int, list[str]]:
    """Runs into one archive after another until enough executors have died."""
    killer, targets = ExecutorKiller(spark, order["archiveKills"]), list[str]()
    killer.start()
    options = {"nameServer": order["nameServer"], "subscribe": order["topic"], "pullBatchSize": "20"}
    while killer.is_alive():
        targets.append(str(folder / f"archive-{len(targets)}"))
        archive(spark, options, targets[-1], rows_per_task_max=500, compaction=False)
    return killer.killed, targets


def main() -> None:
    order: dict[str, Any] = json.loads(sys.argv[1])
    spark, folder = session(order), Path(order["folder"])
    streamed = stream(spark, order, folder)
    sunk = sinks(spark, order, folder)
    archived, targets = archives(spark, order, folder)
    print(json.dumps({"stream": streamed, "sinks": sunk, "archive": archived, "targets": targets}), flush=True)
    os._exit(0)  # a tidy end of the JVM takes seconds and shows nothing


if __name__ == "__main__":
    main()
