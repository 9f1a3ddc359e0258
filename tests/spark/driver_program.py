"""A driver to be killed: two streams of the same files, one at least once, one exactly once, until all is written.

python -m tests.spark.driver_program NAME_SERVERS FOLDER TOPIC_AT_LEAST TOPIC_EXACTLY
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from tests.spark.conftest import SESSION_CONF


def main(name_servers: str, folder: Path, at_least: str, exactly: str) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from tests.spark.faulty_sink import FaultySource  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    (folder / "plan.driver").write_text(str(os.getpgid(0)))  # Spark's Python workers are a group of their own
    builder = SparkSession.builder.master("local[2,4]").config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    for key, value in {**SESSION_CONF, "spark.local.dir": str(folder / "local")}.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FaultySource)
    queries = []
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
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:5])
