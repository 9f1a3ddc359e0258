"""From the kernel's columns to a record batch, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rocketq.columns.schema import require_known
from rocketq.errors import ProtocolError
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.record_columns import (
    BODY,
    BORN_HOST,
    KEYS,
    MESSAGE_ID,
    NUMBERS,
    PROPERTIES,
    STORE_HOST,
    TAGS,
    TOPIC,
    RecordRows,
)
from rocketq.kernel.records import MESSAGE
from rocketq.kernel.text_column import TextColumn
from rocketq.model import Host
from rocketq.protocol.compression import decompress

BodyFault = Callable[[int, str], None]
"""Called for a body that cannot be inflated (its row, the reason); the body stays as stored."""

_INTS: Final = {"queueId": 0, "reconsumeTimes": 1, "sysFlag": 2, "flag": 3}
_LONGS: Final = {"queueOffset": 0, "logOffset": 1, "bornTimestamp": 2, "storeTimestamp": 3}
_TEXTS: Final = {"topic": TOPIC, "msgId": MESSAGE_ID, "tags": TAGS, "keys": KEYS, "body": BODY}
_HOSTS: Final = {"bornHost": BORN_HOST, "storeHost": STORE_HOST}


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """A batch, and the offset of the next one in the buffer."""

    batch: pa.RecordBatch
    next_at: int


class BatchBuilder:
    """Batches of one schema; `constants` are columns that are the same for every row, such as the broker's name."""

    def __init__(self, schema: pa.Schema, constants: Mapping[str, str] | None = None) -> None:
        require_known(schema)
        self.schema = schema
        self._constants = dict(constants or {})
        self._wanted = _wanted(schema, self._constants)

    def build(self, rows: RecordRows, on_fault: BodyFault | None = None) -> pa.RecordBatch:
        """A batch of the rows that were just collected, and of those added before."""
        self.add(rows, on_fault)
        return self.finish(rows)

    def add(self, rows: RecordRows, on_fault: BodyFault | None = None, *, times: int = 1) -> None:
        """Keep the rows that were just collected: their buffer is not needed any more. About as much is to be added
        `times` times in all."""
        wanted = self._wanted
        bodies = _inflated(rows, on_fault) if wanted & BODY and rows.compressed else []
        rows.fill(wanted, bodies, _hosts(rows, wanted) if rows.has_ipv6 else (), times)

    def finish(self, rows: RecordRows) -> pa.RecordBatch:
        """All that was added."""
        rows.finish()
        arrays = [self._array(field, rows, int(rows.filled)) for field in self.schema]
        rows.begin()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, field: pa.Field, rows: RecordRows, count: int) -> pa.Array:
        name = field.name
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], field.type), count)
        if name in _INTS:
            return _numbers(field.type, rows.ints, _INTS[name] * rows.number_room, count, 4)
        if name in _LONGS:
            return _numbers(field.type, rows.longs, _LONGS[name] * rows.number_room, count, 8)
        if name == "properties":
            return _map(field.type, rows, count)
        if name == "brokerName":
            return pa.nulls(count, field.type)
        return _text(field.type, _column(rows, name), count)


def decode(records: bytes, builder: BatchBuilder, *, low: int | None = None, high: int | None = None) -> pa.RecordBatch:
    """One batch of records that lie back to back, as pulls answer them, those of queue offsets in [low, high)."""
    rows = RecordRows()
    rows.in_place = False
    if low is not None:
        rows.queue_offset_low = low
    if high is not None:
        rows.queue_offset_high = high
    state = rows.collect(MappedBuffer(records, 0), 0, len(records), 1 << 30)
    if state != MESSAGE or rows.at != len(records):
        raise ProtocolError(f"the records are damaged at byte {rows.at} of {len(records)} (state {state})")
    return builder.build(rows)


def _wanted(schema: pa.Schema, constants: Mapping[str, str]) -> int:
    wanted = 0
    for name in schema.names:
        if name in constants:
            continue
        if name in _INTS or name in _LONGS:
            wanted |= NUMBERS
        elif name == "properties":
            wanted |= PROPERTIES
        else:
            wanted |= _TEXTS.get(name, 0) | _HOSTS.get(name, 0)
    return wanted


def _inflated(rows: RecordRows, on_fault: BodyFault | None) -> list[bytes]:
    bodies = []
    for number in rows.compressed:
        body, sys_flag, _, _ = rows.row(number)
        try:
            body = decompress(body, sys_flag)
        except ProtocolError as fault:
            if on_fault is None:
                raise
            on_fault(int(rows.filled) + number, str(fault))
        bodies.append(body)
    return bodies


def _column(rows: RecordRows, name: str) -> TextColumn:
    own = {"msgId": "message_id", "bornHost": "born_host", "storeHost": "store_host"}.get(name, name)
    column: TextColumn = getattr(rows, own)
    return column


def _numbers(kind: pa.DataType, held: bytearray, first: int, count: int, width: int) -> pa.Array:
    buffer = pa.py_buffer(held).slice(first * width, count * width)
    return pa.Array.from_buffers(kind, count, [None, buffer])


def _text(kind: pa.DataType, column: TextColumn, count: int) -> pa.Array:
    valid = pa.py_buffer(column.valid) if column.nulls else None
    buffers = [valid, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    array = pa.Array.from_buffers(kind, count, buffers, column.nulls)
    if pa.types.is_string(kind) and not column.data.isascii():
        return _checked_utf8(array)
    return array


def _checked_utf8(array: pa.Array) -> pa.Array:
    """The array; where its bytes are not UTF-8 they read as replacement characters, as Java has it."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        texts = array.view(pa.binary()).to_pylist()
        return pa.array([None if each is None else each.decode("utf-8", "replace") for each in texts], array.type)
    return array


def _map(kind: pa.MapType, rows: RecordRows, count: int) -> pa.Array:
    names = _text(pa.string(), rows.names, rows.names.rows)
    values = _text(pa.string(), rows.values, rows.values.rows)
    entries = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(rows.map_ends)], 0, 0, [entries])


def _hosts(rows: RecordRows, wanted: int) -> tuple[list[bytes], list[bytes]]:
    """Born and store hosts of the collected rows, if requested."""
    packed = [rows.row(number)[2:] for number in range(rows.rows)] if wanted & (BORN_HOST | STORE_HOST) else []
    born = [str(Host.unpack(each)).encode() for each, _ in packed]
    return born, [str(Host.unpack(each)).encode() for _, each in packed]
