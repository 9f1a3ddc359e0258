"""A notebook's cell, as a program: an event loop runs, and all work goes through a Spark Connect server."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

import rocketq.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.streaming.query import StreamingQuery
    from pyspark.sql.streaming.listener import QueryProgressEvent


def sink_and_source(spark: SparkSession, broker: dict[str, str], topic: str) -> list[list[str]]:
    rows = spark.range(100).selectExpr(
        "concat('body ', id) as body", "concat('key-', id) as keys", "map('n', cast(id as string)) as properties"
    )
    rows.write.format("rocketmq").options(**broker).option("topic", topic).mode("append").save()
    read = spark.read.format("rocketmq").options(**broker).option("subscribe", topic)
    frame = read.option("includeProperties", "user").load()
    return sorted([bytes(row.body).decode(), row["keys"], json.dumps(row.properties)] for row in frame.collect())


def stream(spark: SparkSession, broker: dict[str, str], topic: str, target: str, folder: str) -> StreamingQuery:
    """From one topic to another."""
    read = spark.readStream.format("rocketmq").options(**broker).option("subscribe", topic)
    frame = read.option("startingOffsets", "earliest").load().select("body")
    writer = frame.writeStream.format("rocketmq").options(**broker).option("topic", target).queryName("connected")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def refused(spark: SparkSession, broker: dict[str, str]) -> str:
    try:
        spark.read.format("rocketmq").options(**broker).option("subscribe", "Missing").load().count()
    except Exception as error:  # whatever the server makes of it
        return str(error)
    return ""


class Late(rocketq.spark.GroupProgress):
    """Still hears of the last batch when the query has ended, so that removing it at once would wait for ever."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        time.sleep(1)
        super().onQueryProgress(event)


async def main() -> None:
    given = json.loads(sys.argv[1])
    broker = {"nameServer": given["name_servers"], **given["secrets"]}
    spark = rocketq.spark.session(remote=given["remote"])
    assert rocketq.spark.session() is spark, "in the next cell"
    told = Late(given["group"], broker, queries={"connected"})
    spark.streams.addListener(told)
    rows = sink_and_source(spark, broker, given["topic"])
    query = stream(spark, broker, given["topic"], given["target"], given["folder"])
    told.wait(query)
    spark.streams.removeListener(told)
    count = spark.read.format("rocketmq").options(**broker).option("subscribe", given["target"]).load().count()
    print(json.dumps({"rows": rows, "streamed": count, "refused": refused(spark, broker)}))
    spark.stop()


if __name__ == "__main__":
    asyncio.run(main())
