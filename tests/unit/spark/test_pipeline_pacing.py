"""Replays keep to their rate, whatever comes in at once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketq.spark.pipelines.replay import chunk_rows, paced_batches


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
@given(st.lists(st.tuples(st.integers(0, 60), st.floats(0, 30)), max_size=6), st.sampled_from([0.5, 3, 20, 1_000]))
def test_no_stretch_of_time_sees_more_rows_than_the_rate_allows(arrivals: list[tuple[int, float]], rate: float) -> None:
    """Goal: the rate is a bound in every stretch, within a chunk, however slowly rows came before; none is lost."""
    clock, seen, handed = Clock(), [], [(100.0, 0)]

    def arriving() -> Iterator[pa.RecordBatch]:
        for batch, (_, wait) in zip(numbers(*(count for count, _ in arrivals)), arrivals, strict=True):
            clock.now += wait
            yield batch

    for batch in paced_batches(arriving(), rate, now_s=clock.now_s, pause=clock.pause):
        seen += batch.column("n").to_pylist()
        handed.append((clock.now, len(seen)))
    assert seen == list(range(sum(count for count, _ in arrivals)))
    for at, (begin, before) in enumerate(handed):
        for end, after in handed[at:]:
            assert after - before <= rate * (end - begin) + chunk_rows(rate) + 1e-6


def test_who_is_slower_than_the_rate_never_waits() -> None:
    clock = Clock()

    def slow() -> Iterator[pa.RecordBatch]:
        for batch in numbers(1, 1, 1):
            clock.now += 10
            yield batch

    assert sum(each.num_rows for each in paced_batches(slow(), 5, now_s=clock.now_s, pause=clock.pause)) == 3
    assert clock.now == 130.0


def test_the_rate_is_reached() -> None:
    """Goal: a bound that is never met would be slow for nothing."""
    clock = Clock()
    for _ in paced_batches(numbers(100), 20, now_s=clock.now_s, pause=clock.pause):
        pass
    assert clock.now - 100.0 == pytest.approx(98 / 20)
