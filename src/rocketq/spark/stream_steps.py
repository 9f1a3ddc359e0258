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
        self.target: Offsets | None = None
        """The end offsets of a run that ends."""

    def pin(self, bounds: Bounds) -> None:
        """Fix the end of this run at the current end of the queues."""
        self.target = Offsets.of((queue, high) for queue, (_, high) in bounds.items())

    def next(self, start: Offsets, bounds: Bounds, now_ms: int, rows_max: int | None = None) -> Step:
        """The next end offsets within the target and `rows_max`; `start` itself if there is nothing to read.

        Queues of unavailable brokers keep their offsets. A new queue is recorded at its earliest message and read
        from the next batch on, so that its start is in Spark's log and a repeated batch is the same.
        """
        lost = [LostRange(queue, bounds[queue][1], at) for queue, at in start.items() if _is_cut(queue, at, bounds)]
        new = {queue: low for queue, (low, _) in bounds.items() if queue not in start and self._may_read(queue)}
        begin = {queue: min(at, bounds[queue][1]) if queue in bounds else at for queue, at in start.items()}
        reach = {queue: self._reach(queue, at, bounds) for queue, at in begin.items()}
        waiting = sum(reach[queue] - at for queue, at in begin.items())
        if not (waiting or lost or new) or (not (lost or new) and self._should_wait(waiting, now_ms)):
            return Step(start)
        if waiting:
            self._last_batch_ms = now_ms
        end = Offsets.of(reach.items()) if rows_max is None else share_out(begin, reach, rows_max)
        return Step(end.merged(new), tuple(sorted(lost, key=lambda each: each.queue)))

    def _may_read(self, queue: QueueKey) -> bool:
        return self.target is None or queue in self.target

    def _reach(self, queue: QueueKey, at: int, bounds: Bounds) -> int:
        """How far a queue may be read."""
        high = bounds[queue][1] if queue in bounds else at
        return high if self.target is None else max(at, min(high, self.target.get(queue, at)))

    def _should_wait(self, waiting: int, now_ms: int) -> bool:
        """For more rows, but not too long, and never in a run that ends."""
        if self._limits.rows_min is None or self.target is not None:
            return False
        return waiting < self._limits.rows_min and now_ms - self._last_batch_ms < self._limits.delay_max_ms


def _is_cut(queue: QueueKey, at: int, bounds: Bounds) -> bool:
    return queue in bounds and bounds[queue][1] < at
