"""Excluding long-lived objects from garbage collection in Spark's Python workers."""

from __future__ import annotations

import functools
import gc
import os


def spare_what_is_loaded() -> None:
    """Modules and all they hold stay as long as the process does.

    A worker is used for many tasks, and Spark has everything looked through after each: 8 ms and more, every time for
    the same hundred thousand objects.
    """
    _spare(os.getpid())


@functools.cache
def _spare(_process_id: int) -> None:
    """Once in a process; one that was forked has what it loaded itself."""
    gc.collect()
    gc.freeze()
