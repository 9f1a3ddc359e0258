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
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from rocketq.spark.pipelines.archive import archive
from rocketq.spark.worker_python import worker_python
from tests.spark.class_archive import java_options
from tests.spark.killable import executors_below, kill

LET_GO, EVERYBODY = ".gone", "everybody.gone"
HALT_S, PATIENCE_S = 60, 15


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


class Halting:
    """A task stops in its middle, once, until it is let go: a kill then finds it there, however fast the machine is."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        mark = self._folder / str(context.taskAttemptId())
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            self._halt(mark)
            yield batch.slice(half)

    def _halt(self, mark: Path) -> None:
        gone = mark.with_suffix(LET_GO)
        deadline = time.monotonic() + HALT_S
        if not gone.exists() and not (self._folder / EVERYBODY).exists():
            mark.touch()
        while mark.exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def waiting(self) -> list[Path]:
        return [each for each in self._folder.iterdir() if each.name.isdigit()]

    def let_go(self, marks: list[Path]) -> None:
        for each in marks:
            each.rename(each.with_suffix(LET_GO))

    def let_everybody_go(self) -> None:
        (self._folder / EVERYBODY).touch()
        self.let_go(self.waiting())


class HaltedKiller(threading.Thread):
    """Kills so many executors at a time as tasks shall stand still, so many times; after some kills some tasks may
    pass, so that batch after batch is met."""

    def __init__(self, halting: Halting, times: int, *, together: int, in_a_row: int, spared: int) -> None:
        super().__init__(daemon=True)
        self._halting, self._times, self._together = halting, times, together
        self._in_a_row, self._spared = in_a_row, spared
        self.killed = 0

    def run(self) -> None:
        while self.killed < self._times:
            for _ in range(min(self._in_a_row, self._times - self.killed)):
                self._kill()
            self._spare()
        self._halting.let_everybody_go()

    def _kill(self) -> None:
        killed = list[int]()
        while not killed:
            marks = self._met(self._together)
            killed = [each for each in executors_below(os.getpid())[: self._together] if kill(each)]
            self._halting.let_go(marks)  # they are dead, or wait no longer
        self.killed += 1

    def _spare(self) -> None:
        spared = 0
        while spared < self._spared:
            marks = self._met(min(self._together, self._spared - spared))
            self._halting.let_go(marks)
            spared += len(marks)

    def _met(self, count: int) -> list[Path]:
        """So many tasks in their middle; fewer where no more come for long, as one stream may have ended."""
        patience = time.monotonic() + PATIENCE_S
        while True:
            marks = self._halting.waiting()
            if len(marks) >= count or (marks and time.monotonic() > patience):
                return marks
            time.sleep(0.05)


def rows(spark: SparkSession, order: dict[str, Any], halting: Halting, per_batch: int) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", order["nameServer"])
    reader = reader.option("subscribe", order["topic"]).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", per_batch).load()
    return frame.mapInArrow(halting.__call__, frame.schema)


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
            if executors and any(stage.numActiveTasks for stage in stages if stage is not None):
                time.sleep(0.3)
                if kill(executors[0]):
                    self._left, self.killed = self._left - 1, self.killed + 1
                    time.sleep(2)


def stream(spark: SparkSession, order: dict[str, Any], folder: Path) -> int:
    halting = Halting(folder / "halted-stream")
    killer = HaltedKiller(halting, order["kills"], together=1, in_a_row=1, spared=4)
    killer.start()
    frame = rows(spark, order, halting, order["rowsPerBatch"])
    writer = frame.writeStream.format("parquet").option("path", str(folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return killer.killed


def sinks(spark: SparkSession, order: dict[str, Any], folder: Path) -> int:
    """A task each, so that both are at work on the two executors, which die together."""
    halting, queries = Halting(folder / "halted-sinks"), []
    killer = HaltedKiller(halting, order["kills"], together=2, in_a_row=3, spared=2)
    for guarantee, topic in (("at-least-once", order["atLeast"]), ("exactly-once", order["exactly"])):
        frame = rows(spark, order, halting, 3 * order["rowsPerBatch"]).select("body").coalesce(1)
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
