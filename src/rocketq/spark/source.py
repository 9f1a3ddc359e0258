"""format("rocketmq"), reading: what Spark calls, and who does the work."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rocketq.protocol.flags import ExpressionType
from rocketq.spark.batch_plan import Slices, plan_batch
from rocketq.spark.errors import plain_rows, plainly
from rocketq.spark.options import SourceOptions, parse_source
from rocketq.spark.pushdown import EVERYWHERE, narrow
from rocketq.spark.schema import arrow_of


class SlicePartition(InputPartition):
    """A task: carries nothing but what to read."""

    def __init__(self, parts: Slices) -> None:
        super().__init__(parts)
        self.parts = parts


def read_partition(partition: InputPartition, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a task; Spark creates an empty partition if there is none."""
    from rocketq.spark.reader import read_slice  # noqa: PLC0415 - drivers plan without decoders

    spare_what_is_loaded()
    parts = partition.parts if isinstance(partition, SlicePartition) else ()
    return plain_rows(batch for part in parts for batch in read_slice(part, options, schema))


class BatchReader(DataSourceReader):
    """Reads everything the options name; Spark applies all filters."""

    @plainly
    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._options = parse_source(options, streaming=False)
        self._schema = arrow_of(schema)
        self._narrowing = EVERYWHERE

    @plainly
    def partitions(self) -> list[InputPartition]:
        return [SlicePartition(parts) for parts in plan_batch(self._options, self._narrowing)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)


PLANS_ARE_KEPT_APART: Final = hasattr(DataSourceReader, "pushLimit")
"""Up to 4.3 Spark keeps one plan for all scans of a DataFrame: a query on it without a filter, or with another one,
then reads what the last filter left. Spark that can push limits down keeps a plan for each scan."""


class PushdownReader(BatchReader):
    """Reads only ranges that can pass Spark's filters, where that is safe or the user allows it.

    A separate class: Spark rejects a reader with filters unless spark.sql.python.filterPushdown.enabled is set.
    """

    @plainly
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        if self._options.filter_pushdown != "always" and not (
            PLANS_ARE_KEPT_APART and self._options.filter_pushdown == "auto"
        ):
            return filters
        self._narrowing, left = narrow(filters)
        fetching, tags = self._options.fetching, self._narrowing.tags
        if tags and fetching.expression == "*" and fetching.expression_type == ExpressionType.TAG:
            self._options = replace(self._options, fetching=replace(fetching, expression=" || ".join(sorted(tags))))
        return left


def spare_what_is_loaded() -> None:
    """Modules and all they hold stay as long as the process does.

    A worker is used for many tasks, and Spark has everything looked through after each: 8 ms and more, every time for
    the same hundred thousand objects.
    """
    _spare(os.getpid())


@functools.cache
def _spare(_process_id: int) -> None:
    """Once in a process; one that was forked has what it loaded itself."""
    gc.collect()
    gc.freeze()
