"""Archives without Spark: rows written as a task writes them, committed as a run commits them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from rocketq.columns import BatchBuilder, decode
from rocketq.model import Record
from rocketq.protocol.messages import encode_record
from rocketq.spark.archive.backfill import SpanCounter
from rocketq.spark.archive.folder import ArchivedFile, ArchiveFolder, ArchiveState, Change
from rocketq.spark.archive.parts import PartWriter, archive_schema

BROKER = "broker-a"


def batch_of(records: Sequence[Record], *, properties: bool = True) -> pa.RecordBatch:
    builder = BatchBuilder(archive_schema(properties=properties), {"brokerName": BROKER})
    return decode(b"".join(map(encode_record, records)), builder)


def stage(folder: ArchiveFolder, records: Sequence[Record]) -> tuple[str, Change]:
    """The files of one run with one task; not committed."""
    run = folder.begin()
    counter = SpanCounter()
    writer = PartWriter(folder.staging(run), f"part-{uuid.uuid4().hex[:8]}", archive_schema(properties=True))
    for topic in sorted({record.topic for record in records}):
        own = batch_of([record for record in records if record.topic == topic])
        writer.write(topic, own)
        counter.add(topic, BROKER, own)
    return run, Change(kind="topics", added=tuple(writer.close()), archived=counter.coverage)


def add(target: Path, records: Sequence[Record], on_step: Callable[[str], None] = lambda step: None) -> ArchiveState:
    """A whole run."""
    folder = ArchiveFolder(target, on_step=on_step)
    with folder.locked():
        run, change = stage(folder, records)
        return folder.commit(folder.load(), change, run, now_ms=1)


def small_files(state: ArchiveState) -> list[ArchivedFile]:
    return sorted(state.files.values(), key=lambda file: file.path)
