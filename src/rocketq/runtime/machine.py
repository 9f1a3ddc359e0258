"""Whether two processes see the same files."""

from __future__ import annotations

import functools
import os
from pathlib import Path


@functools.cache
def boot_id() -> str:
    """Names the running kernel; empty where none can be had."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def file_id(path: str | Path) -> str:
    """Names a file or folder among all of one kernel, on every mount, for as long as it exists; OSError when
    it is not."""
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}"
