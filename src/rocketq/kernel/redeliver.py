"""Messages that are due: copied from the log record they waited in to a new one, without leaving the kernel.

The properties REAL_TOPIC and REAL_QID of a waiting message name its destination. Its copy is byte for byte the same
except for topic, queue, places and store time, and its prepared offset is the record it was made from (-1: the
one at 0); so after a crash the log shows what was delivered.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.appender import APPENDED, SEGMENT_FULL, Appender
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.new_record import NewRecord
    from rocketq.kernel.primitives import equal_bytes, find_byte, load_i32, load_i64
    from rocketq.kernel.properties import PropertySpans
    from rocketq.kernel.queue_units import QueueTail
    from rocketq.kernel.reader import is_of_queue
    from rocketq.kernel.records import MESSAGE, RecordView

REAL_TOPIC = b"REAL_TOPIC"
REAL_QID = b"REAL_QID"


@cython.cclass
class Destination:
    """A queue that messages are delivered to, and how many were delivered since the last report."""

    def __init__(self, topic, queue_id, tail):
        self.topic = topic
        self.queue_id = queue_id
        self.tail = tail
        self.count = self.size_bytes = 0


@cython.cclass
class Redelivery:
    """Delivers under its owner's lock. It asks back for what it lacks: a mapping of the log (`need_log_offset`), a
    queue (`need_topic`, `need_queue_id`), room in one (`waiting`), a new log file, the index. Then it is called again.

    `at` is the unit it stopped at, `due_ms` when that one is due, `delivered` and `bad` count; `bad_log_offset` is the
    last record that could not be delivered.
    """

    def __init__(self, appender, log):
        self._appender = appender
        self._log = log
        self._view = RecordView()
        self._record = NewRecord()
        self._spans = PropertySpans()
        self._queues = {}
        self._last = None
        self._born_host = b""
        self._topic_at = self._topic_len = 0
        self.at = 0
        self.due_ms = 0
        self.delivered = self.bad = self.gone = 0
        self.need_log_offset = self.bad_log_offset = -1
        self.need_topic = b""
        self.need_queue_id = 0
        self.waiting = None

    def add_destination(self, topic, queue_id, tail):
        """Messages for this queue go to `tail`; None: they cannot be delivered."""
        self._last = None
        self._queues.setdefault(topic, {})[queue_id] = None if tail is None else Destination(topic, queue_id, tail)

    def forget_destinations(self):
        """Queues were deleted: ask for each again."""
        self._last = None
        self._queues = {}

    def destinations(self):
        return [found for queues in self._queues.values() for found in queues.values() if found is not None]

    def deliver_due(
        self,
        queue: QueueTail,
        units: MappedBuffer,
        first: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        due_to_ms: cython.longlong,
        now_ms: cython.longlong,
        gone_until: cython.longlong,
        check_crc: cython.bint,
    ):
        """Deliver units [first, stop) of a queue whose units hold delivery times, up to the first time after
        `due_to_ms`."""
        log_offset: cython.longlong
        size: cython.int
        state: cython.int
        if first < 0 or stop * 20 > units.size:
            raise IndexError(f"units {first}..{stop} of a file of {units.size // 20}")
        self.at = first
        while self.at < stop:
            log_offset = load_i64(units.p, self.at * 20)
            size = load_i32(units.p, self.at * 20 + 8)
            if size == 0x7FFFFFFF or log_offset < gone_until:
                self.gone += 1 if size != 0x7FFFFFFF else 0
                self.at += 1
                continue
            self.due_ms = load_i64(units.p, self.at * 20 + 12)
            if self.due_ms > due_to_ms:
                return NOT_DUE
            state = self.deliver(log_offset, size, queue, units.base + self.at, due_to_ms, now_ms, check_crc)
            if state != ALL_DELIVERED and state != UNDELIVERABLE:
                return state
            self.at += 1
        return ALL_DELIVERED

    def deliver_one(
        self,
        queue: QueueTail,
        queue_offset: cython.longlong,
        log_offset: cython.longlong,
        size: cython.int,
        now_ms: cython.longlong,
        check_crc: cython.bint,
    ):
        """Deliver one message of a queue, due or not."""
        self.due_ms = now_ms
        return self.deliver(log_offset, size, queue, queue_offset, now_ms, now_ms, check_crc)

    def deliver(self, log_offset, size, queue, queue_offset, due_to_ms, now_ms, check_crc):
        view: RecordView = self._view
        appender: Appender = self._appender
        record: NewRecord = self._record
        segment: MappedBuffer
        found: Destination
        state: cython.int
        segment = self._log.find(log_offset)
        if segment is None:
            self.need_log_offset = log_offset
            return NEED_LOG
        state = view.parse(segment.p, log_offset - segment.base, segment.size, log_offset, check_crc)
        if state != MESSAGE or view.size != size or not is_of_queue(segment.p, view, queue, queue_offset):
            return self.refuse(log_offset)
        if self.due_ms < view.store_ms and queue.scheduled:
            # Some brokers' recovery leaves the tag's hash where the time belongs: work it out again.
            self.due_ms = self.due_of(segment.p, view)
            if self.due_ms > due_to_ms:
                return NOT_DUE
        if not self.read_place(segment.p):
            return self.refuse(log_offset)
        if not self.is_for_last(segment.p):
            state = self.look_up(segment)
            if state != ALL_DELIVERED:
                return self.refuse(log_offset) if state == UNDELIVERABLE else state
        found = self._last
        if not self.is_born_at_last(segment.p):
            self._born_host = segment.bytes_at(view.born_host_at, view.born_host_len)
        had_index: cython.bint = appender.index is not None
        record.set_body(segment.p, view.body_at, view.body_len)
        record.set_properties(segment.p, view.properties_at, view.properties_len)
        record.set_origin(view.born_ms, self._born_host, now_ms, view.reconsume_times)
        record.flag = view.flag
        record.sys_flag = view.sys_flag
        record.prepared_offset = log_offset if log_offset > 0 else -1  # 0 is what every other message has
        state = appender.put(found.tail, record)
        appender.drain()
        if state != APPENDED:
            self.waiting = found.tail
            return NEED_FILE if state == SEGMENT_FULL else NEED_ROOM
        self.delivered += 1
        found.count += 1
        found.size_bytes += appender.size
        if had_index and appender.index is None:
            self.at += 1
            return NEED_INDEX
        return ALL_DELIVERED

    def refuse(self, log_offset):
        self.bad += 1
        self.bad_log_offset = log_offset
        return UNDELIVERABLE

    def due_of(self, p, view):
        level: cython.longlong
        delays_ms: list = self._appender.delays_ms
        self._spans.scan(p, view.properties_at, view.properties_at + view.properties_len)
        level = self._spans.delay_level(p)
        if level <= 0 or not delays_ms:
            return view.store_ms
        return view.store_ms + delays_ms[min(level, len(delays_ms)) - 1]

    def read_place(self, p):
        """Read the destination of the viewed record; False when it has none. Of two equal names the last counts."""
        view: RecordView = self._view
        at: cython.Py_ssize_t = view.properties_at
        end: cython.Py_ssize_t = view.properties_at + view.properties_len
        item_end: cython.Py_ssize_t
        topic_at: cython.Py_ssize_t = -1
        topic_end: cython.Py_ssize_t = -1
        queue_id: cython.longlong = -1
        index: cython.Py_ssize_t
        while at < end:
            item_end = find_byte(p, at, end, 2)
            if item_end - at > 11 and p[at + 10] == 1 and equal_bytes(p, at, REAL_TOPIC, 0, 10):
                topic_at = at + 11
                topic_end = item_end
            elif item_end - at > 9 and p[at + 8] == 1 and equal_bytes(p, at, REAL_QID, 0, 8):
                queue_id = 0
                for index in range(at + 9, item_end):
                    if p[index] < 48 or p[index] > 57 or queue_id > 99999999:
                        return False
                    queue_id = queue_id * 10 + (p[index] - 48)
            at = item_end + 1
        if topic_at < 0 or queue_id < 0:
            return False
        self._topic_at = topic_at
        self._topic_len = topic_end - topic_at
        self.need_queue_id = queue_id
        return True

    def is_for_last(self, p):
        """Whether the place just read is where the last one went."""
        found: Destination = self._last
        if found is None or found.queue_id != self.need_queue_id or len(found.topic) != self._topic_len:
            return False
        return equal_bytes(p, self._topic_at, found.topic, 0, self._topic_len)

    def is_born_at_last(self, p):
        """Whether the viewed record has the host of the last one; most have."""
        view: RecordView = self._view
        if len(self._born_host) != view.born_host_len:
            return False
        return equal_bytes(p, view.born_host_at, self._born_host, 0, view.born_host_len)

    def look_up(self, segment):
        """Make the place just read the last one; or what is needed for that, or that nothing can be done."""
        self.need_topic = segment.bytes_at(self._topic_at, self._topic_len)
        queues: dict = self._queues.get(self.need_topic)
        if queues is None or self.need_queue_id not in queues:
            return NEED_QUEUE
        self._last = queues[self.need_queue_id]
        return UNDELIVERABLE if self._last is None else ALL_DELIVERED
