"""Lag over time, from two sides: what groups have committed on brokers, and how far streaming queries are.

`samples` asks the brokers once per row it is given, so it makes a table of one moment (`sample`), a stream (over a rate
source) or a table that grows with each run of spark-pipelines. `QueryLag` listens to the queries of a session.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, StructType

from rocketq.client import Admin, SessionConfig
from rocketq.client.admin.groups import GroupStatus
from rocketq.protocol.names import is_system_group
from rocketq.spark.errors import plainly
from rocketq.spark.listener import SOURCE_MARK, QueryEnds
from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import Options, parse_connection

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


QUERY_LAG_SCHEMA: Final = (
    "at timestamp, query string, batchId long, topic string, brokerName string, queueId int, "
    "readTo long, maxOffset long, lag long"
)


class LagRow(NamedTuple):
    """`lag` is unknown (None) where nothing was committed or a broker did not answer. `behind_ms` is how old the last
    consumed message is, while others wait behind it."""

    at_ms: int
    group: str
    queue: QueueKey
    committed: int | None
    max_offset: int | None
    lag: int | None
    behind_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group at one moment: the sum of what is known, and of how many queues nothing is."""

    at_ms: int
    group: str
    lag: int
    queues: int
    unknown: int
    behind_ms: int | None


class QueryLagRow(NamedTuple):
    """One queue of a streaming query after a batch. `read_to` is what is read next."""

    at_ms: int
    query: str
    batch_id: int
    queue: QueueKey
    read_to: int
    max_offset: int
    lag: int


def rows_of(status: GroupStatus, at_ms: int) -> list[LagRow]:
    """The lag of one group, as its brokers report it now."""
    return [
        LagRow(
            at_ms=at_ms,
            group=status.group,
            queue=QueueKey(each.queue.topic, each.queue.broker_name, each.queue.queue_id),
            committed=each.committed,
            max_offset=each.max_offset,
            lag=each.lag,
            behind_ms=max(0, at_ms - each.last_ms) if each.last_ms and each.lag else None,
        )
        for each in status.queues
    ]


def group_lags(rows: Iterable[LagRow]) -> list[GroupLag]:
    """By moment and group."""
    found: dict[tuple[int, str], list[LagRow]] = {}
    for row in rows:
        found.setdefault((row.at_ms, row.group), []).append(row)
    return [_sum_of(at_ms, group, own) for (at_ms, group), own in sorted(found.items())]


def _sum_of(at_ms: int, group: str, rows: list[LagRow]) -> GroupLag:
    known = [row.lag for row in rows if row.lag is not None]
    behind = [row.behind_ms for row in rows if row.behind_ms is not None]
    return GroupLag(at_ms, group, sum(known), len(rows), len(rows) - len(known), max(behind, default=None))


def drain_s(first: GroupLag, last: GroupLag) -> float | None:
    """How long the group needs for what waits, at the pace between these moments; None when it does not get less."""
    seconds = (last.at_ms - first.at_ms) / 1000
    gained = first.lag - last.lag
    return last.lag * seconds / gained if gained > 0 and seconds > 0 else None


def query_rows(
    *, at_ms: int, query: str, batch_id: int, sources: Iterable[Mapping[str, Any]], mark: str
) -> list[QueryLagRow]:
    """Of the sources of a query's progress that are ours (`mark` is in their description)."""
    rows = []
    for source in sources:
        if mark not in str(source.get("description", "")):
            continue
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for queue, read_to in end.items():
            max_offset = max(latest.get(queue, read_to), read_to)
            rows.append(QueryLagRow(at_ms, query, batch_id, queue, read_to, max_offset, max_offset - read_to))
    return rows


def _offsets(value: Any) -> Offsets:
    tree = json.loads(value) if isinstance(value, str) and value else value
    return Offsets.from_tree(tree) if isinstance(tree, dict) else Offsets({})
