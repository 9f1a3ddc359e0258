"""How far micro-batches go: limits, runs that end, queues that come, go and shrink; the same offsets when idle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import Limits
from rocketq.spark.planner import LostRange
from rocketq.spark.stream import StreamSteps

A, B, C = (QueueKey("T", "b", n) for n in range(3))


def steps(**limits: int) -> StreamSteps:
    return StreamSteps(Limits(**limits), 0)


def at(**offsets: int) -> Offsets:
    return Offsets.of((globals()[name], value) for name, value in offsets.items())


def test_everything_there_is_without_a_limit() -> None:
    assert steps().next(at(A=1, B=2), {A: (0, 9), B: (0, 7)}, 0).end == at(A=9, B=7)


def test_idle_is_the_same_text() -> None:
    """Goal: Spark compares texts; another one would be an endless run of empty batches."""
    start = Offsets.from_json('{"T": {"b": {"10": 3, "2": 4}}}')
    bounds = {queue: (0, value) for queue, value in start.items()}
    step = steps().next(start, bounds, 0)
    assert step.end.to_json() == start.to_json()
    assert str(step.end.tree()) == str(start.tree())


def test_a_limit_is_shared_out() -> None:
    step = steps().next(at(A=0, B=0), {A: (0, 100), B: (0, 10)}, 0, rows_max=11)
    assert sum(step.end.values()) == 11
    assert step.end[B] >= 1


def test_few_rows_wait_for_more_but_not_too_long() -> None:
    """Goal: minOffsetsPerTrigger holds a batch back until maxTriggerDelay is over."""
    waiting = steps(rows_min=10, delay_max_ms=1000)
    start, few = at(A=0), {A: (0, 9)}
    assert waiting.next(start, few, 999).end == start
    assert waiting.next(start, {A: (0, 10)}, 999).end == at(A=10)
    assert waiting.next(at(A=10), {A: (0, 11)}, 1998).end == at(A=10)
    assert waiting.next(at(A=10), {A: (0, 11)}, 1999).end == at(A=11)


def test_a_run_that_ends_reads_what_was_there_when_it_began() -> None:
    """Goal: AvailableNow neither waits for more rows nor follows what is sent meanwhile."""
    run = steps(rows_min=1000, delay_max_ms=10**9)
    run.pin({A: (0, 5), B: (0, 3)})
    grown = {A: (0, 50), B: (0, 3), C: (0, 8)}
    step = run.next(at(A=0, B=3), grown, 1)
    assert step.end == at(A=5, B=3)
    assert run.next(step.end, grown, 2).end == step.end


def test_a_run_that_begins_behind_its_target_stays() -> None:
    """Goal: a checkpoint that is further than what brokers told is not turned back."""
    run = steps()
    run.pin({A: (0, 5)})
    assert run.next(at(A=7), {A: (0, 9)}, 0).end == at(A=7)


def test_a_new_queue_is_put_down_first_and_read_in_the_next_batch() -> None:
    """Goal: where it begins is in Spark's log, so that doing a batch again reads the same."""
    first = steps().next(at(A=1), {A: (0, 4), B: (3, 9)}, 0)
    assert first.end == at(A=4, B=3)
    assert steps().next(first.end, {A: (0, 4), B: (5, 9)}, 0).end == at(A=4, B=9)


def test_a_new_queue_of_a_run_that_ends_is_read_to_the_target() -> None:
    run = steps()
    run.pin({A: (0, 4), B: (3, 9)})
    first = run.next(at(A=4), {A: (0, 4), B: (3, 12)}, 0)
    assert first.end == at(A=4, B=3)
    assert run.next(first.end, {A: (0, 4), B: (3, 12)}, 0).end == at(A=4, B=9)


def test_queues_of_a_broker_that_is_away_keep_their_place() -> None:
    assert steps().next(at(A=1, B=2), {B: (0, 9)}, 0).end == at(A=1, B=9)
    assert steps().next(at(A=1, B=2), {}, 0).end == at(A=1, B=2)


def test_a_queue_that_shrank_lost_what_was_read_of_it() -> None:
    """Goal: a topic made anew is told with its offsets, and reading can go on at its end."""
    step = steps().next(at(A=9, B=0), {A: (0, 4), B: (0, 2)}, 0)
    assert step.lost == (LostRange(A, 4, 9),)
    assert step.end == at(A=4, B=2)


queues = st.sampled_from([A, B, C])
places = st.dictionaries(queues, st.integers(0, 30))
held = st.dictionaries(queues, st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: tuple(sorted(pair))))


@given(places, held, st.none() | st.integers(1, 20), st.booleans())
def test_no_queue_ever_goes_back_or_is_forgotten(
    start: dict[QueueKey, int], bounds: dict[QueueKey, tuple[int, int]], rows_max: int | None, is_pinned: bool
) -> None:
    """Goal: whatever brokers tell, progress is kept, limits hold, and loss is told."""
    begin, made = Offsets.of(start.items()), steps()
    if is_pinned:
        made.pin(bounds)
    step = made.next(begin, bounds, 0, rows_max)
    lost = {each.queue for each in step.lost}
    assert set(begin) <= set(step.end) <= {*begin, *bounds}
    for queue, offset in begin.items():
        assert step.end[queue] >= offset or queue in lost
    read = sum(max(0, step.end[queue] - offset) for queue, offset in begin.items())
    assert rows_max is None or read <= rows_max
    for queue in set(step.end) - set(begin):
        assert step.end[queue] == bounds[queue][0]
