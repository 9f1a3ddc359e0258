"""What the spark-pipelines project takes from its spark-pipeline.yml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketq.spark.options import read_options_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME_SERVER: Final = "rocketq.nameServer"
OPTIONS_FILE: Final = "rocketq.optionsFile"


def source_options(spark: SparkSession) -> dict[str, str]:
    """How brokers are reached: NameServers, and keys and certificates from a file."""
    names = spark.conf.get(NAME_SERVER, "127.0.0.1:9876") or ""
    file = spark.conf.get(OPTIONS_FILE, "") or ""
    return {"nameServer": names, **(read_options_file(file) if file else {})}
