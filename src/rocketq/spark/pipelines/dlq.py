"""Dead letters: what consumers gave up on, by group, cause, tag and retries.

messages of %DLQ% topics (with properties) -> dead_letters (a row each) -> causes (counted)

All of it works on streams and tables alike, `causes` on streams with outputMode("complete") or "update".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rocketq.protocol.names import DLQ_PREFIX, Property

ERROR_PROPERTIES: Final = (
    "ERROR",
    "error",
    "ERROR_MESSAGE",
    "errorMessage",
    "EXCEPTION",
    "exception",
    "REASON",
    "reason",
    "SPARK_BAD_REASON",
)
"""RocketMQ has no standard property for the cause of a failure. Most programs use one of these; the last is our
sink's."""

CAUSE_CHARS_MAX: Final = 120


def dlq_pattern(groups: Sequence[str] = ()) -> str:
    """The subscribePattern of the dead letters of these groups, or of all."""
    names = "|".join(re.escape(group) for group in groups)
    return f"{re.escape(DLQ_PREFIX)}{f'(?:{names})' if names else '.+'}"


def read_dlq(
    spark: SparkSession, source: Mapping[str, str], *, groups: Sequence[str] = (), streaming: bool = False
) -> DataFrame:
    """All dead letters, or those of groups; `source` are options of format("rocketmq") such as nameServer."""
    reader = spark.readStream if streaming else spark.read
    start = {"startingOffsets": "earliest"} if streaming else {}
    given = {**start, "subscribePattern": dlq_pattern(groups), "includeProperties": "true", **source}
    return reader.format("rocketmq").options(**given).load()


def dead_letters(messages: DataFrame, *, error_properties: Sequence[str] = ERROR_PROPERTIES) -> DataFrame:
    """Adds the columns for inspecting dead letters before the message's own; other topics than %DLQ% are left out.

    `error` is the first of the properties that exists. `cause` is the error, shortened and without numbers and ids,
    so that equal causes can be counted.
    """
    properties = F.col("properties")
    error = F.coalesce(*(F.try_element_at(properties, F.lit(name)) for name in error_properties), F.lit(None))
    first_topic = F.coalesce(
        F.try_element_at(properties, F.lit(Property.DLQ_ORIGIN_TOPIC)),
        F.try_element_at(properties, F.lit(Property.RETRY_TOPIC)),
    )
    first_id = F.coalesce(
        F.try_element_at(properties, F.lit(Property.ORIGIN_MESSAGE_ID)),
        F.try_element_at(properties, F.lit(Property.DLQ_ORIGIN_MESSAGE_ID)),
    )
    return messages.where(F.col("topic").startswith(DLQ_PREFIX)).select(
        F.substring("topic", len(DLQ_PREFIX) + 1, 255).alias("group"),
        first_topic.alias("originTopic"),
        first_id.alias("originMessageId"),
        error.alias("error"),
        cause(error).alias("cause"),
        F.col("reconsumeTimes").alias("retries"),
        F.col("storeTimestamp").alias("diedAt"),
        "*",
    )


def cause(error: Column) -> Column:
    """An error's text with numbers and ids taken out."""
    first_line = F.trim(F.split_part(error, F.lit("\n"), F.lit(1)))
    no_ids = F.regexp_replace(first_line, r"\b(0x)?(?=[0-9A-Fa-f-]*[0-9])[0-9A-Fa-f][0-9A-Fa-f-]{7,}\b", "#")
    no_numbers = F.regexp_replace(no_ids, r"\d+", "#")
    return F.substring(F.regexp_replace(no_numbers, r"#([-.:,/]#)+", "#"), 1, CAUSE_CHARS_MAX)


def causes(dead: DataFrame) -> DataFrame:
    """How many died of what: by group, topic, cause, tag and retries."""
    return dead.groupBy("group", "originTopic", "cause", "tags", "retries").agg(
        F.count("*").alias("messages"),
        F.min("diedAt").alias("firstDiedAt"),
        F.max("diedAt").alias("lastDiedAt"),
        F.max_by("msgId", "diedAt").alias("lastMsgId"),
        F.max_by("error", "diedAt").alias("lastError"),
    )
