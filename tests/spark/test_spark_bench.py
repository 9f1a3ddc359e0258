"""The benchmark stays runnable: every row once, with a few messages, without peers and bars."""

from __future__ import annotations

import os
from pathlib import Path

from bench.bars import Bar
from bench.spark import Measured, Result, judge, register_others, run_row, table
from bench.spark_rows import OURS, TOPICS, Bench, Row, all_rows
from pyspark.sql import SparkSession

from tests.spark.filling import Filler


def test_every_row_of_the_benchmark_runs(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    for topic in TOPICS:
        filler.topic(name=topic)
    register_others(spark)
    bench = Bench(spark, filler.name_servers, tmp_path, [os.getpid()], kafka=None, scale=0.0)
    rows, results = {}, {}
    for row in all_rows(bench):
        rows[row.name], results[row.name] = row, run_row(bench, row, 0, 1)
    assert len(rows) == 17
    assert all(result.ours.rows_per_s > 0 for result in results.values())
    assert sum(each.cpu_s for result in results.values() for each in result.peers.values()) > 1
    assert "MB/CPU-s" in table(results)
    bars = [bar for name, result in results.items() for bar in judge(rows[name], result)]
    assert [bar.wanted for bar in bars] == [300.0, 2.0], "without Kafka nothing is compared with it"


def test_bars_are_ratios_of_rows_per_cpu_second() -> None:
    ours, kafka = (Measured(rows, rows, 1.0, 1.0, 0.0) for rows in (3_000.0, 2_000.0))
    row = Row(name="batch", count=1, runs={}, wanted=1.5)
    assert judge(row, Result({OURS: ours, "kafka": kafka})) == [Bar("batch, rows per CPU second over kafka", 1.5, 1.5)]
