"""Which transactions are open, when to ask about them, and how far the queues of halves and ops are done with.

A transaction is known by its root: the queue offset of its first half message. Checks put the half at the end of the
queue again, so that every copy has an offset of its own; the root stays. Only open transactions are held. Every half
in the log that is not open is settled, and how is found in the log: memory grows with what is undecided, not with what
was ever decided. The last decisions are remembered to save the search.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

RECENT_MAX: Final = 20_000
HELD_BACK_MAX: Final = 10_000
"""So many later halves, and one that may not be asked about yet is put behind them."""


class Outcome(Enum):
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"


class Step(Enum):
    """What to do about an open transaction now."""

    ASK = "ask"
    GIVE_UP = "give up"
    MOVE = "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """Its newest copy, and what decides when to ask."""

    root: int
    queue_offset: int
    log_offset: int
    store_ms: int
    born_ms: int
    checks: int = 0
    immunity_ms: int | None = None
    resumed: bool = False
    verified: bool = True
    """False: from before the last start, when it may have been committed without an op message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    timeout_ms: int = 6_000
    checks_max: int = 15
    age_ms_max: int = 72 * 3_600_000


class TransactionLedger:
    """Open transactions in the order of their newest copies."""

    def __init__(self, *, recent_max: int = RECENT_MAX) -> None:
        self._open: dict[int, OpenTransaction] = {}
        self._recent: OrderedDict[int, Outcome] = OrderedDict()
        self._recent_max = recent_max
        self._op_floor = 0
        self._op_tops: deque[int] = deque()  # of each op message from the floor on: the highest half it settles

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenTransaction]:
        return iter(self._open.values())

    def find(self, root: int) -> OpenTransaction | None:
        return self._open.get(root)

    def outcome(self, root: int) -> Outcome | None:
        """Of a transaction settled lately."""
        return self._recent.get(root)

    # events

    def opened(self, transaction: OpenTransaction) -> None:
        """A new half, or a copy of an open one: it is the last of the queue."""
        assert not self._open or transaction.queue_offset > next(reversed(self._open.values())).queue_offset
        self._open.pop(transaction.root, None)
        self._recent.pop(transaction.root, None)
        self._open[transaction.root] = transaction

    def verified(self, root: int) -> None:
        """The log was searched: it is open indeed."""
        self._open[root] = replace(self._open[root], verified=True)

    def completed(self, root: int, outcome: Outcome) -> None:
        self._open.pop(root, None)
        self.remember(root, outcome)

    def remember(self, root: int, outcome: Outcome) -> None:
        self._recent[root] = outcome
        self._recent.move_to_end(root)
        if len(self._recent) > self._recent_max:
            self._recent.popitem(last=False)

    # checks

    def due(self, transaction: OpenTransaction, now_ms: int, half_end: int, rules: CheckRules) -> Step | None:
        """What is to be done about an open transaction, once in every round."""
        age_ms = now_ms - transaction.born_ms
        if transaction.checks >= rules.checks_max or age_ms > rules.age_ms_max:
            return Step.GIVE_UP
        wait_ms = rules.timeout_ms if transaction.immunity_ms is None else transaction.immunity_ms
        if 0 <= age_ms < wait_ms:
            return Step.MOVE if half_end - transaction.queue_offset > HELD_BACK_MAX else None
        return Step.ASK  # also when it was born in the future: clocks differ

    # how far the queues are done with

    def start_ops(self, op_floor: int) -> None:
        self._op_floor = op_floor
        self._op_tops.clear()

    def op_written(self, op_offset: int, half_offset_max: int) -> None:
        """Of op messages in their order; those left out count as done."""
        self._op_tops.extend([-1] * (op_offset - self._op_floor - len(self._op_tops)))
        self._op_tops.append(half_offset_max)

    def half_floor(self, half_end: int) -> int:
        """Halves below are settled, or have a copy at or above."""
        return next(iter(self._open.values())).queue_offset if self._open else half_end

    def op_floor(self, half_floor: int) -> int:
        """Op messages below settle only halves that are below their floor: nobody needs them any more."""
        while self._op_tops and self._op_tops[0] < half_floor:
            self._op_tops.popleft()
            self._op_floor += 1
        return self._op_floor
