"""The properties of a send as they are stored: read from its header, put in order, with what the broker adds.

A property that makes a message more than plain (half, timed) is a reason to refuse it, as is a name that comes twice. A
message with a delay level gets the properties of its destination.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import copy_bytes, equal_bytes, find_byte
    from rocketq.kernel.request_view import unescape_json

TEXT_BYTES_MAX = 65_536  # of the properties as a header has them
SUFFIX_BYTES_MAX = 4_096


@cython.cclass
class SendProperties:
    """The properties of the last send, `length` bytes; `waits` is the value of WAIT, `keyed` whether there is a
    sharding key, `unique_*` where UNIQ_KEY is, `delay_level` the value of DELAY (0: none)."""

    def __init__(self):
        view: cython.uchar[::1]
        self.waits = True
        self.keyed = False
        self.length = self.unique_at = self.unique_len = 0
        self.delay_level = 0
        self._memory = bytearray(TEXT_BYTES_MAX + SUFFIX_BYTES_MAX)
        if cython.compiled:
            view = self._memory
            self.p = cython.address(view[0])
        else:
            self.p = memoryview(self._memory)

    def load(self, header, p, index, batch, grant):
        """Read them from a header's field; False when the slow path must. Those of a batch keep WAIT."""
        at: cython.Py_ssize_t = header.value_at[index]
        count: cython.Py_ssize_t = header.value_len[index]
        if count > 65_536:
            return False
        if header.escaped[index]:
            count = unescape_json(self.p, 0, p, at, at + count)
            if count < 0 or not is_plain_or_cut(self.p, count):
                return False
        else:
            copy_bytes(self.p, 0, p, at, count)
        return self.edit(count, batch, grant)

    def edit(self, count, batch, grant):
        """What is stored of them: without empty values (and WAIT, except in a batch), with the grant's suffix at the
        end, whose names are dropped elsewhere. Very many are refused: each is compared with those before it, and in a
        batch with those of every message."""
        q: cython.p_uchar = self.p
        at: cython.Py_ssize_t = 0
        out: cython.Py_ssize_t = 0
        item_end: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        size: cython.Py_ssize_t
        step: cython.Py_ssize_t
        kept: cython.int = 0
        real: cython.bint = False
        self.waits = True
        self.keyed = False
        self.unique_at = self.unique_len = 0
        self.delay_level = 0
        while at < count:
            item_end = find_byte(q, at, count, 2)
            name_end = find_byte(q, at, item_end, 1)
            size = name_end - at
            if name_end + 1 < item_end and size > 0:
                kept += 1
                if kept > (16 if batch else 128):
                    return False
                if size == 5 and not batch and equal_bytes(q, at, b"DELAY", 0, 5):
                    self.delay_level = level_at(q, name_end + 1, item_end)
                    if self.delay_level < 0 or self.has_name_before(out, at, size):
                        return False
                elif is_slow_name(q, at, size) or self.has_name_before(out, at, size):
                    return False
                real = real or is_real_name(q, at, size)
                if size == 13 and equal_bytes(q, at, b"__SHARDINGKEY", 0, 13):
                    self.keyed = True
                if self.keeps(at, name_end, item_end, out + 1 if out > 0 else out, batch, grant.traced):
                    if out > 0:
                        q[out] = 2
                        out += 1
                    if self.unique_at < 0:
                        return False
                    if out != at:
                        for step in range(item_end - at):
                            q[out + step] = q[at + step]
                    out += item_end - at
            at = item_end + 1
        if out > 0:
            q[out] = 2
            out += 1
        copy_bytes(q, out, grant.suffix, 0, grant.suffix_len)
        self.length = out + grant.suffix_len
        return self.length <= PROPERTIES_BYTES_MAX and not (real and self.delay_level > 0)

    def put_destination(self, p, request):
        """Add where a message belongs that is stored elsewhere first; False when that is too much."""
        q: cython.p_uchar = self.p
        at: cython.Py_ssize_t = self.length
        if at + request.topic_len + 40 > PROPERTIES_BYTES_MAX:
            return False
        copy_bytes(q, at, b"\x02REAL_TOPIC\x01", 0, 12)
        copy_bytes(q, at + 12, p, request.topic_at, request.topic_len)
        at += 12 + request.topic_len
        copy_bytes(q, at, b"\x02REAL_QID\x01", 0, 10)
        self.length = put_digits(q, at + 10, request.queue_id)
        return True

    def keeps(self, at, name_end, item_end, out, batch, traced):
        """Whether the item is stored; what the answer depends on is remembered. An odd unique key makes `unique_at`
        -1."""
        q: cython.p_uchar = self.p
        if name_end - at == 4 and equal_bytes(q, at, b"WAIT", 0, 4):
            self.waits = is_true(q, name_end + 1, item_end - name_end - 1)
            return batch
        if traced and is_trace_name(q, at, name_end - at):
            return False
        if name_end - at == 8 and equal_bytes(q, at, b"UNIQ_KEY", 0, 8):
            self.unique_at = out + 9 if is_plain_text(q, name_end + 1, item_end) else -1
            self.unique_len = item_end - name_end - 1
        return True

    def has_name_before(self, until, at, count):
        """Whether a property of this name was kept already."""
        q: cython.p_uchar = self.p
        item: cython.Py_ssize_t = 0
        item_end: cython.Py_ssize_t
        while item < until:
            item_end = find_byte(q, item, until, 2)
            if item_end - item > count and q[item + count] == 1 and equal_bytes(q, item, q, at, count):
                return True
            item = item_end + 1
        return False


def is_slow_name(p, at, count):
    """Properties that make a message more than plain; CLUSTER is one, since the broker writes it."""
    if p[at] == 84:
        return count >= 8 and (equal_bytes(p, at, b"TRAN_MSG", 0, 8) or equal_bytes(p, at, b"TIMER_", 0, 6))
    if p[at] == 68:
        return count == 5 and equal_bytes(p, at, b"DELAY", 0, 5)
    return p[at] == 67 and count == 7 and equal_bytes(p, at, b"CLUSTER", 0, 7)


def is_real_name(p, at, count):
    """Properties that the broker writes into messages that are stored elsewhere first."""
    if count == 10:
        return equal_bytes(p, at, b"REAL_TOPIC", 0, 10)
    return count == 8 and equal_bytes(p, at, b"REAL_QID", 0, 8)


def level_at(p, at, end):
    """A delay level of one or two digits as the broker would write it, or -1."""
    if end - at == 1 and 48 <= p[at] <= 57:
        return p[at] - 48
    if end - at == 2 and 49 <= p[at] <= 57 and 48 <= p[at + 1] <= 57:
        return (p[at] - 48) * 10 + p[at + 1] - 48
    return -1


def put_digits(p, at, value):
    """A number that is not negative, in decimal; where it ends."""
    digits: cython.int = 1
    step: cython.int
    rest: cython.longlong = value // 10
    while rest > 0:
        digits += 1
        rest //= 10
    for step in range(digits):
        p[at + digits - 1 - step] = 48 + value % 10
        value //= 10
    return at + digits


def is_trace_name(p, at, count):
    """Properties that the broker writes where messages are traced."""
    if count == 8:
        return equal_bytes(p, at, b"TRACE_ON", 0, 8)
    return count == 10 and equal_bytes(p, at, b"MSG_REGION", 0, 10)


def is_plain_or_cut(p, count):
    """ASCII without NUL: recovery detects torn properties by their zeros, and other characters are not parsed here."""
    at: cython.Py_ssize_t
    for at in range(count):
        if p[at] == 0 or p[at] > 127:
            return False
    return True


def is_plain_text(p, at, end):
    """Nothing that JSON would have to escape."""
    while at < end:
        if p[at] < 32 or p[at] == 34 or p[at] == 92 or p[at] > 126:
            return False
        at += 1
    return True


def is_true(p, at, count):
    return (
        count == 4 and p[at] | 32 == 116 and p[at + 1] | 32 == 114 and p[at + 2] | 32 == 117 and p[at + 3] | 32 == 101
    )
