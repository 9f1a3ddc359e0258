"""Unique keys of messages: what users see as a message's id before a broker has stored it.

id = IP (4 or 16 bytes), process id u16, salt u32, milliseconds of the month u32, counter u16      upper-case hex
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

_IPV6_CHARS: Final = 56
_IPV4_CHARS: Final = 32


class UniqueIds:
    """Ids of one process. Two of one millisecond differ in the counter."""

    def __init__(self, ip: bytes, process_id: int, salt: int) -> None:
        head = ip + (process_id & 0xFFFF).to_bytes(2, "big") + (salt & 0xFFFFFFFF).to_bytes(4, "big")
        self._head = head.hex().upper()
        self._count = 0
        self._month_ms = self._month_end_ms = 0

    def next(self, now_ms: int) -> str:
        if not self._month_ms <= now_ms < self._month_end_ms:
            self._month_ms = month_start_ms(now_ms)
            self._month_end_ms = _next_month_ms(self._month_ms)
        count = self._count
        self._count = (count + 1) & 0xFFFF
        return f"{self._head}{(now_ms - self._month_ms) & 0xFFFFFFFF:08X}{count:04X}"


def born_ms_of(unique_key: str, now_ms: int) -> int | None:
    """About when an id was made, in this month or the last; None when it is no such id."""
    if len(unique_key) not in (_IPV4_CHARS, _IPV6_CHARS):
        return None
    try:
        span_ms = int(unique_key[-12:-4], 16)
    except ValueError:
        return None
    start_ms = month_start_ms(now_ms)
    return start_ms + span_ms if start_ms + span_ms <= now_ms else month_start_ms(start_ms - 1) + span_ms


def month_start_ms(now_ms: int) -> int:
    """Midnight of the month's first day, local time."""
    first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return round(first.timestamp() * 1000)


def _next_month_ms(month_ms: int) -> int:
    inside_next = datetime.fromtimestamp(month_ms / 1000) + timedelta(days=32)
    return month_start_ms(round(inside_next.timestamp() * 1000))
