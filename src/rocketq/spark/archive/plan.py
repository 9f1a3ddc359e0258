"""What of a cluster's queues is still to be archived: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketq.spark.archive.coverage import Coverage, Span
from rocketq.spark.archive.folder import ArchiveState
from rocketq.spark.errors import SparkError
from rocketq.spark.offsets import QueueKey
from rocketq.spark.planner import LostRange, QueueSlice

SLICE_ROWS_MAX: Final = 500_000


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """`slices` are a task each; `lost` had aged out before they could be archived, and were not known as lost."""

    slices: tuple[QueueSlice, ...]
    lost: tuple[LostRange, ...]

    @property
    def rows(self) -> int:
        return sum(each.count for each in self.slices)


def plan_archive(
    state: ArchiveState,
    start: Mapping[QueueKey, int],
    end: Mapping[QueueKey, int],
    bounds: Mapping[QueueKey, Span],
    *,
    rows_max: int = SLICE_ROWS_MAX,
) -> ArchivePlan:
    """A known queue continues at the end of the archive, and its gaps are filled; a new one starts at `start`."""
    slices: list[QueueSlice] = []
    lost: list[LostRange] = []
    for queue in sorted(end):
        held = bounds.get(queue, (0, 0))
        known = state.archived[queue]
        if known and held[1] < known[-1][1]:
            raise SparkError(
                f"{queue} ends at offset {held[1]}, but {known[-1][1]} are archived: "
                "was the topic deleted and made again? Archive it into another directory"
            )
        low = min(known[0][0], start[queue]) if known else start[queue]
        settled = state.archived.plus(state.lost)
        for span in settled.missing(queue, low, end[queue]):
            there = (min(max(span[0], held[0]), span[1]), span[1])
            if span[0] < there[0]:
                lost.append(LostRange(queue, span[0], there[0]))
            slices += _cut(queue, there, rows_max)
    return ArchivePlan(tuple(slices), tuple(lost))


def lost_coverage(lost: tuple[LostRange, ...]) -> Coverage:
    found = Coverage({})
    for each in lost:
        found = found.plus(Coverage({each.queue: ((each.low, each.high),)}))
    return found


def _cut(queue: QueueKey, span: Span, rows_max: int) -> list[QueueSlice]:
    count = span[1] - span[0]
    if count <= 0:
        return []
    pieces = -(-count // rows_max)
    step = -(-count // pieces)
    return [QueueSlice(queue, low, min(low + step, span[1])) for low in range(span[0], span[1], step)]
