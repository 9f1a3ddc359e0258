"""The ledger after a start, from directories of Apache's brokers and from our own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.stores import unpack
from tests.sim.memory_store import HOST, MemoryStore

from rocketq.broker.transaction.half_messages import Half, half_of, op_for
from rocketq.broker.transaction.ledger import TransactionLedger
from rocketq.broker.transaction.message_log import StoreIndex, TransactionLog
from rocketq.broker.transaction.replay import Floors, OffsetMarks, replay
from rocketq.model import NewMessage
from rocketq.runtime.clock import ManualClock
from rocketq.store import Store


def replayed(source: TransactionLog, kept: Floors | None = None) -> TransactionLedger:
    ledger = TransactionLedger()
    replay(ledger, source, kept or Floors())
    return ledger


@pytest.mark.parametrize(
    ("name", "kept", "checks"),
    [
        ("apache-4.9.7-clean", Floors(), 0),
        ("apache-5.3.3-clean", Floors(), 1),
        ("apache-5.3.3-clean", Floors(12, 1), 1),
    ],
)
def test_halves_apache_left_undecided_are_open(name: str, kept: Floors, checks: int, tmp_path: Path) -> None:
    """Goal: every third of twelve was left alone; 5.3.3 has asked about each once, its ops are of the batched form, and
    its copies do not tell what they are copies of. With and without the offsets it kept."""
    golden = unpack(name, tmp_path)
    with Store.open(golden.config, services=False) as store:
        source = TransactionLog(store, StoreIndex(store), golden.config.store_host)
        ledger = replayed(source, kept)
        assert [one.root for one in ledger] == [2, 5, 8, 11]
        assert {one.checks for one in ledger} == {checks}
        assert not any(one.verified for one in ledger)
        for one in ledger:
            half = source.half_at(one.log_offset)
            assert half is not None
            assert half.record.body.endswith(b"UNKNOW")
            assert (half.topic, half.group) == ("TopicTx", "PG_tx")
            assert not source.is_committed(one.root, half)
        first = next(source.halves(0, 1))
        assert source.is_committed(0, first)  # found by its key, without any op message
        rolled_back = next(source.halves(1, 2))
        assert not source.is_committed(1, rolled_back)


def put(store: MemoryStore, number: int) -> Half:
    sent = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": f"U{number}"}
    message = NewMessage(topic="Orders", queue_id=0, body=b"%d" % number, born_ms=number, born_host=HOST)
    result = store.append(half_of(message, sent))
    record = store.message_at(result.log_offset)
    assert record is not None
    return Half.of(record)


def test_floors_that_cannot_be_are_the_queues_own() -> None:
    store = MemoryStore(ManualClock())
    for number in range(5):
        put(store, number)
    source = TransactionLog(store, store, HOST)
    store.append(op_for(3, now_ms=0, host=HOST))
    for kept in (Floors(), Floors(0, 0), Floors(99, 99)):
        assert [one.root for one in replayed(source, kept)] == [0, 1, 2, 4]
    assert [one.root for one in replayed(source, Floors(2, 0))] == [2, 4]


def test_marks_are_bits_and_what_is_outside_is_not_marked() -> None:
    marks = OffsetMarks(10, 30)
    for offset in (9, 10, 29, 1_000_000):
        marks.mark(offset)
    assert [offset for offset in range(50) if offset in marks] == [10, 29]
    assert 5 not in OffsetMarks(0, 0)
