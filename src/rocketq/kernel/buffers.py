"""A piece of mapped memory that the kernel may address."""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import crc32_more, populate_pages


@cython.cclass
class MappedBuffer:
    """Holds a buffer (an mmap, usually) and its address for as long as anyone refers to this object.

    `base` is what the first byte is called by its owner: a log offset, or the queue offset of a file's first unit.
    Unmapping is dropping the last reference, so no reader can access unmapped memory.
    """

    def __init__(self, source, base):
        view: cython.const[cython.uchar][::1]
        self._held = memoryview(source)
        self.base = base
        self.size = len(source)
        if cython.compiled:
            view = source
            self.p = cython.cast(cython.p_uchar, cython.address(view[0])) if self.size else cython.NULL
        else:
            self.p = self._held

    def bytes_at(self, at: cython.Py_ssize_t, count: cython.Py_ssize_t):
        """A copy of `count` bytes; IndexError outside the buffer."""
        if at < 0 or count < 0 or at + count > self.size:
            raise IndexError(f"bytes {at}..{at + count} of a buffer of {self.size}")
        if cython.compiled:
            return self.p[at : at + count]
        else:
            return bytes(self.p[at : at + count])

    def crc32(self, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, crc: cython.uint):
        """CRC-32 of [at, stop), carried on from `crc`."""
        if at < 0 or stop > self.size:
            raise IndexError(f"bytes {at}..{stop} of a buffer of {self.size}")
        return crc32_more(crc, self.p, at, stop - at)

    def populate(self, at: cython.Py_ssize_t, count: cython.Py_ssize_t):
        """Have the pages of a range ready to be written, while other threads run; False where the system does not
        support it."""
        done: cython.bint
        if at < 0 or count < 0 or at + count > self.size:
            raise IndexError(f"bytes {at}..{at + count} of a buffer of {self.size}")
        with cython.nogil:
            done = populate_pages(self.p, at, count)
        return done

    @property
    def memory(self):
        """The buffer itself, for Python code that writes whole pieces."""
        return self._held
