"""Batch reads: what was sent is what a DataFrame holds."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.filling import Filler
from tests.spark.reading import bodies, contents, reading


def test_a_topic_is_read_whole(spark: SparkSession, filler: Filler) -> None:
    """Goal: every message of every queue of every broker once, with its contents."""
    topic, sent = filler.fill(1_000)
    assert contents(reading(spark, filler, topic)) == bodies(sent)
