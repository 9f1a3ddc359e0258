"""From what the user says to an offset for every queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rocketq.spark.batch_plan import require_reached
from rocketq.spark.errors import DataLossError, OptionError
from rocketq.spark.offsets import QueueKey
from rocketq.spark.options import SourceOptions, parse_source
from rocketq.spark.planner import ending_offsets, require_named_queues, starting_offsets

A, B = QueueKey("T", "b", 0), QueueKey("T", "b", 1)
BOUNDS = {A: (10, 20), B: (0, 0)}


class Broker:
    """Message n of a queue was stored at n seconds; group g has read queue A up to 15."""

    def offset_at(self, queue: QueueKey, ms: int, bounds: tuple[int, int]) -> int:
        return min(max(-(-ms // 1000), bounds[0]), bounds[1])

    def committed(self, group: str, queues: Sequence[QueueKey]) -> Mapping[QueueKey, int]:
        return {A: 15} if group == "g" else {}


def options(*, streaming: bool = False, **given: str) -> SourceOptions:
    return parse_source({"nameServer": "a:1", "subscribe": "T", "rocketmq.group.id": "g", **given}, streaming=streaming)


def start(*, streaming: bool = False, **given: str) -> dict[QueueKey, int]:
    return dict(starting_offsets(options(streaming=streaming, **given), [A, B], BOUNDS, Broker()))


def end(**given: str) -> dict[QueueKey, int]:
    return dict(ending_offsets(options(**given), [A, B], BOUNDS, Broker()))


def test_earliest_latest_and_committed() -> None:
    assert start() == {A: 10, B: 0}
    assert start(streaming=True) == {A: 20, B: 0}
    assert end() == {A: 20, B: 0}
    assert start(startingOffsets="committed") == {A: 15, B: 0}


def test_offsets_by_queue_and_the_others_at_their_ends() -> None:
    """Goal: a queue that is not named begins at its earliest and ends at its latest message."""
    assert start(startingOffsets='{"T": {"b": {"0": 12}}}') == {A: 12, B: 0}
    assert start(streaming=True, startingOffsets='{"T": {"b": {"0": -1}}}') == {A: 20, B: 0}
    assert start(startingOffsets='{"T": {"b": {"0": -2}}}') == {A: 10, B: 0}
    assert end(endingOffsets='{"T": {"b": {"0": 12}}}') == {A: 12, B: 0}


def test_times() -> None:
    assert start(startingTimestamp="12001", startingOffsetsByTimestampStrategy="latest") == {A: 13, B: 0}
    assert start(startingOffsetsByTimestamp='{"T": {"b": {"0": 14000}}}') == {A: 14, B: 0}
    assert end(endingTimestamp="15000") == {A: 15, B: 0}
    assert end(endingTimestamp="99000") == {A: 20, B: 0}


def test_a_time_that_no_message_reaches_is_an_error_unless_the_strategy_says_otherwise() -> None:
    """Goal: as with Kafka, a wrong time does not read as an empty topic."""
    with pytest.raises(OptionError, match=r"T queue 0 of b has no message stored at or after 99000"):
        start(startingTimestamp="99000")
    late = start(startingTimestamp="99000", startingOffsetsByTimestampStrategy="latest")
    assert late == {A: 20, B: 0}


def test_offsets_of_queues_that_are_not_read_are_refused() -> None:
    given = options(startingOffsets='{"T": {"x": {"0": 12}}}')
    with pytest.raises(OptionError, match="offsets are given for T queue 0 of x, which is not among"):
        require_named_queues(given, [A, B])
    require_named_queues(options(startingOffsets='{"T": {"b": {"0": 12}}}'), [A, B])


def test_a_queue_that_ends_before_the_start_is_told_with_both_places() -> None:
    """Goal: an offset that was never there, or a topic that was made anew, is not taken for a read without rows."""
    queue = QueueKey("T", "b", 0)
    require_reached({queue: 10}, {queue: (0, 10)})
    require_reached({queue: 10}, {})
    with pytest.raises(DataLossError, match=r"T queue 0 of b ends at offset 9, reading was to begin at 10; option"):
        require_reached({queue: 10}, {queue: (0, 9)})
