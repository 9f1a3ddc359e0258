"""The records of one byte range as Arrow batches. Damage is reported with its start and skipped."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from rocketq.columns import BatchBuilder
from rocketq.kernel.record_columns import RecordRows
from rocketq.kernel.records import BAD_CRC, BAD_LENGTH, BAD_MAGIC, BAD_OFFSET, BLANK, MESSAGE
from rocketq.protocol.names import SYSTEM_PROPERTIES
from rocketq.spark.commitlog_files import ByteRange
from rocketq.spark.errors import SparkError
from rocketq.store.log_reader import LOOK_BACK_BYTES, ChainedFile

BATCH_BYTES: Final = 4 << 20
CORRUPT: Final = "_corrupt"
CORRUPT_TYPE: Final = pa.struct(
    [("reason", pa.string()), ("file", pa.string()), ("logOffset", pa.int64()), ("bytes", pa.int64())]
)
REASONS: Final = {
    BAD_MAGIC: "no record begins here",
    BAD_LENGTH: "a record's lengths do not fit together",
    BAD_OFFSET: "a record says that it lies elsewhere",
    BAD_CRC: "a body does not have its checksum",
}
_ZEROS: Final = "zeros where a record should be"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which records become rows; None: all of them."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    queue_offset_low: int | None = None
    queue_offset_high: int | None = None
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None
    is_filtered: bool = False
    """Stretches without a record are no rows then: they are of no topic, queue or time."""

    def apply_to(self, rows: RecordRows) -> None:
        rows.topics = None if self.topics is None else {topic.encode() for topic in self.topics}
        rows.queue_ids = self.queue_ids
        bounds = {
            "queue_offset_low": self.queue_offset_low,
            "queue_offset_high": self.queue_offset_high,
            "store_ms_low": self.stored_from_ms,
            "store_ms_high": self.stored_before_ms,
        }
        for name, value in bounds.items():
            if value is not None:
                setattr(rows, name, value)


EVERYTHING: Final = Choice()


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a file that cannot be read as records. At the log's end it is what a crash or a writer left."""

    reason: str
    file: str
    log_offset: int
    size_bytes: int
    at_log_end: bool = False

    def __str__(self) -> str:
        return f"{self.file} at log offset {self.log_offset}: {self.reason} ({self.size_bytes} bytes)"


class DamagedLogError(SparkError):
    """A log has damage, and was to be read only without."""


class RangeScan:
    """One range. With `fail_fast` the first damage is an error, except at the log's end; otherwise it goes into the
    column `_corrupt` if the schema has it, and into the log if not."""

    def __init__(
        self,
        part: ByteRange,
        schema: pa.Schema,
        *,
        choice: Choice = EVERYTHING,
        broker_name: str | None = None,
        fail_fast: bool = False,
        look_back_bytes: int = LOOK_BACK_BYTES,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._part = part
        self._file = part.file
        self._schema = schema
        self._with_damage = CORRUPT in schema.names
        self._choice = choice
        self._fail_fast = fail_fast
        self._look_back_bytes = look_back_bytes
        self._batch_bytes = batch_bytes
        plain = pa.schema([field for field in schema if field.name != CORRUPT])
        self._builder = BatchBuilder(plain, {} if broker_name is None else {"brokerName": broker_name})
        self._rows = RecordRows()
        choice.apply_to(self._rows)
        self.damage: list[Damage] = []
        self.read_to = part.start

    def hide_system_properties(self) -> None:
        self._rows.hide(name.encode() for name in SYSTEM_PROPERTIES)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """FileNotFoundError when the file was deleted before we had it."""
        chained = ChainedFile(Path(self._file.path), self._file.base)
        at, end = self._first_place(chained), min(self._part.end, chained.size)
        while at is not None and at < end:
            state = self._rows.collect(chained.buffer, at, end, self._batch_bytes)
            self.read_to = self._rows.at
            if self._rows.rows:
                yield from self._good_rows()
            at = self._rows.at
            if state == BLANK:
                return
            if state == BAD_CRC:
                size = self._rows.view.size
                yield from self._bad_body(chained, at, size)
                at += size
            elif state != MESSAGE:
                following = chained.next_good(at)
                yield from self._stretch(chained, at, following, REASONS.get(state, _ZEROS))
                at = following
        if at == chained.size and end == chained.size:  # a file of full length ends with a blank
            yield from self._cut_short(chained, at)

    def _first_place(self, chained: ChainedFile) -> int | None:
        start = self._part.start
        if start == 0:
            return 0
        if start >= chained.size:
            return None
        if self._file.next_base is None and chained.data_from(start) is None:
            return None  # what is prepared of the last file costs nothing
        return chained.chain_at(start, look_back_bytes=self._look_back_bytes)

    def _good_rows(self) -> Iterator[pa.RecordBatch]:
        faults: dict[int, str] = {}
        batch = self._builder.build(self._rows, faults.__setitem__)
        if faults:
            yield from self._faulty_rows(batch, faults)
        else:
            yield self._completed(batch, pa.nulls(self._rows.rows, CORRUPT_TYPE) if self._with_damage else None)

    def _faulty_rows(self, batch: pa.RecordBatch, faults: dict[int, str]) -> Iterator[pa.RecordBatch]:
        """Some bodies did not inflate: those rows are damage, with their bodies as they are stored."""
        told = {
            row: self._note(f"a body does not inflate: {reason}", *self._place_of(row))
            for row, reason in faults.items()
        }
        if self._with_damage:
            values = [_as_row(told[row]) if row in told else None for row in range(self._rows.rows)]
            yield self._completed(batch, pa.array(values, CORRUPT_TYPE))
        else:
            kept = batch.filter(pa.array([row not in told for row in range(batch.num_rows)]))
            if kept.num_rows:
                yield kept

    def _place_of(self, row: int) -> tuple[int, int]:
        self._rows.row(row)  # leaves the row's record in the view
        return self._rows.view.log_offset, self._rows.view.size

    def _bad_body(self, chained: ChainedFile, at: int, size: int) -> Iterator[pa.RecordBatch]:
        """All but the body of such a record can be trusted."""
        is_last = self._file.next_base is None and chained.next_good(at + size - 1) is None
        damage = self._note(REASONS[BAD_CRC], self._file.base + at, size, at_log_end=is_last)
        if not self._with_damage:
            return
        self._rows.check_crc = False
        self._rows.collect(chained.buffer, at, at + 1, self._batch_bytes)
        self._rows.check_crc = True
        if self._rows.rows:
            batch = self._builder.build(self._rows, lambda row, reason: None)
            yield self._completed(batch, pa.array([_as_row(damage)], CORRUPT_TYPE))

    def _stretch(self, chained: ChainedFile, at: int, following: int | None, reason: str) -> Iterator[pa.RecordBatch]:
        """Bytes that are no record, up to the next good one; behind the log's last record there are zeros."""
        at_log_end = following is None and self._file.next_base is None
        if at_log_end and chained.data_from(at) is None:
            return
        end = chained.size if following is None else following
        yield from self._told(reason, at, end - at, at_log_end=at_log_end)

    def _cut_short(self, chained: ChainedFile, at: int) -> Iterator[pa.RecordBatch]:
        if self._file.next_base is not None and chained.size < self._file.next_base - self._file.base:
            missing = self._file.next_base - self._file.base - chained.size
            yield from self._told("the file is cut short", at, missing)

    def _told(self, reason: str, at: int, size_bytes: int, *, at_log_end: bool = False) -> Iterator[pa.RecordBatch]:
        damage = self._note(reason, self._file.base + at, size_bytes, at_log_end=at_log_end)
        if self._with_damage and not self._choice.is_filtered:
            columns = [pa.nulls(1, field.type) for field in self._builder.schema]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._builder.schema)
            yield self._completed(batch, pa.array([_as_row(damage)], CORRUPT_TYPE))

    def _note(self, reason: str, log_offset: int, size_bytes: int, *, at_log_end: bool = False) -> Damage:
        if at_log_end:
            reason = f"unfinished: {reason}"
        damage = Damage(reason, self._file.path, log_offset, size_bytes, at_log_end)
        if self._fail_fast and not at_log_end:
            raise DamagedLogError(f"{damage}; option mode=permissive reads on behind it")
        if not self._with_damage:
            log.warning("%s", damage)
        self.damage.append(damage)
        return damage

    def _completed(self, batch: pa.RecordBatch, corrupt: pa.Array | None) -> pa.RecordBatch:
        if corrupt is None:
            return batch
        columns = [corrupt if name == CORRUPT else batch.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _as_row(damage: Damage) -> dict[str, object]:
    return {
        "reason": damage.reason,
        "file": damage.file,
        "logOffset": damage.log_offset,
        "bytes": damage.size_bytes,
    }
