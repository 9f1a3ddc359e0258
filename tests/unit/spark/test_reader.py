"""Tasks: every row once and in order, whatever the broker does meanwhile; what is gone is told exactly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.spark.paper_broker import MASTER, SLAVE, PaperBroker

from rocketq.columns import arrow_schema
from rocketq.errors import ConnectionClosedError
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers.pull import PullRequest
from rocketq.spark import reader
from rocketq.spark.errors import DataLossError, SparkError
from rocketq.spark.offsets import QueueKey
from rocketq.spark.options import parse_source
from rocketq.spark.planner import QueueSlice
from rocketq.spark.reader import read_slice

QUEUE = QueueKey("T", "b", 0)
SCHEMA = arrow_schema(["queueOffset", "body", "brokerName"])
USUAL = {"nameServer": "a:1", "subscribe": "T", "fetchOffset.retryIntervalMs": "0", "pullsInFlight": "3"}


def read(monkeypatch: pytest.MonkeyPatch, broker: PaperBroker, low: int, high: int, **given: str) -> list[int]:
    """The offsets of the rows of [low, high)."""
    monkeypatch.setattr(reader, "client_of", lambda connection: broker)
    options = parse_source({**USUAL, **given}, streaming=False)
    batches = list(read_slice(QueueSlice(QUEUE, low, high), options, SCHEMA))
    for batch in batches:
        assert batch.schema == SCHEMA
        assert batch.column("brokerName").unique().to_pylist() == ["b"]
        assert batch.column("body").to_pylist() == [b"%d" % n for n in batch.column("queueOffset").to_pylist()]
    return [offset for batch in batches for offset in batch.column("queueOffset").to_pylist()]


def test_a_slice_is_read_whole_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, PaperBroker(0, 100), 5, 77) == list(range(5, 77))


def test_a_line_that_breaks_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: every pull fails once, no row is missing or comes twice."""
    broker = PaperBroker(0, 100)
    broker.break_each_pull_once()
    assert read(monkeypatch, broker, 0, 100) == list(range(100))


@pytest.mark.parametrize("piece_bytes", [1, 100, 333, 4096])
@pytest.mark.parametrize("batch_bytes", [1, 2000, 1 << 20])
def test_answers_are_decoded_in_pieces_of_any_size(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, batch_bytes: int
) -> None:
    """Goal: records across the ends of pieces, and larger than one, are rows like others."""
    monkeypatch.setattr(reader, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(reader, "BATCH_BYTES", batch_bytes)
    assert read(monkeypatch, PaperBroker(0, 100), 5, 77) == list(range(5, 77))


@pytest.mark.parametrize("batch_bytes", [1, 2000, 1 << 20])
def test_an_answer_that_breaks_off_comes_again_whole(monkeypatch: pytest.MonkeyPatch, batch_bytes: int) -> None:
    """Goal: rows of half an answer, decoded already, are none; those of answers before it in the same batch are."""
    monkeypatch.setattr(reader, "PIECE_BYTES", 300)
    monkeypatch.setattr(reader, "BATCH_BYTES", batch_bytes)
    broker, asked, cut = PaperBroker(0, 100), 0, 0

    def break_off(at: int) -> None:
        nonlocal asked, cut
        asked += 1
        if at and asked % 7 == 0 and cut < 12:
            cut += 1
            raise ConnectionClosedError(MASTER, "cut in the middle")

    broker.before_piece = break_off
    assert read(monkeypatch, broker, 0, 100) == list(range(100))
    assert cut > 5


def test_answers_in_another_order_are_rows_in_the_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what came early waits for what lies before it."""
    broker = PaperBroker(0, 100)
    broker.answers_backwards = True
    assert read(monkeypatch, broker, 0, 100) == list(range(100))


@pytest.mark.parametrize(
    ("damage", "at"),
    [
        (lambda body: body[:-1], "."),
        (lambda body: body + b"\0\0", "."),
        (lambda body: bytes(12) + body, "0"),
        (lambda body: body[:88] + b"?" + body[89:], "0"),
        (lambda body: b"\x7f" + body[1:], "0"),
    ],
    ids=["cut", "longer", "zeros", "a changed byte", "a size that cannot be"],
)
def test_a_damaged_answer_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes], at: str
) -> None:
    """Goal: no row of it is made up, and nobody waits for bytes that never come."""
    broker = PaperBroker(0, 100)
    sound = broker._answer

    def answer(command: Command, asked: PullRequest) -> Command:
        made = sound(command, asked)
        return replace(made, body=damage(made.body)) if asked.queue_offset == 8 else made

    monkeypatch.setattr(broker, "_answer", answer)
    with pytest.raises(SparkError, match=rf"^T queue 0 of b, offsets 0 to 99: .* is damaged at byte {at}\d*$"):
        read(monkeypatch, broker, 0, 100)


def test_a_broker_that_stays_away_is_told_with_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: topic, broker, queue and offset in one line."""
    broker = PaperBroker(0, 100)

    def die(number: int) -> None:
        if number > 4:
            raise ConnectionClosedError(MASTER, "cut")

    broker.before_answer = die
    with pytest.raises(SparkError, match=r"^T queue 0 of b at offset 32: master:1: cut$"):
        read(monkeypatch, broker, 0, 100)


def test_failures_of_the_broker_itself_end_after_the_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a topic that is deleted in the middle of a task ends the task."""
    broker = PaperBroker(0, 100)

    def refuse(command: Command, asked: object) -> Command:
        return command.answer(ResponseCode.TOPIC_NOT_EXIST, remark="no topic T")

    monkeypatch.setattr(broker, "_answer", refuse)
    with pytest.raises(SparkError, match=r"T queue 0 of b at offset 0: TOPIC_NOT_EXIST .*no topic T"):
        read(monkeypatch, broker, 0, 100)
    assert len(broker.pulls) < 100


def test_what_aged_out_is_told_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataLossError, match=r"^messages no longer exist: T queue 0 of b: offsets 2 to 9; option"):
        read(monkeypatch, PaperBroker(10, 100), 2, 50)


def test_without_failing_on_loss_all_the_rest_is_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: messages age out while a task reads: what came before and what lies behind is not lost with them."""
    broker = PaperBroker(0, 100)

    def age(number: int) -> None:
        broker.low = 40 if number > 2 else 0

    broker.before_answer = age
    with caplog.at_level(logging.WARNING):
        found = read(monkeypatch, broker, 0, 100, failOnDataLoss="false")
    assert found == [*range(found.index(40)), *range(40, 100)]
    assert 0 < found.index(40) < 40
    assert "messages no longer exist" in caplog.text


@pytest.mark.parametrize("high", [60, 30])
def test_a_queue_that_became_shorter_lost_its_end(monkeypatch: pytest.MonkeyPatch, high: int) -> None:
    broker = PaperBroker(0, high)
    with pytest.raises(DataLossError, match=rf"offsets {max(high, 40)} to 99"):
        read(monkeypatch, broker, 40, 100)
    assert read(monkeypatch, broker, 40, 100, failOnDataLoss="false") == list(range(40, high))
    assert len(broker.pulls) < 50


def test_holes_are_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a broker that skips messages it cannot read does not make a task that is quietly short of rows."""
    broker = PaperBroker(0, 50, holes=frozenset({7, *range(16, 26), 49}))
    told = "T queue 0 of b: offsets 7 to 7; T queue 0 of b: offsets 16 to 25; T queue 0 of b: offsets 49 to 49"
    with pytest.raises(DataLossError, match=told):
        read(monkeypatch, broker, 0, 50)
    found = read(monkeypatch, broker, 0, 50, failOnDataLoss="false")
    assert found == [n for n in range(50) if n not in broker.holes]


@pytest.mark.parametrize("depth", ["1", "3"])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("holes", [{3}, {7, 9, 10}, {300}, set(range(250, 270))])
def test_who_gives_other_messages_for_those_it_cannot_read_gives_none_twice(
    monkeypatch: pytest.MonkeyPatch, holes: set[int], backwards: bool, depth: str
) -> None:
    """Goal: an answer that goes on beyond its part of the queue has what the next one has: no row comes twice, and what
    is missing is not made up for by that."""
    broker = PaperBroker(0, 600, holes=frozenset(holes), count_max=600)
    broker.passes_holes, broker.answers_backwards = True, backwards
    found = read(monkeypatch, broker, 0, 600, failOnDataLoss="false", pullsInFlight=depth)
    assert found == [n for n in range(600) if n not in holes]
    with pytest.raises(DataLossError, match=f"T queue 0 of b: offsets {min(holes)} to"):
        read(monkeypatch, broker, 0, 600, pullsInFlight=depth)


@pytest.mark.parametrize("kind", ["tag", "sql92"])
def test_gaps_that_a_filter_leaves_are_no_loss(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Goal: with a condition on the broker a missing offset says nothing."""
    broker = PaperBroker(0, 50, holes=frozenset(range(1, 50, 2)) | frozenset(range(30, 50)))
    expression = "A" if kind == "tag" else "n > 3"
    found = read(monkeypatch, broker, 0, 50, subExpression=expression, subExpressionType=kind)
    assert found == list(range(0, 30, 2))


def test_tags_are_compared_as_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: brokers compare hashes, and hashes collide."""
    assert read(monkeypatch, PaperBroker(0, 5), 0, 5, subExpression="B") == []


def test_a_slave_that_lags_is_left_for_its_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what a slave does not have yet is not lost."""
    broker = PaperBroker(0, 100)
    broker.slave_high, broker.suggests_slave = 40, True
    assert read(monkeypatch, broker, 0, 100) == list(range(100))
    assert {addr for addr, _ in broker.pulls} == {MASTER, SLAVE}


def test_with_the_master_away_a_slave_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = PaperBroker(0, 100)
    broker.slave_high, broker.has_master = 100, False
    assert read(monkeypatch, broker, 0, 100) == list(range(100))
    broker.slave_high = 50
    with pytest.raises(SparkError, match="at offset 50: slave:1: the slave lacks messages"):
        read(monkeypatch, broker, 0, 100)
