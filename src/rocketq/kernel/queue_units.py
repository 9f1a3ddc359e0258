"""The consume queue's units: 20 bytes each, unit n of a queue at byte 20 * n of its endless file.

unit := logOffset:i64 size:i32 tagsCode:i64
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.primitives import load_i32, load_i64, signed_i32, store_i32, store_i64, wrap_i64
    from rocketq.kernel.properties import java_hash

UNIT_BYTES = 20
FILLER_SIZE = 0x7FFFFFFF  # size of a unit that stands for no message
SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"


@cython.cclass
class QueueTail:
    """The writing end of one queue: the file its next unit goes to, and how far that is safe.

    `room_end` is the queue offset up to which the file's blocks are reserved; the owner (a ConsumeQueue) moves it and
    attaches the next file. `log_end` is the end of the last record this queue knows. `extensions` looks up what units
    point to that hold an address instead of a tags code; with `extends` it makes one for every new unit.
    """

    def __init__(self, topic, queue_id, owner):
        self.topic = topic
        self.queue_id = queue_id
        self.owner = owner
        self.scheduled = topic == SCHEDULE_TOPIC
        seed_text: bytes = topic + b"#"
        self.key_seed = java_hash(0, seed_text, 0, len(seed_text))
        self.units = None
        if not cython.compiled:
            self.p = None
        self.file_first = self.file_end = self.room_end = 0
        self.next_offset = 0
        self.log_end = 0
        self.touched = False
        self.extensions = None
        self.extends = False

    def attach(self, units: MappedBuffer, room_end):
        """Write to this file from now on; `units.base` is the queue offset of its first unit."""
        self.units = units
        self.p = units.p
        self.file_first = units.base
        self.file_end = units.base + units.size // 20
        self.room_end = room_end

    def detach(self):
        """Forget the file, so that its mapping may go; the next append asks for it again."""
        self.units = None
        if not cython.compiled:
            self.p = None
        self.file_first = self.file_end = self.room_end = 0

    def put(self, log_offset, size, tags_code):
        """Write the next unit. The caller has made sure of room; the end moves last."""
        at: cython.Py_ssize_t = (self.next_offset - self.file_first) * 20
        store_i64(self.p, at, log_offset)
        store_i32(self.p, at + 8, size)
        store_i64(self.p, at + 12, tags_code)
        self.log_end = log_offset + size
        self.next_offset += 1

    def extend(self, tags_code, store_ms, properties, at, length):
        """What to put instead of a tags code, when units are extended; the record is in the log already, so this must
        not fail."""
        if cython.compiled:
            return self.extensions.extend(tags_code, store_ms, properties[at : at + length])
        else:
            return self.extensions.extend(tags_code, store_ms, bytes(properties[at : at + length]))

    def agrees(self, address, tags_code, store_ms, distrust):
        """Whether an address leads to an extension for this tags code and time."""
        if not is_address(address) or self.extensions is None:
            return False
        return self.extensions.agrees(address, tags_code, store_ms, distrust)

    def put_next(self, log_offset, size, tags_code):
        """put() for callers in Python."""
        self.put(log_offset, size, tags_code)


def tags_code_of(queue, spans, p, store_ms, delays_ms):
    """What a unit's tagsCode holds: the tag's hash, or for a delayed message the time to deliver it."""
    level: cython.longlong
    if queue.scheduled and delays_ms:
        level = spans.delay_level(p)
        if level > 0:
            return wrap_i64(store_ms + delays_ms[min(level, len(delays_ms)) - 1])
    if spans.tags_at < 0:
        return 0
    return signed_i32(java_hash(0, p, spans.tags_at, spans.tags_end))


def is_address(tags_code):
    """Whether a unit holds the address of an extension instead of a tags code: less than any 32-bit number."""
    return tags_code >> 31 < -1


def unit_at(units: MappedBuffer, index: cython.Py_ssize_t):
    """(log offset, size, tags code) of a file's unit."""
    if index < 0 or (index + 1) * 20 > units.size:
        raise IndexError(f"unit {index} of a file of {units.size // 20}")
    return load_i64(units.p, index * 20), load_i32(units.p, index * 20 + 8), load_i64(units.p, index * 20 + 12)


def put_unit_at(
    units: MappedBuffer,
    index: cython.Py_ssize_t,
    log_offset: cython.longlong,
    size: cython.int,
    tags_code: cython.longlong,
):
    """Overwrite a file's unit."""
    if index < 0 or (index + 1) * 20 > units.size:
        raise IndexError(f"unit {index} of a file of {units.size // 20}")
    store_i64(units.p, index * 20, log_offset)
    store_i32(units.p, index * 20 + 8, size)
    store_i64(units.p, index * 20 + 12, tags_code)


def count_units(units: MappedBuffer, start: cython.Py_ssize_t, stop: cython.Py_ssize_t):
    """Index of the first unit in [start, stop) that was never written, or `stop`."""
    index: cython.Py_ssize_t
    for index in range(start, min(stop, units.size // 20)):
        if load_i64(units.p, index * 20) < 0 or load_i32(units.p, index * 20 + 8) <= 0:
            return index
    return min(stop, units.size // 20)


def first_real_unit(units: MappedBuffer, start: cython.Py_ssize_t, stop: cython.Py_ssize_t):
    """Index of the first unit in [start, stop) that stands for a message, or `stop`."""
    index: cython.Py_ssize_t
    if start < 0 or stop * 20 > units.size:
        raise IndexError(f"units {start}..{stop} of a file of {units.size // 20}")
    for index in range(start, stop):
        if load_i32(units.p, index * 20 + 8) != 0x7FFFFFFF:
            return index
    return stop


def first_unit_from(
    units: MappedBuffer, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, log_offset: cython.longlong
):
    """Index of the first unit in [start, stop) whose record is at or behind `log_offset`, or `stop`. Fillers of old
    files (log offset 0) count as before everything. Log offsets grow with the index, so this is a binary search."""
    low: cython.Py_ssize_t = start
    high: cython.Py_ssize_t = stop
    middle: cython.Py_ssize_t
    if start < 0 or stop * 20 > units.size:
        raise IndexError(f"units {start}..{stop} of a file of {units.size // 20}")
    while low < high:
        middle = (low + high) // 2
        if load_i64(units.p, middle * 20) < log_offset:
            low = middle + 1
        else:
            high = middle
    return low


def first_unit_beyond(units: MappedBuffer, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, log_end: cython.longlong):
    """Index of the first unit in [start, stop) whose record ends behind `log_end`, or `stop`. A filler has no record:
    it counts as ending where it points to."""
    low: cython.Py_ssize_t = start
    high: cython.Py_ssize_t = stop
    middle: cython.Py_ssize_t
    size: cython.longlong
    if start < 0 or stop * 20 > units.size:
        raise IndexError(f"units {start}..{stop} of a file of {units.size // 20}")
    while low < high:
        middle = (low + high) // 2
        size = load_i32(units.p, middle * 20 + 8)
        if size == 0x7FFFFFFF:
            size = 0
        if load_i64(units.p, middle * 20) <= log_end - size:
            low = middle + 1
        else:
            high = middle
    return low
