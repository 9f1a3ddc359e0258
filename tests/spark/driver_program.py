"""A driver to be killed: a topic into Parquet, and two streams of the same files into topics, one at least once, one
exactly once, until all is written.

python -m tests.spark.driver_program NAME_SERVERS FOLDER TOPIC_READ TOPIC_AT_LEAST TOPIC_EXACTLY
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rocketq.spark.worker_python import worker_python
from tests.spark.class_archive import java_options
from tests.spark.conftest import SESSION_CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS_PER_BATCH = 20
"""While there is a kill to come: the stream must have a batch in work then."""


def into_parquet(spark: SparkSession, name_servers: str, folder: Path, topic: str, *, slow: bool) -> StreamingQuery:
    reader = spark.readStream.format("rocketmq").option("nameServer", name_servers).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest")
    if slow:
        reader = reader.option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
    writer = reader.load().writeStream.format("parquet").option("path", str(folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if slow:
        return writer.trigger(processingTime="500 milliseconds").start()
    return writer.trigger(availableNow=True).start()


def main(name_servers: str, folder: Path, read: str, at_least: str, exactly: str) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from tests.spark.faulty_sink import FaultySource, Plan  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python(os.environ)
    (folder / "plan.driver").write_text(str(os.getpgid(0)))  # Spark's Python workers are a group of their own
    builder = SparkSession.builder.master("local[2,4]").config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    own = {"spark.local.dir": str(folder / "local"), "spark.driver.extraJavaOptions": java_options()}
    for key, value in {**SESSION_CONF, **own}.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FaultySource)
    dies = bool(Plan(folder / "plan").left())
    source = into_parquet(spark, name_servers, folder, read, slow=dies)
    queries = [] if dies else [source]
    for topic, plan, guarantee in ((at_least, "no-plan", "at-least-once"), (exactly, "plan", "exactly-once")):
        lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "input"))
        writer = (
            lines.selectExpr("value as body")
            .repartition(2)
            .writeStream.format("rocketmq_faulty")
            .option("nameServer", name_servers)
            .option("topic", topic)
            .option("faultPlan", str(folder / plan))
            .option("deliveryGuarantee", guarantee)
            .option("checkpointLocation", str(folder / f"checkpoint-{topic}"))
        )
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
        if (error := query.exception()) is not None:
            raise error
    os._exit(0)  # a tidy end of the JVM takes seconds and shows nothing


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:6])
