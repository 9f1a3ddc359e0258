"""One append: the record into the log, its unit into the queue, its keys into the index.

A batch arrives as the client packed it and is unpacked into ordinary records:

    inner := size:i32 magic:i32 crc:i32 flag:i32 bodyLength:i32 body propertiesLength:i16 properties
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.batch_properties import BatchProperties
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.index_units import key_hash
    from rocketq.kernel.new_record import NewRecord
    from rocketq.kernel.primitives import (
        body_crc,
        copy_bytes,
        find_byte,
        load_i16,
        load_i32,
        publish,
        store_i16,
        store_i32,
        store_i64,
    )
    from rocketq.kernel.properties import PropertySpans, java_hash
    from rocketq.kernel.queue_units import QueueTail, tags_code_of
    from rocketq.kernel.records import MAGIC_BLANK, MAGIC_V1, record_size

PROPERTIES_BYTES_MAX = 32767


@cython.cclass
class Appender:
    """The writing end of the commit log. Not thread-safe: its owner holds a lock.

    After an append `log_offset`, `queue_offset` and `size` locate the (first) record, `batch_count` how many
    there are and `batch_offsets` where each of a batch went; `last_offset` is the location of the last record.
    `touched` collects the queues that grew, until their owner has notified all waiters.
    """

    def __init__(self, store_host):
        self._store_host = store_host
        self._spans = PropertySpans()
        self._record = NewRecord()
        self._inner = NewRecord()
        self._batch = BatchProperties()
        self.segment = None
        self.position = 0
        self.base = self.end = 0
        self.index = None
        self.roll_index = None
        self.delays_ms = []
        self.touched = []
        self.records = 0
        self.batch_offsets = []
        self.measured_bytes = self.measured_to = 0
        self.measured_plain = True
        self.last_offset = -1
        self._scratch = bytearray(2 * PROPERTIES_BYTES_MAX + 2)
        view: cython.uchar[::1]
        if cython.compiled:
            view = self._scratch
            self._scratch_p = cython.address(view[0])
        else:
            self._scratch_p = memoryview(self._scratch)

    def attach_segment(self, segment: MappedBuffer, position: cython.Py_ssize_t):
        """Append to this file from `position` on."""
        if position < 0 or position > segment.size:
            raise ValueError(f"position {position} of a segment of {segment.size} bytes")
        self.segment = segment
        self.p = segment.p
        self.base = segment.base
        self.position = position
        self.end = segment.base + position

    def detach_segment(self):
        """Let go of the file; the next append needs another attach_segment()."""
        self.segment = None
        self.index = None
        if not cython.compiled:
            self.p = None

    def close_segment(self):
        """Fill the rest of the file with a blank record; nothing is appended to it any more."""
        remaining: cython.Py_ssize_t = self.segment.size - self.position
        if remaining >= 8:
            publish(self.p, self.position, remaining, MAGIC_BLANK)
        self.position = self.segment.size
        self.end = self.base + self.position

    def copy_raw(self, data: cython.const[cython.uchar][::1]):
        """Copy whole records that another broker wrote for exactly this place, out of any buffer. Dispatching them is
        the caller's."""
        if len(data) > self.segment.size - self.position:
            raise ValueError(f"{len(data)} bytes do not fit in the {self.segment.size - self.position} left")
        if len(data) == 0:
            return
        if cython.compiled:
            copy_bytes(self.p, self.position, cython.address(data[0]), 0, len(data))
        else:
            copy_bytes(self.p, self.position, data, 0, len(data))
        self.position += len(data)
        self.end += len(data)

    def append(
        self,
        queue: QueueTail,
        body: bytes,
        properties: bytes,
        flag: cython.int,
        sys_flag: cython.int,
        born_ms: cython.longlong,
        born_host: bytes,
        store_ms: cython.longlong,
        reconsume_times: cython.int,
        prepared_offset: cython.longlong,
    ):
        """Append one message; APPENDED, or what is needed before it can be."""
        state: cython.int
        record: NewRecord = self._record
        record.set_body(body, 0, len(body))
        record.set_properties(properties, 0, len(properties))
        record.set_origin(born_ms, born_host, store_ms, reconsume_times)
        record.flag = flag
        record.sys_flag = sys_flag
        record.prepared_offset = prepared_offset
        state = self.put(queue, record)
        self.drain()
        return state

    def drain(self):
        """Add the keys that put() deferred to the index; callers do this before they release the lock."""
        if self.index is not None:
            self.index.drain()

    def put(self, queue, record):
        """Append a record without its keys; APPENDED, or what is needed before it can be."""
        self._spans.scan(record.properties, record.properties_at, record.properties_at + record.properties_len)
        return self.put_seen(queue, self._spans, record)

    def put_seen(self, queue, spans, record):
        """put(), when `spans` are known already."""
        size: cython.Py_ssize_t
        code: cython.longlong
        kind: cython.int = record.sys_flag & 0xC
        queued: cython.bint = kind == 0 or kind == 0x8
        record.sys_flag = (record.sys_flag & ~0x30) | self.host_flags(len(record.born_host))
        size = record_size(record.body_len, len(queue.topic), record.properties_len, record.sys_flag)
        if size + 8 > self.segment.size - self.position:
            return SEGMENT_FULL
        if queued and queue.next_offset >= queue.room_end:
            return NO_QUEUE_ROOM
        if queued and queue.next_offset >= queue.file_end:
            queue.owner.attach_file()
        self.log_offset = self.last_offset = self.base + self.position
        self.queue_offset = queue.next_offset
        self.size = size
        self.store_ms = record.store_ms
        self.batch_count = 1
        indexed: cython.bint = self.index is not None and kind != 0xC
        deferred: cython.bint = indexed and self.index.has_room(record.properties_len + 1)
        if deferred:
            defer_keys(self.index, queue.key_seed, spans, record.properties, self.log_offset, record.store_ms)
        self.write(queue, queue.next_offset if queued else 0, size, record)
        if queued:
            code = tags_code_of(queue, spans, record.properties, record.store_ms, self.delays_ms)
            if queue.extends:
                code = queue.extend(
                    code, record.store_ms, record.properties, record.properties_at, record.properties_len
                )
            queue.put(self.log_offset, size, code)
            self.touch(queue)
        if indexed and not deferred:
            self.index = put_keys(
                self.index,
                self.roll_index,
                queue.key_seed,
                spans,
                record.properties,
                self.log_offset,
                record.store_ms,
                False,
            )
        return APPENDED

    def write(self, queue, queue_offset, size, record):
        """Write the record at the current position and move past it; its size and magic come last."""
        p: cython.p_uchar = self.p
        at: cython.Py_ssize_t = self.position
        topic_len: cython.Py_ssize_t = len(queue.topic)
        host_len: cython.Py_ssize_t = len(record.born_host)
        store_i32(p, at + 8, body_crc(record.body, record.body_at, record.body_len))
        store_i32(p, at + 12, queue.queue_id)
        store_i32(p, at + 16, record.flag)
        store_i64(p, at + 20, queue_offset)
        store_i64(p, at + 28, self.base + self.position)
        store_i32(p, at + 36, record.sys_flag)
        store_i64(p, at + 40, record.born_ms)
        at += 48
        copy_bytes(p, at, record.born_host, 0, host_len)
        at += host_len
        store_i64(p, at, record.store_ms)
        copy_bytes(p, at + 8, self._store_host, 0, len(self._store_host))
        at += 8 + len(self._store_host)
        store_i32(p, at, record.reconsume_times)
        store_i64(p, at + 4, record.prepared_offset)
        store_i32(p, at + 12, record.body_len)
        at += 16
        copy_bytes(p, at, record.body, record.body_at, record.body_len)
        at += record.body_len
        p[at] = topic_len
        copy_bytes(p, at + 1, queue.topic, 0, topic_len)
        at += 1 + topic_len
        store_i16(p, at, record.properties_len)
        copy_bytes(p, at + 2, record.properties, record.properties_at, record.properties_len)
        publish(p, self.position, size, MAGIC_V1)
        self.position += size
        self.end += size
        self.records += 1

    def touch(self, queue):
        if not queue.touched:
            queue.touched = True
            self.touched.append(queue)

    def host_flags(self, born_host_len):
        """The bits of a sysFlag of hosts that have 16 bytes."""
        return (0x10 if born_host_len == 20 else 0) | (0x20 if len(self._store_host) == 20 else 0)

    def measure_batch(
        self,
        payload: bytes,
        topic_len: cython.Py_ssize_t,
        extra: bytes,
        sys_flag: cython.int,
        body_max: cython.Py_ssize_t,
    ):
        """(messages, bytes of their records), or (BATCH_MALFORMED | BATCH_ITEM_TOO_LARGE, position)."""
        count: cython.Py_ssize_t
        count = self.measure(payload, 0, len(payload), topic_len, extra, len(extra), sys_flag, body_max)
        return count, self.measured_bytes if count >= 0 else self.measured_to

    def measure(self, p, at, end, topic_len, extra, extra_len, sys_flag, body_max):
        """How many messages a batch holds; `measured_bytes` is the size of their records. Negative when it is not
        sound, and then `measured_to` is the position of the fault. `measured_plain`: no message of it is more than
        plain."""
        batch: BatchProperties = self._batch
        total: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t = 0
        inner: cython.Py_ssize_t
        body_len: cython.Py_ssize_t
        properties_len: cython.Py_ssize_t
        self.measured_to = at
        self.measured_plain = True
        if not batch.load(extra, extra_len):
            return BATCH_MALFORMED
        while at < end:
            self.measured_to = at
            if end - at < 22:
                return BATCH_MALFORMED
            inner = load_i32(p, at)
            body_len = load_i32(p, at + 16)
            if inner < 22 or inner > end - at or body_len < 0 or body_len > inner - 22:
                return BATCH_MALFORMED
            properties_len = load_i16(p, at + 20 + body_len)
            if properties_len < 0 or 22 + body_len + properties_len != inner:
                return BATCH_MALFORMED
            if find_byte(p, at + 22 + body_len, at + inner, 0) < at + inner:
                return BATCH_MALFORMED
            if body_len > body_max:
                return BATCH_ITEM_TOO_LARGE
            batch.look(p, at + 22 + body_len, at + inner)
            if batch.size > 32767:
                return BATCH_ITEM_TOO_LARGE
            if batch.cold:
                self.measured_plain = False
            total += record_size(body_len, topic_len, batch.size, sys_flag)
            count += 1
            at += inner
        self.measured_bytes = total
        return count

    def append_batch(
        self,
        queue: QueueTail,
        payload: bytes,
        extra: bytes,
        count: cython.Py_ssize_t,
        total: cython.Py_ssize_t,
        sys_flag: cython.int,
        born_ms: cython.longlong,
        born_host: bytes,
        store_ms: cython.longlong,
        reconsume_times: cython.int,
    ):
        """Append a batch that measure_batch() has passed, whole into one file; `extra` properties go where the inner
        message has none of that name."""
        state: cython.int
        at: cython.Py_ssize_t
        step: cython.Py_ssize_t
        record: NewRecord = self._record
        record.set_body(payload, 0, len(payload))
        record.set_properties(extra, 0, len(extra))
        record.set_origin(born_ms, born_host, store_ms, reconsume_times)
        record.sys_flag = sys_flag
        state = self.put_batch(queue, record, count, total)
        self.drain()
        if state == APPENDED:
            at = self.log_offset - self.base
            offsets = []
            for step in range(count):
                offsets.append(self.base + at)
                at += load_i32(self.p, at)
            self.batch_offsets = offsets
        return state

    def put_batch(self, queue, record, count, total):
        """append_batch() without the keys: the record's body is the batch, its properties are the extra ones."""
        batch: BatchProperties = self._batch
        inner: NewRecord = self._inner
        first_log: cython.longlong = self.end
        first_queue: cython.longlong = queue.next_offset
        at: cython.Py_ssize_t = record.body_at
        end: cython.Py_ssize_t = at + record.body_len
        body_len: cython.Py_ssize_t
        properties_len: cython.Py_ssize_t
        result: cython.int
        if total + 8 > self.segment.size - self.position:
            return SEGMENT_FULL
        if queue.next_offset + count > queue.room_end:
            return NO_QUEUE_ROOM
        batch.load(record.properties, record.properties_len)
        inner.set_origin(record.born_ms, record.born_host, record.store_ms, record.reconsume_times)
        inner.sys_flag = record.sys_flag
        while at < end:
            body_len = load_i32(record.body, at + 16)
            properties_len = load_i16(record.body, at + 20 + body_len)
            properties_len = self.merge(record.body, at + 22 + body_len, properties_len)
            inner.set_body(record.body, at + 20, body_len)
            inner.set_properties(self._scratch_p, 0, properties_len)
            inner.flag = load_i32(record.body, at + 12)
            result = self.put_seen(queue, batch.spans, inner)
            if result != APPENDED:
                raise RuntimeError(f"a measured batch did not fit: {result}")
            at += load_i32(record.body, at)
        self.log_offset = first_log
        self.queue_offset = first_queue
        self.size = total
        self.batch_count = count
        return APPENDED

    def merge(self, inner, at, count):
        """Properties of an inner message and those of its batch that it lacks, into the scratch; their length."""
        batch: BatchProperties = self._batch
        copy_bytes(self._scratch_p, 0, inner, at, count)
        batch.look(self._scratch_p, 0, count)
        if batch.size > 32767:
            return count  # measuring has refused it
        count = batch.join(self._scratch_p, count)
        if batch.tells:
            batch.spans.scan(self._scratch_p, 0, count)
        return count


def defer_keys(index, seed, spans, p, log_offset, store_ms):
    """put_keys() in two steps, for an index that has room for all of them."""
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    if spans.unique_at >= 0 and spans.unique_end > spans.unique_at:
        index.defer(key_hash(java_hash(seed, p, spans.unique_at, spans.unique_end)), log_offset, store_ms)
    if spans.keys_at >= 0:
        at = spans.keys_at
        while at < spans.keys_end:
            end = find_byte(p, at, spans.keys_end, 32)
            if end > at:
                index.defer(key_hash(java_hash(seed, p, at, end)), log_offset, store_ms)
            at = end + 1


def put_keys(index, roll_index, seed, spans, p, log_offset, store_ms, check_held):
    """Index a record's unique key, then each of its keys; the index to continue with (None when no file is
    available)."""
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    hashed: cython.int
    if spans.unique_at >= 0 and spans.unique_end > spans.unique_at:
        hashed = key_hash(java_hash(seed, p, spans.unique_at, spans.unique_end))
        if not (check_held and index.holds(hashed, log_offset)) and not index.put(hashed, log_offset, store_ms):
            index = roll_index(index)
            if index is None:
                return None
            index.put(hashed, log_offset, store_ms)
    if spans.keys_at >= 0:
        at = spans.keys_at
        while at < spans.keys_end:
            end = find_byte(p, at, spans.keys_end, 32)
            if end > at:
                hashed = key_hash(java_hash(seed, p, at, end))
                if not (check_held and index.holds(hashed, log_offset)) and not index.put(hashed, log_offset, store_ms):
                    index = roll_index(index)
                    if index is None:
                        return None
                    index.put(hashed, log_offset, store_ms)
            at = end + 1
    return index
