"""Reading a queue: units, their records checked and copied into one piece of bytes, or the places where they lie:

places := (log offset: i64, queue offset: i64, bytes: i32)*
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.filter_program import TRUE, FilterProgram
    from rocketq.kernel.primitives import (
        copy_bytes,
        equal_bytes,
        load_i32,
        load_i64,
        store_i32,
        store_i64,
    )
    from rocketq.kernel.queue_units import QueueTail, is_address
    from rocketq.kernel.records import BAD_CRC, MESSAGE, RecordView
    from rocketq.kernel.residency import ResidentPages


@cython.cclass
class LogMap:
    """The mapped segments of the log by number. A segment that is not mapped is asked for, one that is gone is None."""

    def __init__(self, segment_bytes):
        self.segment_bytes = segment_bytes
        self._segments = {}
        self._last = None
        self.used = set()

    def attach(self, segment: MappedBuffer):
        self._segments[segment.base // self.segment_bytes] = segment

    def detach(self, base):
        """Forget a mapping; a reader that still holds it keeps it alive."""
        self._last = None
        self._segments.pop(base // self.segment_bytes, None)
        self.used.discard(base // self.segment_bytes)

    def clear(self):
        """Forget every mapping."""
        self._last = None
        self._segments.clear()
        self.used.clear()

    def idle(self):
        """Bases of the mapped segments that were not used since the last call."""
        unused = [number * self.segment_bytes for number in self._segments if number not in self.used]
        self.used.clear()
        self._last = None
        return unused

    def find(self, log_offset):
        number: cython.longlong
        if log_offset < 0:
            return None
        if self._last is not None and 0 <= log_offset - self._last.base < self.segment_bytes:
            return self._last
        number = log_offset // self.segment_bytes
        found = self._segments.get(number)
        if found is not None:
            self.used.add(number)
            self._last = found
        return found

    def segment_of(self, log_offset: cython.longlong):
        """The mapped segment that holds a log offset, or None."""
        return self.find(log_offset)


@cython.cclass
class ReadLimits:
    """How much one read may take: of resident records, and of others (`disk_*`), or with `resident_only` none of these.

    A record within `memory_bytes` of the log's end counts as resident, one further behind ("far") when its pages are.
    """

    def __init__(
        self,
        count_max,
        bytes_max,
        disk_count_max,
        disk_bytes_max,
        scan_max,
        log_end,
        memory_bytes,
        resident_only=False,
    ):
        self.count_max = min(count_max, TAKEN_MAX)
        self.bytes_max = bytes_max
        self.disk_count_max = disk_count_max
        self.disk_bytes_max = disk_bytes_max
        self.scan_max = scan_max
        self.log_end = log_end
        self.memory_bytes = memory_bytes
        self.resident_only = resident_only


@cython.final
@cython.cclass
class ReadRequest:
    """Which records of a queue a read is to take, and how many.

    Records below `gone_until` were deleted. `tag_codes` has tag hashes (None: all are wanted); `unit_filter` and
    `record_filter` are calls (or None) for what a hash cannot decide. A `record_filter` that is a program runs over the
    properties where they are.
    """

    def __init__(self, limits: ReadLimits, gone_until, tag_codes, unit_filter, record_filter, check_crc):
        self.limits = limits
        self.gone_until = gone_until
        self.tag_codes = tag_codes
        self.unit_filter = unit_filter
        self.record_filter = record_filter
        self.check_crc = check_crc


@cython.cclass
class QueueRead:
    """One read and its result: `records` back to back, `found` of them, `scanned` units passed, `bad` records skipped.
    With `in_place` it has their places for records.

    Of the bad ones `bad_units` do not point to their record. `missing_log_offset` (or -1) is the last unit whose
    record is gone, `bad_log_offset` the last damaged one. `cold`: the read met a unit or record that is not resident.
    """

    def __init__(self):
        self.pages = ResidentPages()
        if not cython.compiled:
            self._taken_offset = [0] * TAKEN_MAX
            self._taken_size = [0] * TAKEN_MAX
        self._view = RecordView()
        self.in_place = False
        self.reset()

    def reset(self):
        self.status = READ_DONE
        self.found = self.bad = self.bad_units = self.filtered = 0
        self.scanned = 0
        self.cold = False
        self.need_log_offset = self.bad_log_offset = self.missing_log_offset = -1
        self.size_bytes = 0
        self._segments = []
        self.records = b""

    def read(
        self,
        log: LogMap,
        queue: QueueTail,
        units: MappedBuffer,
        first: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        request: ReadRequest,
    ):
        """walk(), and the records it takes copied into one bytes object, or their places."""
        state: cython.int
        if first < 0 or stop * 20 > units.size:
            raise IndexError(f"units {first}..{stop} of a file of {units.size // 20}")
        state = self.walk(log, queue, units, first, stop, request)
        if state == READ_DONE:
            if self.in_place:
                self.note_places()
            else:
                self.gather()
        return state

    def walk(self, log, queue, units, first, stop, request):
        """Walk units [first, stop) of a queue file and note what matches; NEED_SEGMENT when a mapping is missing,
        READ_COLD when nothing was found before the first unit or record that may not be read (`resident_only`).

        A record with another topic, queue or offset than its unit is treated as damaged.
        """
        index: cython.Py_ssize_t
        log_offset: cython.longlong
        code: cython.longlong
        size: cython.int
        at: cython.Py_ssize_t
        state: cython.int
        segment: MappedBuffer
        reach: cython.Py_ssize_t
        view: RecordView = self._view
        limits: ReadLimits = request.limits
        gone_until: cython.longlong = request.gone_until
        tag_codes = request.tag_codes
        unit_filter = request.unit_filter
        record_filter = request.record_filter
        program: FilterProgram = record_filter if isinstance(record_filter, FilterProgram) else None
        self.reset()
        reach = self.resident_units(queue, units, first, stop, limits, gone_until) if limits.resident_only else stop
        for index in range(first, reach):
            if self.scanned >= limits.scan_max:
                break
            log_offset = load_i64(units.p, index * 20)
            size = load_i32(units.p, index * 20 + 8)
            if size == 0x7FFFFFFF:
                self.scanned += 1
                continue
            if log_offset < gone_until:
                self.missing_log_offset = log_offset
                self.scanned += 1
                continue
            if self.is_full(limits, size):
                break
            code = load_i64(units.p, index * 20 + 12)
            if tag_codes is not None and code not in tag_codes and not may_extend_to(queue, code, tag_codes):
                self.filtered += 1
                self.scanned += 1
                continue
            if unit_filter is not None and not unit_filter(code):
                self.filtered += 1
                self.scanned += 1
                continue
            segment = log.find(log_offset)
            if segment is None:
                self.status = NEED_SEGMENT
                self.need_log_offset = log_offset
                return NEED_SEGMENT
            at = log_offset - segment.base
            if limits.log_end - log_offset > limits.memory_bytes and (
                self.cold or not self.pages.covers(segment, at, size)
            ):
                self.cold = True
                if limits.resident_only or self.is_full_from_disk(limits, size):
                    break
            state = view.parse(segment.p, at, segment.size, log_offset, request.check_crc)
            self.scanned += 1
            if state != MESSAGE or view.size != size or not is_of_queue(segment.p, view, queue, units.base + index):
                self.bad += 1
                self.bad_log_offset = log_offset
                if state != BAD_CRC:
                    self.bad_units += 1
                continue
            if program is not None:
                if program.run(segment.p, view.properties_at, view.properties_at + view.properties_len) != TRUE:
                    self.filtered += 1
                    continue
            elif record_filter is not None and not record_filter(segment.bytes_at(at, size)):
                self.filtered += 1
                continue
            self._taken_offset[self.found] = log_offset
            self._taken_size[self.found] = size
            self._segments.append(segment)
            self.found += 1
            self.size_bytes += size
        if reach < stop and self.scanned == reach - first:
            self.cold = True
        if self.cold and self.found == 0 and limits.resident_only:
            self.status = READ_COLD
        return self.status

    def resident_units(self, queue, units, first, stop, limits, gone_until):
        """Where the units of a read stop being resident, or `stop`. Not asked where it is known: while the log is too
        short to have far records, and for the page that the queue was last written to."""
        last: cython.Py_ssize_t = first + limits.scan_max if stop - first > limits.scan_max else stop
        tail: cython.Py_ssize_t = queue.next_offset - units.base
        reach: cython.Py_ssize_t
        if limits.log_end - gone_until <= limits.memory_bytes:
            return stop
        if limits.log_end - queue.log_end <= limits.memory_bytes and first * 20 >> 12 == (tail - 1) * 20 >> 12:
            return stop
        if self.pages.covers(units, first * 20, (last - first) * 20):
            return stop
        reach = first  # from page to page
        while reach < last and self.pages.covers(units, reach * 20, 20):
            reach = min(max(((reach * 20 >> 12) + 1 << 12) // 20, reach + 1), last)
        return reach

    def is_full(self, limits, size):
        return self.found > 0 and (self.found >= limits.count_max or self.size_bytes + size > limits.bytes_max)

    def is_full_from_disk(self, limits, size):
        return self.found > 0 and (
            self.found >= limits.disk_count_max or self.size_bytes + size > limits.disk_bytes_max
        )

    def gather(self):
        """Copy the taken records into one bytes object."""
        target: cython.p_uchar
        if cython.compiled:
            out = PyBytes_FromStringAndSize(cython.NULL, self.size_bytes)
            target = out
            self.copy_to(target, 0)
            self.records = out
        else:
            out = bytearray(self.size_bytes)
            self.copy_to(memoryview(out), 0)
            self.records = bytes(out)

    def note_places(self):
        """The taken records stay where they are."""
        target: cython.p_uchar
        index: cython.int
        segment: MappedBuffer
        if cython.compiled:
            out = PyBytes_FromStringAndSize(cython.NULL, 20 * self.found)
            target = out
        else:
            out = bytearray(20 * self.found)
            target = memoryview(out)
        for index in range(self.found):
            segment = self._segments[index]
            store_i64(target, 20 * index, self._taken_offset[index])
            store_i64(target, 20 * index + 8, load_i64(segment.p, self._taken_offset[index] - segment.base + 20))
            store_i32(target, 20 * index + 16, self._taken_size[index])
        self.records = out if cython.compiled else bytes(out)

    def copy_to(self, target, at):
        """Copy the taken records, `size_bytes` of them. A filter may have let others run: their segments are held."""
        index: cython.int
        segment: MappedBuffer
        for index in range(self.found):
            segment = self._segments[index]
            copy_bytes(target, at, segment.p, self._taken_offset[index] - segment.base, self._taken_size[index])
            at += self._taken_size[index]


def may_extend_to(queue, code, tag_codes):
    """Whether a unit may have one of these tags in its extension; it may when that cannot be found."""
    if not is_address(code):
        return False
    return queue.extensions is None or queue.extensions.has_one_of(code, tag_codes)


def is_of_queue(p, view, queue, queue_offset):
    """Whether the fields of a record match this message of this queue."""
    return (
        view.queue_offset == queue_offset
        and view.queue_id == queue.queue_id
        and view.topic_len == len(queue.topic)
        and equal_bytes(p, view.topic_at, queue.topic, 0, view.topic_len)
    )


def copy_places(
    file: MappedBuffer,
    places: MappedBuffer,
    first: cython.Py_ssize_t,
    low: cython.longlong,
    high: cython.longlong,
    target: MappedBuffer,
):
    """Copy the records at places from `first` on, messages [low, high) of their queue, back to back into `target`.

    (TAKEN, the next place, bytes) when there are no more of them; HAS_MORE when the next one is in another file or
    there is no room; MISPLACED when it is not that record, or not behind the one before. A file may change at any time:
    only the copy is parsed, here and by the reader of `target`.
    """
    index: cython.Py_ssize_t = first
    count: cython.Py_ssize_t = places.size // 20
    at: cython.Py_ssize_t = 0
    log_offset: cython.longlong
    queue_offset: cython.longlong
    size: cython.int
    if first < 0 or first > count:
        raise IndexError(f"place {first} of {count}")
    while index < count:
        log_offset = load_i64(places.p, 20 * index)
        queue_offset = load_i64(places.p, 20 * index + 8)
        size = load_i32(places.p, 20 * index + 16)
        if queue_offset >= high:
            return TAKEN, index, at
        if queue_offset < low or size < 91 or log_offset < 0:
            return MISPLACED, index, at
        if log_offset < file.base or log_offset - file.base > file.size - size or size > target.size - at:
            return HAS_MORE, index, at
        copy_bytes(target.p, at, file.p, log_offset - file.base, size)
        if (
            load_i32(target.p, at) != size
            or load_i64(target.p, at + 20) != queue_offset
            or load_i64(target.p, at + 28) != log_offset
        ):
            return MISPLACED, index, at
        low = queue_offset + 1
        at += size
        index += 1
    return TAKEN, index, at
