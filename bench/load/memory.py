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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STEP_BYTES = 8 << 20
SPARED_BYTES = 1 << 30


@contextmanager
def filled_page_cache() -> Iterator[float]:
    """Seconds it took; the file is there (and takes no room on the disk) until the end of the run."""
    began = time.monotonic()
    with tempfile.NamedTemporaryFile(prefix="rocketq-bench-memory-") as file:
        left = max(0, free_bytes() - SPARED_BYTES)
        os.truncate(file.fileno(), left)
        print(f"filling the page cache with {left >> 20:,} MiB that are free …", file=sys.stderr)
        room = bytearray(STEP_BYTES)
        while file.raw.readinto(room):  # type: ignore[attr-defined]
            pass
        yield time.monotonic() - began


def free_bytes() -> int:
    """Memory nobody uses for anything."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree:")), 0)
