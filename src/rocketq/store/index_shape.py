"""How many slots and units an index file has, which the file itself does not say."""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct

DEFAULT_SHAPE = (5_000_000, 20_000_000)
_HEADER = Struct(">qqqqii")
_UNIT = Struct(">iqii")


def find_index_shape(path: Path) -> tuple[int, int] | None:
    """The shape whose last unit lies where the header says it must: it holds the header's end offset."""
    size = path.stat().st_size
    if size == 40 + 4 * DEFAULT_SHAPE[0] + 20 * DEFAULT_SHAPE[1]:
        return DEFAULT_SHAPE
    if size < 64:
        return None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        _, _, begin_offset, end_offset, used_slots, count = _HEADER.unpack_from(data)
        number, wanted = max(count, 1) - 1, end_offset.to_bytes(8, "big", signed=True)
        at = data.find(wanted, 64)
        while at >= 0:
            slots, rest = divmod(at - 4 - 20 * number - 40, 4)
            units, odd = divmod(size - 40 - 4 * slots, 20)
            possible = rest == odd == 0 and slots >= max(used_slots, 1) and units >= max(count, 2)
            if possible and _fits(data, slots, number, begin_offset):
                return slots, units
            at = data.find(wanted, at + 1)
    return None


def _fits(data: mmap.mmap, slots: int, number: int, begin_offset: int) -> bool:
    """The first unit holds the header's begin offset, and the last one heads its slot's chain."""
    if number < 1:
        return True
    _, first_offset, _, before = _UNIT.unpack_from(data, 40 + 4 * slots + 20)
    hashed = _UNIT.unpack_from(data, 40 + 4 * slots + 20 * number)[0]
    head = int.from_bytes(data[40 + 4 * (hashed % slots) : 44 + 4 * (hashed % slots)], "big")
    return bool(first_offset == begin_offset and before == 0 and hashed >= 0 and head == number)
