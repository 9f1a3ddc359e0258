"""What the kernel tests share: an independent encoder of records and batches, and a log that lives in memory."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from struct import pack
from typing import Any

from rocketq.kernel.appender import APPENDED, NO_QUEUE_ROOM, Appender
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.queue_units import QueueTail, unit_at
from rocketq.kernel.records import RecordView

V1, V2, BLANK_MAGIC = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
HOST_V4 = bytes([192, 168, 0, 1]) + pack(">i", 10911)
HOST_V6 = bytes(range(16)) + pack(">i", 10911)


def java_text_hash(text: str) -> int:
    """String.hashCode, said in Python: over UTF-16 units, wrapping at 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def index_hash(text: str) -> int:
    """The key hash of an index unit."""
    value = abs(java_text_hash(text))
    return 0 if value > 0x7FFFFFFF else value


@dataclass(kw_only=True)
class Fields:
    """Everything a record holds, with the values of a dull message."""

    topic: bytes = b"TopicTest"
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    log_offset: int = 0
    sys_flag: int = 0
    born_ms: int = 1596067800000
    born_host: bytes = HOST_V4
    store_ms: int = 1596067800123
    store_host: bytes = HOST_V4
    reconsume_times: int = 0
    prepared_offset: int = 0
    body: bytes = b""
    properties: bytes = b""
    magic: int = V1
    crc: int | None = None

    def encode(self) -> bytes:
        """The record's bytes, straight from the table of the specification."""
        crc = self.crc if self.crc is not None else zlib.crc32(self.body) & 0x7FFFFFFF if self.body else 0
        sys_flag = (
            self.sys_flag | (0x10 if len(self.born_host) == 20 else 0) | (0x20 if len(self.store_host) == 20 else 0)
        )
        topic_length = pack(">b", len(self.topic)) if self.magic == V1 else pack(">h", len(self.topic))
        rest = (
            pack(">iiiiqqiq", crc, self.queue_id, self.flag, 0, 0, 0, 0, 0)[:12]
            + pack(">qqiq", self.queue_offset, self.log_offset, sys_flag, self.born_ms)
            + self.born_host
            + pack(">q", self.store_ms)
            + self.store_host
            + pack(">iqi", self.reconsume_times, self.prepared_offset, len(self.body))
            + self.body
            + topic_length
            + self.topic
            + pack(">h", len(self.properties))
            + self.properties
        )
        return pack(">iI", len(rest) + 8, self.magic) + rest


def packed(body: bytes = b"", properties: bytes = b"", flag: int = 0) -> bytes:
    """One inner message of a batch."""
    return (
        pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body
        + pack(">h", len(properties))
        + properties
    )


def props(**values: str) -> bytes:
    return b"".join(name.encode() + b"\x01" + value.encode() + b"\x02" for name, value in values.items())


class MemoryQueue:
    """Stands in for a ConsumeQueue: its files are pieces of memory, room is what the test gives."""

    def __init__(self, topic: bytes, queue_id: int = 0, *, units_per_file: int = 64) -> None:
        self.units_per_file = units_per_file
        self.files: dict[int, MappedBuffer] = {}
        self.room_asked = 0
        self.tail = QueueTail(topic, queue_id, self)

    def file_of(self, queue_offset: int) -> MappedBuffer:
        number = queue_offset // self.units_per_file
        if number not in self.files:
            self.files[number] = MappedBuffer(bytearray(20 * self.units_per_file), number * self.units_per_file)
        return self.files[number]

    def make_room(self, count: int) -> None:
        self.room_asked += 1
        self.attach_file()
        self.tail.room_end = self.tail.next_offset + count

    def attach_file(self) -> None:
        self.tail.attach(self.file_of(self.tail.next_offset), self.tail.room_end)

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        units = self.file_of(queue_offset)
        return unit_at(units, queue_offset - units.base)  # type: ignore[no-any-return]

    def raw_unit(self, queue_offset: int) -> bytes:
        units = self.file_of(queue_offset)
        return units.bytes_at(20 * (queue_offset - units.base), 20)  # type: ignore[no-any-return]


@dataclass
class MemoryLog:
    """One segment in memory, its appender, queues and index."""

    size: int = 1 << 16
    base: int = 0
    store_host: bytes = HOST_V4
    slots: int = 0
    index_units: int = 0
    queues: dict[tuple[bytes, int], MemoryQueue] = field(default_factory=dict)
    index_files: list[IndexTail] = field(default_factory=list)
    index_files_max: int = 100

    def __post_init__(self) -> None:
        self.segment = MappedBuffer(bytearray(self.size), self.base)
        self.appender = Appender(self.store_host)
        self.appender.attach_segment(self.segment, 0)
        self.appender.roll_index = self.roll_index
        if self.slots:
            self.appender.index = self.roll_index(None)

    def roll_index(self, full: IndexTail | None) -> IndexTail | None:
        if len(self.index_files) >= self.index_files_max:
            return None
        size = 40 + 4 * self.slots + 20 * self.index_units
        fresh = IndexTail(MappedBuffer(bytearray(size), 0), self.slots, self.index_units)
        if full is not None:
            fresh.preset(full.end_ms, full.end_offset)
        self.index_files.append(fresh)
        return fresh

    def queue(self, topic: bytes = b"TopicTest", queue_id: int = 0) -> MemoryQueue:
        if (topic, queue_id) not in self.queues:
            self.queues[topic, queue_id] = MemoryQueue(topic, queue_id)
        return self.queues[topic, queue_id]

    def append(
        self, queue: MemoryQueue | None = None, *, body: bytes = b"", properties: bytes = b"", **given: Any
    ) -> int:
        queue = queue or self.queue()
        while True:
            state = self.appender.append(
                queue.tail,
                body,
                properties,
                given.get("flag", 0),
                given.get("sys_flag", 0),
                given.get("born_ms", 1596067800000),
                given.get("born_host", HOST_V4),
                given.get("store_ms", 1596067800123),
                given.get("reconsume_times", 0),
                given.get("prepared_offset", 0),
            )
            if state != NO_QUEUE_ROOM:
                return int(state)
            queue.make_room(1)

    def append_batch(
        self,
        payload: bytes,
        extra: bytes = b"",
        *,
        queue: MemoryQueue | None = None,
        body_max: int = 1 << 20,
        **given: Any,
    ) -> int:
        """Measure and append; the measurement must have passed."""
        queue = queue or self.queue()
        sys_flag = given.get("sys_flag", 0)
        count, total = self.appender.measure_batch(payload, len(queue.tail.topic), extra, sys_flag, body_max)
        assert count >= 0, (count, total)
        while True:
            state = self.appender.append_batch(
                queue.tail,
                payload,
                extra,
                count,
                total,
                sys_flag,
                given.get("born_ms", 1596067800000),
                given.get("born_host", HOST_V4),
                given.get("store_ms", 1596067800123),
                given.get("reconsume_times", 0),
            )
            if state != NO_QUEUE_ROOM:
                return int(state)
            queue.make_room(count)

    def written(self, start: int = 0) -> bytes:
        return self.segment.bytes_at(start, self.appender.position - start)  # type: ignore[no-any-return]

    def view(self, at: int) -> tuple[int, RecordView]:
        view = RecordView()
        return view.parse_at(self.segment, at, True), view


def appended(state: int) -> bool:
    return bool(state == APPENDED)
