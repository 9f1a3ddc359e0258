"""Where Spark finds format("rocketmq_commitlog"). Everything else is imported when it is used: an import that fails
here would hide every other Python source from Spark as well."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq_commitlog"

    def schema(self) -> StructType:
        from rocketq.spark.commitlog import commitlog_schema  # noqa: PLC0415

        return commitlog_schema(dict(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Spark refuses every read of a reader that takes filters while its setting for that is off, which it is by
        default. So only Spark's planner of filters gets one that does: then the setting is on."""
        from rocketq.spark.commitlog import CommitLogPushdownReader, CommitLogReader  # noqa: PLC0415

        caller = sys._getframe(1).f_globals
        module = getattr(caller.get("__spec__"), "name", None) or str(caller.get("__name__", ""))
        kind = CommitLogPushdownReader if module.endswith("data_source_pushdown_filters") else CommitLogReader
        return kind(schema, dict(self.options))
