"""A column of texts or bytes that grows with the records it is taken from.

texts := rows + 1 native 32-bit ends, the bytes one after the other, a validity bitmap
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import copy_bytes, load_i32


@cython.final
@cython.cclass
class TextColumn:
    """Texts or bytes of rows that come in order. After finish() `ends`, `data` and `valid` are buffers for Arrow; they
    may be longer than their content."""

    def __init__(self):
        self.begin()

    def begin(self):
        """Forget all; what was handed out stays as it is."""
        self.ends, self.data, self.valid = bytearray(4), bytearray(1), bytearray(b"\xff")
        self.nulls = self.used = self.rows = 0
        self._row_room = self._byte_room = 0
        self.point()

    def reserve(self, rows, bytes_max, times):
        """Reserve this many rows and bytes; without room, for `times` as many: the batch will have them. It
        doubles at least, so that many small buffers do not copy all that came before with each of them."""
        if self.rows + rows > self._row_room:
            self._row_room = max(self.rows + rows * times + (rows >> 3), 2 * self._row_room)
            self.ends = longer(self.ends, 4 * (self.rows + 1), 4 * (self._row_room + 1))
            self.valid = self.valid + b"\xff" * (self._row_room // 8 + 1 - len(self.valid))
        if self.used + bytes_max > self._byte_room:
            self._byte_room = max(self.used + bytes_max * times + (bytes_max >> 3), 2 * self._byte_room)
            self.data = longer(self.data, self.used, self._byte_room + 1)
        self.point()

    def point(self):
        ints: cython.int[::1]
        chars: cython.uchar[::1]
        if cython.compiled:
            ints = memoryview(self.ends).cast("i")
            self._ends = cython.address(ints[0])
            chars = self.data
            self._data = cython.address(chars[0])
            chars = self.valid
            self._valid = cython.address(chars[0])
        else:
            self._ends = memoryview(self.ends).cast("i")
            self._data = memoryview(self.data)
            self._valid = memoryview(self.valid)

    def finish(self):
        """Room for bytes that was not used is given back: its content would be undefined."""
        if cython.compiled:
            PyByteArray_Resize(self.data, self.used)
        else:
            self.data = self.data[: self.used]

    def put(self, p, at, count):
        """The next row's text."""
        copy_bytes(self._data, self.used, p, at, count)
        self.used += count
        self.rows += 1
        self._ends[self.rows] = self.used

    def put_nothing(self):
        """The next row has none."""
        self._valid[self.rows >> 3] &= ~(1 << (self.rows & 7))
        self.nulls += 1
        self.rows += 1
        self._ends[self.rows] = self.used

    def put_id(self, p, host_at, host_len, log_offset):
        """The next row's id by its place: host and log offset in upper-case hex."""
        step: cython.int
        digit: cython.int
        for step in range(host_len):
            digit = p[host_at + step] >> 4
            self._data[self.used + 2 * step] = digit + 48 if digit < 10 else digit + 55
            digit = p[host_at + step] & 15
            self._data[self.used + 2 * step + 1] = digit + 48 if digit < 10 else digit + 55
        self.used += 2 * host_len
        for step in range(16):
            digit = log_offset & 15
            self._data[self.used + 15 - step] = digit + 48 if digit < 10 else digit + 55
            log_offset >>= 4
        self.used += 16
        self.rows += 1
        self._ends[self.rows] = self.used

    def put_host(self, p, at):
        """The next row's IPv4 host as a.b.c.d:port."""
        step: cython.int
        for step in range(4):
            self.put_number(p[at + step])
            self._data[self.used] = 58 if step == 3 else 46
            self.used += 1
        self.put_number(load_i32(p, at + 4) & 0xFFFF)
        self.rows += 1
        self._ends[self.rows] = self.used

    def put_number(self, value):
        digits: cython.int = 1 if value < 10 else 2 if value < 100 else 3 if value < 1000 else 4 if value < 10000 else 5
        step: cython.int
        for step in range(digits):
            self._data[self.used + digits - 1 - step] = 48 + value % 10
            value //= 10
        self.used += digits


def longer(held: bytearray, used: cython.Py_ssize_t, size: cython.Py_ssize_t) -> bytearray:
    """The first `used` bytes of it in one of `size`; what follows them is as it comes."""
    if cython.compiled:
        grown: bytearray = PyByteArray_FromStringAndSize(cython.NULL, size)
    else:
        grown = bytearray(size)
    memoryview(grown)[:used] = memoryview(held)[:used]
    return grown
