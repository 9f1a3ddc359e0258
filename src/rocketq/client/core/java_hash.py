"""Java's hash codes, where clients of other languages must agree with Java's."""

from __future__ import annotations


def java_hash(value: str | int) -> int:
    """`hashCode()` of a String, of an Integer or, of what needs more than 32 bits, of a Long."""
    if isinstance(value, str):
        return _of_text(value)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"no 64-bit number: {value}")
    if -(1 << 31) <= value < 1 << 31:
        return value
    bits = value & 0xFFFFFFFFFFFFFFFF
    return _signed((bits ^ bits >> 32) & 0xFFFFFFFF)


def hash_index(value: str | int, count: int) -> int:
    """Which of `count` a key goes to; the one hash without an absolute value goes to the first."""
    code = java_hash(value)
    return 0 if code == -(1 << 31) else abs(code) % count


def _of_text(text: str) -> int:
    code = 0
    if text.isascii():
        for unit in text.encode():
            code = (31 * code + unit) & 0xFFFFFFFF
        return _signed(code)
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return _signed(code)


def _signed(code: int) -> int:
    return code - (1 << 32) if code >= 1 << 31 else code
