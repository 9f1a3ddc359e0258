"""The record of the commit log: parse and check one, find the next good one behind damage.

record := totalSize:i32 magic:i32 bodyCRC:i32 queueId:i32 flag:i32 queueOffset:i64 logOffset:i64 sysFlag:i32
          bornMs:i64 bornHost:(4|16)+i32 storeMs:i64 storeHost:(4|16)+i32 reconsumeTimes:i32 preparedOffset:i64
          bodyLength:i32 body topicLength:(i8 | i16 with the V2 magic) topic propertiesLength:i16 properties
blank  := totalSize:i32 BLANK_MAGIC:i32 anything, up to the end of the file
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import body_crc, find_i32, load_i16, load_i32, load_i64, skip_zeros

FIXED_BYTES = 91  # of a record with IPv4 hosts: everything but body, topic and properties
BLANK_BYTES_MIN = 8


def record_size(body_len, topic_len, properties_len, sys_flag):
    """Bytes of a V1 record."""
    size: cython.Py_ssize_t = 91 + body_len + topic_len + properties_len
    if sys_flag & 0x10:
        size += 12
    if sys_flag & 0x20:
        size += 12
    return size


@cython.cclass
class RecordView:
    """The fields of one record, as numbers and as positions in the buffer it was parsed from. Made once, used often."""

    def parse(self, p, at, end, log_offset, check_crc):
        """Check the record at `at`; it may reach to `end`. `log_offset` is its location, and must be in its header."""
        next_at: cython.Py_ssize_t
        if end - at < 8:
            return END
        self.size = load_i32(p, at)
        self.magic = load_i32(p, at + 4)
        if self.magic == MAGIC_BLANK:
            return BLANK if self.size == end - at else BAD_LENGTH
        if self.magic != MAGIC_V1 and self.magic != MAGIC_V2:
            return END if self.magic == 0 and self.size == 0 else BAD_MAGIC
        if self.size < 91 or self.size > end - at:
            return BAD_LENGTH
        end = at + self.size
        self.crc = load_i32(p, at + 8)
        self.queue_id = load_i32(p, at + 12)
        self.flag = load_i32(p, at + 16)
        self.queue_offset = load_i64(p, at + 20)
        self.log_offset = load_i64(p, at + 28)
        self.sys_flag = load_i32(p, at + 36)
        self.born_ms = load_i64(p, at + 40)
        self.born_host_at = at + 48
        self.born_host_len = 20 if self.sys_flag & 0x10 else 8
        next_at = at + 48 + self.born_host_len
        self.store_host_len = 20 if self.sys_flag & 0x20 else 8
        if next_at + 8 + self.store_host_len + 16 > end:
            return BAD_LENGTH
        self.store_ms = load_i64(p, next_at)
        self.store_host_at = next_at + 8
        next_at = self.store_host_at + self.store_host_len
        self.reconsume_times = load_i32(p, next_at)
        self.prepared_offset = load_i64(p, next_at + 4)
        self.body_len = load_i32(p, next_at + 12)
        self.body_at = next_at + 16
        if self.body_len < 0 or self.body_len > end - self.body_at - 3:
            return BAD_LENGTH
        next_at = self.body_at + self.body_len
        if self.magic == MAGIC_V1:
            self.topic_len = p[next_at]
            self.topic_at = next_at + 1
        else:
            self.topic_len = load_i16(p, next_at)
            self.topic_at = next_at + 2
        if self.topic_len < 0 or self.topic_len > end - self.topic_at - 2:
            return BAD_LENGTH
        next_at = self.topic_at + self.topic_len
        self.properties_len = load_i16(p, next_at)
        self.properties_at = next_at + 2
        if self.properties_len < 0 or self.properties_at + self.properties_len != end:
            return BAD_LENGTH
        if self.log_offset != log_offset:
            return BAD_OFFSET
        if check_crc and body_crc(p, self.body_at, self.body_len) != self.crc:
            return BAD_CRC
        return MESSAGE

    def parse_at(self, buffer: MappedBuffer, at: cython.Py_ssize_t, check_crc: cython.bint):
        """parse() for callers in Python: the record at `at` of a log buffer."""
        if at < 0 or at > buffer.size:
            return BAD_LENGTH
        return self.parse(buffer.p, at, buffer.size, buffer.base + at, check_crc)


def next_record(p, at, stop, end, base, view):
    """Where the next good record or blank at or behind `at` starts, or -1. Good: whole, in its place, body intact."""
    found_v1: cython.Py_ssize_t = find_i32(p, at + 4, stop, MAGIC_V1)
    found_v2: cython.Py_ssize_t = find_i32(p, at + 4, stop, MAGIC_V2)
    found_blank: cython.Py_ssize_t = find_i32(p, at + 4, stop, MAGIC_BLANK)
    start: cython.Py_ssize_t
    while found_v1 >= 0 or found_v2 >= 0 or found_blank >= 0:
        if found_v1 >= 0 and (found_v2 < 0 or found_v1 < found_v2) and (found_blank < 0 or found_v1 < found_blank):
            start = found_v1 - 4
            found_v1 = find_i32(p, start + 5, stop, MAGIC_V1)
        elif found_v2 >= 0 and (found_blank < 0 or found_v2 < found_blank):
            start = found_v2 - 4
            found_v2 = find_i32(p, start + 5, stop, MAGIC_V2)
        else:
            start = found_blank - 4
            found_blank = find_i32(p, start + 5, stop, MAGIC_BLANK)
            if load_i32(p, start) == end - start:
                return start
            continue
        if view.parse(p, start, end, base + start, True) == MESSAGE:
            return start
    return -1


def find_next_record(buffer: MappedBuffer, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, view: RecordView):
    """next_record() for callers in Python: one that starts in [at, stop)."""
    if at < 0 or at >= buffer.size:
        return -1
    return next_record(buffer.p, at, min(stop + 7, buffer.size), buffer.size, buffer.base, view)


def whole_records(buffer: MappedBuffer, end: cython.Py_ssize_t):
    """How many of the first `end` bytes are complete records, by the sizes in their headers; all of them where a size
    is impossible: the parser of the records reports it."""
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    if end > buffer.size:
        raise IndexError(f"{end} of a buffer of {buffer.size}")
    while end - at >= 4:
        size = load_i32(buffer.p, at)
        if size < 91:
            return end
        if size > end - at:
            break
        at += size
    return at


def first_nonzero(buffer: MappedBuffer, at: cython.Py_ssize_t, end: cython.Py_ssize_t):
    """First position in [at, end) that does not hold zero, or `end`."""
    if at < 0 or end > buffer.size:
        raise IndexError(f"{at}..{end} of a buffer of {buffer.size}")
    return skip_zeros(buffer.p, at, end)
