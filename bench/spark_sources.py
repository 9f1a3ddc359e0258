"""Other sources in Python, to compare ours with: one hands over row by row, one has nothing to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq import DefaultSource
from rocketq.spark.source import BatchReader, SlicePartition
from rocketq.spark.stream import StreamReader

ONE_ANSWER: Final = 8_192
"""No answer of a broker has more messages than this."""


class TupleSource(DefaultSource):
    """The same reader and decoder, but rows are handed to Spark one by one: what most Python sources do."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(schema, dict(self.options))


class TupleReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in super().read(partition):
            yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: Any) -> list[Any]:
    """Maps come as pairs; Spark wants dictionaries."""
    values = column.to_pylist()
    return [dict(each) for each in values] if str(column.type).startswith("map") else list(values)


class ReadySource(DefaultSource):
    """As many rows as ours, of the same size and in the same batches, but the first batch of a task is all that it
    reads: that is handed over again and again. No source in Python that reads and decodes can be cheaper than this."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_ready"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(schema, dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ReadyStream(schema, dict(self.options))


class ReadyReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _repeated(super().read, partition)


class ReadyStream(StreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _repeated(super().read, partition)


def _repeated(
    read: Callable[[InputPartition], Iterator[pa.RecordBatch]], partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, SlicePartition)
    for part in partition.parts:
        first = replace(part, high=part.low + min(part.count, ONE_ANSWER))
        batch, left = next(read(SlicePartition((first,)))), part.count
        while left:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
