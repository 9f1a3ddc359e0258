"""An archive as a DataFrame."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType

from rocketq.spark.archive.lookup import Archive
from rocketq.spark.schema import source_schema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def frame_of(
    spark: SparkSession,
    target: Path | str,
    topics: Collection[str] | None,
    from_ms: int | None,
    to_ms: int | None,
) -> DataFrame:
    """Columns are given, not found out: a topic named 2024 is a text."""
    opened = Archive(target)
    paths = opened.paths(topics, from_ms, to_ms)
    schema = StructType([*source_schema(properties=True, log_offset=True).fields, StructField("dt", DateType())])
    if not paths:
        return spark.createDataFrame([], schema)
    root = str(opened.target)
    frame = spark.read.schema(schema).option("basePath", root).parquet(*paths)
    if from_ms is not None:
        frame = frame.where(F.col("storeTimestamp") >= F.lit(_at(from_ms)))
    if to_ms is not None:
        frame = frame.where(F.col("storeTimestamp") < F.lit(_at(to_ms)))
    return frame.select(*[field.name for field in schema.fields])


def _at(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
