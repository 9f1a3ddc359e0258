"""Memory before a run: taken from the host once, so that no peer pays for it.

On a virtual machine a page that was never used, or that was given back, is fetched from the host when it is first
touched: ten times the price of any other page. Whoever writes a log file pays that for every page of it, and which of
the peers does is chance. A file without blocks, read from its start to its end, has the page cache fill up with pages
that cost nothing to take over.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STEP_BYTES = 8 << 20
SPARED_BYTES = 512 << 20
PASSES = 3


class PageCache:
    """Filled as often as it is asked for: what ends meanwhile gives its memory back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = 0

    def fill(self) -> None:
        for _ in range(PASSES):
            more = free_bytes() - SPARED_BYTES
            if more <= SPARED_BYTES:
                return
            print(f"filling the page cache with {more >> 20:,} MiB that are free …", file=sys.stderr)
            self._read(more)

    def _read(self, count: int) -> None:
        os.truncate(self._file.fileno(), self._size + count)
        room = memoryview(bytearray(STEP_BYTES))
        while got := os.preadv(self._file.fileno(), [room], self._size):
            self._size += got


@contextmanager
def page_cache(*, wanted: bool = True) -> Iterator[PageCache | None]:
    """The file is there, and takes no room on the disk, until the end of the run."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryFile(prefix="rocketq-bench-memory-") as file:
        yield PageCache(file)


def free_bytes() -> int:
    """Memory nobody uses for anything."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree:")), 0)
