"""Walking the log: check each record and build what derives from it, queues and index."""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.appender import defer_keys, put_keys
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.index_units import key_hash, seconds_since
    from rocketq.kernel.primitives import equal_bytes, find_byte, load_i32, load_i64, skip_zeros, wrap_u32
    from rocketq.kernel.properties import PropertySpans, java_hash
    from rocketq.kernel.queue_units import tags_code_of
    from rocketq.kernel.records import BAD_CRC, BAD_LENGTH, BLANK, MESSAGE, RecordView


@cython.cclass
class Scanner:
    """Dispatches records to queues and index; idempotent: existing units and keys stay as they are.

    `resolve(topic, queue_id)` gives a queue not seen before. `misfit(queue, queue_offset, log_offset, size, tags_code)`
    decides about a record whose queue offset is not the next one, or whose unit there is another's. `cross(log_offset)`
    gets the first record with keys behind `boundary`. With `to_queues` off only the index is built. With
    `compare_only` nothing is written: a unit that differs from its record is a misfit too, and keys are only counted.
    With `distrust` a record whose properties look torn is damage: no CRC covers them.
    """

    def __init__(self, resolve, misfit, roll_index):
        self.queues = {}
        self.resolve = resolve
        self.misfit = misfit
        self.roll_index = roll_index
        self.index = None
        self.delays_ms = []
        self.touched = []
        self.check_crc = True
        self.to_queues = True
        self.compare_only = False
        self.distrust = False
        self.keys = 0
        self.boundary = 0x7FFFFFFF_FFFFFFFF
        self.cross = None
        self.view = RecordView()
        self._spans = PropertySpans()
        self.forget_queues()
        self.at = self.last_at = self.good_end = 0
        self.records = self.bad_crc = self.doubtful = 0
        self.last_store_ms = 0
        self.bad_crc_offset = -1
        self.keyed_from = -1

    def forget_queues(self):
        """Queues were removed: look all of them up again."""
        self.queues = {}
        self._last_topic = None
        self._last_queues = None

    def scan(self, buffer: MappedBuffer, at: cython.Py_ssize_t, stop: cython.Py_ssize_t):
        """Dispatch the records that start in [at, stop) of a segment. Ends there (MESSAGE), at a blank, at zeros (END)
        or at damage (a BAD_ code) at `at`. `last_at` and `good_end` are where the last good record starts and
        ends, -1 when there was none. Records with a bad body are `doubtful` until a good one, or a blank, follows."""
        if at < 0 or stop > buffer.size:
            raise IndexError(f"{at}..{stop} of a segment of {buffer.size}")
        self.last_at = self.good_end = -1
        try:
            return self.walk(buffer, at, stop)
        finally:
            self.drain()

    def walk(self, buffer, at, stop):
        state: cython.int
        while at < stop:
            state = self.view.parse(buffer.p, at, buffer.size, buffer.base + at, self.check_crc)
            if self.distrust and state == MESSAGE:
                if is_torn(buffer.p, self.view.properties_at, self.view.properties_len):
                    state = BAD_LENGTH
            if state == MESSAGE:
                self.dispatch(buffer.p, True)
                self.last_at = at
                self.good_end = at + self.view.size
                self.last_store_ms = self.view.store_ms
                self.bad_crc += self.doubtful
                self.doubtful = 0
            elif state == BAD_CRC:
                self.doubtful += 1
                self.bad_crc_offset = self.view.log_offset
                self.dispatch(buffer.p, False)
            else:
                if state == BLANK:
                    self.bad_crc += self.doubtful
                    self.doubtful = 0
                self.at = at
                return state
            self.records += 1
            at += self.view.size
        self.at = at
        return MESSAGE

    def dispatch(self, p, indexed):
        kind: cython.int = self.view.sys_flag & 0xC
        queue: QueueTail = None
        seed: cython.uint
        at: cython.Py_ssize_t = self.view.properties_at
        self._spans.scan(p, at, at + self.view.properties_len)
        if self.to_queues and (kind == 0 or kind == 0x8):
            queue = self.queue_of(p)
            if queue is not None:
                self.dispatch_unit(p, queue)
        if not indexed or kind == 0xC or (self._spans.unique_at < 0 and self._spans.keys_at < 0):
            return 0
        if self.keyed_from < 0:
            self.keyed_from = self.view.log_offset
        if self.view.log_offset > self.boundary:
            self.drain()
            self.cross(self.view.log_offset)
        if self.compare_only:
            self.count_keys(p)
            return 0
        if self.index is None or self.view.log_offset < self.index.end_offset:
            return 0
        if queue is not None:
            seed = queue.key_seed
        else:
            seed = java_hash(0, p, self.view.topic_at, self.view.topic_at + self.view.topic_len)
            seed = wrap_u32(seed * 31 + 35)
        if self.view.log_offset > self.index.end_offset and self.index.has_room(self.view.properties_len + 1):
            defer_keys(self.index, seed, self._spans, p, self.view.log_offset, self.view.store_ms)
            return 0
        self.index = put_keys(
            self.index,
            self.roll_index,
            seed,
            self._spans,
            p,
            self.view.log_offset,
            self.view.store_ms,
            self.view.log_offset == self.index.end_offset,
        )
        return 0

    def drain(self):
        """Add deferred keys to the index before other readers use it."""
        if self.index is not None:
            self.index.drain()

    def count_keys(self, p):
        """How many index units the record at hand should have, added to its log offset's share of `keys`."""
        at: cython.Py_ssize_t = self._spans.keys_at
        end: cython.Py_ssize_t
        if self._spans.unique_at >= 0 and self._spans.unique_end > self._spans.unique_at:
            self.keys += 1
        while 0 <= at < self._spans.keys_end:
            end = find_byte(p, at, self._spans.keys_end, 32)
            if end > at:
                self.keys += 1
            at = end + 1

    def queue_of(self, p):
        topic_len: cython.Py_ssize_t = self.view.topic_len
        topic_at: cython.Py_ssize_t = self.view.topic_at
        queue_id: cython.int = self.view.queue_id
        by_id: list = self._last_queues
        if (
            by_id is None
            or len(self._last_topic) != topic_len
            or not equal_bytes(p, topic_at, self._last_topic, 0, topic_len)
        ):
            if cython.compiled:
                self._last_topic = p[topic_at : topic_at + topic_len]
            else:
                self._last_topic = bytes(p[topic_at : topic_at + topic_len])
            by_id = self.queues.get(self._last_topic)
            if by_id is None:
                by_id = self.queues[self._last_topic] = []
            self._last_queues = by_id
        if 0 <= queue_id < len(by_id) and by_id[queue_id] is not None:
            return by_id[queue_id]
        queue = self.resolve(self._last_topic, queue_id)
        if queue is not None:
            while len(by_id) <= queue_id:
                by_id.append(None)
            by_id[queue_id] = queue
        return queue

    def dispatch_unit(self, p, queue):
        at: cython.Py_ssize_t
        held: cython.longlong
        code: cython.longlong = tags_code_of(queue, self._spans, p, self.view.store_ms, self.delays_ms)
        if self.view.queue_offset != queue.next_offset or queue.next_offset < 0:
            self.misfit(queue, self.view.queue_offset, self.view.log_offset, self.view.size, code)
            return 0
        if queue.next_offset >= queue.room_end:
            queue.owner.make_room(1)
        if queue.next_offset >= queue.file_end:
            queue.owner.attach_file()
        at = (queue.next_offset - queue.file_first) * 20
        held = load_i64(queue.p, at + 12)
        if (
            load_i64(queue.p, at) == self.view.log_offset
            and load_i32(queue.p, at + 8) == self.view.size
            and (held == code or queue.agrees(held, code, self.view.store_ms, self.distrust))
        ):
            queue.log_end = self.view.log_offset + self.view.size
            queue.next_offset += 1
        elif self.compare_only or load_i32(queue.p, at + 8) > 0:
            self.misfit(queue, self.view.queue_offset, self.view.log_offset, self.view.size, code)
        else:
            if queue.extends:
                code = queue.extend(code, self.view.store_ms, p, self.view.properties_at, self.view.properties_len)
            queue.put(self.view.log_offset, self.view.size, code)
        if not queue.touched:
            queue.touched = True
            self.touched.append(queue)
        return 0


def is_torn(p, at, length):
    """Whether text ends in zeros, or only zeros where it fills its part of a disk sector: never written, it seems."""
    end: cython.Py_ssize_t = at + length
    stop: cython.Py_ssize_t
    if length == 0:
        return False
    if p[end - 1] == 0:
        return True
    while at < end:
        stop = min((at // 512 + 1) * 512, end)
        if p[at] == 0 and skip_zeros(p, at, stop) == stop:
            return True
        at = stop
    return False


def check_index_units(
    index: IndexTail, log: LogMap, first: cython.longlong, log_start: cython.longlong, before_ms: cython.longlong
):
    """Number of the first unit from `first` on that its record does not bear out, by key or time (0: none), and the log
    offset whose segment must be mapped to continue (-1 when none). `before_ms` is the end of the file before this one,
    from which the first unit's time is counted; -1 when that is not known."""
    seconds: cython.longlong
    number: cython.longlong
    at: cython.Py_ssize_t
    log_offset: cython.longlong
    segment: MappedBuffer
    view: RecordView = RecordView()
    spans: PropertySpans = PropertySpans()
    for number in range(first, index.count):
        at = 40 + index.slots * 4 + number * 20
        log_offset = load_i64(index.p, at + 4)
        if log_offset < log_start:
            continue
        segment = log.find(log_offset)
        if segment is None:
            return number, log_offset
        if view.parse(segment.p, log_offset - segment.base, segment.size, log_offset, False) != MESSAGE:
            return number, -1
        spans.scan(segment.p, view.properties_at, view.properties_at + view.properties_len)
        if not has_key_hash(segment.p, view, spans, load_i32(index.p, at)):
            return number, -1
        seconds = seconds_since(before_ms if number == 1 else index.begin_ms, view.store_ms)
        if load_i32(index.p, at + 12) != seconds and not (
            number == 1 and (before_ms < 0 or load_i32(index.p, at + 12) == 0)
        ):
            return number, -1
        if (number == 1 and view.store_ms != index.begin_ms) or (
            number == index.count - 1 and view.store_ms != index.end_ms
        ):
            return number, -1
    return 0, -1


def has_key_hash(p, view, spans, hashed):
    """Whether one of a record's keys has this index hash."""
    seed: cython.uint = wrap_u32(java_hash(0, p, view.topic_at, view.topic_at + view.topic_len) * 31 + 35)
    at: cython.Py_ssize_t = spans.keys_at
    end: cython.Py_ssize_t
    if spans.unique_at >= 0 and key_hash(java_hash(seed, p, spans.unique_at, spans.unique_end)) == hashed:
        return True
    while 0 <= at < spans.keys_end:
        end = find_byte(p, at, spans.keys_end, 32)
        if end > at and key_hash(java_hash(seed, p, at, end)) == hashed:
            return True
        at = end + 1
    return False


def walk_records(
    buffer: MappedBuffer, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, view: RecordView, check_crc: cython.bint
):
    """Step over good records without dispatching; (how it stopped, where, records, start of the last)."""
    state: cython.int
    count: cython.longlong = 0
    last: cython.Py_ssize_t = -1
    if at < 0 or stop > buffer.size:
        raise IndexError(f"{at}..{stop} of a segment of {buffer.size}")
    while at < stop:
        state = view.parse(buffer.p, at, buffer.size, buffer.base + at, check_crc)
        if state != MESSAGE and state != BAD_CRC:
            return state, at, count, last
        count += 1
        last = at
        at += view.size
    return MESSAGE, at, count, last
