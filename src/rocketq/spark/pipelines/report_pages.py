"""The pages of pipelines: rows that were collected, as tables and plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from rocketq.spark.pipelines.lag_rows import GroupLag, LagRow, drain_s, group_lags
from rocketq.spark.pipelines.plots import bars, grouped_bars, lines
from rocketq.spark.pipelines.reports import Plot, Report, Table


class NamedCells(Protocol):
    """A collected row: Spark's own, or a dict."""

    def __getitem__(self, name: str, /) -> Any: ...


Rows = Sequence[NamedCells]

_CAUSES: Final = {
    "group": "group",
    "originTopic": "topic",
    "cause": "cause",
    "tags": "tag",
    "retries": "retries",
    "messages": "messages",
    "firstDiedAt": "first",
    "lastDiedAt": "last",
    "lastMsgId": "last id",
}
_LETTERS: Final = {
    "group": "group",
    "originTopic": "topic",
    "msgId": "id",
    "tags": "tag",
    "keys": "keys",
    "retries": "retries",
    "diedAt": "died",
    "error": "error",
}
_LATENCY: Final = {
    "topic": "topic",
    "consumerGroup": "group",
    "messageType": "type",
    "messages": "messages",
    "p50Ms": "p50 ms",
    "p90Ms": "p90 ms",
    "p99Ms": "p99 ms",
    "maxMs": "max ms",
    "consumeP50Ms": "listener p50 ms",
    "failed": "failed",
}


def dlq_page(causes: Rows, letters: Rows = ()) -> Report:
    """Of `dlq.causes`, and of some `dlq.dead_letters`."""
    most = sorted(causes, key=lambda row: -row["messages"])
    counts = [(f"{row['group']}: {row['cause'] or row['tags'] or row['originTopic']}", row["messages"]) for row in most]
    total, groups = sum(row["messages"] for row in causes), len({row["group"] for row in causes})
    tables = [_table("By cause", _CAUSES, most), *([_table("Newest", _LETTERS, letters)] if letters else [])]
    plot = Plot("Most frequent", bars("Dead letters", counts, "messages"))
    return Report("Dead letters", f"{total} messages of {groups} groups", tables, [plot])


def latency_page(latency: Rows, not_consumed: int) -> Report:
    """Of `trace.latency`."""
    figures = [
        (
            f"{row['topic']} > {row['consumerGroup']} ({row['messageType']})",
            [float(row[name]) for name in ("p50Ms", "p90Ms", "p99Ms")],
        )
        for row in latency
    ]
    picture = grouped_bars("From send to consumption", figures, ["p50", "p90", "p99"], "milliseconds")
    subtitle = f"{not_consumed} messages that no traced consumer has begun with"
    return Report("Message traces", subtitle, [_table("Latency", _LATENCY, latency)], [Plot("Percentiles", picture)])


def lag_page(rows: Iterable[LagRow]) -> Report:
    """Of samples taken with `lag.ask`."""
    kept = list(rows)
    series: dict[str, list[GroupLag]] = {}
    for each in group_lags(kept):
        series.setdefault(each.group, []).append(each)
    points = {group: [(_moment(each.at_ms), float(each.lag)) for each in own] for group, own in series.items()}
    now = [
        (_moment(own[-1].at_ms), group, own[-1].lag, own[-1].queues, own[-1].unknown, drain_s(own[0], own[-1]))
        for group, own in series.items()
    ]
    last_ms = max((row.at_ms for row in kept), default=0)
    queues = [
        (row.group, *row.queue, row.committed, row.max_offset, row.lag, row.behind_ms)
        for row in kept
        if row.at_ms == last_ms
    ]
    tables = [
        Table("Groups at the end", ["at", "group", "lag", "queues", "unknown", "seconds to go"], now),
        Table(
            "Queues at the end",
            ["group", "topic", "broker", "queue", "committed", "max offset", "lag", "behind ms"],
            queues,
        ),
    ]
    subtitle = f"{len(series)} groups, {len({row.at_ms for row in kept})} samples"
    return Report("Consumer lag", subtitle, tables, [Plot("Lag over time", lines("Lag", points, "messages"))])


def _table(title: str, columns: Mapping[str, str], rows: Rows) -> Table:
    return Table(title, list(columns.values()), [[row[name] for name in columns] for row in rows])


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
