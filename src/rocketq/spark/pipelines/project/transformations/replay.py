"""Dead letters of one group -> the topics they came from, each once; only where spark-pipeline.yml names the group."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from rocketq.spark.pipelines import dlq, replay
from rocketq.spark.pipelines.project_settings import source_options

spark = SparkSession.active()
SOURCE = source_options(spark)
GROUP = spark.conf.get("rocketq.replay.group", "") or ""
WHERE = spark.conf.get("rocketq.replay.where", "true") or "true"

if GROUP:
    dp.create_sink("replay", "rocketmq", SOURCE)

    @dp.append_flow(target="replay")
    def replayed() -> DataFrame:
        dead = dlq.dead_letters(dlq.read_dlq(spark, SOURCE, groups=[GROUP], streaming=True))
        return replay.prepared(dead.where(WHERE), columns=replay.MESSAGE_COLUMNS)
