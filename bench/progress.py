"""How far a long run is, and how long it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping


class Progress:
    """Parts with the seconds they should take; what is left is guessed by how the others went."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = dict(seconds)
        self._done: set[str] = set()
        self._began = time.monotonic()

    def left_s(self, part: str = "", share: float = 0.0, now: float | None = None) -> float:
        """With so much of this part done."""
        done = sum(self._seconds[each] for each in self._done) + self._seconds.get(part, 0.0) * share
        left = sum(self._seconds.values()) - done
        took = (time.monotonic() if now is None else now) - self._began
        return left * (took / done if done else 1.0)

    def say(self, part: str, what: str, share: float = 0.0) -> None:
        names = list(self._seconds)
        place = f"[{names.index(part) + 1}/{len(names)}] " if part in names else ""
        left = self.left_s(part, share)
        print(f"{place}{part}: {what}; about {left / 60:.0f} min {left % 60:02.0f} s left", file=sys.stderr, flush=True)

    def finish(self, part: str) -> None:
        self._done.add(part)
