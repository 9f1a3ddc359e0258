"""Walking the log: check each record and build what derives from it, queues and index."""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.appender import put_keys
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.primitives import equal_bytes, load_i32, load_i64, wrap_u32
    from rocketq.kernel.properties import PropertySpans, java_hash
    from rocketq.kernel.queue_units import tags_code_of
    from rocketq.kernel.records import BAD_CRC, BLANK, MESSAGE, RecordView


@cython.cclass
class Scanner:
    """Dispatches records to queues and index as often as it is told to: what is there already stays as it is.

    `resolve(topic, queue_id)` gives a queue not seen before. `misfit(queue, queue_offset, log_offset, size, tags_code)`
    decides about a record whose queue offset is not the next one. With `to_queues` off only the index is built.
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
        or at damage (a BAD_ code); `at` says where. `last_at` and `good_end` tell where the last good record starts and
        ends, -1 when there was none. Records with a bad body are `doubtful` until a good one, or a blank, follows."""
        state: cython.int
        if at < 0 or stop > buffer.size:
            raise IndexError(f"{at}..{stop} of a segment of {buffer.size}")
        self.last_at = self.good_end = -1
        while at < stop:
            state = self.view.parse(buffer.p, at, buffer.size, buffer.base + at, self.check_crc)
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
        if self.index is None or self.view.log_offset < self.index.end_offset:
            return 0
        if queue is not None:
            seed = queue.key_seed
        else:
            seed = java_hash(0, p, self.view.topic_at, self.view.topic_at + self.view.topic_len)
            seed = wrap_u32(seed * 31 + 35)
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

    def queue_of(self, p):
        topic_len: cython.Py_ssize_t = self.view.topic_len
        topic_at: cython.Py_ssize_t = self.view.topic_at
        queue_id: cython.int = self.view.queue_id
        by_id: list = self._last_queues
        if by_id is None or len(self._last_topic) != topic_len or not equal_bytes(p, topic_at, self._last_topic, 0, topic_len):
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
        code: cython.longlong = tags_code_of(queue, self._spans, p, self.view.store_ms, self.delays_ms)
        if self.view.queue_offset != queue.next_offset:
            self.misfit(queue, self.view.queue_offset, self.view.log_offset, self.view.size, code)
            return 0
        if queue.next_offset >= queue.room_end:
            queue.owner.make_room(1)
        if queue.next_offset >= queue.file_end:
            queue.owner.attach_file()
        at = (queue.next_offset - queue.file_first) * 20
        if load_i64(queue.p, at) == self.view.log_offset and load_i32(queue.p, at + 8) == self.view.size and load_i64(queue.p, at + 12) == code:
            queue.log_end = self.view.log_offset + self.view.size
            queue.next_offset += 1
        else:
            queue.put(self.view.log_offset, self.view.size, code)
        if not queue.touched:
            queue.touched = True
            self.touched.append(queue)
        return 0


def walk_records(buffer: MappedBuffer, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, view: RecordView, check_crc: cython.bint):
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
