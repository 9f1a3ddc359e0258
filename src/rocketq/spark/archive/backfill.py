"""Rows of store files, made ready for an archive: which are wanted, and which offsets they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketq.model import SysFlag
from rocketq.protocol.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from rocketq.spark.archive.coverage import Coverage, Span, Spans, merged
from rocketq.spark.offsets import QueueKey


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Messages that a queue has (not the halves of transactions of old) and the archive has not."""

    broker_name: str
    archived: Coverage

    def by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The wanted rows of a batch that has `topic` as a column, without it."""
        kind = pc.bit_wise_and(batch.column("sysFlag"), SysFlag.TRANSACTION_MASK)
        queued = pc.or_(pc.equal(kind, 0), pc.equal(kind, SysFlag.TRANSACTION_COMMIT))
        batch = batch if pc.all(queued).as_py() else batch.filter(queued)
        topics = batch.column("topic")
        plain = batch.select([name for name in batch.schema.names if name != "topic"])
        for topic in pc.unique(topics).to_pylist():
            if topic is None or is_system_topic(topic):
                continue
            rows = plain.filter(pc.equal(topics, topic))
            rows = self._not_archived(topic, rows)
            if rows.num_rows:
                yield topic, rows

    def _not_archived(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        queue_ids = rows.column("queueId").to_numpy()
        offsets = rows.column("queueOffset").to_numpy()
        keep = np.ones(len(offsets), dtype=bool)
        for queue_id in np.unique(queue_ids).tolist():
            for low, high in self.archived[QueueKey(topic, self.broker_name, queue_id)]:
                keep &= ~((queue_ids == queue_id) & (offsets >= low) & (offsets < high))
        return rows if keep.all() else rows.filter(pa.array(keep))


def spans_of(rows: pa.RecordBatch) -> Mapping[int, list[Span]]:
    """Runs of offsets by queue; an offset that comes twice makes two runs that overlap."""
    queue_ids = rows.column("queueId").to_numpy()
    offsets = rows.column("queueOffset").to_numpy()
    order = np.lexsort((offsets, queue_ids))
    queue_ids, offsets = queue_ids[order], offsets[order]
    breaks = np.flatnonzero((np.diff(queue_ids) != 0) | (np.diff(offsets) != 1)) + 1
    found: dict[int, list[Span]] = {}
    for first, last in zip([0, *breaks.tolist()], [*(breaks - 1).tolist(), len(offsets) - 1], strict=True):
        if first <= last:
            found.setdefault(int(queue_ids[first]), []).append((int(offsets[first]), int(offsets[last]) + 1))
    return found


class SpanCounter:
    """Adds up what a task has written, and notes the first offset that came `twice`."""

    def __init__(self) -> None:
        self._spans: dict[QueueKey, Spans] = {}
        self.twice: tuple[QueueKey, int] | None = None

    def add(self, topic: str, broker_name: str, rows: pa.RecordBatch) -> None:
        for queue_id, spans in spans_of(rows).items():
            key = QueueKey(topic, broker_name, queue_id)
            before = self._spans.get(key, ())
            self._spans[key] = merged([*before, *spans])
            if self.twice is None and _count(self._spans[key]) < _count(before) + _count(spans):
                self.twice = key, _first_twice([*before, *spans])

    @property
    def coverage(self) -> Coverage:
        return Coverage(self._spans)


def _count(spans: Iterable[Span]) -> int:
    return sum(high - low for low, high in spans)


def _first_twice(spans: Iterable[Span]) -> int:
    """The lowest offset that two of these share."""
    ordered = sorted(spans)
    return next(low for (_, end), (low, _) in pairwise(ordered) if low < end)
