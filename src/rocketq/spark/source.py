"""format("rocketmq"): what Spark calls, and who does the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketq.spark.catalog import Catalog
from rocketq.spark.errors import DataLossError
from rocketq.spark.options import SourceOptions, parse_source
from rocketq.spark.planner import QueueSlice, plan
from rocketq.spark.positions import ending_offsets, starting_offsets
from rocketq.spark.reader import read_slice
from rocketq.spark.schema import arrow_of


@dataclass
class SlicePartition(InputPartition):
    """A task: carries nothing but what to read."""

    part: QueueSlice

    def __init__(self, part: QueueSlice) -> None:
        super().__init__(part)
        self.part = part


class BatchReader(DataSourceReader):
    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._options = parse_source(options, streaming=False)
        self._schema = arrow_of(schema)

    def partitions(self) -> list[InputPartition]:
        return [SlicePartition(part) for part in plan_batch(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SlicePartition):  # Spark makes one up when there are none
            return iter(())
        return read_slice(partition.part, self._options, self._schema)


def plan_batch(options: SourceOptions) -> Sequence[QueueSlice]:
    catalog = Catalog(options.connection, options.fetching)
    try:
        queues = catalog.queues(options.subscription)
        bounds = catalog.bounds(queues)
        start = starting_offsets(options, queues, bounds, catalog)
        end = ending_offsets(options, queues, bounds, catalog)
    finally:
        catalog.close()
    made = plan(start, end, bounds, rows_max=options.slice_rows_max, slices_min=options.slices_min)
    if made.lost and options.fail_on_data_loss:
        raise DataLossError(f"not there any more: {made.describe_loss()}; option failOnDataLoss=false reads on without")
    return made.slices
