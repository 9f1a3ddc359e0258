"""A command's frame as the kernel sees it: a few numbers, and where header fields and body are in the frame's bytes.

frame  := length:i32 form:u8 headerLength:u24 header body            form 0 is JSON, 1 binary

JSON   := {"code":310,"extFields":{"a":"p","e":3,"k":false,..},"flag":0,"language":"JAVA","opaque":7,..,"version":407}

binary := code:i16 language:u8 version:i16 opaque:i32 flag:i32 remarkLength:i32 remark extLength:i32 *entry
entry  := nameLength:i16 name valueLength:i32 value

This is the one parser of well-formed headers: the fast path reads fields from the spans, command_parts() makes Python
objects of them for everything else. What is not well-formed (fastjson's relaxed dialect, invalid UTF-8, wrong lengths)
is refused here; rocketq.protocol decodes it or reports what is wrong.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import copy_bytes, end_of_plain, equal_bytes, load_i16, load_i32

FIELDS_MAX = 48


@cython.final
@cython.cclass
class RequestView:
    """Filled by parse(), good until the next frame.

    Names and values are spans of the frame's bytes. `escaped`: a value has backslashes and must be read
    through unescape_json(); `wide` that it is not ASCII; `null` that a JSON header has null. `plain` is false
    where anything but a value is not ASCII. `members` has the members of a JSON header in their order, a hex digit
    each. `bad` is set by number() and small_number() when a value is no number.
    """

    def __init__(self):
        if not cython.compiled:
            self.name_at, self.name_len = [0] * FIELDS_MAX, [0] * FIELDS_MAX
            self.value_at, self.value_len = [0] * FIELDS_MAX, [0] * FIELDS_MAX
            self.escaped, self.wide, self.null = [False] * FIELDS_MAX, [False] * FIELDS_MAX, [False] * FIELDS_MAX
        self.body_at = self.end = 0
        self.clear(False)

    def clear(self, binary):
        self.binary = binary
        self.plain = True
        self.bad = self.remark_escaped = False
        self.count = 0
        self.code = self.opaque = self.flag = self.version = 0
        self.members = 0
        self.language = -1
        self.language_at = self.language_len = self.remark_at = self.remark_len = 0

    def parse_frame(self, frame: bytes):
        """As parse(), for one whole frame without its length field."""
        return len(frame) >= 4 and self.parse_at(frame, 0, len(frame))

    def parse(self, p, at, end):
        """Read the frame [at, end), whose length field is known to be right; False when its header is not
        well-formed."""
        return self.parse_at(p, at + 4, end)

    def parse_at(self, p, at, end):
        mark: cython.int = load_i32(p, at)
        self.clear(False)
        self.end = self.body_at = end
        if mark < 0 or mark >> 24 > 1 or at + 4 + (mark & 0xFFFFFF) > end:
            return False
        self.body_at = at + 4 + (mark & 0xFFFFFF)
        if mark >> 24 == 1:
            return self.parse_binary(p, at + 4, self.body_at)
        return self.parse_json(p, at + 4, self.body_at)

    def add(self, name_at, name_len, value_at, value_len):
        """Note a field; False when there are too many."""
        index: cython.int = self.count
        if index >= 48:
            return False
        self.name_at[index] = name_at
        self.name_len[index] = name_len
        self.value_at[index] = value_at
        self.value_len[index] = value_len
        self.escaped[index] = self.wide[index] = self.null[index] = False
        self.count = index + 1
        return True

    def parse_binary(self, p, at, end):
        name_len: cython.Py_ssize_t
        value_len: cython.Py_ssize_t
        self.binary = True
        if end - at < 21:
            return False
        self.code = load_i16(p, at)
        self.language = p[at + 2]
        self.version = load_i16(p, at + 3)
        self.opaque = load_i32(p, at + 5)
        self.flag = load_i32(p, at + 9)
        self.remark_at = at + 17
        self.remark_len = load_i32(p, at + 13)
        if self.remark_len < 0 or self.remark_len > end - at - 21:
            return False
        at += 17 + self.remark_len
        if load_i32(p, at) != end - at - 4:
            return False
        at += 4
        while at < end:
            if end - at < 6:
                return False
            name_len = load_i16(p, at)
            if name_len < 0 or name_len > end - at - 6:
                return False
            value_len = load_i32(p, at + 2 + name_len)
            if value_len < 0 or value_len > end - at - 6 - name_len:
                return False
            if not self.add(at + 2, name_len, at + 6 + name_len, value_len):
                return False
            if name_len == 0 or not is_ascii(p, at + 2, at + 2 + name_len):
                self.plain = False
            at += 6 + name_len + value_len
            self.wide[self.count - 1] = not is_ascii(p, at - value_len, at)
        return True

    def parse_json(self, p, at, end):
        name: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        member: cython.int
        seen: cython.int = 0
        at = skip_blank(p, at, end)
        if at >= end or p[at] != 123:
            return False
        while True:
            at = skip_blank(p, at + 1, end)
            name = at + 1
            name_end = end_of_name(p, at, end)
            if name_end < 0:
                return False
            member = member_of(p, name, name_end - name)
            if member == 0 or seen >> member & 1:
                return False
            seen |= 1 << member
            at = colon_after(p, name_end + 1, end)
            if at < 0:
                return False
            at = self.parse_member(p, member, at, end)
            if at < 0:
                return False
            at = skip_blank(p, at, end)
            if at >= end:
                return False
            if p[at] == 125:
                return skip_blank(p, at + 1, end) == end
            if p[at] != 44:
                return False

    def parse_member(self, p, member, at, end):
        """Read the value that starts at `at`; where it ends, or -1."""
        value_end: cython.Py_ssize_t
        if is_null(p, at, end):
            return at + 4 if member == EXT_FIELDS or member == REMARK else -1
        self.members = self.members << 4 | member
        if member == EXT_FIELDS:
            return self.parse_fields(p, at + 1, end) if p[at] == 123 else -1
        if member == LANGUAGE or member == REMARK or member == SERIALIZE_TYPE:
            if p[at] != 34:
                return -1
            value_end = end_of_text(p, end_of_plain(p, at + 1, end), end)
            if value_end < 0:
                return -1
            if not is_ascii(p, at + 1, value_end):
                if member == SERIALIZE_TYPE:
                    return -1  # nothing decodes it later, and it may not be UTF-8
                self.plain = False
            if member == REMARK:
                self.remark_at = at + 1
                self.remark_len = value_end - at - 1
                self.remark_escaped = has_backslash(p, at + 1, value_end)
            elif has_backslash(p, at + 1, value_end):
                return -1
            elif member == LANGUAGE:
                self.language_at = at + 1
                self.language_len = value_end - at - 1
            return value_end + 1
        value_end = end_of_word(p, at, end)
        if value_end < 0 or p[at] > 57 or value_end - at > 11:
            return -1
        return value_end if self.put_number(member, number_at(p, at, value_end)) else -1

    def put_number(self, member, value):
        """A number of the header itself; False when it is no Java int."""
        if value > 0x7FFFFFFF or value < -0x7FFFFFFF:
            return False
        if member == CODE:
            self.code = value
        elif member == FLAG:
            self.flag = value
        elif member == OPAQUE:
            self.opaque = value
        else:
            self.version = value
        return True

    def parse_fields(self, p, at, end):
        """Behind the closing brace of the extFields, or -1. A value is a text, an integer, true, false or null."""
        name: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        value: cython.Py_ssize_t
        value_end: cython.Py_ssize_t
        plain_end: cython.Py_ssize_t
        at = skip_blank(p, at, end)
        if at < end and p[at] == 125:
            return at + 1
        while True:
            name = at + 1
            name_end = end_of_name(p, at, end)
            if name_end < 0:
                return -1
            value = colon_after(p, name_end + 1, end)
            if value < 0:
                return -1
            if p[value] == 34:
                value += 1
                plain_end = end_of_plain(p, value, end)
                value_end = plain_end if plain_end < end and p[plain_end] == 34 else end_of_text(p, plain_end, end)
                if value_end < 0 or not self.add(name, name_end - name, value, value_end - value):
                    return -1
                if plain_end < value_end:
                    self.mark_text(p, plain_end, value_end)
                at = value_end + 1
            elif is_null(p, value, end):
                at = value + 4
                if not self.add(name, name_end - name, value, 0):
                    return -1
                self.null[self.count - 1] = True
            else:
                at = end_of_word(p, value, end)
                if at < 0 or not self.add(name, name_end - name, value, at - value):
                    return -1
            at = skip_blank(p, at, end)
            if at >= end:
                return -1
            if p[at] == 125:
                return at + 1
            if p[at] != 44:
                return -1
            at = skip_blank(p, at + 1, end)

    def mark_text(self, p, at, end):
        """The last value is not plain from `at` on: how it is to be read."""
        index: cython.int = self.count - 1
        while at < end:
            if p[at] == 92:
                self.escaped[index] = True
                at += 1
            elif p[at] == 0 or p[at] > 127:
                self.wide[index] = True
            at += 1

    # fields, for the fast path

    def is_named(self, p, index, name, name_len):
        return self.name_len[index] == name_len and equal_bytes(p, self.name_at[index], name, 0, name_len)

    def has_text(self, p, index, text, text_len):
        """Whether a value is exactly this text."""
        return self.value_len[index] == text_len and equal_bytes(p, self.value_at[index], text, 0, text_len)

    def is_simple(self, index):
        """Whether a value equals its bytes, in ASCII."""
        return not (self.escaped[index] or self.wide[index] or self.null[index])

    def number(self, p, index):
        """A value as a number of up to 18 digits."""
        if self.null[index] or not is_number(p, self.value_at[index], self.value_len[index]):
            self.bad = True
            return 0
        return number_at(p, self.value_at[index], self.value_at[index] + self.value_len[index])

    def small_number(self, p, index):
        """A value as a Java int."""
        value: cython.longlong = self.number(p, index)
        if value > 0x7FFFFFFF or value < -0x7FFFFFFF:
            self.bad = True
        return value

    # Python objects, for everything else

    def command_parts(self, data: bytes):
        """(code, flag, opaque, version, language, remark, ext fields, body, members) of the frame that was parsed from
        `data`; None when a text in it is not what JSON or UTF-8 allows. The language is a text in JSON, a number in the
        binary form; null fields are left out."""
        try:
            language, remark, fields = self.texts(data)
        except ValueError:
            return None
        body = data[self.body_at : self.end]
        return self.code, self.flag, self.opaque, self.version, language, remark, fields, body, self.members

    def texts(self, p):
        index: cython.int
        nulls: cython.bint = False
        fields: dict = {}
        language = self.language
        if not self.binary:
            language = text_of(p, self.language_at, self.language_len, False) if self.language_at else "JAVA"
        for index in range(self.count):
            name = text_of(p, self.name_at[index], self.name_len[index], False)
            if self.null[index]:
                fields[name] = None
                nulls = True
            else:
                fields[name] = text_of(p, self.value_at[index], self.value_len[index], self.escaped[index])
        if nulls:  # of two equal names the last counts, null or not
            fields = {name: text for name, text in fields.items() if text is not None}
        return language, text_of(p, self.remark_at, self.remark_len, self.remark_escaped), fields


def text_of(p, at, count, escaped):
    """A span as text; ValueError when it is none."""
    target: cython.p_uchar
    if not escaped:
        return decode_utf8(p, at, count)
    scratch = bytearray(count)
    if cython.compiled:
        target = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(scratch))
    else:
        target = scratch
    count = unescape_json(target, 0, p, at, at + count)
    if count < 0:
        raise ValueError("an escape that JSON does not have")
    return decode_utf8(target, 0, count)


def decode_utf8(p, at, count):
    if cython.compiled:
        return PyUnicode_DecodeUTF8(cython.cast(ConstText, p + at), count, cython.NULL)
    else:
        return bytes(p[at : at + count]).decode()


def unescape_json(out, size, p, at, end):
    """Write the inside of a JSON string to `out` from `size` on; where it ends there, or -1 where an escape is not
    JSON's or makes no character. It is never longer than it was."""
    plain_end: cython.Py_ssize_t
    char: cython.int
    low: cython.int
    while at < end:
        plain_end = end_of_plain(p, at, end)
        copy_bytes(out, size, p, at, plain_end - at)
        size += plain_end - at
        at = plain_end
        if at >= end:
            break
        if p[at] != 92:
            out[size] = p[at]
            size += 1
            at += 1
            continue
        if at + 1 >= end:
            return -1
        char = p[at + 1]
        at += 2
        if char == 117:
            char = hex_number(p, at, end)
            at += 4
            if 0xD800 <= char < 0xDC00 and at + 6 <= end and p[at] == 92 and p[at + 1] == 117:
                low = hex_number(p, at + 2, end)
                if not 0xDC00 <= low < 0xE000:
                    return -1
                char = 0x10000 + ((char - 0xD800) << 10) + low - 0xDC00
                at += 6
            if char < 0 or 0xD800 <= char < 0xE000:
                return -1
        elif char == 110:
            char = 10
        elif char == 116:
            char = 9
        elif char == 114:
            char = 13
        elif char == 98:
            char = 8
        elif char == 102:
            char = 12
        elif char != 34 and char != 92 and char != 47:
            return -1
        size = put_utf8(out, size, char)
    return size


def put_utf8(out, at, char):
    """A character's bytes; where the next one goes."""
    if char < 0x80:
        out[at] = char
        return at + 1
    if char < 0x800:
        out[at] = 0xC0 | char >> 6
    else:
        if char < 0x10000:
            out[at] = 0xE0 | char >> 12
        else:
            out[at] = 0xF0 | char >> 18
            out[at + 1] = 0x80 | (char >> 12 & 0x3F)
            at += 1
        out[at + 1] = 0x80 | (char >> 6 & 0x3F)
        at += 1
    out[at + 1] = 0x80 | (char & 0x3F)
    return at + 2


def hex_number(p, at, end):
    """Four hex digits, or a number far below every character."""
    value: cython.int = 0
    step: cython.int
    char: cython.int
    if end - at < 4:
        return -0x1000000
    for step in range(4):
        char = p[at + step]
        if 48 <= char <= 57:
            value = value * 16 + char - 48
        elif 97 <= (char | 32) <= 102:
            value = value * 16 + (char | 32) - 87
        else:
            return -0x1000000
    return value


def credential_field(view, p, index):
    """ACCESS_KEY, SIGNATURE or SECURITY_TOKEN when that is what a field is, or -1."""
    if view.is_named(p, index, b"AccessKey", 9):
        return ACCESS_KEY
    if view.is_named(p, index, b"Signature", 9):
        return SIGNATURE
    return SECURITY_TOKEN if view.is_named(p, index, b"SecurityToken", 13) else -1


# JSON's small parts


def skip_blank(p, at, end):
    while at < end and (p[at] == 32 or p[at] == 10 or p[at] == 13 or p[at] == 9):
        at += 1
    return at


def end_of_name(p, at, end):
    """Where the quote is that ends the name that starts with a quote at `at`, or -1; a name has no escapes."""
    if at >= end or p[at] != 34:
        return -1
    at = end_of_plain(p, at + 1, end)
    return at if at < end and p[at] == 34 else -1


def colon_after(p, at, end):
    """Where the value starts behind a name that ends before `at`, or -1."""
    at = skip_blank(p, at, end)
    if at >= end or p[at] != 58:
        return -1
    at = skip_blank(p, at + 1, end)
    return at if at < end else -1


def end_of_text(p, at, end):
    """Where the quote is that ends a text with escapes or characters beyond ASCII, or -1."""
    while at < end:
        if p[at] == 34:
            return at
        at += 2 if p[at] == 92 else 1
        at = end_of_plain(p, at, end)
    return -1


def has_backslash(p, at, end):
    while at < end:
        if p[at] == 92:
            return True
        at += 1
    return False


def is_null(p, at, end):
    return end - at >= 4 and p[at] == 110 and equal_bytes(p, at, b"null", 0, 4)


def end_of_word(p, at, end):
    """Behind an integer of at most 18 digits, without needless zeros, or behind true or false; -1 for anything else.
    The next byte must be known: a number may continue."""
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
    if at == first or at >= end or at - first > 18 or (p[first] == 48 and at - first > 1):
        return -1
    return at


def member_of(p, at, count):
    """Which member of a header this name is; 0 when it is none."""
    if count == 4:
        if equal_bytes(p, at, b"code", 0, 4):
            return CODE
        return FLAG if equal_bytes(p, at, b"flag", 0, 4) else 0
    if count == 6:
        if equal_bytes(p, at, b"opaque", 0, 6):
            return OPAQUE
        return REMARK if equal_bytes(p, at, b"remark", 0, 6) else 0
    if count == 7:
        return VERSION if equal_bytes(p, at, b"version", 0, 7) else 0
    if count == 8:
        return LANGUAGE if equal_bytes(p, at, b"language", 0, 8) else 0
    if count == 9:
        return EXT_FIELDS if equal_bytes(p, at, b"extFields", 0, 9) else 0
    return SERIALIZE_TYPE if count == 23 and equal_bytes(p, at, b"serializeTypeCurrentRPC", 0, 23) else 0


def is_ascii(p, at, end):
    """Characters of one byte, none of them zero."""
    while at < end:
        if p[at] < 1 or p[at] > 127:
            return False
        at += 1
    return True


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
