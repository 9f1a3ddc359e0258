"""Moments as operators type them."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

import click

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"(\d{1,9})([smhd])")
_MS_DIGITS_MIN: Final = 11
_MS_DIGITS_MAX: Final = 18  # of 64 bits


def moment(text: str) -> int:
    """A moment as an option's value: `now`, `15m`, `2h`, `1d` (so long ago), an ISO date and time, or milliseconds."""
    found = parse_moment(text, time.time_ns() // 1_000_000)
    if found is None:
        raise click.BadParameter(f"{text!r} is no moment: now, 15m, 2h, 1d, 2026-11-15T10:00 or milliseconds")
    return found


def parse_moment(text: str, now_ms: int) -> int | None:
    """Milliseconds since 1970; None when it is none of the forms."""
    text = text.strip()
    if text == "now":
        return now_ms
    if found := _AGO.fullmatch(text):
        return max(0, now_ms - int(found[1]) * _UNITS_MS[found[2]])
    if text.isascii() and text.isdigit():
        return int(text) if _MS_DIGITS_MIN <= len(text) <= _MS_DIGITS_MAX or text == "0" else None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
