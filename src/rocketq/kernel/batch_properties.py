"""The properties of a batch's messages: each has its own, and those of the batch that it lacks behind them.

Both are read item by item, once for measuring and once for writing; nothing is merged to see what it takes.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import copy_bytes, equal_bytes, find_byte
    from rocketq.kernel.properties import PropertySpans
    from rocketq.kernel.send_properties import is_slow_name


@cython.cclass
class BatchProperties:
    """`load()` takes those of the batch, `look()` those of one message: the spans of what the store reads (`spans`),
    whether one makes it more than plain (`cold`), and how long it is with all that it lacks (`size`)."""

    def __init__(self):
        self.spans = PropertySpans()
        self.count = 0
        self.cold = self.tells = False
        self.size = 0
        if not cython.compiled:
            self._p = b""
            self._starts, self._name_ends, self._ends = [0] * EXTRAS_MAX, [0] * EXTRAS_MAX, [0] * EXTRAS_MAX
            self._there = [False] * EXTRAS_MAX

    def load(self, p, length):
        """Cut the batch's own into items; False when they are too many. `tells`: the store reads some of them."""
        at: cython.Py_ssize_t = 0
        item_end: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        spans: PropertySpans = self.spans
        self._p = p
        self.count = 0
        spans.clear()
        while at < length:
            item_end = find_byte(p, at, length, 2)
            name_end = find_byte(p, at, item_end, 1)
            if name_end < item_end:
                if self.count >= EXTRAS_MAX:
                    return False
                self._starts[self.count] = at
                self._name_ends[self.count] = name_end
                self._ends[self.count] = item_end
                self.count += 1
                spans.note(p, at, name_end, item_end)
            at = item_end + 1
        self.tells = spans.tags_at >= 0 or spans.keys_at >= 0 or spans.unique_at >= 0 or spans.delay_at >= 0
        return True

    def look(self, p, at, end):
        """At the properties [at, end) of a message."""
        item_end: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        index: cython.int
        spans: PropertySpans = self.spans
        for index in range(self.count):
            self._there[index] = False
        self.cold = False
        spans.clear()
        self.size = end - at
        self._needs_mark = at < end and p[end - 1] != 2
        while at < end:
            item_end = find_byte(p, at, end, 2)
            name_end = find_byte(p, at, item_end, 1)
            if at < item_end and is_slow_name(p, at, name_end - at):
                self.cold = True
            if name_end < item_end:
                spans.note(p, at, name_end, item_end)
                self.tick(p, at, name_end - at)
            at = item_end + 1
        self.add_sizes()

    def tick(self, p, at, count):
        """The message has a property of this name itself."""
        index: cython.int
        for index in range(self.count):
            if self._name_ends[index] - self._starts[index] == count and equal_bytes(
                p, at, self._p, self._starts[index], count
            ):
                self._there[index] = True

    def add_sizes(self):
        """Of those that the message lacks, each behind a mark unless nothing or a mark is before it."""
        index: cython.int
        needs_mark: cython.bint = self._needs_mark
        for index in range(self.count):
            if not self._there[index]:
                self.size += self._ends[index] - self._starts[index] + (1 if needs_mark else 0)
                needs_mark = True

    def join(self, to, at):
        """Put what the message lacks behind its own properties, which end at `at`; where all end. There is room."""
        index: cython.int
        needs_mark: cython.bint = self._needs_mark
        for index in range(self.count):
            if not self._there[index]:
                if needs_mark:
                    to[at] = 2
                    at += 1
                copy_bytes(to, at, self._p, self._starts[index], self._ends[index] - self._starts[index])
                at += self._ends[index] - self._starts[index]
                needs_mark = True
        return at
