"""Things that are done every so often, and when each was done last."""

from __future__ import annotations


class Due:
    """A thing is due for the first time one interval after it was first asked about. Time comes in as an argument."""

    def __init__(self) -> None:
        self._since_ms: dict[str, int] = {}

    def is_due(self, name: str, interval_ms: int, now_ms: int) -> bool:
        if now_ms - self._since_ms.setdefault(name, now_ms) < interval_ms:
            return False
        self._since_ms[name] = now_ms
        return True
