"""A stream that cannot start: its reader is created and raises the error at the first call.

If creating a reader fails, Spark's own streaming worker fails while stopping the missing reader, and that error would
be the last line a user sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from rocketq.spark.errors import SparkError, plain


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, fault: SparkError) -> None:
        self._fault = fault

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise plain(self._fault) from None
