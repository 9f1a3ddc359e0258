"""A limit of rows per second. Pure: clock and wait are arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa


def chunk_rows(rows_per_s: float) -> int:
    """Rows sent together: those of a tenth of a second."""
    return max(1, int(rows_per_s / 10))


def paced_batches(
    batches: Iterable[pa.RecordBatch],
    rows_per_s: float,
    *,
    now_s: Callable[[], float],
    pause: Callable[[float], None],
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, no faster than that at any time: what was not used is not made up for."""
    next_s, step = now_s(), chunk_rows(rows_per_s)
    for batch in batches:
        for at in range(0, batch.num_rows, step):
            now = now_s()
            if now < next_s:
                pause(next_s - now)
            part = batch.slice(at, step)
            next_s = max(now, next_s) + part.num_rows / rows_per_s
            yield part
