"""A directory of files of one size, named by where they start: how log and queue files lie on disk."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from pathlib import Path

from rocketq.store.disk import Disk

NAME_DIGITS = 20

Digest = tuple[int, int, int]  # start of a file, log offset it covers up to, CRC-32 of that part


def file_name(start: int) -> str:
    return f"{start:0{NAME_DIGITS}d}"


class SegmentDirectory:
    """Which files there are, by start offset; creating and removing them. What they hold is their owner's business."""

    def __init__(self, path: Path, file_bytes: int, disk: Disk) -> None:
        self.path = path
        self.file_bytes = file_bytes
        self.disk = disk
        self._starts: list[int] = []

    def load(self) -> None:
        """Read the directory again, ignoring names that are not start offsets."""
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        self._starts = sorted(int(name) for name in names if len(name) == NAME_DIGITS and name.isdigit())

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._starts))

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, start: int) -> bool:
        return start in self._starts

    @property
    def first(self) -> int | None:
        return self._starts[0] if self._starts else None

    @property
    def last(self) -> int | None:
        return self._starts[-1] if self._starts else None

    def start_of(self, offset: int) -> int:
        """Where the file that would hold `offset` starts."""
        return offset - offset % self.file_bytes

    def at_or_before(self, offset: int) -> int | None:
        """Start of the last file there is that does not start behind `offset`; it may be too short to hold it."""
        at = bisect_right(self._starts, offset)
        return self._starts[at - 1] if at else None

    def after(self, start: int) -> int | None:
        """Start of the next file there is behind `start`."""
        at = bisect_right(self._starts, start)
        return self._starts[at] if at < len(self._starts) else None

    def path_of(self, start: int) -> Path:
        return self.path / file_name(start)

    def size_of(self, start: int) -> int:
        return self.path_of(start).stat().st_size

    def create(self, start: int, *, reserve: bool, head: bytes = b"") -> None:
        self.disk.create(self.path_of(start), self.file_bytes, reserve=reserve, head=head)
        insort(self._starts, start)

    def remove(self, start: int) -> None:
        self.disk.remove(self.path_of(start))
        self._starts.remove(start)
