"""Which replica has which state of the master's tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class TableShares:
    """Of one mastership. A state is a number that grows with every change; a slave gets one after the other."""

    def __init__(self) -> None:
        self.number = 1
        self._sent: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._kept: dict[int, int] = {}  # what was taken once is on a slave's disk, also while it is away

    def changed(self) -> None:
        self.number += 1

    def next_for(self, slave_id: int) -> int | None:
        """The state to send a slave now: the newest, unless it has that or is busy with another."""
        sent, taken = self._sent.get(slave_id, 0), self._taken.get(slave_id, 0)
        return self.number if sent == taken < self.number else None

    def sent(self, slave_id: int, number: int) -> None:
        self._sent[slave_id] = number

    def taken(self, slave_id: int, number: int) -> bool:
        """Whether that is what the slave was sent."""
        if number != self._sent.get(slave_id, 0):
            return False
        self._taken[slave_id] = self._kept[slave_id] = number
        return True

    def gone(self, slave_id: int) -> None:
        """Whoever comes back is sent everything again."""
        self._sent.pop(slave_id, None)
        self._taken.pop(slave_id, None)

    def has_any(self, slave_id: int) -> bool:
        return self._taken.get(slave_id, 0) > 0

    def lacking(self, number: int, holders: Iterable[int]) -> frozenset[int]:
        """Those who count, or may any moment since they follow, and do not have a state yet."""
        return frozenset(each for each in {*holders, *self._taken} if self._kept.get(each, 0) < number)
