"""Where Spark finds format("rocketmq"). Everything else is imported when it is used: an import that fails here would
hide every other Python source from Spark as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        from rocketq.spark.schema import source_schema  # noqa: PLC0415

        wanted = {key.lower(): value for key, value in self.options.items()}.get("includeproperties", "")
        return source_schema(properties=wanted.strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        from rocketq.spark.source import BatchReader  # noqa: PLC0415

        return BatchReader(schema, dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from rocketq.spark.stream import StreamReader  # noqa: PLC0415

        return StreamReader(schema, dict(self.options))
