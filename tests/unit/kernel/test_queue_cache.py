"""Sends of one read are parsed together and done one by one; what was known of their queues is forgotten whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.kernel.kit import HOST_V4, MemoryLog, packed

import rocketq.kernel
from rocketq.kernel.admission import SendGrant
from rocketq.kernel.answers import AnswerTemplate
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.fast_frames import AHEAD_MAX, FastFrames
from rocketq.kernel.fast_pulls import FastPulls
from rocketq.kernel.fast_sends import NOT_A_QUEUE, FastSends
from rocketq.kernel.queue_cache import PLACES
from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.reader import LogMap

NOW_MS = 1_700_000_000_000
TEMPLATES = (
    AnswerTemplate([b'{"id":"', b'","q":"', b'","o":"', b'","n":', b"}"], False, 0),
    AnswerTemplate([b'{"id":"', b'","q":"', b'","o":"', b'","t":"', b'","n":', b"}"], False, 0),
    AnswerTemplate([bytes(21), b"q", b"o", b"end"], True, 17),
    AnswerTemplate([bytes(21), b"q", b"o", b"t", b"end"], True, 17),
)
SAME_HASH = (b"CollidinAfAADFAc", b"0y9cnCISS8fu9-P%")  # in the compiled form, with one queue number


def frame(topic: bytes, queue_id: int, body: bytes = b"body", *, code: int = 310, opaque: int = 7) -> bytes:
    fields = {"a": "p", "b": topic.decode(), "e": str(queue_id), "f": "0", "g": "1", "h": "0", "i": ""}
    header = {"code": code, "extFields": fields, "flag": 0, "opaque": opaque, "version": 407}
    text = json.dumps(header, separators=(",", ":")).encode()
    return (4 + len(text) + len(body)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + body


def key_of(topic: bytes) -> tuple[int, None, bytes, bytes]:
    """What the fast path finds a grant by: scope, account, topic and group."""
    return 0, None, topic, b"p"


def grant(topic: bytes, tails: list[QueueTail | None], sys_flag: int = 0, generation: int = 0) -> Any:
    return SendGrant(topic, b"p", 0, None, tails, generation, sys_flag, b"CLUSTER\x01C", False, TEMPLATES)


class FastPort:
    """A log in memory and what executes sends to it. All queues share one file, which is theirs as far as they know."""

    def __init__(self, log_bytes: int = 1 << 20, units: int = 1 << 14) -> None:
        self.log = MemoryLog(log_bytes)
        self.units = MappedBuffer(bytearray(20 * units), 0)
        self.sends = FastSends(self.log.appender, b"AB", 450)
        self.sends.open, self.sends.indexed, self.sends.body_bytes_max = True, False, 1 << 20
        pulls = FastPulls(self.sends.out, LogMap(log_bytes), lambda: 0, TEMPLATES, 450, 1 << 20)
        self.frames = FastFrames(self.sends, pulls, 1 << 20)

    def tail(self, topic: bytes, queue_id: int) -> QueueTail:
        tail = QueueTail(topic, queue_id, None)
        tail.attach(self.units, self.units.size // 20)
        return tail

    def admit(self, topic: bytes, queues: int = 2, sys_flag: int = 0) -> list[QueueTail]:
        tails = [self.tail(topic, number) for number in range(queues)]
        self.sends.add_grant(grant(topic, tails, sys_flag))
        return tails

    def feed(self, data: bytes, at: int = 0) -> int:
        return int(self.frames.feed(data, at, HOST_V4, NOW_MS))

    def stored(self, topic: bytes, queue_id: int, **given: Any) -> bool:
        """Whether one send is taken."""
        self.sends.missed.clear()
        self.feed(frame(topic, queue_id, **given))
        return bool(self.frames.slow_at < 0)


def written(port: FastPort) -> bytes:
    return bytes(port.log.segment.bytes_at(0, port.log.appender.position))


def test_one_read_of_many_sends_is_the_same_as_many_reads() -> None:
    """Goal: looking ahead changes nothing: records, answers and counts are those of frames that come one by one."""
    together, alone = FastPort(), FastPort()
    topics = [f"Topic{number}".encode() for number in range(7)]
    for port in (together, alone):
        for topic in topics:
            port.admit(topic, 3)
    numbers = [number // 2 for number in range(5 * AHEAD_MAX + 3)]  # so that some queues are met twice at once
    frames = [frame(topics[number % 7], number % 3, b"%d" % number, opaque=number) for number in numbers]
    for _ in range(2):  # queues that are met for the first time, and such that are known
        assert together.feed(b"".join(frames)) == len(b"".join(frames))
        for each in frames:
            assert alone.feed(each) == len(each)
    assert written(together) == written(alone)
    assert together.sends.out.take() == alone.sends.out.take()
    counts = [[(route.topic, route.count, route.times) for route in port.sends.grown] for port in (together, alone)]
    assert counts[0] == counts[1]
    assert together.sends.taken == 2 * len(frames)
    assert len(together.sends.cache) == 21


@pytest.mark.parametrize("before", [0, 1, AHEAD_MAX - 1, AHEAD_MAX, AHEAD_MAX + 1])
def test_what_follows_a_frame_that_is_not_ours_waits_for_its_turn(before: int) -> None:
    """Goal: frames that were looked at behind a slow one are neither done nor missed, and done once when it is over."""
    port = FastPort()
    first, _ = port.admit(b"Known")
    sends, slow = frame(b"Known", 0) * before, frame(b"Unknown", 0)
    data = sends + slow + frame(b"Later", 0) + frame(b"Known", 0) * 3
    for _ in range(2):
        first.next_offset = 0
        port.sends.missed.clear()
        assert port.feed(data) == len(sends + slow)
        assert (port.frames.slow_at, first.next_offset) == (len(sends), before)
        assert port.sends.missed == [(key_of(b"Unknown"), NOT_A_QUEUE)]
    later = port.feed(data, len(sends + slow))
    assert (later, port.frames.slow_at) == (len(sends + slow) + len(frame(b"Later", 0)), len(sends + slow))
    assert port.feed(data, later) == len(data)
    assert (port.frames.slow_at, first.next_offset) == (-1, before + 3)


@pytest.mark.parametrize("before", [0, 1, AHEAD_MAX, AHEAD_MAX + 1])
def test_an_unfinished_frame_waits_and_bytes_that_are_none_are_slow_to_the_end(before: int) -> None:
    """Goal: whatever is behind whole frames, those are done first."""
    port = FastPort()
    first, _ = port.admit(b"Known")
    sends = frame(b"Known", 0) * before
    for rest in (b"", b"\0", frame(b"Known", 0)[:-1]):
        first.next_offset = 0
        assert (port.feed(sends + rest), port.frames.slow_at) == (len(sends), -1)
        assert first.next_offset == before
    for rest in (b"\0\0\0\4rest", b"\xff\xff\xff\xffrest", b"\x7f\0\0\0rest"):
        assert (port.feed(sends + rest), port.frames.slow_at) == (len(sends + rest), len(sends))


def test_frames_behind_so_much_to_write_are_left_for_another_call() -> None:
    """Goal: a stop in the middle of frames that were looked at loses none and does none twice."""
    port = FastPort(8 << 20, units=1 << 16)
    first, _ = port.admit(b"Known")
    batch = frame(b"Known", 0, packed(b"x") * 4_000, code=320)
    data, at, stops = batch * 9, 0, 0
    while at < len(data):
        at = port.feed(data, at)
        assert port.frames.slow_at < 0
        stops += port.frames.stopped
        port.sends.out.take()
    assert stops > 1
    assert first.next_offset == 9 * 4_000


def test_with_topics_cleared_nothing_is_known_any_more() -> None:
    """Goal: a deleted topic takes no message, and one of that name that is made later has queues of its own."""
    port = FastPort()
    old, _ = port.admit(b"Topic")
    assert port.stored(b"Topic", 0)
    assert port.stored(b"Topic", 0)
    port.sends.clear_grants()
    assert not port.stored(b"Topic", 0)
    assert port.sends.missed == [(key_of(b"Topic"), NOT_A_QUEUE)]
    fresh, _ = port.admit(b"Topic")
    assert port.stored(b"Topic", 0)
    assert (old.next_offset, fresh.next_offset) == (2, 1)
    assert [(each.topic, each.count) for each in port.sends.grown] == [(b"Topic", 2), (b"Topic", 1)]


def test_a_route_that_takes_the_place_of_another_counts_at_once() -> None:
    """Goal: fewer queues, another flag, another queue behind a number: each is seen by the next message."""
    port = FastPort()
    _, second = port.admit(b"Topic")
    assert port.stored(b"Topic", 1)
    port.admit(b"Topic", 1)
    assert not port.stored(b"Topic", 1)
    assert port.sends.missed == []
    _, other = port.admit(b"Topic", 2, sys_flag=2)
    at = port.log.appender.position
    assert port.stored(b"Topic", 1)
    assert written(port)[at + 36 : at + 40] == b"\0\0\0\2"
    assert (second.next_offset, other.next_offset) == (1, 1)


def test_a_queue_that_comes_to_be_is_met_by_the_next_message() -> None:
    """Goal: a queue that was not made yet is asked for, and not forgotten when it is."""
    port = FastPort()
    route = grant(b"Topic", [None])
    port.sends.add_grant(route)
    assert not port.stored(b"Topic", 0)
    assert port.sends.missed == [(key_of(b"Topic"), 0)]
    route.queues[0] = port.tail(b"Topic", 0)
    assert port.stored(b"Topic", 0)
    assert port.stored(b"Topic", 0)
    assert route.queues[0].next_offset == 2


def test_a_queue_under_another_name_is_served_but_not_remembered() -> None:
    """Goal: a place is found by the queue's own topic and number, so nothing else may be kept there."""
    port = FastPort()
    strangers = [port.tail(b"Other", 0), port.tail(b"Topic", 0)]
    port.sends.add_grant(grant(b"Topic", strangers))
    for _ in range(2):
        assert port.stored(b"Topic", 0)
        assert port.stored(b"Topic", 1)
    assert [tail.next_offset for tail in strangers] == [2, 2]
    assert len(port.sends.cache) == 0


def test_queues_of_one_hash_are_told_apart() -> None:
    """Goal: a hash leads to a place, the topic's own bytes decide."""
    port = FastPort()
    tails = [port.admit(topic, 1)[0] for topic in SAME_HASH]
    for topic in (*SAME_HASH, SAME_HASH[1], *SAME_HASH):
        assert port.stored(topic, 0)
    assert [tail.next_offset for tail in tails] == [2, 3]
    assert len(port.sends.cache) == (1 if rocketq.kernel.compiled else 2)


def test_more_queues_than_places_are_all_served() -> None:
    """Goal: what finds no room in the table is found as before there was one."""
    count = PLACES + PLACES // 8
    port = FastPort(2 * count * 120)
    tails = port.admit(b"Topic", count)
    for _ in range(2):
        for start in range(0, count, 100):
            data = b"".join(frame(b"Topic", number) for number in range(start, min(start + 100, count)))
            assert port.feed(data) == len(data)
            port.sends.out.take()
    assert {tail.next_offset for tail in tails} == {2}
    assert PLACES // 2 < len(port.sends.cache) < count


def test_topics_alike_but_for_their_length_are_told_apart() -> None:
    """Goal: no byte of a topic is left out, wherever blocks of eight end."""
    port = FastPort()
    names = [(b"abcdefgh" * 4)[:size] for size in range(1, 33)]
    tails = [port.admit(name, 1)[0] for name in names]
    data = b"".join(frame(name, 0) for name in names)
    for _ in range(2):
        assert port.feed(data) == len(data)
    assert [tail.next_offset for tail in tails] == [2] * len(names)
    assert len(port.sends.cache) == len(names)
