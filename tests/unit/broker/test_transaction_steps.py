"""Decisions and checks step by step, on a log in memory and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.sim.memory_store import HOST, MemoryStore

from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.topics.table import TopicTable
from rocketq.broker.transaction.half_messages import Half
from rocketq.broker.transaction.ledger import HELD_BACK_MAX, CheckRules
from rocketq.broker.transaction.message_log import TransactionLog
from rocketq.broker.transaction.service import Decision, RejectedDecisionError, Transactions
from rocketq.model import NewMessage
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.properties import decode_properties
from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendStatus

COMMIT, ROLLBACK = TransactionState.COMMIT, TransactionState.ROLLBACK
HALF, OP, PARKED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"


class Bench:
    def __init__(
        self,
        store: MemoryStore | None = None,
        offsets: OffsetTable | None = None,
        *,
        place: Callable[[NewMessage], NewMessage] = lambda message: message,
    ) -> None:
        self.store = store or MemoryStore(ManualClock())
        self.clock = self.store.clock
        self.offsets = offsets or OffsetTable()
        self.topics = TopicTable([TopicConfig(topic="T", read_queue_count=4, write_queue_count=4)])
        source = TransactionLog(self.store, self.store, HOST)
        rules = CheckRules(timeout_ms=6_000, checks_max=2)
        self.tx = Transactions(
            source, self.topics, self.offsets, self.clock.now_ms, lambda: rules, make_key=lambda: "MADE", place=place
        )
        self.tx.start()

    def half(self, key: str = "U1", **more: str) -> tuple[int, int]:
        sent = {"TRAN_MSG": "true", "PGROUP": "pg", **({"UNIQ_KEY": key} if key else {}), **more}
        plain = NewMessage(topic="T", queue_id=1, body=b"body", born_ms=self.clock.now_ms(), born_host=HOST)
        message = self.tx.prepare(plain, sent)
        result = self.store.append(message)
        self.tx.prepared(message, result)
        return result.queue_offset, result.log_offset

    def decide(self, handle: tuple[int, int], state: TransactionState) -> None:
        self.tx.decide(Decision("pg", *handle, state))

    def round(self) -> list[Any]:
        return [check for root in self.tx.start_round() if (check := self.tx.check(root)) is not None]

    def bodies(self, topic: str) -> list[bytes]:
        return [record.body for record in self.store.of_topic(topic)]


def test_a_half_without_a_unique_key_gets_one_that_finds_it_again() -> None:
    bench = Bench()
    handle = bench.half(key="")
    bench.decide(handle, COMMIT)
    (record,) = bench.store.of_topic("T")
    assert decode_properties(record.properties)["UNIQ_KEY"] == "MADE"
    again = Bench(bench.store)
    again.decide(handle, COMMIT)
    assert bench.bodies("T") == [b"body"]


def test_a_commit_cut_short_by_a_crash_is_found_and_finished() -> None:
    """Goal: the real message is there, its op message is not: nothing is stored again, by whatever comes first."""
    for first in ("decision", "opposite", "check"):
        bench = Bench()
        handle = bench.half()
        bench.decide(handle, COMMIT)
        assert bench.store.records.pop().topic == OP
        bench.store.queues[OP, 0].clear()
        bench = Bench(bench.store)
        assert len(bench.tx.ledger) == 1
        if first == "decision":
            bench.decide(handle, COMMIT)
        elif first == "opposite":
            with pytest.raises(RejectedDecisionError, match="committed before"):
                bench.decide(handle, ROLLBACK)
        else:
            bench.clock.advance(10_000)
            assert bench.round() == []
        assert bench.bodies("T") == [b"body"]
        assert bench.bodies(OP) == [b"0"]
        assert len(bench.tx.ledger) == 0


def test_without_a_whole_index_the_real_queue_is_read() -> None:
    bench = Bench()
    handles = [bench.half(key=f"U{number}") for number in range(3)]
    bench.decide(handles[0], COMMIT)
    bench.decide(handles[1], ROLLBACK)
    bench.store.is_whole = False
    bench = Bench(bench.store)
    for handle, kept, refused in ((handles[0], COMMIT, ROLLBACK), (handles[1], ROLLBACK, COMMIT)):
        bench.decide(handle, kept)
        with pytest.raises(RejectedDecisionError):
            bench.decide(handle, refused)
    bench.decide(handles[2], COMMIT)
    assert len(bench.bodies("T")) == 2


def test_a_deleted_half_is_forgotten_with_a_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    first = bench.half(key="U1")
    bench.half(key="U2")
    bench.store.log_start = first[1] + 1
    bench.clock.advance(6_000)
    assert [check.unique_key for check in bench.round()] == ["U2"]
    assert len(bench.tx.ledger) == 1
    assert "was deleted with its log file" in caplog.text
    with pytest.raises(RejectedDecisionError, match="no half message"):
        bench.decide(first, COMMIT)


def test_a_half_of_another_broker_with_no_room_for_the_counter_is_given_up() -> None:
    bench = Bench()
    bench.half()
    bench.store.properties_bytes_max = len(bench.store.records[0].properties) + 50
    bench.clock.advance(6_000)
    assert bench.round() == []
    assert bench.bodies(PARKED) == [b"body"]
    assert len(bench.tx.ledger) == 0


def test_one_that_may_not_be_asked_about_moves_behind_the_others_and_is_not_counted() -> None:
    bench = Bench()
    handle = bench.half(CHECK_IMMUNITY_TIME_IN_SECONDS="100000")
    for number in range(HELD_BACK_MAX + 1):
        bench.decide(bench.half(key=f"V{number}"), ROLLBACK)
    assert bench.round() == []
    (one,) = bench.tx.ledger
    assert (one.root, one.queue_offset, one.checks) == (0, HELD_BACK_MAX + 2, 0)
    bench.decide(handle, COMMIT)
    assert bench.bodies("T") == [b"body"]


def test_a_store_without_room_owes_nothing_in_the_end() -> None:
    """Goal: a commit whose op message finds no room counts; the op message is written once there is some."""
    bench = Bench()
    handle = bench.half()
    append = bench.store.append

    def no_room_for_ops(message: NewMessage, *, wait: bool = True) -> Any:
        bench.store.full = message.topic == OP
        return append(message, wait=wait)

    bench.store.append = no_room_for_ops  # type: ignore[method-assign]
    bench.decide(handle, COMMIT)
    bench.decide(handle, COMMIT)
    assert (bench.bodies("T"), bench.bodies(OP)) == ([b"body"], [])
    bench.tx.save_floors(bench.store.end, bench.store.end)
    assert bench.offsets.get(GROUP, HALF, 0) is None
    bench.store.append, bench.store.full = append, False  # type: ignore[method-assign]
    bench.tx.start_round()
    assert bench.bodies(OP) == [b"0"]


def test_floors_are_kept_once_the_log_is_safe_that_far() -> None:
    """Goal: a floor may not outlive the copies it counts on."""
    bench = Bench()
    bench.half()
    bench.decide(bench.half(key="U2"), ROLLBACK)
    bench.clock.advance(6_000)
    bench.round()  # the first half has moved
    unsafe_to = bench.store.safe_to
    bench.tx.save_floors(bench.store.end, unsafe_to)
    assert bench.offsets.get(GROUP, HALF, 0) is None
    bench.store.flush()
    bench.tx.save_floors(bench.store.end, bench.store.safe_to)
    assert (bench.offsets.get(GROUP, HALF, 0), bench.offsets.get(GROUP, OP, 0)) == (2, 2)
    again = Bench(bench.store, bench.offsets)
    assert [(one.root, one.checks) for one in again.tx.ledger] == [(0, 1)]


def test_where_a_committed_message_goes_can_be_another_place() -> None:
    """Goal: the place of a delayed one is asked for."""
    bench = Bench(place=lambda message: replace(message, topic="SCHEDULE_TOPIC_XXXX", queue_id=2))
    bench.decide(bench.half(), COMMIT)
    assert (bench.bodies("T"), bench.bodies("SCHEDULE_TOPIC_XXXX")) == ([], [b"body"])


def test_a_commit_the_store_refuses_leaves_the_transaction_open() -> None:
    bench = Bench()
    handle = bench.half()
    bench.store.full = True
    for state in (COMMIT, ROLLBACK):
        with pytest.raises(RejectedDecisionError) as refused:
            bench.decide(handle, state)
        assert refused.value.append is AppendStatus.SERVICE_NOT_AVAILABLE
    bench.store.full = False
    bench.decide(handle, COMMIT)
    assert bench.bodies("T") == [b"body"]


def test_a_half_that_apache_gave_up_and_whose_first_record_is_gone_can_be_resumed() -> None:
    """Goal: as a transaction of its own, since nothing of the first is left."""
    bench = Bench()
    properties = b"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01U1\x02REAL_TOPIC\x01T\x02REAL_QID\x011"
    born_ms = bench.clock.now_ms()
    result = bench.store.append(
        NewMessage(topic=PARKED, queue_id=0, body=b"body", properties=properties, born_ms=born_ms, born_host=HOST)
    )
    record = bench.store.message_at(result.log_offset)
    assert record is not None
    bench.tx.resume(Half.of(record))
    bench.clock.advance(6_000)
    (check,) = bench.round()
    bench.decide((check.queue_offset, check.log_offset), COMMIT)
    assert bench.bodies("T") == [b"body"]
