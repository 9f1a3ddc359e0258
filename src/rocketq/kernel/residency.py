"""Which bytes of a mapping are in the page cache, as mincore(2) reports it. Reading others waits for the disk.

The system may evict a page at any time: a report is out of date soon.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import resident_end

    WINDOW_BYTES = 256 << 10  # what a pull takes by default: neighbouring records cost one system call


@cython.final
@cython.cclass
class ResidentRange:
    """The stretch of one mapping that was last seen to be resident. Forget it before every read.

    Where the system cannot be asked (the interpreted kernel, systems without mincore) nothing is resident.
    """

    def __init__(self):
        self.forget()

    def forget(self):
        self._buffer = None
        self._start = self._end = 0

    def covers(self, buffer, at, count):
        """Whether all of [at, at + count) that lies in the buffer is resident. At least one byte is looked at."""
        stop: cython.Py_ssize_t = min(at + max(count, 1), buffer.size)
        if buffer is not self._buffer or at < self._start or stop > self._end:
            self._buffer = buffer
            self._start = at
            self._end = resident_end(buffer.p, at, min(max(stop, at + WINDOW_BYTES), buffer.size))
        return stop <= self._end
