"""Answers that wait for the log to be safe: in order, by position, and no longer than patience lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rocketq.broker.fastpath.held_answers import AnswerGate, HeldAnswer, HeldAnswers
from rocketq.model import NewMessage
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.remoting import Dispatcher
from rocketq.runtime.clock import ManualClock
from rocketq.store import Store, StoreConfig
from rocketq.store.flush import ReplicaGate


def held(log_end: int, deadline_ms: int = 100, link: str = "a") -> HeldAnswer[str]:
    return HeldAnswer(log_end, deadline_ms, [(link, b"%d" % log_end)], 1)


def test_answers_go_when_their_position_is_reached() -> None:
    answers: HeldAnswers[str] = HeldAnswers()
    for log_end in (10, 20, 20, 30):
        answers.hold(held(log_end))
    assert answers.reached(9) == []
    assert [answer.log_end for answer in answers.reached(20)] == [10, 20, 20]
    assert (answers.count, answers.first.log_end) == (1, 30)
    assert [answer.log_end for answer in answers.all()] == [30]
    assert not answers


def test_answers_that_waited_long_enough_go_too() -> None:
    answers: HeldAnswers[str] = HeldAnswers()
    answers.hold(held(10, deadline_ms=100))
    answers.hold(held(20, deadline_ms=200))
    assert answers.late(99) == []
    assert [answer.log_end for answer in answers.late(100)] == [10]
    assert answers.count == 1


class Peer:
    """What a gate needs of a connection."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def answers(self) -> list[Command]:
        return FrameDecoder().feed(self.written)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    config = StoreConfig.from_java(
        {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": "65536", "maxMessageSize": "1024"}, root=tmp_path
    )
    with Store.open(config, clock=ManualClock(), services=False) as opened:
        yield opened


def append(store: Store) -> int:
    """A message that is in the log and not on disk; where it ends."""
    assert store.writer.append(NewMessage(topic="T", queue_id=0, body=b"x")).status.stored
    return store.log_end


def frame(form: HeaderForm = HeaderForm.JSON, opaque: int = 7) -> bytes:
    return encode_command(Command(code=0, opaque=opaque, flag=1, ext_fields={"msgId": "M"}, form=form))


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def gate_of(store: Store, dispatcher: Dispatcher | None = None) -> AnswerGate:
    return AnswerGate(store, cast(ManualClock, store.clock), dispatcher or Dispatcher())


def hold(gate: AnswerGate, peer: Peer, data: bytes, log_end: int) -> None:
    gate.hold([(peer, data)], 1, log_end)


def test_an_answer_goes_out_once_the_disk_has_it(store: Store) -> None:
    """Goal: not before, and in one write with others of the same peer."""

    async def scene() -> None:
        gate, peer, other = gate_of(store), Peer(), Peer()
        first, second = append(store), append(store)
        hold(gate, peer, frame(opaque=1), first)
        hold(gate, other, frame(opaque=2), first)
        hold(gate, peer, frame(opaque=3), second)
        await turns()
        assert (peer.written, other.written, len(gate)) == (b"", b"", 3)
        store.flush()
        await turns()
        assert ([answer.opaque for answer in peer.answers()], len(other.answers()), len(gate)) == ([1, 3], 1, 0)

    asyncio.run(scene())


def test_what_is_on_disk_already_is_answered_without_another_flush(store: Store) -> None:
    """Goal: the disk may be faster than whoever asks for it."""

    async def scene() -> None:
        gate, peer, end = gate_of(store), Peer(), append(store)
        store.flush()
        hold(gate, peer, frame(), end)
        await turns()
        assert [answer.code for answer in peer.answers()] == [0]

    asyncio.run(scene())


@pytest.mark.parametrize("form", list(HeaderForm))
def test_an_answer_says_when_the_disk_takes_too_long(store: Store, form: HeaderForm) -> None:
    """Goal: after the store's patience code 10, all fields and a reason, in the form of the request."""

    async def scene() -> None:
        gate, peer = gate_of(store), Peer()
        hold(gate, peer, frame(form), append(store))
        cast(ManualClock, store.clock).advance(store.config.sync_flush_timeout_ms)
        gate._on_timer()
        (answer,) = peer.answers()
        assert (answer.code, answer.opaque, answer.form, dict(answer.ext_fields)) == (10, 7, form, {"msgId": "M"})
        assert answer.remark == "the message was not flushed in time"

    asyncio.run(scene())


def test_a_disk_that_fails_is_told_at_once(store: Store) -> None:
    async def scene() -> None:
        gate, peer = gate_of(store), Peer()
        hold(gate, peer, frame(), append(store))
        store.health.stop_writing("the disk is gone")
        store.gate.shut()
        await turns()
        (answer,) = peer.answers()
        assert (answer.code, answer.remark) == (10, "the disk is gone")

    asyncio.run(scene())


def test_what_replicas_must_have_waits_for_them_too(store: Store) -> None:
    """Goal: on disk here is not enough while the store does not acknowledge it; whoever confirms it notifies."""

    async def scene() -> None:
        gate, peer = gate_of(store), Peer()
        store.confirm(0)
        end = append(store)
        hold(gate, peer, frame(), end)
        store.flush()
        await turns()
        assert peer.written == b""
        store.confirm(end)
        gate.notify()
        await turns()
        assert [answer.code for answer in peer.answers()] == [0]

    asyncio.run(scene())


def test_a_server_that_stops_waits_for_held_answers(store: Store) -> None:
    async def scene() -> None:
        dispatcher = Dispatcher()
        gate, peer = gate_of(store, dispatcher), Peer()
        hold(gate, peer, frame(), append(store))
        finishing = asyncio.create_task(dispatcher.finish(10_000))
        await turns()
        assert not finishing.done()
        store.flush()
        await asyncio.wait_for(finishing, 10)
        assert len(peer.answers()) == 1

    asyncio.run(scene())


def test_a_new_gate_after_a_cut_fails_who_waited_at_the_old_one(store: Store) -> None:
    """Goal: a log that is cut back takes back what was not safe; nobody hears that it was."""

    async def scene() -> None:
        gate, peer = gate_of(store), Peer()
        start = store.log_end
        hold(gate, peer, frame(), append(store))
        store.truncate_to(start)
        await turns()
        assert [answer.code for answer in cast(Any, peer).answers()] == [10]

    asyncio.run(scene())


# Slaves


def replicas(*, available: bool) -> ReplicaGate:
    return ReplicaGate(lambda log_end: available, lambda: 3_000)


def test_an_answer_waits_for_disk_and_slave(store: Store) -> None:
    """Goal: whichever comes last lets it go; what a slave said before counts for what comes later."""

    async def scene() -> None:
        slaves = replicas(available=True)
        store.wait_for_replicas(slaves)
        gate, peer = gate_of(store), Peer()
        first, second = append(store), append(store)
        hold(gate, peer, frame(opaque=1), first)
        hold(gate, peer, frame(opaque=2), second)
        store.flush()
        await turns()
        assert peer.answers() == []
        slaves.release(first)
        await turns()
        assert [answer.opaque for answer in peer.answers()] == [1]
        third = append(store)
        slaves.release(third)
        hold(gate, peer, frame(opaque=3), third)
        await turns()
        assert [answer.opaque for answer in peer.answers()] == [1, 2]
        store.flush()
        await turns()
        assert [(answer.opaque, answer.code) for answer in peer.answers()] == [(1, 0), (2, 0), (3, 0)]

    asyncio.run(scene())


@pytest.mark.parametrize("form", list(HeaderForm))
def test_an_answer_says_that_no_slave_is_there_once_the_disk_has_it(store: Store, form: HeaderForm) -> None:
    """Goal: code 11 with all fields; nobody waits for a slave that cannot come."""

    async def scene() -> None:
        store.wait_for_replicas(replicas(available=False))
        gate, peer = gate_of(store), Peer()
        hold(gate, peer, frame(form), append(store))
        await turns()
        assert (peer.written, len(gate)) == (b"", 1)
        store.flush()
        await turns()
        (answer,) = peer.answers()
        assert (answer.code, answer.opaque, answer.form, dict(answer.ext_fields)) == (11, 7, form, {"msgId": "M"})
        hold(gate, peer, frame(form), store.log_end)
        assert ([answer.code for answer in peer.answers()], len(gate)) == ([11, 11], 0)

    asyncio.run(scene())


@pytest.mark.parametrize("flushed", [True, False])
def test_slave_that_takes_too_long_is_told_before_the_disk(store: Store, flushed: bool) -> None:
    """Goal: code 12 whether or not the disk was in time; 10 when only the disk was late."""

    async def scene() -> None:
        slaves = replicas(available=True)
        store.wait_for_replicas(slaves)
        gate, peer = gate_of(store), Peer()
        end = append(store)
        hold(gate, peer, frame(opaque=1), end)
        if flushed:
            store.flush()
        cast(ManualClock, store.clock).advance(store.config.sync_flush_timeout_ms)
        gate._on_timer()
        assert [answer.code for answer in peer.answers()] == [12]
        second = append(store)
        slaves.release(second)
        hold(gate, peer, frame(opaque=2), second)
        cast(ManualClock, store.clock).advance(store.config.sync_flush_timeout_ms)
        gate._on_timer()
        assert [answer.code for answer in peer.answers()] == [12, 10]

    asyncio.run(scene())
