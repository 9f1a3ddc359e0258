"""Open transactions, when to check them, and the floors of the queues of halves and ops. Pure.

A transaction is identified by its root: the queue offset of its first half message. Each check appends a copy of the
half with a new offset; the root stays. Only open transactions are held: a half in the log that is not open is complete,
and its outcome is found in the log. Memory grows with open transactions only. The latest outcomes are cached.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

RECENT_MAX: Final = 20_000
HELD_BACK_MAX: Final = 10_000
"""A half that is not due is moved to the end of the queue once this many halves follow it."""


class Outcome(Enum):
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"


class Step(Enum):
    """The next step for an open transaction."""

    ASK = "ask"
    GIVE_UP = "give up"
    MOVE = "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """The newest copy of a transaction, and what determines its next check."""

    root: int
    queue_offset: int
    log_offset: int
    store_ms: int
    born_ms: int
    checks: int = 0
    immunity_ms: int | None = None
    resumed: bool = False
    topic: str = ""
    """The topic that the message gets when it is committed."""
    verified: bool = True
    """False for transactions from before the last start, which may be committed without an op message."""


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
        self._op_tops: deque[int] = deque()  # by op message from the floor on: the highest half it completes

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenTransaction]:
        return iter(self._open.values())

    def find(self, root: int) -> OpenTransaction | None:
        return self._open.get(root)

    def outcome(self, root: int) -> Outcome | None:
        """The cached outcome of a transaction."""
        return self._recent.get(root)

    # events

    def opened(self, transaction: OpenTransaction) -> None:
        """Add a new half or a copy, which is the last of the queue."""
        assert not self._open or transaction.queue_offset > next(reversed(self._open.values())).queue_offset
        self._open.pop(transaction.root, None)
        self._recent.pop(transaction.root, None)
        self._open[transaction.root] = transaction

    def verified(self, root: int) -> None:
        """Mark a transaction as open after searching the log."""
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
        """The step that is due for an open transaction."""
        age_ms = now_ms - transaction.born_ms
        if transaction.checks >= rules.checks_max or age_ms > rules.age_ms_max:
            return Step.GIVE_UP
        wait_ms = rules.timeout_ms if transaction.immunity_ms is None else transaction.immunity_ms
        if 0 <= age_ms < wait_ms:
            return Step.MOVE if half_end - transaction.queue_offset > HELD_BACK_MAX else None
        return Step.ASK  # also for a birth time in the future, because clocks differ

    # floors

    def start_ops(self, op_floor: int) -> None:
        self._op_floor = op_floor
        self._op_tops.clear()

    def op_written(self, op_offset: int, half_offset_max: int) -> None:
        """Record an op message, in offset order; skipped offsets count as complete."""
        self._op_tops.extend([-1] * (op_offset - self._op_floor - len(self._op_tops)))
        self._op_tops.append(half_offset_max)

    def half_floor(self, half_end: int) -> int:
        """Halves below this offset are complete, or have a copy at or above it."""
        return next(iter(self._open.values())).queue_offset if self._open else half_end

    def op_floor(self, half_floor: int) -> int:
        """Op messages below this offset complete only halves below their floor, and are not needed."""
        while self._op_tops and self._op_tops[0] < half_floor:
            self._op_tops.popleft()
            self._op_floor += 1
        return self._op_floor
