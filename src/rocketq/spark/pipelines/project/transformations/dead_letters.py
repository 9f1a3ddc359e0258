"""%DLQ% topics -> dead_letters, which grows with each run -> dead_letter_causes, recounted each time."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from rocketq.spark.pipelines import dlq
from rocketq.spark.pipelines.project_settings import source_options

spark = SparkSession.active()
SOURCE = source_options(spark)


@dp.table
def dead_letters() -> DataFrame:
    return dlq.dead_letters(dlq.read_dlq(spark, SOURCE, streaming=True))


@dp.materialized_view
def dead_letter_causes() -> DataFrame:
    return dlq.causes(spark.read.table("dead_letters"))
