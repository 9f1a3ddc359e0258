"""Streaming writes: what every batch promises, and what a failure at any step leaves behind."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark import faulty_sink
from tests.spark.faulty_sink import COMMIT_STEPS, TASK_STEPS, FaultySource, Plan
from tests.spark.filling import Filler
from tests.spark.sinking import bodies, properties, stored

ROWS = 40
"""Of each file, and of each batch."""
_numbers = itertools.count(1)


class Stream:
    """Lines of files, a file a batch, into a topic of its own."""

    def __init__(self, spark: SparkSession, filler: Filler, folder: Path) -> None:
        self._spark = spark
        self._names = filler.name_servers
        self._folder = folder
        self.topic = filler.topic(name=f"Stream{next(_numbers)}")
        self.plan = Plan(folder / "plan")
        self.plan.write([], "raise")
        self._files = 0
        self.died_of: list[str] = []
        (folder / "input").mkdir()

    def aim_at(self, name_servers: str) -> None:
        """Another cluster than the one all tests share."""
        self._names = name_servers

    def add(self, files: int) -> None:
        for _ in range(files):
            lines = "".join(f"{self._files}-{row}\n" for row in range(ROWS))
            draft = self._folder / "draft"
            draft.write_text(lines)
            draft.rename(self._folder / "input" / f"{self._files:04}.txt")
            self._files += 1

    def run(self, **options: str) -> None:
        """Until all files are written, or until it dies."""
        lines = self._spark.readStream.option("maxFilesPerTrigger", "1").text(str(self._folder / "input"))
        writer = (
            lines.selectExpr("value as body", "concat('k', value) as keys")
            .repartition(2)
            .writeStream.format("rocketmq_faulty")
            .option("nameServer", self._names)
            .option("topic", self.topic)
            .option("faultPlan", str(self._folder / "plan"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
        )
        for name, value in options.items():
            writer = writer.option(name, value)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(600)
            assert not query.isActive
        finally:
            query.stop()

    def run_over_faults(self, steps: list[str], how: str, **options: str) -> int:
        """As often as it takes, while it dies as planned; how often it died for good."""
        self.plan.write(steps, how)
        deaths = 0
        while True:
            try:
                self.run(**options)
                return deaths
            except StreamingQueryException as error:
                deaths += 1
                self.died_of.append(str(error))
                assert deaths <= len(steps), self.died_of

    def expected(self) -> Counter[bytes]:
        return Counter(f"{file}-{row}".encode() for file in range(self._files) for row in range(ROWS))

    def found(self) -> Counter[bytes]:
        return bodies(self._names, self.topic)

    def manifests(self) -> list[dict[str, object]]:
        return [
            json.loads(path.read_text()) for path in (self._folder / "checkpoint").rglob("rocketmq-manifests/*/*.json")
        ]


@pytest.fixture
def stream(spark: SparkSession, filler: Filler, tmp_path: Path) -> Iterator[Stream]:
    cloudpickle.register_pickle_by_value(faulty_sink)
    spark.dataSource.register(FaultySource)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    spark.sparkContext.setLogLevel("OFF")
    yield Stream(spark, filler, tmp_path)
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    cloudpickle.unregister_pickle_by_value(faulty_sink)


EXACTLY = {"deliveryGuarantee": "exactly-once"}


def test_every_batch_is_written_and_its_rows_can_be_told_apart(stream: Stream, filler: Filler) -> None:
    """Goal: all rows once where nothing fails; query, batch, partition and row name each of them."""
    stream.add(3)
    stream.run()
    assert stream.found() == stream.expected()
    origins = [properties(record)["SPARK_TX"] for record in stored(filler.name_servers, stream.topic)]
    assert len(set(origins)) == 3 * ROWS
    assert {origin.split("/")[1] for origin in origins} == {"0", "1", "2"}


def test_exactly_once_shows_every_row_and_puts_down_what_it_did(stream: Stream, filler: Filler) -> None:
    stream.add(2)
    stream.run(**EXACTLY)
    stream.add(1)
    stream.run(**EXACTLY)
    assert stream.found() == stream.expected()
    manifests = stream.manifests()
    assert sorted((each["batchId"], each["state"], each["count"]) for each in manifests) == [
        (0, "settled", ROWS),
        (1, "settled", ROWS),
        (2, "settled", ROWS),
    ]


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_exactly_once_over_a_failure_at_every_step(stream: Stream, how: str) -> None:
    """Goal: tasks and commits that die anywhere, once each: no row lost, no row twice."""
    stream.add(4)
    deaths = stream.run_over_faults([*TASK_STEPS, *COMMIT_STEPS], how, **EXACTLY)
    assert stream.plan.left() == []
    assert deaths == len(COMMIT_STEPS)
    assert stream.found() == stream.expected()


def test_at_least_once_over_tasks_that_die(stream: Stream) -> None:
    """Goal: no row lost; some may come twice, and then they are told by their origin."""
    stream.add(3)
    assert stream.run_over_faults([*TASK_STEPS], "kill") == 0
    assert stream.plan.left() == []
    assert set(stream.found()) == set(stream.expected())


@pytest.mark.slow
def test_exactly_once_over_four_kills_at_every_step(stream: Stream) -> None:
    """Goal: thirty-two kills, at steps in another order each time; with drivers and brokers that is far beyond ten."""
    stream.add(13)
    steps = [*TASK_STEPS, *COMMIT_STEPS]
    plan = [step for turn in range(4) for step in steps[turn * 2 :] + steps[: turn * 2]]
    deaths = stream.run_over_faults(plan, "kill", **EXACTLY)
    assert stream.plan.left() == []
    assert deaths >= 4 * len(COMMIT_STEPS)
    assert stream.found() == stream.expected()


@pytest.mark.slow
def test_at_least_once_over_twelve_dead_tasks(stream: Stream) -> None:
    stream.add(6)
    assert stream.run_over_faults([*TASK_STEPS] * 4, "kill") <= 4
    assert stream.plan.left() == []
    assert set(stream.found()) == set(stream.expected())
