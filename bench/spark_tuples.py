"""The same reader and decoder, but rows are handed to Spark one by one: what most Python sources do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq import DefaultSource
from rocketq.spark.source import BatchReader


class TupleSource(DefaultSource):
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
