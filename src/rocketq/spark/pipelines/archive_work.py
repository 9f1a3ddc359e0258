"""A task of an archive run on an executor: read, write Parquet, report the files."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType

from rocketq.columns import COLUMN_TYPES
from rocketq.spark.archive.backfill import SpanCounter, Wanted
from rocketq.spark.archive.coverage import Coverage
from rocketq.spark.archive.folder import ArchivedFile, ArchiveFolder
from rocketq.spark.archive.lookup import Archive
from rocketq.spark.archive.parts import PartWriter, archive_schema
from rocketq.spark.commitlog_files import ByteRange
from rocketq.spark.commitlog_scan import Choice, RangeScan
from rocketq.spark.errors import DataLossError, SparkError
from rocketq.spark.options import SourceOptions
from rocketq.spark.pipelines.tasks import Tell
from rocketq.spark.planner import QueueSlice
from rocketq.spark.reader import read_slice
from rocketq.spark.schema import source_schema


def write_slice(
    part: QueueSlice, staging: Path, name: str, tell: Tell, *, options: SourceOptions, properties: bool
) -> str:
    """A stretch of a queue. With a filter its other messages count as archived: they were asked about."""
    schema = archive_schema(properties=properties)
    writer, counter, rows = PartWriter(staging, name, schema), SpanCounter(), 0
    topic, broker_name = part.queue.topic, part.queue.broker_name
    for batch in read_slice(part, options, schema):
        writer.write(topic, batch)
        counter.add(topic, broker_name, batch)
        rows += batch.num_rows
        tell(rows)
    whole = Coverage({part.queue: ((part.low, part.high),)})
    is_filtered = options.fetching.expression != "*"
    written = whole if is_filtered else counter.coverage
    tell(part.count)
    return _result(writer.close(), written, lost=whole.minus(written))


def write_range(
    part: ByteRange,
    staging: Path,
    name: str,
    tell: Tell,
    *,
    broker_name: str,
    archived: Coverage,
    topics: frozenset[str] | None,
    pattern: re.Pattern[str] | None,
    properties: bool,
    fail_fast: bool,
) -> str:
    """A stretch of a log file."""
    schema = archive_schema(properties=properties)
    wide = pa.schema([("topic", COLUMN_TYPES["topic"]), *schema])
    scan = RangeScan(
        part, wide, choice=Choice(topics=topics, is_filtered=True), broker_name=broker_name, fail_fast=fail_fast
    )
    writer, counter, wanted = PartWriter(staging, name, schema), SpanCounter(), Wanted(broker_name, archived)
    try:
        for batch in scan.batches():
            for topic, rows in wanted.by_topic(batch):
                if pattern is None or pattern.fullmatch(topic):
                    writer.write(topic, rows)
                    counter.add(topic, broker_name, rows)
            tell(min(scan.read_to, part.end) - part.start)
    except FileNotFoundError:
        raise DataLossError(f"{part.file.path} was deleted after the run was planned: run it again") from None
    repeated = f"{counter.twice[0]}: offset {counter.twice[1]}" if counter.twice is not None else ""
    return _result(writer.close(), counter.coverage, damage=[str(each) for each in scan.damage], repeated=repeated)


def merge_files(group: tuple[ArchivedFile, ...], staging: Path, name: str, tell: Tell, *, target: Path) -> str:
    """Several files of one topic and day as one; rows in the order of the files."""
    folder, rows = ArchiveFolder(target), 0
    places = [folder.place_of(file.path) for file in group]
    if None in places:
        raise SparkError(f"{group[places.index(None)].path} is gone from the archive")
    schemas = [pq.read_schema(place) for place in places]
    schema = archive_schema(properties=any("properties" in each.names for each in schemas))
    writer = PartWriter(staging, name, schema)
    for place in places:
        with pq.ParquetFile(place) as parquet:
            for batch in parquet.iter_batches():
                writer.write(group[0].topic, _as_schema(batch, schema))
                rows += batch.num_rows
                tell(rows)
    return _result(writer.close(), Coverage({}))


def _as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _result(
    files: list[ArchivedFile],
    archived: Coverage,
    *,
    lost: Coverage | None = None,
    damage: list[str] | None = None,
    repeated: str = "",
) -> str:
    return json.dumps(
        {
            "files": [file.to_json() for file in files],
            "archived": archived.tree(),
            "lost": lost.tree() if lost is not None else {},
            "damage": damage or [],
            "repeated": repeated,
        }
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def frame_of(
    spark: SparkSession,
    target: Path | str,
    topics: Collection[str] | None,
    from_ms: int | None,
    to_ms: int | None,
) -> DataFrame:
    """Columns are given, not found out: a topic named 2024 is a text."""
    opened = Archive(target)
    paths = opened.paths(topics, from_ms, to_ms)
    schema = StructType([*source_schema(properties=True, log_offset=True).fields, StructField("dt", DateType())])
    if not paths:
        return spark.createDataFrame([], schema)
    root = str(opened.target)
    frame = spark.read.schema(schema).option("basePath", root).parquet(*paths)
    if from_ms is not None:
        frame = frame.where(F.col("storeTimestamp") >= F.lit(_at(from_ms)))
    if to_ms is not None:
        frame = frame.where(F.col("storeTimestamp") < F.lit(_at(to_ms)))
    return frame.select(*[field.name for field in schema.fields])


def _at(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
