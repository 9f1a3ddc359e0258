"""From a position (earliest, a time, offsets, a group) to an offset for each queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rocketq.spark.errors import OptionError
from rocketq.spark.offsets import EARLIEST, LATEST, Offsets, QueueKey
from rocketq.spark.options import AtTime, Mark, Position, SourceOptions, TimesByQueue

Bounds = Mapping[QueueKey, tuple[int, int]]


class Lookup(Protocol):
    """What only brokers know."""

    def offset_at(self, queue: QueueKey, ms: int, bounds: tuple[int, int]) -> int: ...
    def committed(self, group: str, queues: Sequence[QueueKey]) -> Mapping[QueueKey, int]: ...


def starting_offsets(options: SourceOptions, queues: Sequence[QueueKey], bounds: Bounds, lookup: Lookup) -> Offsets:
    """Start offsets. A queue that is not named starts at its earliest message."""
    position = options.starting
    if position is Mark.COMMITTED:
        committed = lookup.committed(options.commit_group or "", queues)
        return Offsets.of((queue, committed.get(queue, _first(queue, bounds))) for queue in queues)
    return _resolve(position, queues, bounds, lookup, Mark.EARLIEST, options.no_match_is_latest)


def ending_offsets(options: SourceOptions, queues: Sequence[QueueKey], bounds: Bounds, lookup: Lookup) -> Offsets:
    """Where a batch read ends; a queue that is not named ends at its latest message."""
    return _resolve(options.ending, queues, bounds, lookup, Mark.LATEST, True)


def require_named_queues(options: SourceOptions, queues: Sequence[QueueKey]) -> None:
    """Offsets or times that are given by queue must be of queues that are read."""
    known = set(queues)
    for position in (options.starting, options.ending):
        named = position.times_ms if isinstance(position, TimesByQueue) else position
        for queue in named if isinstance(named, Offsets) else ():
            if queue not in known:
                raise OptionError(f"offsets are given for {queue}, which is not among the queues that are read")


def _resolve(
    position: Position | TimesByQueue,
    queues: Sequence[QueueKey],
    bounds: Bounds,
    lookup: Lookup,
    default: Mark,
    no_match_is_latest: bool,
) -> Offsets:
    return Offsets.of(
        (queue, _offset(_of_queue(position, queue, default), queue, bounds, lookup, no_match_is_latest))
        for queue in queues
    )


def _of_queue(position: Position | TimesByQueue, queue: QueueKey, default: Mark) -> Mark | AtTime | int:
    if isinstance(position, TimesByQueue):
        return AtTime(position.times_ms[queue]) if queue in position.times_ms else default
    if isinstance(position, Offsets):
        return position.get(queue, EARLIEST if default is Mark.EARLIEST else LATEST)
    return position


def _offset(
    position: Mark | AtTime | int, queue: QueueKey, bounds: Bounds, lookup: Lookup, no_match_is_latest: bool
) -> int:
    match position:
        case Mark.EARLIEST | int(-2):
            return _first(queue, bounds)
        case Mark.LATEST | int(-1):
            return bounds.get(queue, (0, 0))[1]
        case AtTime(ms=ms):
            return _offset_at(queue, ms, bounds, lookup, no_match_is_latest)
        case int(offset):
            return offset
    raise AssertionError(position)


def _offset_at(queue: QueueKey, ms: int, bounds: Bounds, lookup: Lookup, no_match_is_latest: bool) -> int:
    first, last = bounds.get(queue, (0, 0))
    offset = lookup.offset_at(queue, ms, (first, last)) if last > first else last
    if offset == last and not no_match_is_latest:
        hint = "option startingOffsetsByTimestampStrategy=latest begins at its end instead"
        raise OptionError(f"{queue} has no message stored at or after {ms}; {hint}")
    return offset


def _first(queue: QueueKey, bounds: Bounds) -> int:
    return bounds.get(queue, (0, 0))[0]
