"""How far the next micro-batch goes: pure, from what was read and what brokers hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import Limits
from rocketq.spark.planner import LostRange, share_out

Bounds = Mapping[QueueKey, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Step:
    """The end of the next batch; `lost` are queues that have become shorter than what was read of them."""

    end: Offsets
    lost: tuple[LostRange, ...] = ()


class StreamSteps:
    """Keeps what must outlive a call: the target of a run that ends, and when the last batch began."""

    def __init__(self, limits: Limits, now_ms: int) -> None:
        self._limits = limits
        self._last_batch_ms = now_ms
        self._target: Offsets | None = None

    def pin(self, bounds: Bounds) -> None:
        """What is there now is all this run will read."""
        self._target = Offsets.of((queue, high) for queue, (_, high) in bounds.items())

    def next(self, start: Offsets, bounds: Bounds, now_ms: int, rows_max: int | None = None) -> Step:
        """At most as far as limits and target allow; `start` itself when there is nothing to do.

        Queues that brokers do not tell of at present stay where they are: their turn comes again.
        """
        known = {queue: high for queue, (_, high) in bounds.items()}
        lost = [LostRange(queue, known[queue], at) for queue, at in start.items() if known.get(queue, at) < at]
        available = {queue: self._reach(queue, start, bounds) for queue in {*start, *known}}
        waiting = sum(available[queue] - _begin(queue, start, bounds) for queue in available)
        if waiting <= 0 and not lost:
            return Step(start)
        if self._should_wait(waiting, now_ms):
            return Step(start)
        self._last_batch_ms = now_ms
        limits = [each for each in (self._limits.rows_max, rows_max) if each is not None]
        begin = {queue: _begin(queue, start, bounds) for queue in available}
        end = share_out(begin, available, min(limits)) if limits else Offsets.of(available.items())
        return Step(end, tuple(sorted(lost, key=lambda each: each.queue)))

    def _reach(self, queue: QueueKey, start: Offsets, bounds: Bounds) -> int:
        """How far a queue may be read at all."""
        if queue not in bounds:
            return start[queue]
        high = bounds[queue][1]
        if self._target is not None:
            high = min(high, self._target.get(queue, _begin(queue, start, bounds)))
            return max(high, min(start.get(queue, high), bounds[queue][1]))
        return high

    def _should_wait(self, waiting: int, now_ms: int) -> bool:
        """For more rows, but not too long, and never in a run that ends."""
        if self._limits.rows_min is None or self._target is not None:
            return False
        return waiting < self._limits.rows_min and now_ms - self._last_batch_ms < self._limits.delay_max_ms


def _begin(queue: QueueKey, start: Offsets, bounds: Bounds) -> int:
    """A queue that was not there before begins at its earliest message; one that was cut begins at its end."""
    low, high = bounds.get(queue, (start.get(queue, 0), start.get(queue, 0)))
    return min(start.get(queue, low), high)
