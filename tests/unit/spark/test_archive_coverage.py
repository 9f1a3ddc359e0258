"""Spans of offsets: what is there, what is missing, what would be twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="pyarrow is not installed (it comes with rocketq[spark])")

from tests.unit.spark.archive_writing import batch_of
from tests.unit.spark.log_writing import record

from rocketq.spark.archive.backfill import SpanCounter
from rocketq.spark.archive.coverage import Coverage, merged
from rocketq.spark.archive.folder import ArchiveState
from rocketq.spark.archive.plan import lost_coverage, plan_archive
from rocketq.spark.errors import SparkError
from rocketq.spark.offsets import QueueKey
from rocketq.spark.planner import LostRange, QueueSlice

Q = QueueKey("T", "b", 0)
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


def as_set(given_spans: object) -> set[int]:
    return {each for low, high in given_spans for each in range(low, high)}  # type: ignore[attr-defined]


@given(spans, spans, st.integers(0, 40), st.integers(0, 40))
def test_spans_behave_as_the_sets_they_stand_for(first: list, second: list, low: int, high: int) -> None:
    """Goal: joining, taking away, gaps and overlaps are those of plain sets of offsets."""
    a, b = Coverage({Q: merged(first)}), Coverage({Q: merged(second)})
    assert as_set(a[Q]) == as_set(first)
    assert as_set(a.missing(Q, low, high)) == set(range(low, high)) - as_set(first)
    assert as_set(a.plus(b)[Q]) == as_set(first) | as_set(second)
    assert as_set(a.minus(b)[Q]) == as_set(first) - as_set(second)
    assert (a.first_common(b) is None) == (not as_set(first) & as_set(second))
    assert Coverage.from_tree(a.tree()) == a
    assert all(x[1] < y[0] for x, y in zip(a[Q], a[Q][1:], strict=False))


def state(*archived: tuple[int, int], lost: tuple[tuple[int, int], ...] = ()) -> ArchiveState:
    return ArchiveState(archived=Coverage({Q: merged(archived)}), lost=Coverage({Q: merged(lost)}))


def test_a_new_queue_begins_where_it_is_told_and_a_known_one_goes_on() -> None:
    assert plan_archive(ArchiveState(), {Q: 5}, {Q: 9}, {Q: (0, 9)}).slices == (QueueSlice(Q, 5, 9),)
    assert plan_archive(state((5, 9)), {Q: 7}, {Q: 12}, {Q: (0, 12)}).slices == (QueueSlice(Q, 9, 12),)
    assert plan_archive(state((5, 9)), {Q: 7}, {Q: 9}, {Q: (0, 9)}).slices == ()


def test_gaps_are_filled_and_what_is_lost_is_told_once() -> None:
    found = plan_archive(state((0, 3), (10, 12)), {Q: 0}, {Q: 14}, {Q: (6, 14)})
    assert found.slices == (QueueSlice(Q, 6, 10), QueueSlice(Q, 12, 14))
    assert found.lost == (LostRange(Q, 3, 6),)
    known = state((0, 3), (10, 12), lost=((3, 6),))
    assert plan_archive(known, {Q: 0}, {Q: 14}, {Q: (6, 14)}).lost == ()
    assert lost_coverage(found.lost)[Q] == ((3, 6),)


def test_a_queue_that_is_shorter_than_its_archive_is_refused() -> None:
    """Goal: a topic made anew does not pass for one that has nothing new."""
    with pytest.raises(SparkError, match="T queue 0 of b ends at offset 4, but 9 are archived"):
        plan_archive(state((0, 9)), {Q: 0}, {Q: 4}, {Q: (0, 4)})


def test_the_first_offset_that_comes_twice_is_named() -> None:
    """Goal: of many queues the one that is to be looked at."""
    counter = SpanCounter()
    for records in ([record(n, topic="T", queue_id=n % 3) for n in range(30)], [record(40, topic="T", queue_id=1)]):
        counter.add("T", "b", batch_of(records))
    assert counter.twice is None
    assert counter.coverage.count == 31
    counter.add("T", "b", batch_of([record(n, topic="T", queue_id=1) for n in (50, 41, 40, 13)]))
    assert counter.twice == (QueueKey("T", "b", 1), 13)
    within_one = SpanCounter()
    within_one.add("T", "b", batch_of([record(n, topic="T", queue_id=0) for n in (7, 8, 8, 9)]))
    assert within_one.twice == (QueueKey("T", "b", 0), 8)


def test_slices_are_even_and_within_the_limit() -> None:
    slices = plan_archive(ArchiveState(), {Q: 0}, {Q: 10}, {Q: (0, 10)}, rows_max=4).slices
    assert [(each.low, each.high) for each in slices] == [(0, 4), (4, 8), (8, 10)]
