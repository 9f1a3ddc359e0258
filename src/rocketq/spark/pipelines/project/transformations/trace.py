"""The trace topic -> trace_events, which grows with each run -> trace_spans -> trace_latency."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from rocketq.protocol.names import TRACE_TOPIC
from rocketq.spark.pipelines import trace
from rocketq.spark.pipelines.project_settings import source_options

spark = SparkSession.active()
# by pattern: a cluster without traces has no such topic
SOURCE = {**source_options(spark), "subscribePattern": TRACE_TOPIC}


@dp.table
def trace_events() -> DataFrame:
    return trace.events(trace.read_trace(spark, SOURCE, streaming=True))


@dp.materialized_view
def trace_spans() -> DataFrame:
    return trace.spans(spark.read.table("trace_events"))


@dp.materialized_view
def trace_latency() -> DataFrame:
    return trace.latency(trace.deliveries(spark.read.table("trace_spans")))
