"""format("rocketmq_commitlog"): store files as DataFrames, without a broker."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rocketq.spark.commitlog_files import ByteRange, StoreTimes, find_log_files, plan_ranges
from rocketq.spark.commitlog_options import CommitLogOptions, included, parse_commitlog
from rocketq.spark.commitlog_scan import CORRUPT, Choice, RangeScan
from rocketq.spark.errors import DataLossError, SparkError, plain_rows, plainly
from rocketq.spark.options import Options
from rocketq.spark.pushdown import narrow
from rocketq.spark.schema import arrow_of, source_schema
from rocketq.spark.source import PLANS_ARE_KEPT_APART

CORRUPT_FIELD: Final = StructField(
    CORRUPT,
    StructType(
        [
            StructField("reason", StringType()),
            StructField("file", StringType()),
            StructField("logOffset", LongType()),
            StructField("bytes", LongType()),
        ]
    ),
)
PUSHED: Final = frozenset({"topic", "queueId", "queueOffset", "storeTimestamp"})

log = logging.getLogger(__name__)


def commitlog_schema(given: Mapping[str, str]) -> StructType:
    """What a read has when it is asked for nothing in particular."""
    properties, corrupt = included(Options(given))
    fields = source_schema(properties=properties, log_offset=True).fields
    return StructType([*fields, CORRUPT_FIELD] if corrupt else fields)


@dataclass(frozen=True, slots=True)
class RangePartition(InputPartition):
    """A task: carries nothing but what to read."""

    part: ByteRange


class CommitLogReader(DataSourceReader):
    """Reads everything; Spark applies all filters."""

    @plainly
    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._options = parse_commitlog(options)
        self._schema = _arrow_of(schema)
        self._choice = _asked_for(self._options)

    @plainly
    def partitions(self) -> list[InputPartition]:
        times = StoreTimes(self._choice.stored_from_ms, self._choice.stored_before_ms)
        options = self._options
        files = find_log_files(options.paths)
        ranges = plan_ranges(files, range_bytes=options.range_bytes, times=times, slack_ms=options.slack_ms)
        return [RangePartition(part) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark creates an empty partition if there is none."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return plain_rows(read_range(partition.part, self._options, self._schema, self._choice))


class CommitLogPushdownReader(CommitLogReader):
    """Rows and files of other topics, queues and times are skipped before columns are built, where that is safe or
    the user allows it (see PLANS_ARE_KEPT_APART).

    A separate class: Spark rejects a reader with filters unless spark.sql.python.filterPushdown.enabled is set.
    """

    @plainly
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        given = list(filters)
        wish = self._options.filter_pushdown
        if not (wish == "always" or (wish == "auto" and PLANS_ARE_KEPT_APART)):
            return given
        own = [each for each in given if _column(each) in PUSHED]
        where, left = narrow(own)
        asked = _asked_for(self._options)
        self._choice = Choice(
            topics=_both(where.topics, asked.topics),
            queue_ids=where.queue_ids,
            queue_offset_low=where.offset_low,
            queue_offset_high=where.offset_high,
            stored_from_ms=_later(where.stored_from_ms, asked.stored_from_ms),
            stored_before_ms=_earlier(where.stored_before_ms, asked.stored_before_ms),
            is_filtered=asked.is_filtered or len(left) < len(own),
        )
        return [*(each for each in given if _column(each) not in PUSHED), *left]


def read_range(
    part: ByteRange, options: CommitLogOptions, schema: pa.Schema, choice: Choice
) -> Iterator[pa.RecordBatch]:
    """The rows of one task; a file deleted by its broker is an error or is skipped, depending on the options."""
    scan = RangeScan(part, schema, choice=choice, broker_name=options.broker_name, fail_fast=options.fail_fast)
    if options.user_properties_only:
        scan.hide_system_properties()
    try:
        yield from scan.batches()
    except FileNotFoundError:
        if not options.ignore_missing:
            hint = "option ignoreMissingFiles=true reads on without"
            raise DataLossError(f"{part.file.path} was deleted after the read was planned; {hint}") from None
        log.warning("%s was deleted after the read was planned, read on without", part.file.path)
    except OSError as error:
        raise SparkError(f"{part.file.path} cannot be read: {error.strerror}") from None


def _asked_for(options: CommitLogOptions) -> Choice:
    """The selection of the options, without Spark's filters."""
    times = (options.stored_from_ms, options.stored_before_ms)
    is_filtered = options.topics is not None or times != (None, None)
    return Choice(topics=options.topics, stored_from_ms=times[0], stored_before_ms=times[1], is_filtered=is_filtered)


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    return one & other if one is not None and other is not None else one if other is None else other


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _arrow_of(schema: StructType) -> pa.Schema:
    """As Spark will compare it with the batches."""
    for field in schema.fields:
        if field.name == CORRUPT and field.dataType != CORRUPT_FIELD.dataType:
            wanted = CORRUPT_FIELD.dataType.simpleString()
            raise SparkError(f"column {CORRUPT} is {wanted}, not {field.dataType.simpleString()}")
    arrow_of(StructType([field for field in schema.fields if field.name != CORRUPT]))
    return to_arrow_schema(schema, timezone="UTC")


def _column(given: Filter) -> str | None:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None
