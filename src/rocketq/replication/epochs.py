"""Which bytes of the log came from which master: epochs and where each starts, and their text file.

text  := count "\\n" crc "\\n" entry*          crc: CRC32 & 0x7FFFFFFF of all entries; 0 is not checked
entry := epoch "-" start "\\n"                 the format of Apache's epochFileCheckpoint
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from rocketq.errors import ProtocolError, StoreError

FILE_NAME: Final = "epochFileCheckpoint"
_CRC_MASK: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    number: int
    start: int


class EpochList:
    """Entries in order: numbers grow, starts never go back. An entry ends where the next one starts.

    Two neighbours may start at one offset only for as long as the first has no data; `add` drops such an entry, for an
    epoch without data says nothing about the log and would hide where two logs part.
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
        """A new epoch begins at `start`; entries that would have no data are dropped first."""
        last = self.last
        if last is not None and number <= last.number:
            raise StoreError(f"epoch {number} cannot follow epoch {last.number}")
        self.cut(start)
        self._entries.append(Epoch(number, start))

    def cut(self, log_end: int) -> bool:
        """Drop entries that start at or behind the log's end: they have no data. Whether there were any."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start >= log_end:
            self._entries.pop()
        return len(self._entries) != before

    def forget_before(self, log_start: int) -> bool:
        """Drop entries whose data is deleted. Whether there were any."""
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
    """ProtocolError for anything that is not a whole list."""
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
