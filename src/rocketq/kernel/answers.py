"""Answers in the making: templates with gaps, and the buffer they are written to.

A template is an answer as the handlers would write it, cut where its values stand:

    JSON    {"code":0,"extFields":{"msgId":"|","queueId":"|","queueOffset":"|",..},..,"opaque":|,..}
    binary  the fixed part, then entries cut before the length of each value; opaque and lengths are filled in last
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import copy_bytes, store_hex, store_i32

ROOM_BYTES = 1 << 16
ROOM_BYTES_KEPT = 4 << 20
PIECES_MAX = 11
NUMBER_BYTES_MAX = 24  # of a number with its length


@cython.cclass
class AnswerTemplate:
    """`pieces` are the texts between the values; `ext_at` is where a binary header has the length of its fields."""

    def __init__(self, pieces, binary, ext_at):
        at: cython.Py_ssize_t = 0
        index: cython.int = 0
        if len(pieces) > PIECES_MAX:
            raise ValueError(f"a template of {len(pieces)} pieces")
        if not cython.compiled:
            self.cuts = [0] * 12
        self.binary = binary
        self.ext_at = ext_at
        self.pieces = len(pieces)
        self._text = b"".join(pieces)
        self.p = self._text
        self.size = len(self._text)
        for piece in pieces:
            self.cuts[index] = at
            at += len(piece)
            index += 1
        self.cuts[index] = at


@cython.cclass
class AnswerBuffer:
    """Whole answers back to back, and the one being written."""

    def __init__(self):
        self.length = 0
        self._template = None
        self._start = self._at = self._slot = 0
        self._piece = 0
        self._memory = b""
        self._room = 0
        self.reserve(ROOM_BYTES)

    def take(self):
        """What was written since the last call."""
        taken: bytes
        if cython.compiled:
            taken = self.p[: self.length]
        else:
            taken = bytes(self.p[: self.length])
        self.clear()
        return taken

    def clear(self):
        """All readers have copied it."""
        self.length = self._at = 0
        if self._room > ROOM_BYTES_KEPT:
            self._room = 0
            self.reserve(ROOM_BYTES)

    def reserve(self, count):
        """Room for `count` more bytes behind what is written."""
        view: cython.uchar[::1]
        if self._at + count <= self._room and self.length + count <= self._room:
            return
        room: cython.Py_ssize_t = max(self._room, 65_536)
        while max(self._at, self.length) + count > room:
            room *= 2
        memory = bytearray(room)
        if cython.compiled:
            view = memory
            if self._room > 0:
                copy_bytes(cython.address(view[0]), 0, self.p, 0, max(self._at, self.length))
            self.p = cython.address(view[0])
        else:
            fresh = memoryview(memory)
            if self._room > 0:
                copy_bytes(fresh, 0, self.p, 0, max(self._at, self.length))
            self.p = fresh
        self._memory = memory
        self._room = room

    def begin(self, template, more):
        """Start an answer whose texts of unknown length have `more` bytes at most."""
        self._template = template
        self._start = self._at = self.length
        self._piece = 0
        self.reserve(8 + template.size + template.pieces * 24 + more)
        self._at = self._start + 8
        self.put_piece()

    def put_piece(self):
        """The template's next text."""
        low: cython.Py_ssize_t = self._template.cuts[self._piece]
        high: cython.Py_ssize_t = self._template.cuts[self._piece + 1]
        copy_bytes(self.p, self._at, self._template.p, low, high - low)
        self._at += high - low
        self._piece += 1

    def open_slot(self):
        if self._template.binary:
            self._slot = self._at
            self._at += 4

    def close_slot(self):
        if self._template.binary:
            store_i32(self.p, self._slot, self._at - self._slot - 4)

    def put_bytes(self, p, at, count):
        copy_bytes(self.p, self._at, p, at, count)
        self._at += count

    def put_number(self, value):
        digits: cython.int = 1
        rest: cython.longlong
        step: cython.int
        if value < 0:
            self.p[self._at] = 45
            self._at += 1
            value = -value
        rest = value // 10
        while rest > 0:
            digits += 1
            rest //= 10
        for step in range(digits):
            self.p[self._at + digits - 1 - step] = 48 + value % 10
            value //= 10
        self._at += digits

    def put_hex(self, value):
        """Sixteen digits."""
        store_hex(self.p, self._at, value)
        self._at += 16

    def encode(self, template: AnswerTemplate, opaque: cython.longlong, values: list):
        """One answer without a body, with these texts as its values, for callers outside the kernel."""
        value: bytes
        more: cython.Py_ssize_t = 0
        for value in values:
            more += len(value)
        self.begin(template, more)
        for value in values:
            self.open_slot()
            self.put_bytes(value, 0, len(value))
            self.close_slot()
            self.put_piece()
        self.finish(opaque, 0)
        return self.take()

    def put_field(self, value):
        """A number as the next value, and the text behind it."""
        self.open_slot()
        self.put_number(value)
        self.close_slot()
        self.put_piece()

    def finish(self, opaque, body_len):
        """The header is complete. A body of this length follows, put by the caller; `more` was to allow for it."""
        header: cython.Py_ssize_t = self._start + 8
        if self._template.binary:
            store_i32(self.p, header + 5, opaque)
            store_i32(self.p, header + self._template.ext_at, self._at - header - self._template.ext_at - 4)
        else:
            self.put_number(opaque)
            self.put_piece()
        store_i32(self.p, self._start, self._at - self._start - 4 + body_len)
        store_i32(self.p, self._start + 4, (self._at - header) | (0x1000000 if self._template.binary else 0))
        self.length = self._at + body_len
