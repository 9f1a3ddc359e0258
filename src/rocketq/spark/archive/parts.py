"""Parquet files as one task writes them: one for each topic and day, with the table of their keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketq.columns import COLUMN_TYPES
from rocketq.spark.archive.folder import ArchivedFile, data_path, keys_path
from rocketq.spark.archive.keys import KeyTable

COLUMNS: Final = tuple(name for name in COLUMN_TYPES if name not in ("topic", "properties"))
"""The topic is in the path."""

ROW_GROUP_BYTES: Final = 16 << 20
HELD_BYTES_MAX: Final = 256 << 20
OPEN_FILES_MAX: Final = 256
_DICTIONARIES: Final = ["brokerName", "tags", "bornHost", "storeHost", "properties.key_value.key"]


def archive_schema(*, properties: bool) -> pa.Schema:
    names = [*COLUMNS, "properties"] if properties else COLUMNS
    return pa.schema([(name, COLUMN_TYPES[name]) for name in names])


class PartWriter:
    """All files of one task, under a run's staging directory. Names start with `name`, which is unique to the task."""

    def __init__(self, staging: Path, name: str, schema: pa.Schema) -> None:
        self._staging = staging
        self._name = name
        self._schema = schema
        self._open: dict[tuple[str, str], _Part] = {}
        self._done: list[ArchivedFile] = []
        self._count = 0

    def write(self, topic: str, batch: pa.RecordBatch) -> None:
        """Rows of a topic, of any days."""
        for date, rows in _by_day(batch):
            part = self._open.get((topic, date)) or self._new(topic, date)
            part.add(rows)
        while self._open and sum(part.held_bytes for part in self._open.values()) > HELD_BYTES_MAX:
            max(self._open.values(), key=lambda part: part.held_bytes).flush()

    def close(self) -> list[ArchivedFile]:
        """Everything is on disk; what it is."""
        for key in list(self._open):
            self._finish(key)
        return self._done

    def _new(self, topic: str, date: str) -> _Part:
        if len(self._open) >= OPEN_FILES_MAX:
            self._finish(next(iter(self._open)))
        made = _Part(self._staging, topic, date, f"{self._name}-{self._count}", self._schema)
        self._count += 1
        self._open[topic, date] = made
        return made

    def _finish(self, key: tuple[str, str]) -> None:
        self._done.append(self._open.pop(key).close())


class _Part:
    def __init__(self, staging: Path, topic: str, date: str, name: str, schema: pa.Schema) -> None:
        self._staging = staging
        self._topic, self._date = topic, date
        self._path, self._keys_path = data_path(topic, date, name), keys_path(name)
        self._schema = schema
        self._place = staging / self._path
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._place, schema, compression="zstd", compression_level=1, use_dictionary=_DICTIONARIES
        )
        self._held: list[pa.RecordBatch] = []
        self.held_bytes = 0
        self._keys = KeyTable()
        self._rows = 0
        self._times: list[int] = []
        self._places: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._keys.add(batch, self._rows)
        self._rows += batch.num_rows
        times = pc.min_max(batch.column("storeTimestamp").cast(pa.int64())).as_py()
        self._times = _widened(self._times, times["min"] // 1000, times["max"] // 1000)
        places = pc.min_max(batch.column("logOffset")).as_py()
        if places["min"] is not None:
            self._places = _widened(self._places, places["min"], places["max"])
        self._held.append(batch)
        self.held_bytes += batch.nbytes
        if self.held_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held, self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._held, self.held_bytes = [], 0

    def close(self) -> ArchivedFile:
        self.flush()
        self._writer.close()
        _sync(self._place)
        self._keys.write(self._staging / self._keys_path)
        low, high = self._places or (0, -1)
        return ArchivedFile(
            path=self._path,
            keys_path=self._keys_path,
            topic=self._topic,
            date=self._date,
            rows=self._rows,
            size_bytes=self._place.stat().st_size,
            first_ms=self._times[0],
            last_ms=self._times[1],
            log_low=low,
            log_high=high + 1,
        )


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    days = batch.column("storeTimestamp").cast(pa.timestamp("us")).cast(pa.date32())
    bounds = pc.min_max(days).as_py()
    if bounds["min"] == bounds["max"]:
        if bounds["min"] is not None:
            yield bounds["min"].isoformat(), batch
        return
    for day in pc.unique(days):
        yield day.as_py().isoformat(), batch.filter(pc.equal(days, day))


def _widened(bounds: list[int], low: int, high: int) -> list[int]:
    return [min(bounds[0], low), max(bounds[1], high)] if bounds else [low, high]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
