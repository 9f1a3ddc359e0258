"""Which of several equal peers is asked."""

from __future__ import annotations

from collections.abc import Sequence


class Turns:
    """The one that answered last, and after a failure the next, each once."""

    def __init__(self, addrs: Sequence[str], start: int = 0) -> None:
        self.addrs = tuple(addrs)
        self._at = start % len(self.addrs)

    def order(self) -> tuple[str, ...]:
        return self.addrs[self._at :] + self.addrs[: self._at]

    def answered(self, addr: str) -> None:
        self._at = self.addrs.index(addr)
