"""Archived messages found by key, id, place or time, with neither Spark nor a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketq.errors import RocketQError
from rocketq.model.ids import decode_message_id
from rocketq.spark.archive.folder import ArchivedFile, ArchiveFolder, ArchiveState
from rocketq.spark.archive.keys import rows_with
from rocketq.spark.archive.parts import archive_schema
from rocketq.spark.errors import SparkError


class Archive:
    """An archive as of its last commit. Tables have the columns of the source, with `topic` in front."""

    def __init__(self, target: Path | str) -> None:
        self._folder = ArchiveFolder(target)
        if not self._folder.exists:
            raise SparkError(f"{target} is no archive")
        self.state: ArchiveState = self._folder.load()

    @property
    def target(self) -> Path:
        return self._folder.target

    @property
    def topics(self) -> dict[str, int]:
        """Messages by topic."""
        counts: dict[str, int] = {}
        for file in self.state.files.values():
            counts[file.topic] = counts.get(file.topic, 0) + file.rows
        return dict(sorted(counts.items()))

    def by_key(
        self, topic: str, key: str, *, from_ms: int | None = None, to_ms: int | None = None, count_max: int = 64
    ) -> pa.Table:
        """Messages of a topic that have this key among theirs, oldest file first; times are store times, [from, to)."""
        files = self._files([topic], from_ms, to_ms)

        def has_key(table: pa.Table) -> pa.Array:
            return pa.array([key in (keys or "").split(" ") for keys in table.column("keys").to_pylist()], pa.bool_())

        return self._gather(files, key, lambda table: _and_time(table, has_key(table), from_ms, to_ms), count_max)

    def by_id(self, message_id: str, *, topic: str | None = None, count_max: int = 64) -> pa.Table:
        """Messages with this id: the client's own (UNIQ_KEY), or that of the place in a broker's log."""
        files = self._files(None if topic is None else [topic], None, None)
        found = self._gather(files, message_id, lambda table: pc.equal(table.column("msgId"), message_id), count_max)
        return found if found.num_rows else self._by_place(files, message_id, count_max)

    def by_time(
        self, topic: str, from_ms: int | None = None, to_ms: int | None = None, *, count_max: int | None = None
    ) -> pa.Table:
        """Messages of a topic stored in [from, to), in order of store time within each file."""
        return self._collected(
            (
                _chosen(table, _and_time(table, None, from_ms, to_ms))
                for file in self._files([topic], from_ms, to_ms)
                for table in self._row_groups(file)
            ),
            count_max,
        )

    def paths(
        self, topics: Iterable[str] | None = None, from_ms: int | None = None, to_ms: int | None = None
    ) -> list[str]:
        """The files that can hold such messages, for other programs to read."""
        return [str(self._place(file.path)) for file in self._files(topics, from_ms, to_ms)]

    def _files(self, topics: Iterable[str] | None, from_ms: int | None, to_ms: int | None) -> list[ArchivedFile]:
        wanted = None if topics is None else set(topics)
        found = [
            file
            for file in self.state.files.values()
            if (wanted is None or file.topic in wanted)
            and (from_ms is None or file.last_ms >= from_ms)
            and (to_ms is None or file.first_ms < to_ms)
        ]
        return sorted(found, key=lambda file: (file.first_ms, file.path))

    def _gather(
        self, files: list[ArchivedFile], text: str, matches: Callable[[pa.Table], pa.Array], count_max: int
    ) -> pa.Table:
        return self._collected(
            (
                _chosen(table, matches(table))
                for file in files
                if (rows := rows_with(self._place(file.keys_path), text))
                for table in self._rows(file, rows)
            ),
            count_max,
        )

    def _by_place(self, files: list[ArchivedFile], message_id: str, count_max: int) -> pa.Table:
        try:
            host, log_offset = decode_message_id(message_id)
        except (RocketQError, ValueError):
            return _nothing()
        holding = [file for file in files if file.log_low <= log_offset < file.log_high]
        return self._collected(
            (
                _chosen(
                    table,
                    pc.and_(
                        pc.equal(table.column("logOffset"), log_offset), pc.equal(table.column("storeHost"), str(host))
                    ),
                )
                for file in holding
                for table in self._row_groups(file)
            ),
            count_max,
        )

    def _rows(self, file: ArchivedFile, rows: list[int]) -> Iterator[pa.Table]:
        """Of the row groups that hold these rows, these."""
        with pq.ParquetFile(self._place(file.path)) as parquet:
            first = 0
            for group in range(parquet.metadata.num_row_groups):
                end = first + parquet.metadata.row_group(group).num_rows
                own = [row - first for row in rows if first <= row < end]
                if own:
                    yield _with_topic(parquet.read_row_group(group).take(own), file.topic)
                first = end

    def _row_groups(self, file: ArchivedFile) -> Iterator[pa.Table]:
        with pq.ParquetFile(self._place(file.path)) as parquet:
            for group in range(parquet.metadata.num_row_groups):
                yield _with_topic(parquet.read_row_group(group), file.topic)

    def _place(self, path: str) -> Path:
        found = self._folder.place_of(path)
        if found is None:
            raise SparkError(f"{path} was replaced while it was read: open the archive again")
        return found

    def _collected(self, tables: Iterable[pa.Table], count_max: int | None) -> pa.Table:
        found, count = [], 0
        for table in tables:
            found.append(table)
            count += table.num_rows
            if count_max is not None and count >= count_max:
                break
        if not count:
            return _nothing()
        together = pa.concat_tables(found, promote_options="default")
        return together if count_max is None else together.slice(0, count_max)


def _with_topic(table: pa.Table, topic: str) -> pa.Table:
    return table.add_column(0, "topic", pa.repeat(pa.scalar(topic, pa.string()), table.num_rows))


def _nothing() -> pa.Table:
    schema = archive_schema(properties=False)
    return _with_topic(schema.empty_table(), "")


def _chosen(table: pa.Table, matches: pa.Array | None) -> pa.Table:
    return table if matches is None else table.filter(matches)


def _and_time(table: pa.Table, matches: pa.Array | None, from_ms: int | None, to_ms: int | None) -> pa.Array | None:
    times = table.column("storeTimestamp").cast(pa.int64())
    for bound_ms, compare in ((from_ms, pc.greater_equal), (to_ms, pc.less)):
        if bound_ms is not None:
            inside = compare(times, bound_ms * 1000)
            matches = inside if matches is None else pc.and_(matches, inside)
    return matches
