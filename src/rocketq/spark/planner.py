"""Which stretch of which queue each task reads: pure, and the same for the same offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rocketq.spark.errors import OptionError
from rocketq.spark.offsets import EARLIEST, LATEST, Offsets, QueueKey
from rocketq.spark.options import AtTime, Mark, Position, SourceOptions, TimesByQueue

LOST_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """[low, high) of a queue: one task."""

    queue: QueueKey
    low: int
    high: int

    @property
    def count(self) -> int:
        return self.high - self.low

    def __str__(self) -> str:
        return f"{self.queue}, offsets {self.low} to {self.high - 1}"


@dataclass(frozen=True, slots=True)
class LostRange:
    """Requested messages that no longer exist: deleted by retention, or the queue was recreated and is shorter."""

    queue: QueueKey
    low: int
    high: int

    @property
    def count(self) -> int:
        return self.high - self.low

    def __str__(self) -> str:
        return f"{self.queue}: offsets {self.low} to {self.high - 1}"


@dataclass(frozen=True, slots=True)
class Plan:
    slices: tuple[QueueSlice, ...]
    lost: tuple[LostRange, ...]

    def describe_loss(self) -> str:
        return describe_ranges(self.lost)


def describe_ranges(lost: Sequence[LostRange]) -> str:
    shown = "; ".join(map(str, lost[:LOST_SHOWN_MAX]))
    more = len(lost) - LOST_SHOWN_MAX
    return shown + (f"; and {more} more" if more > 0 else "")


def plan(
    start: Mapping[QueueKey, int],
    end: Mapping[QueueKey, int],
    bounds: Mapping[QueueKey, tuple[int, int]],
    *,
    rows_max: int | None = None,
    slices_min: int | None = None,
) -> Plan:
    """Cut every queue's [start, end) into tasks, within the (min, max) of what brokers hold now."""
    wanted, lost = [], []
    for queue in sorted(end):
        low, high = start.get(queue, bounds.get(queue, (0, 0))[0]), end[queue]
        first, last = bounds.get(queue, (low, low))  # a queue that is gone holds nothing
        kept_low, kept_high = min(max(low, first), high), max(min(high, last), min(low, high))
        if low < kept_low:
            lost.append(LostRange(queue, low, kept_low))
        if kept_high < high and kept_high >= kept_low:
            lost.append(LostRange(queue, max(kept_high, kept_low), high))
        if kept_low < kept_high:
            wanted.append(QueueSlice(queue, kept_low, kept_high))
    return Plan(tuple(_cut(wanted, rows_max, slices_min)), tuple(lost))


def _cut(slices: list[QueueSlice], rows_max: int | None, slices_min: int | None) -> list[QueueSlice]:
    total = sum(each.count for each in slices)
    if slices_min is not None and len(slices) < slices_min and total:
        fair = -(-total // slices_min)
        rows_max = fair if rows_max is None else min(rows_max, fair)
    if rows_max is None:
        return slices
    return [
        QueueSlice(each.queue, low, min(low + step, each.high))
        for each in slices
        for step in [_even_step(each.count, rows_max)]
        for low in range(each.low, each.high, step)
    ]


def _even_step(count: int, rows_max: int) -> int:
    """Rows of each piece when `count` is cut into as few equal pieces as keep within the limit."""
    pieces = -(-count // rows_max)
    return -(-count // pieces)


def share_out(start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], rows_max: int) -> Offsets:
    """How far one batch of at most `rows_max` rows goes: each queue in proportion to what waits in it.

    Every queue with something to read moves by one at least, as long as there are rows for it.
    """
    lags = {queue: max(0, end[queue] - start.get(queue, 0)) for queue in sorted(end)}
    total = sum(lags.values())
    if total <= rows_max:
        return Offsets.of(end.items())
    waiting = sorted((queue for queue, lag in lags.items() if lag), key=lambda queue: (-lags[queue], queue))
    shares = dict.fromkeys(lags, 0) | dict.fromkeys(waiting[:rows_max], 1)
    spare, still = rows_max - sum(shares.values()), total - sum(shares.values())
    for queue in waiting if spare else ():
        shares[queue] += (lags[queue] - 1) * spare // still
    left = rows_max - sum(shares.values())
    for queue in waiting[:left] if spare else ():  # less than one row for each was lost by rounding down
        shares[queue] += shares[queue] < lags[queue]
    return Offsets.of((queue, start.get(queue, 0) + share) for queue, share in shares.items())


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
