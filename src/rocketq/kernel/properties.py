"""What the store reads in a message's properties: tags, keys, the unique key and the delay level.

properties := item *( 0x02 item ) [ 0x02 ]
item       := name 0x01 value          without a name or a value it is no property; the last of a name wins
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import cut_item, equal_bytes, signed_i32, wrap_u32


def java_hash(seed, p, at, end):
    """Java's String.hashCode of UTF-8 text, carried on from `seed`, as an unsigned 32-bit number.

    Java hashes UTF-16 units, so characters above U+FFFF count as two; bytes that are not UTF-8 count as U+FFFD.
    """
    value: cython.uint = seed
    unit: cython.uint
    first: cython.uint
    more: cython.int
    step: cython.int
    while at < end:
        if end - at >= 4 and (p[at] | p[at + 1] | p[at + 2] | p[at + 3]) < 0x80:
            value = wrap_u32(value * 923521 + p[at] * 29791 + p[at + 1] * 961 + p[at + 2] * 31 + p[at + 3])
            at += 4
            continue
        first = p[at]
        at += 1
        unit = first
        if first >= 0x80:
            more = 1 if 0xC2 <= first <= 0xDF else 2 if 0xE0 <= first <= 0xEF else 3 if 0xF0 <= first <= 0xF4 else 0
            unit = first & (0x3F >> more) if more else 0xFFFD
            if more and at + more > end:
                more = 0
                unit = 0xFFFD
            for step in range(more):
                if p[at + step] & 0xC0 != 0x80:
                    unit = 0xFFFD
                    more = step
                    break
                unit = (unit << 6) | (p[at + step] & 0x3F)
            at += more
            if unit > 0xFFFF:
                unit -= 0x10000
                value = wrap_u32(value * 31 + 0xD800 + (unit >> 10))
                unit = 0xDC00 + (unit & 0x3FF)
        value = wrap_u32(value * 31 + unit)
    return value


TAGS = b"TAGS"
KEYS = b"KEYS"
DELAY = b"DELAY"
UNIQ_KEY = b"UNIQ_KEY"


@cython.cclass
class PropertySpans:
    """Where the interesting values lie; a start of -1 means the property is absent."""

    def __init__(self):
        self.tags_at = self.keys_at = self.unique_at = self.delay_at = -1
        self.tags_end = self.keys_end = self.unique_end = self.delay_end = -1

    def scan(self, p, at, end):
        cut: cython.longlong
        self.clear()
        while at < end:
            cut = cut_item(p, at, end)
            if (cut & 0x7FFFFFFF) + 1 < cut >> 31:
                self.note(p, at, at + (cut & 0x7FFFFFFF), at + (cut >> 31))
            at += (cut >> 31) + 1

    def clear(self):
        self.tags_at = self.keys_at = self.unique_at = self.delay_at = -1

    def note(self, p, at, name_end, item_end):
        """A property, perhaps one of those."""
        if name_end - at == 4:
            if equal_bytes(p, at, TAGS, 0, 4):
                self.tags_at, self.tags_end = name_end + 1, item_end
            elif equal_bytes(p, at, KEYS, 0, 4):
                self.keys_at, self.keys_end = name_end + 1, item_end
        elif name_end - at == 8 and equal_bytes(p, at, UNIQ_KEY, 0, 8):
            self.unique_at, self.unique_end = name_end + 1, item_end
        elif name_end - at == 5 and equal_bytes(p, at, DELAY, 0, 5):
            self.delay_at, self.delay_end = name_end + 1, item_end

    def delay_level(self, p):
        """The DELAY property as a number; 0 when it is absent or not a number."""
        level: cython.longlong = 0
        at: cython.Py_ssize_t
        if self.delay_at < 0 or self.delay_end - self.delay_at > 9:
            return 0
        for at in range(self.delay_at, self.delay_end):
            if p[at] < 48 or p[at] > 57:
                return 0
            level = level * 10 + (p[at] - 48)
        return level


def hash_text(text, seed=0):
    """Java's hash of a str, as a signed int."""
    data = text.encode("utf-8", "surrogatepass")
    return signed_i32(java_hash(seed, data, 0, len(data)))
