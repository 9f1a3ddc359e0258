"""So many rows per second, no more. Pure: the clock and the waiting come in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa


def wait_s(rows_sent: int, elapsed_s: float, rows_per_s: float) -> float:
    """How long to wait before rows beyond these may go."""
    return max(0.0, rows_sent / rows_per_s - elapsed_s)


def chunk_rows(rows_per_s: float) -> int:
    """Rows that go at once: those of a tenth of a second."""
    return max(1, int(rows_per_s / 10))


def paced_batches(
    batches: Iterable[pa.RecordBatch],
    rows_per_s: float,
    *,
    now_s: Callable[[], float],
    pause: Callable[[float], None],
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, handed out no faster than that."""
    began, sent, step = now_s(), 0, chunk_rows(rows_per_s)
    for batch in batches:
        for at in range(0, batch.num_rows, step):
            if (wait := wait_s(sent, now_s() - began, rows_per_s)) > 0:
                pause(wait)
            part = batch.slice(at, step)
            sent += part.num_rows
            yield part
