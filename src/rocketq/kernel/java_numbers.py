"""Numbers in texts as Java reads them, for the rare ones that the compiled loops do not parse."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_BY_NAME: Final = re.compile(r"([+-]?(?:NaN|Infinity))")
_TRIMMED: Final = "".join(map(chr, range(33)))


def java_integer(data: bytes, wide: bool) -> int | None:
    """Integer.valueOf or Long.valueOf of UTF-8 bytes, None where Java throws. Beyond U+FFFF there are no digits."""
    text = data.decode("utf-8", "replace")
    sign = text[:1] if text[:1] in ("+", "-") else ""
    digits = [unicodedata.decimal(char, -1) if char <= "\uffff" else -1 for char in text[len(sign) :]]
    if not digits or -1 in digits or len(digits) > 4000:
        return None
    value = int(sign + "".join(map(str, digits)))
    bits = 63 if wide else 31
    return value if -(1 << bits) <= value < 1 << bits else None


def java_double(data: bytes) -> float | None:
    """Double.valueOf of UTF-8 bytes, None where Java throws."""
    text = data.decode("utf-8", "replace").strip(_TRIMMED)
    found = _DECIMAL.fullmatch(text) or _BY_NAME.fullmatch(text)
    if found is not None:
        return float(found[1])
    found = _HEXADECIMAL.fullmatch(text)
    if found is None:
        return None
    try:
        return float.fromhex(found[1])
    except (OverflowError, ValueError):  # Java rounds what is too large to infinity
        return float("-inf" if text[0] == "-" else "inf")
