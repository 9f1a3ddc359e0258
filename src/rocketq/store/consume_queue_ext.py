"""What a queue unit can point to in place of its tags code: the code, the store time, and a bitmap of the groups whose
conditions the message met when it was stored. Byte for byte Apache's ConsumeQueueExt.

    file    := unit* [endMark] zero*          endMark := -1:i16, where the next unit would not leave 4 bytes
    unit    := size:i16 tagsCode:i64 storeTime:i64 bitmapBytes:i16 bitmap
    address := position in the endless file + the smallest i64
"""

from __future__ import annotations

import mmap
from struct import Struct
from typing import Final, NamedTuple

HEAD_BYTES: Final = 20
EXTENSION_BYTES_MAX: Final = 32_767
END_MARK: Final = b"\xff\xff"
END_BYTES: Final = 4

_HEAD: Final = Struct(">hqqh")
_FIRST_ADDRESS: Final = -(1 << 63)
_LAST_ADDRESS: Final = -(1 << 31) - 1
_SECTOR_BYTES: Final = 512

Mapped = bytes | bytearray | mmap.mmap


class Extension(NamedTuple):
    """One unit of a queue's extension; without a bitmap nothing is known about conditions."""

    tags_code: int
    store_ms: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        return HEAD_BYTES + len(self.bitmap)

    def encode(self) -> bytes:
        if self.size > EXTENSION_BYTES_MAX:
            raise ValueError(f"a bitmap of {len(self.bitmap)} bytes is too long")
        return _HEAD.pack(self.size, self.tags_code, self.store_ms, len(self.bitmap)) + self.bitmap


def decode_extension(data: Mapped, at: int) -> Extension | None:
    """The unit that starts there, or None."""
    room = len(data) - at
    if at < 0 or room < HEAD_BYTES:
        return None
    size, tags_code, store_ms, bitmap_bytes = _HEAD.unpack_from(data, at)
    if not HEAD_BYTES <= size <= room or size != HEAD_BYTES + bitmap_bytes:
        return None
    return Extension(tags_code, store_ms, bytes(data[at + HEAD_BYTES : at + size]))


def is_torn(data: Mapped, at: int, size: int) -> bool:
    """Whether a part of a unit may never have reached the disk: all zeros in one of its sectors. An empty bitmap looks
    the same, so this is for doubtful times only."""
    end = at + size
    while at < end:
        stop = min((at // _SECTOR_BYTES + 1) * _SECTOR_BYTES, end)
        if not any(data[at:stop]):
            return True
        at = stop
    return False


def is_address(tags_code: int) -> bool:
    """Whether a queue unit holds an address: those are below every hash and every time."""
    return tags_code <= _LAST_ADDRESS


def address_of(position: int) -> int:
    return position + _FIRST_ADDRESS


def position_of(address: int) -> int:
    return address - _FIRST_ADDRESS
