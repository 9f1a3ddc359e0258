"""A driver of its own: reads a topic into Parquet until all is there; to be killed, or with executors that are.

argv: JSON with nameServer, topic, folder, master, rowsPerBatch, killExecutors (how many times)
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

from tests.spark.killable import executors_below, kill


def session(order: dict[str, Any]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(order["master"]).appName("archive-app")
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "100",
        "spark.stage.maxConsecutiveAttempts": "100",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.log.level": "ERROR",
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


def rows(spark: SparkSession, order: dict[str, Any]) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", order["nameServer"])
    reader = reader.option("subscribe", order["topic"]).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", order["rowsPerBatch"]).load()
    return frame.mapInArrow(slow, frame.schema) if order["killExecutors"] else frame


class ExecutorKiller(threading.Thread):
    """Kills an executor whenever it finds tasks running, so many times."""

    def __init__(self, spark: SparkSession, times: int) -> None:
        super().__init__(daemon=True)
        self._tracker = spark.sparkContext.statusTracker()
        self._left = times
        self.killed = 0

    def run(self) -> None:
        while self._left:
            time.sleep(0.3)
            stages = [self._tracker.getStageInfo(each) for each in self._tracker.getActiveStageIds()]
            executors = executors_below(os.getpid())
            if executors and any(stage is not None and stage.numActiveTasks > 0 for stage in stages):
                time.sleep(0.3)
                if kill(executors[0]):
                    self._left, self.killed = self._left - 1, self.killed + 1
                    time.sleep(2)


def main() -> None:
    order: dict[str, Any] = json.loads(sys.argv[1])
    spark, folder = session(order), Path(order["folder"])
    writer = rows(spark, order).writeStream.format("parquet").option("path", str(folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    killer = ExecutorKiller(spark, order["killExecutors"])
    if order["killExecutors"]:
        killer.start()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print(json.dumps({"killed": killer.killed}), flush=True)
    os._exit(0)  # a tidy end of the JVM takes seconds and shows nothing


if __name__ == "__main__":
    main()
