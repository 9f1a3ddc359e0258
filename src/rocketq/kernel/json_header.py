"""The JSON form of a request's header, as clients write it:

    {"code":310,"extFields":{"a":"p","e":3,"k":false,..},"flag":0,"language":"JAVA","opaque":7,..,"version":407}

No blanks, ASCII only, every number an integer. Whatever is written otherwise, or in doubt, is refused: the decoder for
everything will look at it.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.frame_header import number_at
    from rocketq.kernel.primitives import end_of_plain, equal_bytes


def parse_json_header(header, p, at, end):
    """Fill `header` from the bytes [at, end); False when they are not a plain header."""
    name: cython.Py_ssize_t
    name_end: cython.Py_ssize_t
    value_end: cython.Py_ssize_t
    has_fields: cython.bint = False
    header.clear(False)
    if at >= end or p[at] != 123:
        return False
    at += 1
    while True:
        if at >= end or p[at] != 34:
            return False
        name = at + 1
        name_end = end_of_text(p, name, end)
        if name_end < 0 or name_end + 2 >= end or p[name_end + 1] != 58:
            return False
        at = name_end + 2
        if p[at] == 34:
            value_end = end_of_text(p, at + 1, end)
            if value_end < 0 or not is_skipped_text(p, name, name_end - name):
                return False
            at = value_end + 1
        elif p[at] == 123:
            if has_fields or name_end - name != 9 or not equal_bytes(p, name, b"extFields", 0, 9):
                return False
            has_fields = True
            at = parse_fields(header, p, at + 1, end)
            if at < 0:
                return False
        else:
            value_end = end_of_word(p, at, end)
            if value_end < 0 or p[at] > 57 or value_end - at > 11:
                return False
            if not take_number(header, p, name, name_end - name, number_at(p, at, value_end)):
                return False
            at = value_end
        if at >= end:
            return False
        if p[at] == 125:
            return at == end - 1
        if p[at] != 44:
            return False
        at += 1


def take_number(header, p, at, count, value):
    """A number of the header itself; one that is not known, or no Java int, is not plain."""
    if value > 0x7FFFFFFF or value < -0x7FFFFFFF:
        return False
    if count == 4 and equal_bytes(p, at, b"code", 0, 4):
        header.code = value
    elif count == 4 and equal_bytes(p, at, b"flag", 0, 4):
        header.flag = value
    elif count == 6 and equal_bytes(p, at, b"opaque", 0, 6):
        header.opaque = value
    elif count == 7 and equal_bytes(p, at, b"version", 0, 7):
        header.version = value
    else:
        return False
    return True


def is_skipped_text(p, at, count):
    """Members whose text decides nothing; a number written as text is for others to read."""
    if count == 8:
        return equal_bytes(p, at, b"language", 0, 8)
    if count == 6:
        return equal_bytes(p, at, b"remark", 0, 6)
    return count == 23 and equal_bytes(p, at, b"serializeTypeCurrentRPC", 0, 23)


def parse_fields(header, p, at, end):
    """Behind the closing brace of the extFields, or -1. A value is a text, an integer, true or false."""
    name: cython.Py_ssize_t
    name_end: cython.Py_ssize_t
    value: cython.Py_ssize_t
    value_end: cython.Py_ssize_t
    escaped: cython.bint
    while True:
        if at >= end or p[at] != 34:
            return -1
        name = at + 1
        name_end = end_of_text(p, name, end)
        if name_end < 0 or name_end + 2 >= end or p[name_end + 1] != 58:
            return -1
        value = name_end + 2
        escaped = False
        if p[value] == 34:
            value += 1
            value_end = end_of_plain(p, value, end)
            escaped = value_end < end and p[value_end] == 92
            value_end = end_of_escaped(p, value_end, end)
            at = value_end + 1
        else:
            value_end = end_of_word(p, value, end)
            at = value_end
        if value_end < 0 or at >= end or not header.add(name, name_end - name, value, value_end - value, escaped):
            return -1
        at += 1
        if p[at - 1] == 125:
            return at
        if p[at - 1] != 44:
            return -1


def end_of_text(p, at, end):
    """Where the quote is that ends a plain text, or -1."""
    at = end_of_plain(p, at, end)
    return at if at < end and p[at] == 34 else -1


def end_of_escaped(p, at, end):
    """The same of a text with escapes, which whoever needs it must read."""
    while True:
        at = end_of_plain(p, at, end)
        if at >= end:
            return -1
        if p[at] == 34:
            return at
        if p[at] != 92:
            return -1
        at += 2


def end_of_word(p, at, end):
    """Behind an integer of at most 18 digits, without needless zeros, or behind true or false; -1 for anything else."""
    first: cython.Py_ssize_t = at
    if end - at >= 5 and p[at] == 116 and equal_bytes(p, at, b"true", 0, 4):
        return at + 4
    if end - at >= 6 and p[at] == 102 and equal_bytes(p, at, b"false", 0, 5):
        return at + 5
    if at < end and p[at] == 45:
        at += 1
        first += 1
        if at < end and p[at] == 48:
            return -1
    while at < end and 48 <= p[at] <= 57:
        at += 1
    if at == first or at - first > 18 or (p[first] == 48 and at - first > 1):
        return -1
    return at
