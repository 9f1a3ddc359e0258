"""Where Spark finds format("rocketmq"). Everything else is imported when it is used: an import that fails here would
hide every other Python source from Spark as well."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        from rocketq.spark.schema import source_schema  # noqa: PLC0415

        wanted = {key.lower(): value for key, value in self.options.items()}.get("includeproperties", "")
        return source_schema(properties=wanted.strip().lower() in ("true", "user"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Spark refuses every read of a reader that takes filters while its setting for that is off, which it is by
        default. So only Spark's planner of filters gets one that does: then the setting is on."""
        from rocketq.spark.source import BatchReader, PushdownReader  # noqa: PLC0415

        caller = sys._getframe(1).f_globals
        module = getattr(caller.get("__spec__"), "name", None) or str(caller.get("__name__", ""))
        kind = PushdownReader if module.endswith("data_source_pushdown_filters") else BatchReader
        return kind(schema, dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from rocketq.spark.errors import SparkError  # noqa: PLC0415
        from rocketq.spark.refused_stream import RefusedStream  # noqa: PLC0415
        from rocketq.spark.stream import StreamReader  # noqa: PLC0415

        try:
            return StreamReader(schema, dict(self.options))
        except SparkError as fault:
            return RefusedStream(fault)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from rocketq.spark.sink import BatchWriter  # noqa: PLC0415

        return BatchWriter(schema, dict(self.options), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """With overwrite, that is in complete mode, every batch sends the whole result."""
        from rocketq.spark.sink import StreamWriter  # noqa: PLC0415

        return StreamWriter(schema, dict(self.options))
