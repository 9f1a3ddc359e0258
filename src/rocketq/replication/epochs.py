"""Epochs of the log: which bytes came from which master, their text file, and where two logs diverge.

text  := count "\\n" crc "\\n" entry*          crc: CRC32 & 0x7FFFFFFF of all entries; 0 is not checked
entry := epoch "-" start "\\n"                 the format of Apache's epochFileCheckpoint
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from rocketq.errors import ProtocolError, StoreError

EPOCH_FILE: Final = "epochFileCheckpoint"
_CRC_MASK: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    number: int
    start: int


class EpochList:
    """Ordered entries: numbers increase, starts never decrease. An entry ends where the next one starts.

    `add` drops an entry without data: it carries no information about the log and would hide where two logs diverge.
    """

    def __init__(self, entries: Iterable[Epoch] = ()) -> None:
        self._entries: list[Epoch] = []
        for entry in entries:
            last = self.last
            if last is not None and (entry.number <= last.number or entry.start < last.start):
                raise StoreError(f"epochs out of order: {last.number}-{last.start}, {entry.number}-{entry.start}")
            if entry.number <= 0 or entry.start < 0:
                raise StoreError(f"no epoch: {entry.number}-{entry.start}")
            self._entries.append(entry)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochList) and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"EpochList({', '.join(f'{entry.number}-{entry.start}' for entry in self)})"

    @property
    def last(self) -> Epoch | None:
        return self._entries[-1] if self._entries else None

    def copy(self) -> EpochList:
        return EpochList(self._entries)

    def add(self, number: int, start: int) -> None:
        """Start a new epoch at `start`; entries without data are dropped first."""
        last = self.last
        if last is not None and number <= last.number:
            raise StoreError(f"epoch {number} cannot follow epoch {last.number}")
        self.cut(start)
        self._entries.append(Epoch(number, start))

    def cut(self, log_end: int) -> bool:
        """Drop entries without data, which start at or after the log end. Whether there were any."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start >= log_end:
            self._entries.pop()
        return len(self._entries) != before

    def drop_before(self, log_start: int) -> bool:
        """Drop entries whose data was deleted. Whether there were any."""
        gone = 0
        while gone + 1 < len(self._entries) and self._entries[gone + 1].start <= log_start:
            gone += 1
        del self._entries[:gone]
        return gone > 0

    def at(self, log_offset: int) -> tuple[Epoch, int | None] | None:
        """The epoch of the byte at an offset, and where it ends (None: it is the last); None before the first."""
        end: int | None = None
        for entry in reversed(self._entries):
            if entry.start <= log_offset:
                return entry, end
            end = entry.start
        return None

    def end_of(self, entry: Epoch, log_end: int) -> int:
        """Where an entry's data ends, given the log's end."""
        following = self._entries.index(entry) + 1
        return self._entries[following].start if following < len(self._entries) else log_end


def encode_epochs(epochs: EpochList) -> bytes:
    text = "".join(f"{entry.number}-{entry.start}\n" for entry in epochs).encode()
    return f"{len(epochs)}\n{crc32(text) & _CRC_MASK}\n".encode() + text


def decode_epochs(data: bytes) -> EpochList:
    """ProtocolError for an invalid or incomplete list."""
    try:
        lines = data.decode("ascii").split("\n")
        count, crc = int(lines[0]), int(lines[1])
        entries = [Epoch(int(number), int(start)) for number, start in (line.split("-") for line in lines[2:] if line)]
    except (ValueError, IndexError) as error:
        raise ProtocolError(f"not an epoch list: {error}") from None
    if len(entries) != count:
        raise ProtocolError(f"an epoch list of {count} entries has {len(entries)}")
    text = "".join(f"{entry.number}-{entry.start}\n" for entry in entries).encode()
    if crc and crc != crc32(text) & _CRC_MASK:
        raise ProtocolError("an epoch list does not match its checksum")
    try:
        return EpochList(entries)
    except StoreError as error:
        raise ProtocolError(str(error)) from None


@dataclass(frozen=True, slots=True)
class LogShape:
    """Start, end and epochs of a log, exchanged when a slave joins."""

    start: int
    end: int
    epochs: EpochList


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """Truncate the log to `point`, then copy from there. `fresh`: the log is empty and starts there."""

    point: int
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class CannotRejoin:
    reason: str


def find_rejoin_point(local: LogShape, master: LogShape) -> CopyFrom | CannotRejoin:
    """The end of the newest common epoch (same number and start); entries without data are ignored on both sides."""
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
                return CannotRejoin(f"the logs diverge at {point}, before the master's start {master.start}")
            if point < local.start:
                return CannotRejoin(f"the logs diverge at {point}, before this replica's start {local.start}")
            return CopyFrom(point)
    if local.start == master.start == 0 and _knows_its_beginning(ours):
        return CopyFrom(0)  # both logs are complete, so they share only offset 0
    return CannotRejoin("this log and the master's have no common epoch")


def _knows_its_beginning(epochs: EpochList) -> bool:
    """Whether the epochs cover offset 0. Logs from before epochs existed do not, and are never truncated."""
    return next((entry.start == 0 for entry in epochs), False)
