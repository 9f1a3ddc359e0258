"""session() where one runs already, as in a notebook whose cells are run again."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import rocketq.spark


def test_what_counts_only_at_the_start_is_told(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: nobody waits for memory or a master that never comes; the same cell again says nothing."""
    conf = {"spark.driver.memory": "9g", "spark.sql.shuffle.partitions": "2"}
    assert rocketq.spark.session(master="local[1]", conf=conf) is spark
    assert [record.getMessage() for record in caplog.records] == [
        "a session runs already: spark.master, spark.driver.memory would count after spark.stop() only"
    ]
    caplog.clear()
    as_it_is = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    assert rocketq.spark.session(master=spark.sparkContext.master, conf=as_it_is) is spark
    assert not caplog.records
