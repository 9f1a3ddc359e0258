"""Which bytes of mappings are in the page cache, as mincore(2) reports it. Reading others waits for the disk.

The system call takes 1.5 to 2 us, as much as several messages of a pull. So what it reports as resident is remembered,
in chunks of eight pages, until the owner forgets it. The system may evict a page in between: then a reader waits once.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.buffers import MappedBuffer
    from rocketq.kernel.primitives import resident_mask


@cython.final
@cython.cclass
class ResidentPages:
    """A table of chunks by address, each with a bit for every page. A chunk that takes the slot of another replaces it.

    Where the system cannot be asked (the interpreted kernel, systems without mincore) nothing is resident.
    """

    def __init__(self):
        self.forget()

    def forget(self):
        """Ask again from now on."""
        index: cython.int
        if cython.compiled:
            for index in range(CHUNKS):
                self._chunks[index] = 0

    def covers(self, buffer: MappedBuffer, at: cython.Py_ssize_t, count: cython.longlong):
        """Whether all of [at, at + count) inside the buffer is resident; at least one byte is checked."""
        stop: cython.Py_ssize_t = min(at + max(count, 1), buffer.size)
        base: cython.size_t
        page: cython.size_t
        last: cython.size_t
        chunk: cython.size_t
        needed: cython.uint
        if stop <= at:
            return True
        if not cython.compiled:
            return resident_mask(buffer.p, at, stop) != 0
        base = cython.cast(cython.size_t, buffer.p)
        page = (base + at) >> PAGE_BITS
        last = (base + stop - 1) >> PAGE_BITS
        while page <= last:
            chunk = page >> CHUNK_BITS
            needed = 0xFF << (page & 7) & 0xFF
            if last >> CHUNK_BITS == chunk:
                needed &= 0xFF >> (7 - (last & 7))
            if self._chunks[chunk % CHUNKS] >> 8 != chunk or self._chunks[chunk % CHUNKS] & needed != needed:
                self.look(buffer, base, chunk)
                if self._chunks[chunk % CHUNKS] & needed != needed:
                    return False
            page = (chunk + 1) << CHUNK_BITS
        return True

    def look(self, buffer, base, chunk):
        """Ask for the part of a chunk that is in the buffer."""
        start: cython.size_t = chunk << (PAGE_BITS + CHUNK_BITS)
        end: cython.size_t = start + (1 << (PAGE_BITS + CHUNK_BITS))
        low: cython.size_t = max(start, base)
        high: cython.Py_ssize_t = end - base
        mask: cython.size_t = resident_mask(buffer.p, low - base, min(high, buffer.size))
        self._chunks[chunk % CHUNKS] = chunk << 8 | mask << ((low >> PAGE_BITS) & 7)
