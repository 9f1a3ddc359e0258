"""What must hold whatever happens: acknowledged and seen messages stay, one master per epoch, masters have all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from rocketq.replication.control import GroupState

from .replica_disk import RECORD_BYTES, ReplicaDisk


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class History:
    """`truth` is the longest part of a log that anybody was told of: acknowledged to a sender or seen by a reader."""

    truth: bytearray = field(default_factory=bytearray)
    masters: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    unknown_count: int = 0
    refused_count: int = 0
    elections: int = 0
    cuts: int = 0
    cut_bytes: int = 0
    decided: tuple[int, int] = (0, 0)
    trace: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        self.trace.append(line)

    def told(self, disk: ReplicaDisk, end: int, what: str) -> None:
        """Somebody was told of a log up to `end`: it must never have been, nor become, another one."""
        if not disk.start <= end <= disk.log_end:
            raise Violation(f"{what}: told up to {end}, the log is [{disk.start}, {disk.log_end})")
        known = len(self.truth)
        both = min(known, end)
        if disk.start < both and disk.read(disk.start, both) != self.truth[disk.start : both]:
            raise Violation(f"{what}: the log differs below {both} from what was told before")
        if end > known:
            if disk.start > known:
                raise Violation(f"{what}: the log starts at {disk.start}, only {known} was ever told")
            self.truth += disk.read(known, end)

    def acknowledged(self, message_id: int, end: int, disk: ReplicaDisk, who: str) -> None:
        if message_id in self.acked:
            raise Violation(f"{who}: message {message_id} acknowledged twice")
        self.acked[message_id] = end
        self.told(disk, end, f"{who} acknowledges message {message_id}")

    def leads(self, node: int, epoch: int, disk: ReplicaDisk) -> None:
        """A master may write from here on."""
        if self.masters.setdefault(epoch, node) != node or epoch < max(self.masters):
            raise Violation(f"epoch {epoch}: node {node} leads, masters so far {self.masters}")
        self.elections += 1
        if disk.log_end < len(self.truth):
            raise Violation(f"node {node} leads epoch {epoch} with {disk.log_end} of {len(self.truth)} bytes")
        self.told(disk, len(self.truth), f"node {node} leads epoch {epoch}")

    def wrote(self, node: int, epoch: int) -> None:
        if self.masters.get(epoch) != node:
            raise Violation(f"node {node} writes in epoch {epoch}, its master is {self.masters.get(epoch)}")

    def cut(self, node: int, before: bytes, start: int, end: int) -> None:
        """A replica cut its log to `end`: nothing that was ever told may go."""
        known = bytes(self.truth[start : start + len(before)])
        right = start + _common(before, known)
        if end < right - right % RECORD_BYTES:
            raise Violation(f"node {node} cut to {end}, its log was right up to {right}")
        self.cuts += 1
        self.cut_bytes += start + len(before) - end

    def decides(self, state: GroupState) -> None:
        """What the control store holds now: epoch and version only grow."""
        before, self.decided = self.decided, (state.epoch, state.version)
        if state.epoch < before[0] or state.version < before[1]:
            raise Violation(f"epoch and version were {before}, and are {self.decided}")

    def logs_match(self, disks: Sequence[ReplicaDisk]) -> None:
        """Two logs that both have data of an epoch with one start are equal as far as both have that epoch."""
        for one, other in combinations(disks, 2):
            end = min(_ends_of_common_epoch(one, other), _ends_of_common_epoch(other, one))
            low = max(one.start, other.start)
            if low < end and one.read(low, end) != other.read(low, end):
                raise Violation(f"two logs differ below {end}: {one.load_epochs()}, {other.load_epochs()}")

    def rejoined(self, node: int, disk: ReplicaDisk, master: ReplicaDisk) -> None:
        """A slave goes on behind its master: its log must be the beginning of the master's."""
        low = max(disk.start, master.start)
        if disk.log_end > master.log_end or disk.read(low, disk.log_end) != master.read(low, disk.log_end):
            raise Violation(f"node {node} follows with a log that is not its master's up to {disk.log_end}")

    def at_rest(self, disks: list[ReplicaDisk]) -> None:
        """Everything is healed and idle: all logs are equal and hold every acknowledged message at its place."""
        longest = max(disks, key=lambda disk: disk.log_end)
        for number, disk in enumerate(disks):
            self.told(disk, len(self.truth), f"disk {number} at rest")
            low = max(disk.start, longest.start)
            if disk.log_end != longest.log_end or disk.read(low, disk.log_end) != longest.read(low, disk.log_end):
                raise Violation(f"disk {number} differs at rest: ends {[each.log_end for each in disks]}")
            epochs, others = disk.load_epochs(), longest.load_epochs()
            epochs.cut(disk.log_end)
            others.cut(longest.log_end)
            if epochs.last != others.last:
                raise Violation(f"disk {number} has other epochs at rest")
        ids = set()
        for at in range(0, len(self.truth), RECORD_BYTES):
            message_id = int.from_bytes(self.truth[at : at + 8], "big")
            queue_offset = int.from_bytes(self.truth[at + 8 : at + 16], "big")
            if queue_offset != at // RECORD_BYTES:
                raise Violation(f"queue offset {queue_offset} at {at}: not contiguous")
            if self.acked.get(message_id, at + RECORD_BYTES) != at + RECORD_BYTES:
                raise Violation(f"message {message_id} is at {at}, acknowledged at {self.acked[message_id]}")
            ids.add(message_id)
        lost = set(self.acked) - ids
        if lost:
            raise Violation(f"{len(lost)} acknowledged messages are lost: {sorted(lost)[:5]}")


def _ends_of_common_epoch(one: ReplicaDisk, other: ReplicaDisk) -> int:
    """Where the newest epoch that both logs have data of ends in the first; 0 without one."""
    epochs, others = list(one.shape.epochs), set(other.shape.epochs)
    end = one.log_end
    for entry in reversed(epochs):
        if entry in others and entry.start < one.log_end and entry.start < other.log_end:
            return min(end, one.log_end)
        end = entry.start
    return 0


def _common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low
