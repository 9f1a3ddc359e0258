"""The header of one request as both forms give it: a few numbers, and where its ext fields lie.

What a field means is for others to say. A header with more fields than any client sends is refused.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import equal_bytes

FIELDS_MAX = 24


@cython.cclass
class FrameHeader:
    """Filled by parse_json_header() or parse_binary_header(), good until the next frame.

    Names and values are places in the frame's bytes; `escaped` says that a value must be read as JSON text first.
    `bad` is set by number() and small_number() when they were asked for something that is none.
    """

    def __init__(self):
        if not cython.compiled:
            self.name_at, self.name_len = [0] * FIELDS_MAX, [0] * FIELDS_MAX
            self.value_at, self.value_len = [0] * FIELDS_MAX, [0] * FIELDS_MAX
            self.escaped = [False] * FIELDS_MAX
        self.clear(False)

    def clear(self, binary):
        self.binary = binary
        self.bad = False
        self.count = 0
        self.code = self.opaque = self.flag = self.version = 0

    def add(self, name_at, name_len, value_at, value_len, escaped):
        """Note a field; False when there are too many."""
        index: cython.int = self.count
        if index >= 24:
            return False
        self.name_at[index] = name_at
        self.name_len[index] = name_len
        self.value_at[index] = value_at
        self.value_len[index] = value_len
        self.escaped[index] = escaped
        self.count = index + 1
        return True

    def is_named(self, p, index, name, name_len):
        return self.name_len[index] == name_len and equal_bytes(p, self.name_at[index], name, 0, name_len)

    def has_text(self, p, index, text, text_len):
        """Whether a value is exactly this text."""
        return self.value_len[index] == text_len and equal_bytes(p, self.value_at[index], text, 0, text_len)

    def number(self, p, index):
        """A value as a number of up to 18 digits."""
        if not is_number(p, self.value_at[index], self.value_len[index]):
            self.bad = True
            return 0
        return number_at(p, self.value_at[index], self.value_at[index] + self.value_len[index])

    def small_number(self, p, index):
        """A value as a Java int."""
        value: cython.longlong = self.number(p, index)
        if value > 0x7FFFFFFF or value < -0x7FFFFFFF:
            self.bad = True
        return value


def number_at(p, at, end):
    value: cython.longlong = 0
    negative: cython.bint = p[at] == 45
    if negative:
        at += 1
    while at < end:
        value = value * 10 + (p[at] - 48)
        at += 1
    return -value if negative else value


def is_number(p, at, count):
    """Digits, perhaps behind a minus, few enough for 64 bits."""
    step: cython.Py_ssize_t
    if count > 0 and p[at] == 45:
        at += 1
        count -= 1
    if count < 1 or count > 18:
        return False
    for step in range(count):
        if p[at + step] < 48 or p[at + step] > 57:
            return False
    return True
