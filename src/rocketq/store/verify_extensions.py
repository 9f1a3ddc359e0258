"""The verifier's look at extension files: whole units up to an end mark or zeros, and nothing behind those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.records import first_nonzero
from rocketq.store.consume_queue_ext import END_MARK, decode_extension
from rocketq.store.disk import Disk
from rocketq.store.queue_extensions import FOLDER
from rocketq.store.segments import SegmentDirectory


@dataclass(frozen=True, slots=True)
class ExtensionFile:
    """`wrong` says what is, if anything."""

    where: str
    units: int
    wrong: str | None


def look_at_extensions(root: Path, disk: Disk) -> Iterator[ExtensionFile]:
    """Every extension file of a store."""
    folders = [each for each in sorted((root / FOLDER).glob("*/*")) if each.is_dir() and each.name.isdigit()]
    for folder in folders:
        files = SegmentDirectory(folder, 1, disk)
        files.load()
        for start in files:
            units, wrong = _look_at(files.path_of(start), disk)
            yield ExtensionFile(f"{FOLDER}/{folder.parent.name}/{folder.name}/{start:020d}", units, wrong)


def _look_at(path: Path, disk: Disk) -> tuple[int, str | None]:
    if path.stat().st_size == 0:
        return 0, "is empty"
    data, at, units = disk.map(path, writable=False), 0, 0
    while (unit := decode_extension(data, at)) is not None:
        at += unit.size
        units += 1
    if data[at : at + 2] == END_MARK:
        return units, None
    mapped = MappedBuffer(data, 0)
    behind = [
        max(low, at) for low, high in disk.data_ranges(path, at) if first_nonzero(mapped, max(low, at), high) < high
    ]
    return units, f"there is something behind the unit that ends at {at}" if behind else None
