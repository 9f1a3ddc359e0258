"""Finding the next good record behind damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.records import RecordView, find_next_record
from rocketq.store.segments import SegmentDirectory

SIZE_BYTES_BEFORE_MAGIC = 7  # a record's size may start with zeros, which a file system need not keep


def next_good_record(files: SegmentDirectory, segment_at: Callable[[int], MappedBuffer], position: int) -> int | None:
    """Log offset of the next good record (or blank) behind `position`, in its file or a later one; None without any.

    Only parts of the files that hold data are looked at: the prepared rest of the last file costs nothing.
    """
    view, base = RecordView(), cast(int | None, files.start_of(position))
    while base is not None:
        segment, first = segment_at(base), max(position + 1 - base, 0)
        ranges = files.disk.data_ranges(files.path_of(base), first) if base in files else []
        for low, high in ranges:
            found = find_next_record(segment, max(low - SIZE_BYTES_BEFORE_MAGIC, first), high, view)
            if found >= 0:
                return base + found
        base = files.after(base)
    return None
