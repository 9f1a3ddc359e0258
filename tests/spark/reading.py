"""What a read of a topic gives, in a form to compare with what was sent."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from rocketq.client import Message
from tests.spark.filling import Filler, Place


def reading(spark: SparkSession, filler: Filler, topic: str, **options: str) -> DataFrame:
    """A read of a topic; dots in option names are written as two underscores."""
    reader = spark.read.format("rocketmq").option("nameServer", filler.name_servers).option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def contents(frame: DataFrame) -> dict[Place, bytes]:
    """Bodies by place; a place that comes twice is an error."""
    rows = frame.select("brokerName", "queueId", "queueOffset", "body").collect()
    found = {(row.brokerName, row.queueId, row.queueOffset): bytes(row.body) for row in rows}
    assert len(found) == len(rows), "rows come twice"
    return found


def bodies(sent: dict[Place, Message]) -> dict[Place, bytes]:
    return {place: message.body for place, message in sent.items()}
