"""Plans: every offset in one slice, loss told exactly, limits shared out fairly, the same for the same offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.spark.errors import OptionError
from rocketq.spark.offsets import Offsets, QueueKey, parse_assignment
from rocketq.spark.planner import LostRange, QueueSlice, plan, share_out

QUEUES = [QueueKey("T", "b", n) for n in range(4)]
A, B = QUEUES[:2]


def test_one_slice_per_queue_that_has_something_to_read() -> None:
    found = plan({A: 5, B: 7}, {A: 9, B: 7}, {A: (0, 20), B: (0, 7)})
    assert found.slices == (QueueSlice(A, 5, 9),)
    assert found.lost == ()


def test_what_has_aged_out_is_lost_and_the_rest_is_read() -> None:
    found = plan({A: 5}, {A: 9}, {A: (7, 20)})
    assert found.slices == (QueueSlice(A, 7, 9),)
    assert found.lost == (LostRange(A, 5, 7),)
    assert found.describe_loss() == "T queue 0 of b: offsets 5 to 6"


def test_a_queue_that_became_shorter_lost_its_end() -> None:
    """Goal: a topic deleted and made anew between two batches is noticed."""
    found = plan({A: 5}, {A: 9}, {A: (0, 6)})
    assert found.slices == (QueueSlice(A, 5, 6),)
    assert found.lost == (LostRange(A, 6, 9),)
    assert plan({A: 5}, {A: 9}, {}).lost == (LostRange(A, 5, 9),)
    assert plan({A: 5}, {A: 9}, {A: (0, 2)}).lost == (LostRange(A, 5, 9),)
    assert plan({A: 5}, {A: 9}, {A: (30, 40)}).lost == (LostRange(A, 5, 9),)


ranges = st.fixed_dictionaries({queue: st.tuples(st.integers(0, 50), st.integers(0, 50)) for queue in QUEUES})


@given(ranges, ranges, st.none() | st.integers(1, 20), st.none() | st.integers(1, 12))
def test_every_wanted_offset_is_in_one_slice_or_lost(
    wanted: dict[QueueKey, tuple[int, int]],
    held: dict[QueueKey, tuple[int, int]],
    rows_max: int | None,
    slices_min: int | None,
) -> None:
    """Goal: nothing read twice, nothing forgotten, whatever brokers hold."""
    start = {queue: min(pair) for queue, pair in wanted.items()}
    end = {queue: max(pair) for queue, pair in wanted.items()}
    bounds = {queue: (min(pair), max(pair)) for queue, pair in held.items()}
    found = plan(start, end, bounds, rows_max=rows_max, slices_min=slices_min)
    for queue in QUEUES:
        covered = [n for each in found.slices if each.queue == queue for n in range(each.low, each.high)]
        missing = [n for each in found.lost if each.queue == queue for n in range(each.low, each.high)]
        assert sorted(covered + missing) == list(range(start[queue], end[queue]))
        assert all(bounds[queue][0] <= n < bounds[queue][1] for n in covered)
    assert all(each.count > 0 and (rows_max is None or each.count <= rows_max) for each in found.slices)
    assert found == plan(start, end, bounds, rows_max=rows_max, slices_min=slices_min)


def test_slices_are_even_and_as_many_as_asked_for() -> None:
    found = plan({A: 0, B: 0}, {A: 100, B: 10}, {A: (0, 100), B: (0, 10)}, slices_min=4)
    assert [each.count for each in found.slices] == [25, 25, 25, 25, 10]


@given(ranges, st.integers(1, 60))
def test_a_limit_is_shared_out_and_kept(wanted: dict[QueueKey, tuple[int, int]], rows_max: int) -> None:
    """Goal: no queue starves, the limit holds and is used."""
    start = {queue: min(pair) for queue, pair in wanted.items()}
    end = {queue: max(pair) for queue, pair in wanted.items()}
    reached = share_out(start, end, rows_max)
    moved = {queue: reached[queue] - start[queue] for queue in QUEUES}
    waiting = {queue: end[queue] - start[queue] for queue in QUEUES}
    assert all(0 <= moved[queue] <= waiting[queue] for queue in QUEUES)
    assert sum(moved.values()) == min(rows_max, sum(waiting.values()))
    if rows_max >= len(QUEUES):
        assert all(moved[queue] > 0 for queue in QUEUES if waiting[queue] > 0)


def test_offsets_are_the_same_text_for_the_same_values() -> None:
    """Goal: Spark compares them as texts; another order would look like new data."""
    one = Offsets.of([(QueueKey("b", "x", 10), 1), (QueueKey("a", "y", 2), 2), (QueueKey("b", "x", 9), 3)])
    other = Offsets.from_json('{"b":{"x":{"9":3,"10":1}},"a":{"y":{"2":2}}}')
    assert one.to_json() == other.to_json() == '{"a":{"y":{"2":2}},"b":{"x":{"10":1,"9":3}}}'
    assert list(other) == [QueueKey("a", "y", 2), QueueKey("b", "x", 9), QueueKey("b", "x", 10)]


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"t":5}', '{"t":{"b":[1]}}', '{"t":{"b":{"x":1}}}', '{"t":{"b":{"0":"1"}}}']
)
def test_offsets_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(OptionError):
        Offsets.from_json(text)


def test_assignments_name_queues() -> None:
    assert parse_assignment('{"t":{"b":[1,0,1]}}') == {"t": {"b": [0, 1]}}
    for text in ("{}", '{"t":{"b":[]}}', '{"t":{"b":["0"]}}', '{"t":{"b":[-1]}}'):
        with pytest.raises(OptionError):
            parse_assignment(text)
