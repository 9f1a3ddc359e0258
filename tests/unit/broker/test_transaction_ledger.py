"""What is open, what is due, and how far the queues are done with; on a clock that stands still."""

from __future__ import annotations

import pytest

from rocketq.broker.transaction.ledger import (
    HELD_BACK_MAX,
    CheckRules,
    OpenTransaction,
    Outcome,
    Step,
    TransactionLedger,
)

RULES = CheckRules(timeout_ms=6_000, checks_max=3, age_ms_max=3_600_000)
BORN_MS = 1_000_000


def transaction(root: int, at: int | None = None, **given: int | None) -> OpenTransaction:
    at = root if at is None else at
    fields = {"born_ms": BORN_MS, **given}
    return OpenTransaction(root=root, queue_offset=at, log_offset=at * 100, store_ms=BORN_MS, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "age_ms", "step"),
    [
        ({}, 5_999, None),
        ({}, 6_000, Step.ASK),
        ({}, -1, Step.ASK),
        ({"immunity_ms": 20_000}, 6_000, None),
        ({"immunity_ms": 20_000}, 20_000, Step.ASK),
        ({"immunity_ms": 1_000}, 1_000, Step.ASK),
        ({"immunity_ms": 0}, 0, Step.ASK),
        ({"checks": 2}, 6_000, Step.ASK),
        ({"checks": 3}, 6_000, Step.GIVE_UP),
        ({"checks": 3}, 0, Step.GIVE_UP),
        ({}, 3_600_000, Step.ASK),
        ({}, 3_600_001, Step.GIVE_UP),
    ],
)
def test_what_is_due_about_a_transaction(given: dict[str, int], age_ms: int, step: Step | None) -> None:
    """Goal: timeout, a producer's own immunity, the number of checks and the age of files, each at its very edge."""
    assert TransactionLedger().due(transaction(1, **given), BORN_MS + age_ms, 2, RULES) is step


def test_one_that_may_not_be_asked_about_does_not_hold_back_the_queue() -> None:
    ledger, immune = TransactionLedger(), transaction(0, immunity_ms=3_000_000)
    assert ledger.due(immune, BORN_MS, HELD_BACK_MAX, RULES) is None
    assert ledger.due(immune, BORN_MS, HELD_BACK_MAX + 1, RULES) is Step.MOVE


def test_settled_ones_are_not_held_and_the_last_outcomes_are_remembered() -> None:
    ledger = TransactionLedger(recent_max=2)
    for root in range(4):
        ledger.opened(transaction(root))
        ledger.completed(root, Outcome.COMMITTED if root % 2 else Outcome.ROLLED_BACK)
    assert len(ledger) == 0
    assert [ledger.outcome(root) for root in range(4)] == [None, None, Outcome.ROLLED_BACK, Outcome.COMMITTED]


def test_the_floor_is_the_lowest_newest_copy() -> None:
    ledger = TransactionLedger()
    assert ledger.half_floor(7) == 7
    for root in (7, 8, 9):
        ledger.opened(transaction(root))
    assert ledger.half_floor(10) == 7
    ledger.opened(transaction(7, at=10))
    assert ledger.half_floor(11) == 8
    ledger.completed(8, Outcome.COMMITTED)
    ledger.completed(9, Outcome.COMMITTED)
    assert ledger.half_floor(11) == 10
    assert [one.root for one in ledger] == [7]


def test_op_messages_are_needed_until_all_they_settle_is_below_the_floor() -> None:
    ledger = TransactionLedger()
    ledger.start_ops(100)
    for op_offset, highest in ((100, 3), (101, 9), (102, 2)):
        ledger.op_written(op_offset, highest)
    assert ledger.op_floor(3) == 100
    assert ledger.op_floor(9) == 101
    assert ledger.op_floor(10) == 103
    ledger.op_written(105, 20)  # two were damaged
    assert ledger.op_floor(20) == 105
    assert ledger.op_floor(21) == 106
