"""Rebuilds the ledger at a start from the queues of halves and ops. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rocketq.broker.transaction.half_messages import Half
from rocketq.broker.transaction.ledger import OpenTransaction, TransactionLedger
from rocketq.broker.transaction.message_log import TransactionLog


@dataclass(frozen=True, slots=True)
class Floors:
    """Offsets to start from; None if not saved."""

    half: int | None = None
    op: int | None = None


class OffsetMarks:
    """A bitmap of offsets from a floor on."""

    def __init__(self, floor: int, end: int) -> None:
        self._floor = floor
        self._bits = bytearray((max(0, end - floor) + 7) // 8)

    def mark(self, offset: int) -> None:
        at = offset - self._floor
        if 0 <= at < len(self._bits) * 8:
            self._bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, offset: int) -> bool:
        at = offset - self._floor
        return 0 <= at < len(self._bits) * 8 and bool(self._bits[at >> 3] & 1 << (at & 7))


@dataclass(slots=True)
class _Newest:
    """The newest copy of each transaction, and the moves between copies."""

    by_root: dict[int, OpenTransaction] = field(default_factory=dict)
    moved: list[tuple[int, int]] = field(default_factory=list)

    def add(self, transaction: OpenTransaction) -> None:
        before = self.by_root.pop(transaction.root, None)
        if before is not None:
            self.moved.append((before.queue_offset, transaction.queue_offset))
        self.by_root[transaction.root] = transaction


def replay(ledger: TransactionLedger, source: TransactionLog, kept: Floors) -> list[tuple[int, int]]:
    """Fill an empty ledger; returns halves that were moved without an op message, with the new offset. Missing or
    invalid floors only make it slower."""
    low, end = _range(source.half_bounds(), kept.half)
    ops = _range(source.op_bounds(), kept.op)
    done = OffsetMarks(low, end)
    ledger.start_ops(ops[0])
    for op in source.ops(*ops):
        for offset in op.half_offsets:
            done.mark(offset)
        ledger.op_written(op.queue_offset, max(op.half_offsets, default=-1))
    newest = _Newest()
    for half in _halves_without_op(source, done, low, end):
        newest.add(opened_from(half, source.root_of(half), verified=False))
    for root in _settled_by_their_first(source, ops, newest.by_root):
        del newest.by_root[root]
    for transaction in newest.by_root.values():
        ledger.opened(transaction)
    return newest.moved


def opened_from(half: Half, root: int, *, verified: bool = True) -> OpenTransaction:
    record = half.record
    return OpenTransaction(
        root=root,
        queue_offset=record.queue_offset,
        log_offset=record.log_offset,
        store_ms=record.store_ms,
        born_ms=record.born_ms,
        checks=half.checks,
        immunity_ms=half.immunity_ms,
        resumed=half.is_resumed,
        topic=half.topic,
        verified=verified,
    )


def _range(bounds: tuple[int, int], floor: int | None) -> tuple[int, int]:
    low, end = bounds
    return (low if floor is None or floor > end else max(low, floor)), end


def _halves_without_op(source: TransactionLog, done: OffsetMarks, low: int, end: int) -> Iterator[Half]:
    """Halves that are not marked done; ranges of done halves are not read."""
    at = low
    while at < end:
        stop = at
        while stop < end and stop not in done:
            stop += 1
        yield from source.halves(at, stop)
        at = stop + 1


def _settled_by_their_first(
    source: TransactionLog, ops: tuple[int, int], newest: dict[int, OpenTransaction]
) -> set[int]:
    """Roots completed by an op for their first half after the newest copy was written: Apache completes only the copy
    that the producer names."""
    copies = {root: one.log_offset for root, one in newest.items() if root != one.queue_offset}
    found: set[int] = set()
    if copies:
        for op in source.ops(*ops):
            if not op.moved:
                found.update(root for root in op.half_offsets if copies.get(root, op.log_offset) < op.log_offset)
    return found
