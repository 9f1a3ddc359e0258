"""The transient write buffer: appends go to locked memory and reach the file a little later, in large writes."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import logging
import mmap

from rocketq.kernel.buffers import MappedBuffer

log = logging.getLogger(__name__)


class WriteBuffer:
    """Memory for one segment. What is in it and not yet committed is lost when the process dies."""

    def __init__(self, size_bytes: int, base: int, written: bytes) -> None:
        self.base = base
        self._pages = mmap.mmap(-1, size_bytes)
        self._pages[: len(written)] = written
        lock_memory(self._pages)
        self.memory = MappedBuffer(self._pages, base)

    def view(self, start: int, end: int) -> memoryview:
        return memoryview(self._pages)[start:end]


def lock_memory(pages: mmap.mmap) -> bool:
    """Keep pages out of swap. Limits are often small: failing is worth a warning, once, and nothing else."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(pages))) == 0:
        return True
    _warn_once(ctypes.get_errno())
    return False


@functools.cache
def _warn_once(reason: int) -> None:
    log.warning("the transient buffer could not be locked in memory (errno %d); it may be swapped", reason)
