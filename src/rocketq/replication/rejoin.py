"""Where a replica goes on copying: the point up to which its log and the master's are equal."""

from __future__ import annotations

from dataclasses import dataclass

from rocketq.replication.epochs import EpochList


@dataclass(frozen=True, slots=True)
class LogShape:
    """What two replicas tell each other about their logs."""

    start: int
    end: int
    epochs: EpochList


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """Cut a longer log back to `point`, then copy from there. `fresh`: the log is empty and starts there."""

    point: int
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class CannotJoin:
    reason: str


def find_rejoin_point(local: LogShape, master: LogShape) -> CopyFrom | CannotJoin:
    """The newest epoch that both have with the same start decides; entries without data are left out on both sides."""
    if local.end == local.start:
        return CopyFrom(master.start, fresh=True)
    ours, theirs = local.epochs.copy(), master.epochs.copy()
    ours.cut(local.end)
    theirs.cut(master.end)
    known = set(theirs)
    for entry in reversed(list(ours)):
        if entry in known:
            point = min(ours.end_of(entry, local.end), theirs.end_of(entry, master.end))
            if point < master.start:
                return CannotJoin(f"the logs part at {point}, the master's starts at {master.start}")
            if point < local.start:
                return CannotJoin(f"the logs part at {point}, before this replica's start {local.start}")
            return CopyFrom(point)
    if local.start == master.start == 0 and _knows_its_beginning(ours):
        return CopyFrom(0)  # both are whole, so they agree on nothing but the beginning
    return CannotJoin("this log and the master's have no epoch in common")


def _knows_its_beginning(epochs: EpochList) -> bool:
    """A log that was written before there were epochs does not, and is never cut away."""
    return next((entry.start == 0 for entry in epochs), False)
