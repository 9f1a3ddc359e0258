"""The binary form of a request's header, big-endian:

    header := code:i16 language:u8 version:i16 opaque:i32 flag:i32 remarkLength:i32 remark extLength:i32 *entry
    entry  := nameLength:i16 name valueLength:i32 value

Taken without a remark and in ASCII only; anything else is refused, as is a header with bytes to spare.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import load_i16, load_i32


def parse_binary_header(header, p, at, end):
    """Fill `header` from the bytes [at, end); False when they are not a plain header."""
    name_len: cython.Py_ssize_t
    value_len: cython.Py_ssize_t
    header.clear(True)
    if end - at < 21 or load_i32(p, at + 13) != 0 or load_i32(p, at + 17) != end - at - 21:
        return False
    header.code = load_i16(p, at)
    header.version = load_i16(p, at + 3)
    header.opaque = load_i32(p, at + 5)
    header.flag = load_i32(p, at + 9)
    at += 21
    while at < end:
        if end - at < 6:
            return False
        name_len = load_i16(p, at)
        if name_len <= 0 or name_len > end - at - 6:
            return False
        value_len = load_i32(p, at + 2 + name_len)
        if value_len < 0 or value_len > end - at - 6 - name_len:
            return False
        if not is_ascii(p, at + 2, at + 2 + name_len):
            return False
        if not is_ascii(p, at + 6 + name_len, at + 6 + name_len + value_len):
            return False
        if not header.add(at + 2, name_len, at + 6 + name_len, value_len, False):
            return False
        at += 6 + name_len + value_len
    return True


def is_ascii(p, at, end):
    """Characters of one byte, none of them zero."""
    char: cython.int
    while at < end:
        char = p[at]
        if char < 1 or char > 127:
            return False
        at += 1
    return True
