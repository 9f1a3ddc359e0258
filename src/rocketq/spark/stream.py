"""Micro-batches: Spark asks how far it may go, plans tasks, and tells when it is done."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

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

from rocketq.errors import RocketQError
from rocketq.spark.catalog import Catalog
from rocketq.spark.errors import DataLossError
from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import parse_source
from rocketq.spark.planner import plan
from rocketq.spark.positions import starting_offsets
from rocketq.spark.reader import read_slice
from rocketq.spark.schema import arrow_of
from rocketq.spark.source import SlicePartition
from rocketq.spark.stream_steps import Bounds, StreamSteps

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's checkpoint is the truth about what was read; a broker group may mirror it."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._options = parse_source(options, streaming=True)
        self._schema = arrow_of(schema)
        self._catalog: Catalog | None = None
        self._steps: StreamSteps | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options, not the driver's connections."""
        return {**self.__dict__, "_catalog": None, "_steps": None}

    # On the driver

    def initialOffset(self) -> dict[str, Any]:
        queues = self._driver().queues(self._options.subscription)
        bounds = self._driver().bounds(queues)
        return starting_offsets(self._options, queues, bounds, self._driver()).tree()

    def getDefaultReadLimit(self) -> ReadLimit:
        limits = self._options.limits
        if limits.rows_max is not None:
            return ReadMaxRows(limits.rows_max)
        return ReadMaxBytes(limits.bytes_max) if limits.bytes_max is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._progress().pin(self._driver().bounds(self._driver().queues(self._options.subscription)))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin, bounds = Offsets.from_tree(start), self._held()
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._rows_of_bytes(begin, bounds)
        step = self._progress().next(begin, bounds, _now_ms(), rows_max)
        if step.lost and self._options.fail_on_data_loss:
            raise DataLossError(f"queues are shorter than what was read of them: {'; '.join(map(str, step.lost))}")
        for each in step.lost:
            log.warning("%s: the queue is shorter than what was read of it; reading goes on at its end", each)
        return step.end.tree()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return Offsets.of((queue, high) for queue, (_, high) in self._held().items()).tree()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = Offsets.from_tree(start), Offsets.from_tree(end)
        bounds = {**self._assumed(begin, until), **self._driver().reachable_bounds(list(until))}
        options = self._options
        made = plan(begin, until, bounds, rows_max=options.slice_rows_max, slices_min=options.slices_min)
        if made.lost and options.fail_on_data_loss:
            raise DataLossError(f"not there any more: {made.describe_loss()}; failOnDataLoss=false reads on without")
        if made.lost:
            log.warning("not there any more, read on without: %s", made.describe_loss())
        return [SlicePartition(part) for part in made.slices]

    def commit(self, end: dict[str, Any]) -> None:
        if not self._options.commit_each_batch or self._options.commit_group is None:
            return
        try:
            self._driver().commit(self._options.commit_group, Offsets.from_tree(end))
        except RocketQError as error:  # the checkpoint has it; the next batch tells the group again
            log.warning("group %s was not told of this batch: %s", self._options.commit_group, error)

    # On the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SlicePartition):
            return iter(())
        return read_slice(partition.part, self._options, self._schema)

    # What the driver keeps

    def _driver(self) -> Catalog:
        if self._catalog is None:
            self._catalog = Catalog(self._options.connection, self._options.fetching)
        return self._catalog

    def _progress(self) -> StreamSteps:
        if self._steps is None:
            self._steps = StreamSteps(self._options.limits, _now_ms())
        return self._steps

    def _held(self) -> Bounds:
        """Of all queues whose brokers answer; the others keep their place until they do."""
        return self._driver().reachable_bounds(self._driver().queues(self._options.subscription))

    def _assumed(self, begin: Offsets, until: Offsets) -> dict[QueueKey, tuple[int, int]]:
        """A broker that is away now may be back when the task runs: what was planned is still there."""
        return {queue: (min(begin.get(queue, 0), high), high) for queue, high in until.items()}

    def _rows_of_bytes(self, begin: Offsets, bounds: Bounds) -> int | None:
        """As many rows as make about `maxBytesPerTrigger`, by the size of what is next in line."""
        if self._options.limits.bytes_max is None:
            return None
        for queue, (low, high) in sorted(bounds.items()):
            at = max(begin.get(queue, low), low)
            if at < high and (size := self._driver().record_bytes(queue, at)) is not None:
                return max(1, self._options.limits.bytes_max // size)
        return None


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
