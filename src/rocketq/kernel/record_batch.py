"""Records of one pull answer, decoded when they are read.

A RecordBatch keeps the answer's bytes and how far they were consumed. A MessageView is one record in them: its numbers
are read at once, its body, properties and hosts when they are asked for. The layout is in kernel/records.py.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import equal_bytes, find_byte, load_i16, load_i32, load_i64, new_instance


@cython.cclass
class MessageView:
    """One record in the bytes of an answer. A view keeps these bytes alive; detach() copies what it needs.

    `_body`, `_fault`, `_id` and `_properties` are caches of subclasses, None until something is in them.
    """

    def parse(self, data, p, at, end):
        """Read the record at `at`; where it ends, or -1 when it is not a whole sound record."""
        size: cython.longlong
        body_len: cython.longlong
        topic_len: cython.Py_ssize_t
        magic: cython.int
        start: cython.Py_ssize_t = at
        if end - at < 91:
            return -1
        size = load_i32(p, at)
        magic = load_i32(p, at + 4)
        if size < 91 or size > end - at or (magic != MAGIC_V1 and magic != MAGIC_V2):
            return -1
        end = at + size
        self.stored_bytes = size
        self.queue_id = load_i32(p, at + 12)
        self.flag = load_i32(p, at + 16)
        self.queue_offset = load_i64(p, at + 20)
        self.log_offset = load_i64(p, at + 28)
        self.sys_flag = load_i32(p, at + 36)
        self.born_ms = load_i64(p, at + 40)
        self._born_host_bytes = 20 if self.sys_flag & BORN_HOST_V6 else 8
        self._store_host_bytes = 20 if self.sys_flag & STORE_HOST_V6 else 8
        self._born_host_at = at + HEAD_BYTES
        at = self._born_host_at + self._born_host_bytes
        if end - at < 8 + self._store_host_bytes + 4 + 8 + 4:
            return -1
        self.store_ms = load_i64(p, at)
        self._store_host_at = at + 8
        at = self._store_host_at + self._store_host_bytes
        self.reconsume_times = load_i32(p, at)
        body_len = load_i32(p, at + 12)
        at += 16
        if body_len < 0 or body_len > end - at - 3:
            return -1
        self.body_bytes = body_len
        self._body_at = at
        at += body_len
        if magic == MAGIC_V1:
            topic_len = p[at]
            at += 1
        else:
            topic_len = load_i16(p, at)
            at += 2
        if topic_len < 0 or topic_len > end - at - 2:
            return -1
        at += topic_len
        self._properties_at = at + 2
        self._properties_end = end
        if load_i16(p, at) != end - at - 2:
            return -1
        self._data = data
        self._body = self._fault = self._id = self._properties = None
        return start + size

    def fill(
        self,
        stored_bytes: cython.int,
        queue_id: cython.int,
        flag: cython.int,
        queue_offset: cython.longlong,
        log_offset: cython.longlong,
        sys_flag: cython.int,
        born_ms: cython.longlong,
        born_host: bytes,
        store_ms: cython.longlong,
        store_host: bytes,
        reconsume_times: cython.int,
        body: bytes,
        properties: bytes,
    ):
        """Set every field of a record that was decoded elsewhere."""
        self.stored_bytes, self.queue_id, self.flag = stored_bytes, queue_id, flag
        self.queue_offset, self.log_offset, self.sys_flag = queue_offset, log_offset, sys_flag
        self.born_ms, self.store_ms, self.reconsume_times = born_ms, store_ms, reconsume_times
        self._data = body + properties + born_host + store_host
        self._body_at = 0
        self.body_bytes = len(body)
        self._properties_at = len(body)
        self._properties_end = self._properties_at + len(properties)
        self._born_host_at = self._properties_end
        self._born_host_bytes = len(born_host)
        self._store_host_at = self._born_host_at + len(born_host)
        self._store_host_bytes = len(store_host)
        self._body = self._fault = self._id = self._properties = None

    def copy_to(self, copy: MessageView):
        """Give another view the same record and the same cached values."""
        copy.queue, copy.topic = self.queue, self.topic
        copy.queue_offset, copy.reconsume_times = self.queue_offset, self.reconsume_times
        copy.stored_bytes, copy.queue_id, copy.flag = self.stored_bytes, self.queue_id, self.flag
        copy.log_offset, copy.sys_flag, copy.body_bytes = self.log_offset, self.sys_flag, self.body_bytes
        copy.born_ms, copy.store_ms = self.born_ms, self.store_ms
        copy._data, copy._body_at = self._data, self._body_at
        copy._properties_at, copy._properties_end = self._properties_at, self._properties_end
        copy._born_host_at, copy._born_host_bytes = self._born_host_at, self._born_host_bytes
        copy._store_host_at, copy._store_host_bytes = self._store_host_at, self._store_host_bytes
        copy._body, copy._fault, copy._id, copy._properties = self._body, self._fault, self._id, self._properties

    def detach(self):
        """Copy what the record needs, so that the other bytes of the answer can be freed."""
        body: bytes = self.stored_body
        properties: bytes = self.raw_properties
        born: bytes = self.born_host_packed
        store: bytes = self.store_host_packed
        self._data = body + properties + born + store
        self._body_at = 0
        self._properties_at = len(body)
        self._properties_end = self._properties_at + len(properties)
        self._born_host_at = self._properties_end
        self._store_host_at = self._born_host_at + len(born)
        return self

    @property
    def is_compressed(self):
        return self.sys_flag & COMPRESSED != 0

    @property
    def stored_body(self):
        """The body as it was sent, compressed or not."""
        return self._data[self._body_at : self._body_at + self.body_bytes]

    @property
    def stored_body_view(self):
        """The same without a copy."""
        return memoryview(self._data)[self._body_at : self._body_at + self.body_bytes]

    @property
    def raw_properties(self):
        return self._data[self._properties_at : self._properties_end]

    @property
    def born_host_packed(self):
        return self._data[self._born_host_at : self._born_host_at + self._born_host_bytes]

    @property
    def store_host_packed(self):
        return self._data[self._store_host_at : self._store_host_at + self._store_host_bytes]

    def property_value(self, name: bytes):
        """The value of one property; None when it is missing or empty. Of two equal names the last counts."""
        return last_property(self._data, self._data, self._properties_at, self._properties_end, name)


@cython.cclass
class RecordBatch:
    """Records of one queue, from `at` on, `count` of them with wanted tags; take() and cut() consume them.

    Views are instances of `view_type`, a subclass of MessageView. `tags` are UTF-8, None for all messages. With
    `fault_at` not -1 the bytes from there on are not a whole sound record.
    """

    def __init__(self, data: bytes, view_type, queue, topic, tags):
        self.data = data
        self._view_type = view_type
        self.queue = queue
        self.topic = topic
        self.tags = tags
        self.at = 0
        self.end = len(data)
        self.fault_at = -1
        self.count = self.body_bytes = 0
        self.first_offset = self.last_offset = -1
        self.scan()

    def scan(self):
        """Check every record and count those that are wanted."""
        view: MessageView = new_instance(self._view_type)
        at: cython.Py_ssize_t = self.at
        next_at: cython.Py_ssize_t
        self.count = self.body_bytes = 0
        while at < self.end:
            next_at = view.parse(self.data, self.data, at, self.end)
            if next_at < 0:
                self.fault_at = at
                return 0
            at = next_at
            if self.tags is not None and not self.is_wanted(view):
                continue
            if self.count == 0:
                self.first_offset = view.queue_offset
            self.last_offset = view.queue_offset
            self.count += 1
            self.body_bytes += view.body_bytes
        return 0

    def is_wanted(self, view):
        tag: bytes = last_property(self.data, self.data, view._properties_at, view._properties_end, b"TAGS\x01")
        return tag is not None and tag in self.tags

    def __len__(self):
        return self.count

    def take(self, count: cython.Py_ssize_t):
        """Views of the next messages, at most `count`; they are consumed."""
        view: MessageView
        taken: list = []
        while self.count > 0 and len(taken) < count:
            view = new_instance(self._view_type)
            self.at = view.parse(self.data, self.data, self.at, self.end)
            if self.tags is not None and not self.is_wanted(view):
                continue
            view.queue = self.queue
            view.topic = self.topic
            taken.append(view)
            self.count -= 1
            self.body_bytes -= view.body_bytes
            self.first_offset = view.queue_offset + 1
        return taken

    def cut(self, count: cython.Py_ssize_t):
        """The next messages, at most `count`, as another batch of the same bytes; they are consumed."""
        view: MessageView = new_instance(self._view_type)
        part: RecordBatch = RecordBatch(b"", self._view_type, self.queue, self.topic, self.tags)
        part.data = self.data
        part.at = self.at
        while self.count > 0 and part.count < count:
            self.at = view.parse(self.data, self.data, self.at, self.end)
            if self.tags is not None and not self.is_wanted(view):
                continue
            if part.count == 0:
                part.first_offset = view.queue_offset
            part.last_offset = view.queue_offset
            part.count += 1
            part.body_bytes += view.body_bytes
        part.end = self.at
        self.count -= part.count
        self.body_bytes -= part.body_bytes
        self.first_offset = part.last_offset + 1
        return part

    def messages(self):
        """Views of all messages, which are not consumed."""
        view: MessageView
        found: list = []
        at: cython.Py_ssize_t = self.at
        while len(found) < self.count:
            view = new_instance(self._view_type)
            at = view.parse(self.data, self.data, at, self.end)
            if self.tags is not None and not self.is_wanted(view):
                continue
            view.queue = self.queue
            view.topic = self.topic
            found.append(view)
        return found

    def bodies(self, inflate):
        """The bodies of all messages; `inflate(body, sys_flag)` is called for those that are compressed."""
        view: MessageView = new_instance(self._view_type)
        found: list = []
        at: cython.Py_ssize_t = self.at
        while len(found) < self.count:
            at = view.parse(self.data, self.data, at, self.end)
            if self.tags is not None and not self.is_wanted(view):
                continue
            body: bytes = self.data[view._body_at : view._body_at + view.body_bytes]
            found.append(inflate(body, view.sys_flag) if view.sys_flag & COMPRESSED else body)
        return found

    def offsets(self):
        """The queue offsets of all messages."""
        view: MessageView = new_instance(self._view_type)
        found: list = []
        at: cython.Py_ssize_t = self.at
        while len(found) < self.count:
            at = view.parse(self.data, self.data, at, self.end)
            if self.tags is None or self.is_wanted(view):
                found.append(view.queue_offset)
        return found


def last_property(data, p, at, end, name):
    """The value behind `name` (with its separator) in [at, end), None when it is missing or empty."""
    found: bytes = None
    item_end: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(name)
    while at < end:
        item_end = find_byte(p, at, end, 2)
        if item_end - at > count and equal_bytes(p, at, name, 0, count):
            found = data[at + count : item_end]
        at = item_end + 1
    return found
