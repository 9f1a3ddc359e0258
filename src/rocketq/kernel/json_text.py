"""JSON texts with escapes, as the bytes they stand for. Only ASCII: anything else is left to Python."""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import copy_bytes, end_of_plain


def unescape_text(out, out_at, p, at, end):
    """Write the text [at, end) of `p` to `out` from `out_at` on; where it ends there, or -1 for an unknown escape or a
    character that is not ASCII. It is never longer than it was."""
    plain_end: cython.Py_ssize_t
    char: cython.int
    step: cython.int
    while at < end:
        plain_end = end_of_plain(p, at, end)
        copy_bytes(out, out_at, p, at, plain_end - at)
        out_at += plain_end - at
        at = plain_end + 2
        if plain_end >= end:
            break
        if p[plain_end] != 92 or at > end:
            return -1
        char = p[plain_end + 1]
        if char == 117:
            if end - at < 4:
                return -1
            char = 0
            for step in range(4):
                char = char * 16 + hex_digit(p[at + step])
            at += 4
        elif char == 110:
            char = 10
        elif char == 116:
            char = 9
        elif char == 114:
            char = 13
        elif char != 34 and char != 92 and char != 47:
            return -1
        if char <= 0 or char > 127:
            return -1
        out[out_at] = char
        out_at += 1
    return out_at


def hex_digit(char):
    """The value of a hex digit; a number too large for a character when it is none."""
    if 48 <= char <= 57:
        return char - 48
    if 97 <= char <= 102:
        return char - 87
    if 65 <= char <= 70:
        return char - 55
    return 1 << 16
