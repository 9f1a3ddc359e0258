"""Bloom filter bitmaps: which groups' conditions a message may meet, without reading the message.

A message's bitmap has the bits of every group whose condition it met when it was stored; a group's own bits are those
of `group#topic`. Both travel in Apache's files, so hash and positions are exactly Apache's (and Guava's).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from struct import unpack_from
from typing import Final

ERROR_PERCENT: Final = 20
GROUPS_EXPECTED: Final = 32

_MASK64: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomGeometry:
    """`bits` in a bitmap, `hashes` of them for a group."""

    bits: int
    hashes: int

    @classmethod
    def of(cls, error_percent: int = ERROR_PERCENT, groups: int = GROUPS_EXPECTED) -> BloomGeometry:
        """The geometry for a number of groups and a maximum error rate; ValueError for values that Apache rejects."""
        if not 1 <= error_percent < 100 or groups < 1:
            raise ValueError(f"{error_percent} percent and {groups} groups make no bloom filter")
        rate = error_percent / 100
        hashes = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(groups * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(bits=8 * math.ceil(bits / 8), hashes=hashes)

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits of a group at a topic; some may be equal."""
        low, high = _signed_halves(murmur3(f"{group}#{topic}".encode()))
        return tuple(self._position(low + number * high) for number in range(1, self.hashes + 1))

    def _position(self, combined: int) -> int:
        combined = (combined + (1 << 31) & 0xFFFFFFFF) - (1 << 31)
        return (~combined if combined < 0 else combined) % self.bits

    def bitmap(self, groups: Iterable[tuple[int, ...]]) -> bytes:
        """The bits of all these groups."""
        data = bytearray(self.bits // 8)
        for positions in groups:
            for position in positions:
                data[position // 8] |= 1 << position % 8
        return bytes(data)

    def may_match(self, bitmap: bytes, positions: Iterable[int]) -> bool:
        """False if the bitmap excludes the group; a bitmap of another size excludes none."""
        if len(bitmap) * 8 != self.bits:
            return True
        return all(bitmap[position // 8] & 1 << position % 8 for position in positions)


def murmur3(data: bytes) -> int:
    """The low 64 bits of MurmurHash3 x64 128 with seed 0."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = unpack_from("<QQ", data, at)
        h1 = (_rotl(h1 ^ _mix1(k1), 27) + h2) * 5 + 0x52DCE729 & _MASK64
        h2 = (_rotl(h2 ^ _mix2(k2), 31) + h1) * 5 + 0x38495AB5 & _MASK64
    k1, k2 = unpack_from("<QQ", data[whole:].ljust(16, b"\0"))
    h1, h2 = h1 ^ _mix1(k1) ^ len(data), h2 ^ _mix2(k2) ^ len(data)
    h1 = h1 + h2 & _MASK64
    h2 = h2 + h1 & _MASK64
    return _final(h1) + _final(h2) & _MASK64


def _mix1(k1: int) -> int:
    return _rotl(k1 * _C1 & _MASK64, 31) * _C2 & _MASK64


def _mix2(k2: int) -> int:
    return _rotl(k2 * _C2 & _MASK64, 33) * _C1 & _MASK64


def _rotl(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK64


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK64
    return value ^ value >> 33


def _signed_halves(hashed: int) -> tuple[int, int]:
    return hashed & 0xFFFFFFFF, hashed >> 32
