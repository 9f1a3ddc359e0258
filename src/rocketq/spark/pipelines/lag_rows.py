"""How far behind a reader is, queue by queue. Pure: offsets and times come in, rows go out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rocketq.client.admin.groups import GroupStatus
from rocketq.spark.offsets import Offsets, QueueKey

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
