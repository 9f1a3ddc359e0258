"""Replays keep to their rate, whatever comes in at once."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketq.spark.pipelines.pacing import chunk_rows, paced_batches, wait_s


class Clock:
    """Moves when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def now_s(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def numbers(*counts: int) -> list[pa.RecordBatch]:
    start, made = 0, []
    for count in counts:
        made.append(pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())}))
        start += count
    return made


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), max_size=6), st.sampled_from([0.5, 3, 20, 1_000]))
def test_no_moment_sees_more_rows_than_the_rate_allows(counts: list[int], rate: float) -> None:
    """Goal: the rate is a bound at every moment, within one chunk, and no row is lost or moved."""
    clock, seen = Clock(), []
    for batch in paced_batches(numbers(*counts), rate, now_s=clock.now_s, pause=clock.pause):
        seen += batch.column("n").to_pylist()
        assert len(seen) <= rate * (clock.now - 100.0) + chunk_rows(rate) + 1e-6
    assert seen == list(range(sum(counts)))


def test_who_is_slower_than_the_rate_never_waits() -> None:
    clock = Clock()

    def slow() -> list[pa.RecordBatch]:
        for batch in numbers(1, 1, 1):
            clock.now += 10
            yield batch

    assert sum(each.num_rows for each in paced_batches(slow(), 5, now_s=clock.now_s, pause=clock.pause)) == 3
    assert clock.now == 130.0


@pytest.mark.parametrize(("sent", "elapsed", "rate", "wait"), [(0, 0, 5, 0), (10, 1, 5, 1), (10, 3, 5, 0)])
def test_the_wait_is_what_is_left(sent: int, elapsed: float, rate: float, wait: float) -> None:
    assert wait_s(sent, elapsed, rate) == wait
