"""A consume queue as the verifier looks at it."""

from __future__ import annotations

import mmap
from pathlib import Path

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.queue_units import QueueTail, unit_at
from rocketq.store.config import UNIT_BYTES
from rocketq.store.disk import Disk
from rocketq.store.queue_extensions import FOLDER, QueueExtensions
from rocketq.store.segments import SegmentDirectory


class CheckedQueue:
    """A queue's files, read only, behind the same tail that the scanner compares with."""

    def __init__(self, topic: str, queue_id: int, path: Path, file_bytes: int, disk: Disk) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = SegmentDirectory(path, file_bytes, disk)
        self.files.load()
        self.is_missing = not path.is_dir()
        self._disk = disk
        self._mapped: dict[int, MappedBuffer] = {}
        self.tail = QueueTail(topic.encode(), queue_id, self)
        self.tail.next_offset = -1
        extensions = path.parents[2] / FOLDER / topic / str(queue_id)
        if extensions.is_dir():
            self.tail.extensions = QueueExtensions(extensions, 1, disk, writable=False)
        self.first_seen: int | None = None
        self.first_fits = False
        """Whether the first record passed may begin a life: its unit is its own, a later one's, or lacking."""
        self.lacking = 0
        self.lives_begun = 0

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    def file_at(self, queue_offset: int) -> MappedBuffer | None:
        start = self.files.start_of(queue_offset * UNIT_BYTES)
        if start not in self.files:
            return None
        if start not in self._mapped:
            if self.files.size_of(start) != self.files.file_bytes:
                return None
            self._mapped = {
                start: MappedBuffer(self._disk.map(self.files.path_of(start), writable=False), start // UNIT_BYTES)
            }
        return self._mapped[start]

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        units = self.file_at(queue_offset)
        return None if units is None else unit_at(units, queue_offset - units.base)

    def begin_again(self) -> None:
        """Its topic was deleted and made again: what was passed so far counts no more."""
        self.first_seen = self.lacking = 0
        self.lives_begun += 1

    def make_room(self, count: int) -> None:
        self.tail.room_end = 1 << 60

    def attach_file(self) -> None:
        """The file of the next unit, or an empty stand-in where it is missing."""
        offset = self.tail.next_offset
        units = self.file_at(offset)
        if units is None:
            first = self.files.start_of(offset * UNIT_BYTES) // UNIT_BYTES
            units = MappedBuffer(mmap.mmap(-1, self.files.file_bytes), first)
        self.tail.attach(units, 1 << 60)
