"""Limits on reading old messages from disk, by group and in total. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_MS: Final = 5_000
KEPT_MS: Final = 60_000


@dataclass(slots=True)
class ColdReader:
    """Bytes a group has read from disk in the current window, and when it started."""

    since_ms: int
    last_ms: int = 0
    window_bytes: int = 0


class ColdReads:
    """Counts bytes in windows of 5 s. A group above its limit, or all groups above the total, must wait for the next
    window. Limits of single groups are set by operators and lost at a restart."""

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        self._readers: dict[str, ColdReader] = {}
        self._window_ms = 0

    def count(self, group: str, size_bytes: int, now_ms: int) -> None:
        self._turn(now_ms)
        reader = self._readers.setdefault(group, ColdReader(now_ms))
        reader.last_ms = now_ms
        reader.window_bytes += size_bytes

    def is_over(self, group: str, now_ms: int, *, group_bytes_max: int, total_bytes_max: int) -> bool:
        self._turn(now_ms)
        reader = self._readers.get(group)
        if reader is None:
            return False
        limit = self.limits.get(group, group_bytes_max)
        return reader.window_bytes >= limit or self.total_bytes(now_ms) >= total_bytes_max

    def readers(self, now_ms: int) -> dict[str, ColdReader]:
        self._turn(now_ms)
        return dict(self._readers)

    def total_bytes(self, now_ms: int) -> int:
        self._turn(now_ms)
        return sum(reader.window_bytes for reader in self._readers.values())

    def _turn(self, now_ms: int) -> None:
        """Start a new window if the last one ended; remove groups that have not read for a minute."""
        if now_ms - self._window_ms < WINDOW_MS:
            return
        self._window_ms = now_ms
        self._readers = {
            group: ColdReader(reader.since_ms, reader.last_ms)
            for group, reader in self._readers.items()
            if now_ms - reader.last_ms < KEPT_MS
        }
