"""What a read of a topic gives, in a form to compare with what was sent."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rocketq.client import Message
from tests.spark.filling import Filler, Place


def named(options: dict[str, str]) -> dict[str, str]:
    """Option names with dots, which are written as two underscores."""
    return {name.replace("__", "."): value for name, value in options.items()}


def reading(spark: SparkSession, filler: Filler, topic: str | None, **options: str) -> DataFrame:
    """A batch read of a topic, or of what the options say."""
    reader = spark.read.format("rocketmq").option("nameServer", filler.name_servers)
    if topic is not None:
        reader = reader.option("subscribe", topic)
    return reader.options(**named(options)).load()


def following(spark: SparkSession, filler: Filler, topic: str | None, **options: str) -> DataFrame:
    """A stream of a topic from its beginning, over the line unless it is said: batches are read in place."""
    reader = spark.readStream.format("rocketmq").option("nameServer", filler.name_servers)
    if topic is not None:
        reader = reader.option("subscribe", topic)
    return reader.options(**{"startingOffsets": "earliest", "readInPlace": "false", **named(options)}).load()


def contents(frame: DataFrame) -> dict[Place, bytes]:
    """Bodies by place; a place that comes twice is an error."""
    rows = frame.select("brokerName", "queueId", "queueOffset", "body").collect()
    found = {(row.brokerName, row.queueId, row.queueOffset): bytes(row.body) for row in rows}
    assert len(found) == len(rows), "rows come twice"
    return found


def bodies(sent: dict[Place, Message]) -> dict[Place, bytes]:
    return {place: message.body for place, message in sent.items()}


class Archive:
    """A stream into Parquet: started again it goes on where it was."""

    def __init__(self, spark: SparkSession, filler: Filler, folder: Path, topic: str | None, **options: str) -> None:
        self._spark, self._filler, self._topic, self._options = spark, filler, topic, options
        self.folder = folder

    def writer(self, **options: str):  # type: ignore[no-untyped-def]
        frame = following(self._spark, self._filler, self._topic, **{**self._options, **options})
        writer = frame.writeStream.format("parquet").option("path", str(self.folder / "rows"))
        return writer.option("checkpointLocation", str(self.folder / "checkpoint"))

    def catch_up(self, **options: str) -> list[int]:
        """One run over all that is there; the rows of each of its batches."""
        query = self.writer(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        if (error := query.exception()) is not None:
            raise error
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def contents(self) -> dict[Place, bytes]:
        return contents(self._spark.read.parquet(str(self.folder / "rows")))


def told(error: BaseException | None) -> str:
    """The line a user reads last: what Python raised, which Spark follows by a state and its own frames."""
    lines = str(error).splitlines()
    found = [line for line in lines if re.match(r"rocketq\.spark\.errors\.\w+: ", line)]
    assert found, str(error)
    after = [line for line in lines[lines.index(found[-1]) + 1 :] if line.strip()]
    after = after[: after.index(STREAM_HEADING)] if STREAM_HEADING in after else after
    assert all(_is_sparks(line) for line in after), after
    return found[-1]


STREAM_HEADING = "=== Streaming Query ==="
"""What follows is how far the query was, and its plan."""


def _is_sparks(line: str) -> bool:
    """Of the JVM: a state, a frame, a heading."""
    return bool(
        re.match(r"\s*(SQLSTATE: |at |Driver stacktrace:|\.\.\. \d+ more|Caused by: |===|=|Current |Streaming )", line)
    )
