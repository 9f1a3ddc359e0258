"""Classes of Spark as its JVM needs them, kept in a file: a session then starts in half the time.

Tests that start many JVMs make it, once (`python -m tests.spark.class_archive FILE FOLDER`); all others use it if it is
there. A JVM for which it was not made leaves it alone.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pyspark

from rocketq.spark.java import find_java
from rocketq.spark.worker_python import worker_python
from tests.interop.cache import cache_root, made_once

SECONDS_MAX = 300
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For tests: a quick start instead of speed."""


def java_options() -> str:
    file = _folder() / "classes.jsa"
    return f"{JAVA_OPTIONS} -XX:SharedArchiveFile={file}" if file.exists() else JAVA_OPTIONS


def make_archive() -> None:
    def make(folder: Path) -> None:
        command = [sys.executable, "-m", __name__, str(folder / "classes.jsa"), str(folder / "work")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        assert ran.returncode == 0, ran.stderr[-3000:]

    made_once(_folder(), make)


def _folder() -> Path:
    java = find_java(os.environ)
    named = f"{pyspark.__version__}:{pyspark.__path__[0]}:{java}"
    return cache_root() / f"spark-classes-{hashlib.sha256(named.encode()).hexdigest()[:12]}"


def train(file: Path, folder: Path) -> None:
    """A little of what tests do; the JVM writes the file when it ends."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python(os.environ)
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={file}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2,4]")
    for key, value in options.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    rows = str(folder / "rows")
    spark.range(100).selectExpr("cast(id as string) as body", "id % 3 as part").write.parquet(rows)
    frame = (
        spark.readStream.schema("body string, part long")
        .parquet(rows)
        .mapInArrow(lambda batches: batches, "body string, part long")
    )
    writer = frame.repartition(2).writeStream.format("parquet").option("path", str(folder / "copy"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.read.parquet(str(folder / "copy")).groupBy("part").count().count() == 3
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    process.stdin.close()
    process.wait(SECONDS_MAX)
    assert file.exists()


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]))
