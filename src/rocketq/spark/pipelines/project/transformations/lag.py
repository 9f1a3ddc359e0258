"""lag_samples: the brokers are asked once per run -> lag_over_time."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from rocketq.spark.pipelines import lag
from rocketq.spark.pipelines.project_settings import source_options

spark = SparkSession.active()
SOURCE = source_options(spark)
GROUPS = [group.strip() for group in (spark.conf.get("rocketq.lag.groups", "") or "").split(",") if group.strip()]


@dp.table
def lag_samples() -> DataFrame:
    tick = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    return lag.samples(tick, SOURCE, GROUPS)


@dp.materialized_view
def lag_over_time() -> DataFrame:
    return lag.over_time(spark.read.table("lag_samples"))
