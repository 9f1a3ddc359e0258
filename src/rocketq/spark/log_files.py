"""The log's files of a broker on this machine, mapped while tasks read in them."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Final

from rocketq.client.blocking.queue_reader import LocalReadError, RecordLocations
from rocketq.kernel.buffers import MappedBuffer
from rocketq.runtime.machine import file_id
from rocketq.store.segments import file_name

MAPPED_MAX: Final = 4
"""Files of one task: it needs one or two at a time."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    identity: tuple[int, int, int]
    buffer: MappedBuffer


class LogFiles:
    """Belongs to one task, so that it does not keep deleted files open for long.

    Files are identified again for each answer, so that a deleted or recreated file is not read through a mapping of
    the old one. A mapping keeps its file, so no other file can get its identity."""

    def __init__(self) -> None:
        self._mapped: dict[str, _Mapped] = {}

    def of(self, placed: RecordLocations, log_offset: int) -> MappedBuffer:
        """The file that has this place, whole; LocalReadError when it cannot be had."""
        base = log_offset - log_offset % max(1, placed.file_bytes)
        path = f"{placed.folder}/{file_name(base)}"
        try:
            if file_id(placed.folder) != placed.folder_id:
                raise LocalReadError(f"{placed.folder} is not the folder that the broker has")
            return self._file(path, base)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise LocalReadError(f"{path}: {error}") from None

    def _file(self, path: str, base: int) -> MappedBuffer:
        known = self._mapped.pop(path, None)
        if known is None or known.identity != _identity(os.stat(path)):
            known = _map(path, base)
        self._mapped[path] = known  # the last one used is the last to go
        while len(self._mapped) > MAPPED_MAX:
            del self._mapped[next(iter(self._mapped))]
        return known.buffer


def _map(path: str, base: int) -> _Mapped:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # what is no file is no reason to wait
    try:
        found = os.fstat(handle)
        pages = mmap.mmap(handle, 0, prot=mmap.PROT_READ)
    finally:
        os.close(handle)
    return _Mapped(_identity(found), MappedBuffer(pages, base))


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, found.st_size
