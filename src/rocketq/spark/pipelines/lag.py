"""Lag over time, from two sides: what groups have committed on brokers, and how far streaming queries are.

`samples` asks the brokers once per row it is given, so it makes a table of one moment (`sample`), a stream (over a rate
source) or a table that grows with each run of spark-pipelines. `QueryLag` listens to the queries of a session.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, StructType

from rocketq.client import Admin, SessionConfig
from rocketq.protocol.names import is_system_group
from rocketq.spark.errors import plainly
from rocketq.spark.listener import SOURCE_MARK
from rocketq.spark.options import Options, parse_connection
from rocketq.spark.pipelines.lag_rows import (
    QUERY_LAG_SCHEMA,
    LagRow,
    QueryLagRow,
    query_rows,
    rows_of,
)
from rocketq.spark.query_ends import QueryEnds

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryStartedEvent

_TIME: Final = pa.timestamp("us", tz="UTC")
_ROW: Final = pa.struct(
    [
        ("at", _TIME),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("committed", pa.int64()),
        ("maxOffset", pa.int64()),
        ("lag", pa.int64()),
        ("behindMs", pa.int64()),
    ]
)
LAG_TYPE: Final = cast(StructType, from_arrow_type(_ROW))
ROWS_KEPT_MAX: Final = 100_000
Source = str | Mapping[str, str]
"""NameServers, or options of the source, of which only the connection options are used."""


@plainly
def ask(source: Source, groups: Sequence[str] = (), *, at_ms: int | None = None) -> list[LagRow]:
    """The lag of these groups now, or of all that are not the system's, queue by queue."""
    at_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
    with _admin(source) as admin:
        wanted = list(groups) or [name for name in sorted(admin.groups.list()) if not is_system_group(name)]
        return [row for group in wanted for row in rows_of(admin.groups.status(group), at_ms)]


def _admin(source: Source) -> Admin:
    found = parse_connection(Options({"nameServer": source} if isinstance(source, str) else source))
    return Admin(found.name_servers, config=SessionConfig(tls=found.tls, credentials=found.credentials))


def sample(spark: SparkSession, source: Source, groups: Sequence[str] = ()) -> DataFrame:
    """The lag now: asked when the DataFrame is used, from an executor."""
    return samples(spark.range(1, numPartitions=1), source, groups)


def samples(ticks: DataFrame, source: Source, groups: Sequence[str] = ()) -> DataFrame:
    """The lag, once per row of `ticks`; its columns are ignored."""
    wanted = tuple(groups)

    def asked(ticks: pa.Array) -> pa.Array:
        return pa.array([_as_dicts(ask(source, wanted)) for _ in range(len(ticks))], pa.list_(_ROW))

    rows = arrow_udf(asked, ArrayType(LAG_TYPE)).asNondeterministic()  # type: ignore[call-overload]
    return ticks.select(rows(F.lit(0)).alias("rows")).select(F.explode("rows").alias("row")).select("row.*")


def frame_of(spark: SparkSession, rows: Sequence[LagRow]) -> DataFrame:
    """Rows that were asked for on the driver."""
    values = [{**row, "at": _moment(row["at"] // 1000)} for row in _as_dicts(rows)]
    return spark.createDataFrame(values, LAG_TYPE)


def _as_dicts(rows: Sequence[LagRow]) -> list[dict[str, Any]]:
    """By column; times in microseconds."""
    return [
        {
            "at": row.at_ms * 1000,
            "group": row.group,
            "topic": row.queue.topic,
            "brokerName": row.queue.broker_name,
            "queueId": row.queue.queue_id,
            "committed": row.committed,
            "maxOffset": row.max_offset,
            "lag": row.lag,
            "behindMs": row.behind_ms,
        }
        for row in rows
    ]


def over_time(samples: DataFrame) -> DataFrame:
    """By moment, group and topic: the known lag, and `changePerS` since the moment before (negative: catching up)."""
    totals = samples.groupBy("at", "group", "topic").agg(
        F.sum(F.coalesce("lag", F.lit(0))).alias("lag"),
        F.count("*").alias("queues"),
        F.sum(F.when(F.col("lag").isNull(), 1).otherwise(0)).alias("unknown"),
        F.max("behindMs").alias("behindMs"),
    )
    before = Window.partitionBy("group", "topic").orderBy("at")
    seconds = (F.unix_millis("at") - F.unix_millis(F.lag("at").over(before))) / 1000
    change = F.try_divide(F.col("lag") - F.lag("lag").over(before), seconds)
    return totals.select("*", change.alias("changePerS"))  # withColumn looks its table up: see docs/spark/pipelines.md


class QueryLag(QueryEnds):
    """Keeps how far the session's queries are behind after each batch, the newest rows.

    lag = QueryLag(); spark.streams.addListener(lag); ...; lag.wait(query); lag.frame(spark).show()
    """

    def __init__(self, on_rows: Callable[[Sequence[QueryLagRow]], None] | None = None) -> None:
        super().__init__()
        self._rows: deque[QueryLagRow] = deque(maxlen=ROWS_KEPT_MAX)
        self._on_rows = on_rows

    @property
    def rows(self) -> list[QueryLagRow]:
        return list(self._rows)

    def frame(self, spark: SparkSession) -> DataFrame:
        """What was seen so far."""
        values = [
            (_moment(row.at_ms), row.query, row.batch_id, *row.queue, row.read_to, row.max_offset, row.lag)
            for row in self._rows
        ]
        return spark.createDataFrame(values, QUERY_LAG_SCHEMA)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        rows = query_rows(
            at_ms=int(datetime.fromisoformat(progress.timestamp).timestamp() * 1000),
            query=progress.name or str(progress.id),
            batch_id=progress.batchId,
            sources=[
                {"description": each.description, "endOffset": each.endOffset, "latestOffset": each.latestOffset}
                for each in progress.sources
            ],
            mark=SOURCE_MARK,
        )
        self._rows.extend(rows)
        if self._on_rows is not None and rows:
            self._on_rows(rows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
