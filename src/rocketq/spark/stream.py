"""Micro-batches: Spark asks for the end offsets, plans tasks, and reports the commit."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rocketq.protocol.flags import ExpressionType
from rocketq.spark.batch_plan import require_assigned
from rocketq.spark.catalog import Bounds, Catalog, as_offsets
from rocketq.spark.errors import DataLossError, SparkError, plainly
from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import Limits, parse_source
from rocketq.spark.planner import LostRange, describe_ranges, plan, require_named_queues, share_out, starting_offsets
from rocketq.spark.schema import arrow_of
from rocketq.spark.source import SlicePartition, read_partition

log = logging.getLogger(__name__)

SAMPLED_QUEUES_MAX: Final = 8
"""The number of queues, the fullest ones, whose messages are sampled to convert a byte limit into rows."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's checkpoint is the truth about what was read; a broker group may mirror it."""

    @plainly
    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._options = parse_source(options, streaming=True)
        self._schema = arrow_of(schema)
        self._catalog: Catalog | None = None
        self._steps: StreamSteps | None = None
        self._known: Bounds = {}

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options, not the driver's connections."""
        return {**self.__dict__, "_catalog": None, "_steps": None, "_known": {}}

    # On the driver

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        queues = self._queues()
        require_named_queues(self._options, queues)
        bounds = self._driver().bounds(queues)
        require_assigned(self._options.subscription, queues, bounds)
        if self._options.fetching.expression_type == ExpressionType.SQL92:
            self._driver().require_sql(queues)
        return starting_offsets(self._options, queues, bounds, self._driver()).tree()

    def getDefaultReadLimit(self) -> ReadLimit:
        limits = self._options.limits
        if limits.rows_max is not None:
            return ReadMaxRows(limits.rows_max)
        return ReadMaxBytes(limits.bytes_max) if limits.bytes_max is not None else ReadAllAvailable()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._progress().pin(self._driver().bounds(self._queues()))

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = Offsets.from_tree(start)
        bounds = self._held(begin)
        rows_max = None if isinstance(limit, ReadAllAvailable) else self._rows_max(begin, bounds)
        step = self._progress().next(begin, bounds, _now_ms(), rows_max)
        if step.lost and self._options.fail_on_data_loss:
            lost = describe_ranges(step.lost)
            raise DataLossError(
                f"queues are shorter than what was read of them, lost are {lost}; "
                "option failOnDataLoss=false reads on at their ends"
            )
        for each in step.lost:
            log.warning("%s: the queue is shorter than its committed offset; reading continues at its end", each)
        return step.end.tree()

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """As of the last look: Spark asks right after latestOffset."""
        return as_offsets(self._known).tree()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = Offsets.from_tree(start), Offsets.from_tree(end)
        low = {queue: begin.get(queue, high) for queue, high in until.items()}  # new queues are recorded, not read yet
        moved = [queue for queue, high in until.items() if low[queue] < high]
        bounds = {**{queue: (low[queue], until[queue]) for queue in moved}, **self._driver().reachable_bounds(moved)}
        options = self._options
        high = {queue: until[queue] for queue in moved}
        made = plan(low, high, bounds, rows_max=options.slice_rows_max, slices_min=options.slices_min)
        if made.lost and options.fail_on_data_loss:
            lost = made.describe_loss()
            raise DataLossError(f"messages no longer exist: {lost}; option failOnDataLoss=false skips them")
        if made.lost:
            log.warning("messages no longer exist and are skipped: %s", made.describe_loss())
        return [SlicePartition((part,)) for part in made.slices]

    @plainly
    def commit(self, end: dict[str, Any]) -> None:
        if not self._options.commit_each_batch or self._options.commit_group is None:
            return
        try:
            self._driver().commit(self._options.commit_group, Offsets.from_tree(end))
        except SparkError as error:  # the checkpoint has it; the next batch commits to the group again
            log.warning("%s", error)

    def stop(self) -> None:
        """Spark ends a query by closing the connection. Errors of its worker about the closed connection are
        expected."""
        if self._catalog is not None:
            self._catalog.close()
        if isinstance(sys.exc_info()[1], EOFError):
            sys.excepthook = _say_nothing

    # On the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)

    # What the driver keeps

    def _driver(self) -> Catalog:
        if self._catalog is None:
            self._catalog = Catalog(self._options.connection, self._options.fetching)
        return self._catalog

    def _progress(self) -> StreamSteps:
        if self._steps is None:
            self._steps = StreamSteps(self._options.limits, _now_ms())
        return self._steps

    def _queues(self, known: Iterable[QueueKey] = ()) -> list[QueueKey]:
        passes = not self._options.fail_on_data_loss
        return self._driver().queues(self._options.subscription, known=known, missing_topics_pass=passes)

    def _held(self, begin: Offsets) -> Bounds:
        """Of all queues whose brokers answer; the others keep their place until they do, except in a run that ends:
        it has promised to read what they hold."""
        target = self._progress().target
        if target is not None and self._options.fail_on_data_loss:
            found = self._driver().complete_bounds(self._options.subscription, target)
        else:
            found = self._driver().reachable_bounds(self._queues(begin))
        self._known = {**self._known, **found}
        return found

    def _rows_max(self, begin: Offsets, bounds: Bounds) -> int | None:
        limits = self._options.limits
        given = [limits.rows_max, self._rows_of_bytes(begin, bounds)]
        return min((each for each in given if each is not None), default=None)

    def _rows_of_bytes(self, begin: Offsets, bounds: Bounds) -> int | None:
        """As many rows as make about `maxBytesPerTrigger`, by the size of what is next in line."""
        bytes_max = self._options.limits.bytes_max
        if bytes_max is None:
            return None
        lags = {queue: high - max(begin.get(queue, low), low) for queue, (low, high) in bounds.items()}
        fullest = sorted((queue for queue, lag in lags.items() if lag > 0), key=lambda each: (-lags[each], each))
        rows = size = 0
        for queue in fullest[:SAMPLED_QUEUES_MAX]:
            mean = self._driver().searches.record_bytes(queue, bounds[queue][1] - lags[queue])
            if mean is not None:
                rows, size = rows + lags[queue], size + lags[queue] * mean
        return max(1, bytes_max * rows // size) if size else None


def _say_nothing(*_: object) -> None:
    pass


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """The end of the next batch; `lost` are queues that have become shorter than what was read of them."""

    end: Offsets
    lost: tuple[LostRange, ...] = ()


class StreamSteps:
    """Keeps what must outlive a call: the target of a run that ends, and when the last batch began."""

    def __init__(self, limits: Limits, now_ms: int) -> None:
        self._limits = limits
        self._last_batch_ms = now_ms
        self.target: Offsets | None = None
        """The end offsets of a run that ends."""

    def pin(self, bounds: Bounds) -> None:
        """Fix the end of this run at the current end of the queues."""
        self.target = Offsets.of((queue, high) for queue, (_, high) in bounds.items())

    def next(self, start: Offsets, bounds: Bounds, now_ms: int, rows_max: int | None = None) -> Step:
        """The next end offsets within the target and `rows_max`; `start` itself if there is nothing to read.

        Queues of unavailable brokers keep their offsets. A new queue is recorded at its earliest message and read
        from the next batch on, so that its start is in Spark's log and a repeated batch is the same.
        """
        lost = [LostRange(queue, bounds[queue][1], at) for queue, at in start.items() if _is_cut(queue, at, bounds)]
        new = {queue: low for queue, (low, _) in bounds.items() if queue not in start and self._may_read(queue)}
        begin = {queue: min(at, bounds[queue][1]) if queue in bounds else at for queue, at in start.items()}
        reach = {queue: self._reach(queue, at, bounds) for queue, at in begin.items()}
        waiting = sum(reach[queue] - at for queue, at in begin.items())
        if not (waiting or lost or new) or (not (lost or new) and self._should_wait(waiting, now_ms)):
            return Step(start)
        if waiting:
            self._last_batch_ms = now_ms
        end = Offsets.of(reach.items()) if rows_max is None else share_out(begin, reach, rows_max)
        return Step(end.merged(new), tuple(sorted(lost, key=lambda each: each.queue)))

    def _may_read(self, queue: QueueKey) -> bool:
        return self.target is None or queue in self.target

    def _reach(self, queue: QueueKey, at: int, bounds: Bounds) -> int:
        """How far a queue may be read."""
        high = bounds[queue][1] if queue in bounds else at
        return high if self.target is None else max(at, min(high, self.target.get(queue, at)))

    def _should_wait(self, waiting: int, now_ms: int) -> bool:
        """For more rows, but not too long, and never in a run that ends."""
        if self._limits.rows_min is None or self.target is not None:
            return False
        return waiting < self._limits.rows_min and now_ms - self._last_batch_ms < self._limits.delay_max_ms


def _is_cut(queue: QueueKey, at: int, bounds: Bounds) -> bool:
    return queue in bounds and bounds[queue][1] < at
