"""Messages to send, encoded one after the other as a batch request carries them, and the results of the batch.

    element := size i32, 0 i32, 0 i32, flag i32, body length i32, body, properties length i16, properties

A message with plain fields is checked and encoded in one call. Any other one (user properties, delays, text beyond
ASCII) is encoded by its owner and added with add_encoded(); the bytes are the same either way.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import (
        copy_bytes,
        find_byte,
        load_i32,
        new_instance,
        plain_text,
        store_i16,
        store_i32,
    )

HEAD_BYTES = 20


@cython.cclass
class MessageFields:
    """The fields of a message to send; they cannot be set again."""

    def __init__(
        self,
        topic,
        body,
        *,
        tag=None,
        keys=(),
        properties=None,
        flag=0,
        delay_level=0,
        delay_ms=None,
        deliver_at_ms=None,
        wait=True,
        tags=None,
    ):
        if tags is not None:
            raise TypeError(f"a message has one tag: use tag={tags!r} instead of tags=")
        if delay_ms is not None and isinstance(delay_ms, timedelta):
            delay_ms = round(delay_ms / timedelta(milliseconds=1))
        if deliver_at_ms is not None and isinstance(deliver_at_ms, datetime):
            deliver_at_ms = round(deliver_at_ms.timestamp() * 1000)
        self.topic = topic
        self.body = body
        self.tag = tag
        self.keys = (keys,) if type(keys) is str else keys
        self._properties = properties
        self.flag = flag
        self.delay_level = delay_level
        self.delay_ms = delay_ms
        self.deliver_at_ms = deliver_at_ms
        self.wait = wait

    @property
    def properties(self):
        if self._properties is None:
            self._properties = {}
        return self._properties

    @property
    def is_delayed(self):
        return bool(self.delay_level) or self.delay_ms is not None or self.deliver_at_ms is not None

    def is_plain(self):
        """Whether it has no properties of the user, no delay, and waits as usual."""
        return (
            (self._properties is None or not self._properties)
            and not self.delay_level
            and self.delay_ms is None
            and self.deliver_at_ms is None
            and self.wait is True
        )


@cython.cclass
class UniqueIdSource:
    """Ids of one process: a head, the milliseconds since `start_ms`, and a counter of 16 bits.

    The owner sets `start_ms` and `end_ms`, between which the time must be.
    """

    def __init__(self, head: bytes):
        index: cython.Py_ssize_t
        if len(head) > 52:
            raise ValueError(f"a head of {len(head)} bytes is too long")
        if not cython.compiled:
            self._head = bytearray(64)
        for index in range(len(head)):
            self._head[index] = head[index]
        self._head_bytes = len(head)
        self.id_bytes = len(head) + 12
        self._count = 0
        self.start_ms = self.end_ms = 0

    def put(self, p, at, now_ms):
        value: cython.longlong = now_ms - self.start_ms
        step: cython.int
        digit: cython.int
        copy_bytes(p, at, self._head, 0, self._head_bytes)
        at += self._head_bytes
        for step in range(8):
            digit = (value >> 4 * (7 - step)) & 15
            p[at + step] = digit + 48 if digit < 10 else digit + 55
        at += 8
        value = self._count
        self._count = (self._count + 1) & 0xFFFF
        for step in range(4):
            digit = (value >> 4 * (3 - step)) & 15
            p[at + step] = digit + 48 if digit < 10 else digit + 55

    def next_id(self, now_ms: cython.longlong):
        """The next id as bytes."""
        found: bytearray = bytearray(self.id_bytes)
        self.put(found, 0, now_ms)
        return bytes(found)


@cython.cclass
class SendResultFields:
    """What became of a message. The ids of a message of a batch are cut out of the batch when they are asked for."""

    def __init__(
        self,
        status,
        message_id,
        offset_message_id,
        queue,
        queue_offset,
        transaction_id=None,
        recall_handle=None,
        region=None,
        trace_on=True,
    ):
        self.status = status
        self._message_id = message_id
        self._offset_message_id = offset_message_id
        self.queue = queue
        self.queue_offset = queue_offset
        self.transaction_id = transaction_id
        self.recall_handle = recall_handle
        self.region = region
        self.trace_on = trace_on
        self._batch = None

    @property
    def message_id(self):
        if self._message_id is None and self._batch is not None:
            self._message_id = self._batch.unique_key(self._index)
        return self._message_id

    @message_id.setter
    def message_id(self, text):
        self._message_id = text

    @property
    def offset_message_id(self):
        if self._offset_message_id is None and self._batch is not None:
            self._offset_message_id = self._batch.offset_id(self._index)
        return self._offset_message_id

    @offset_message_id.setter
    def offset_message_id(self, text):
        self._offset_message_id = text


@cython.cclass
class SendBatch:
    """Elements of a batch, each with a waiter: a future, a function, or None. `starts` are where the elements start.

    `deadline_ms` is its owner's: the first time at which the sender of a message gives up.
    """

    def __init__(self, ids: UniqueIdSource, body_bytes_max: cython.Py_ssize_t, properties_bytes_max: cython.Py_ssize_t):
        self._ids = ids
        self._body_bytes_max = body_bytes_max
        self._properties_bytes_max = properties_bytes_max
        self.out = bytearray()
        if not cython.compiled:
            self._p = self.out
        self._room = 0
        self.used = self.body_bytes = 0
        self.starts = []
        self.waiters = []
        self.deadline_ms = None
        self._offset_ids = None

    def __len__(self):
        return len(self.starts)

    def add(self, message: MessageFields, waiter, now_ms: cython.longlong):
        """Check and encode; False, with nothing done, for a message that is not plain or not valid."""
        body: object = message.body
        tag: cython.p_const_uchar = b""
        tag_bytes: cython.Py_ssize_t = 0
        keys: object = message.keys
        keys_len: cython.Py_ssize_t = 0
        if type(body) is not bytes or len(body) == 0 or len(body) > self._body_bytes_max or not message.is_plain():
            return False
        if type(keys) is not tuple or type(message.flag) is not int:
            return False
        if len(keys) > 0:
            keys_len = self.keys_bytes(keys)
            if keys_len < 0:
                return False
        if message.tag is not None:
            if cython.compiled:
                tag = plain_text(message.tag, True)
                if tag == cython.NULL:
                    return False
            else:
                tag = plain_text(message.tag, True)
                if tag is None:
                    return False
            tag_bytes = len(message.tag)
        if 40 + self._ids.id_bytes + tag_bytes + keys_len > self._properties_bytes_max:
            return False
        if not -0x7FFFFFFF <= message.flag <= 0x7FFFFFFF:
            return False
        self.write(body, message.flag, tag, tag_bytes, keys, keys_len, now_ms)
        self.waiters.append(waiter)
        return True

    def add_bodies(
        self,
        bodies: list,
        tags,
        keys,
        at: cython.Py_ssize_t,
        bytes_max: cython.Py_ssize_t,
        count_max: cython.Py_ssize_t,
        now_ms: cython.longlong,
    ):
        """Encode messages from number `at` on, until the batch has its size; the number of the first one left.

        `tags` and `keys` are None, or have a value per message: a text (or None), a tuple of texts. It stops, too, at a
        message that is not plain.
        """
        body: object
        text: object
        words: object
        tag: cython.p_const_uchar = b""
        tag_bytes: cython.Py_ssize_t
        keys_len: cython.Py_ssize_t
        size: cython.Py_ssize_t
        while at < len(bodies) and len(self.starts) < count_max:
            body = bodies[at]
            if type(body) is not bytes or len(body) == 0 or len(body) > self._body_bytes_max:
                break
            tag_bytes = keys_len = 0
            words = ()
            if tags is not None and tags[at] is not None:
                text = tags[at]
                if cython.compiled:
                    tag = plain_text(text, True)
                    if tag == cython.NULL:
                        break
                else:
                    tag = plain_text(text, True)
                    if tag is None:
                        break
                tag_bytes = len(text)
            if keys is not None:
                words = keys[at]
                if type(words) is not tuple:
                    break
                if len(words) > 0:
                    keys_len = self.keys_bytes(words)
                    if keys_len < 0:
                        break
            size = 40 + self._ids.id_bytes + tag_bytes + keys_len
            if size > self._properties_bytes_max:
                break
            if len(self.starts) > 0 and self.used + len(body) + 24 + size > bytes_max:
                break
            self.write(body, 0, tag, tag_bytes, words, keys_len, now_ms)
            at += 1
        return at

    def add_encoded(self, body: bytes, flag: cython.int, properties: bytes, waiter):
        """A message that its owner has checked; its properties start with UNIQ_KEY."""
        self.make_room(22 + len(body) + len(properties))
        self.starts.append(self.used)
        store_i32(self._p, self.used, 22 + len(body) + len(properties))
        store_i32(self._p, self.used + 4, 0)
        store_i32(self._p, self.used + 8, 0)
        store_i32(self._p, self.used + 12, flag)
        store_i32(self._p, self.used + 16, len(body))
        self.used += HEAD_BYTES
        self.put(body, len(body))
        store_i16(self._p, self.used, len(properties))
        self.used += 2
        self.put(properties, len(properties))
        self.body_bytes += len(body)
        self.waiters.append(waiter)

    def encoded(self):
        """The elements so far."""
        return piece(self._p, 0, self.used)

    def element(self, index: cython.Py_ssize_t):
        """(flag, body, properties) of one message."""
        at: cython.Py_ssize_t = self.starts[index]
        size: cython.Py_ssize_t = load_i32(self._p, at)
        body_len: cython.Py_ssize_t = load_i32(self._p, at + 16)
        body_at: cython.Py_ssize_t = at + HEAD_BYTES
        properties_at: cython.Py_ssize_t = body_at + body_len + 2
        body: bytes = piece(self._p, body_at, body_len)
        return load_i32(self._p, at + 12), body, piece(self._p, properties_at, at + size - properties_at)

    def unique_key(self, index: cython.Py_ssize_t):
        """The value of the first property, UNIQ_KEY."""
        start: cython.Py_ssize_t = self.properties_at(index) + 9
        end: cython.Py_ssize_t = find_byte(self._p, start, self.used, 2)
        return piece(self._p, start, end - start).decode("utf-8")

    def results(self, result_type, status, ids, queue, queue_offset: cython.longlong, region, trace_on):
        """A result for each message, in order. `ids` are the broker's, comma-joined."""
        self._offset_ids = ids
        return [
            self.one_result(result_type, index, status, queue, queue_offset + index, region, trace_on)
            for index in range(len(self.starts))
        ]

    def finish(self, result_type, status, ids, queue, queue_offset: cython.longlong, region, trace_on, on_error):
        """Give each waiter its result: futures that are not done get it, functions are called with (result, None).

        `on_error(error)` is called for a function that raises; the others still get theirs.
        """
        index: cython.Py_ssize_t
        waiter: object
        waiters: list = self.waiters
        self.waiters = []  # futures have results, and results their batch: no cycle may be left
        self._offset_ids = ids
        for index in range(len(waiters)):
            waiter = waiters[index]
            if waiter is None:
                continue
            result = self.one_result(result_type, index, status, queue, queue_offset + index, region, trace_on)
            try:
                if hasattr(waiter, "set_result"):
                    if not waiter.done():
                        waiter.set_result(result)
                else:
                    waiter(result, None)
            except Exception as error:  # a callback of the user must not keep the others from their results
                on_error(error)

    # inside

    def properties_at(self, index):
        at: cython.Py_ssize_t = self.starts[index]
        return at + HEAD_BYTES + load_i32(self._p, at + 16) + 2

    def offset_id(self, index):
        """The broker's id of one message; empty where it gave one id for the whole batch."""
        if type(self._offset_ids) is str:
            self._offset_ids = self._offset_ids.split(",")
        return self._offset_ids[index] if index < len(self._offset_ids) else ""

    def one_result(self, result_type, index, status, queue, queue_offset, region, trace_on):
        result: SendResultFields = new_instance(result_type)
        result.status = status
        result.queue = queue
        result.queue_offset = queue_offset
        result.region = region
        result.trace_on = trace_on
        result._batch = self
        result._index = index
        if not cython.compiled:
            result._message_id = result._offset_message_id = result.transaction_id = result.recall_handle = None
        return result

    def make_room(self, count):
        """Have the buffer hold `count` more bytes."""
        if self.used + count > self._room:
            self._room = max(2 * self._room, self.used + count, 4096)
            if cython.compiled:
                PyByteArray_Resize(self.out, self._room)
                self._p = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.out))
            else:
                self.out.extend(bytes(self._room - len(self.out)))
                self._p = self.out
        return 0

    def put(self, p, count):
        copy_bytes(self._p, self.used, p, 0, count)
        self.used += count

    def keys_bytes(self, keys):
        """The length of the keys with blanks between; -1 where one is not plain."""
        total: cython.Py_ssize_t = len(keys) - 1
        for key in keys:
            if cython.compiled:
                if plain_text(key, False) == cython.NULL or len(key) == 0:
                    return -1
            elif plain_text(key, False) is None or len(key) == 0:
                return -1
            total += len(key)
        return total

    def write(self, body, flag, tag, tag_bytes, keys, keys_bytes, now_ms):
        """One element, whose properties are UNIQ_KEY, WAIT, TAGS and KEYS."""
        start: cython.Py_ssize_t = self.used
        body_len: cython.Py_ssize_t = len(body)
        properties: cython.Py_ssize_t
        first: cython.bint = True
        self.make_room(HEAD_BYTES + body_len + 64 + self._ids.id_bytes + tag_bytes + keys_bytes)
        self.starts.append(start)
        store_i32(self._p, start + 4, 0)
        store_i32(self._p, start + 8, 0)
        store_i32(self._p, start + 12, flag)
        store_i32(self._p, start + 16, body_len)
        self.used += HEAD_BYTES
        self.put(body, body_len)
        self.used += 2
        properties = self.used
        self.put(b"UNIQ_KEY\x01", 9)
        self._ids.put(self._p, self.used, now_ms)
        self.used += self._ids.id_bytes
        self.put(b"\x02WAIT\x01true\x02", 11)
        if tag_bytes > 0:
            self.put(b"TAGS\x01", 5)
            self.put(tag, tag_bytes)
            self.put(b"\x02", 1)
        if keys_bytes > 0:
            self.put(b"KEYS\x01", 5)
            for key in keys:
                if not first:
                    self.put(b" ", 1)
                first = False
                self.put(plain_text(key, False), len(key))
            self.put(b"\x02", 1)
        store_i16(self._p, properties - 2, self.used - properties)
        store_i32(self._p, start, self.used - start)
        self.body_bytes += body_len
        return 0


def piece(p, at, count):
    if cython.compiled:
        return p[at : at + count]
    else:
        return bytes(p[at : at + count])


def refuse_change(message, name, value):
    """Assigning to a field that is set: in compiled form the fields are read-only as they are."""
    if name != "_properties" and hasattr(message, name):
        raise AttributeError(f"attribute {name!r} of a message cannot be changed")
    object.__setattr__(message, name, value)


if not cython.compiled:
    MessageFields.__setattr__ = refuse_change
