"""A slave's end of the classic stream."""

from __future__ import annotations

import pytest

from rocketq.errors import RemoteProtocolError
from rocketq.replication.classic_frames import encode_header, encode_report
from rocketq.replication.classic_slave import ClassicSlaveSession, StreamTimes

SEGMENT = 1 << 20


def following(log_end: int, now_ms: int = 0) -> ClassicSlaveSession:
    return ClassicSlaveSession(log_end, SEGMENT, StreamTimes(), now_ms)


def frame(log_offset: int, data: bytes) -> bytes:
    return encode_header(log_offset, len(data)) + data


def test_log_end_is_reported_first_when_it_moves_and_when_nothing_was_said() -> None:
    """Goal: the master hears where we are at once, after every append, and every 5 s."""
    state = following(100)
    assert state.report(0) == encode_report(100)
    assert state.on_tick(4_999) == b""
    assert state.on_tick(5_000) == encode_report(100)
    state.on_bytes(frame(100, b"0123456789"), 6_000)
    assert state.take() == (100, b"0123456789")
    assert state.appended(110, 6_000) == encode_report(110)
    assert state.on_tick(10_999) == b""
    assert state.on_tick(11_000) == encode_report(110)


def test_bytes_wait_until_they_can_be_a_record() -> None:
    """Goal: a large record in many frames is put together once, and what is left over comes first next time."""
    state = following(0)
    size = (100_000).to_bytes(4, "big")
    state.on_bytes(frame(0, size), 0)
    assert state.take() == (0, b"")
    state.on_bytes(frame(4, b"magic" * 2), 0)
    assert state.take() == (0, size + b"magic" * 2)
    assert state.appended(0, 0) == b""
    state.on_bytes(frame(14, bytes(99_985)), 0)
    assert state.take() == (0, b"")
    state.on_bytes(frame(99_999, b"xy"), 0)
    log_offset, data = state.take()
    assert (log_offset, len(data)) == (0, 100_001)
    data.release()
    assert state.appended(100_000, 0) == encode_report(100_000)
    state.on_bytes(frame(100_001, b"0" * 20), 0)
    assert state.take() == (100_000, b"y" + b"0" * 20)


@pytest.mark.parametrize("gap", [99, 101, 0])
@pytest.mark.parametrize("data", [b"", b"data"])
def test_gap_or_step_back_ends_it_before_anything_is_taken(gap: int, data: bytes) -> None:
    """Goal: never write at a wrong place; a heartbeat tells too that master and slave do not agree."""
    state = following(100)
    with pytest.raises(RemoteProtocolError, match="this log at 100"):
        state.on_bytes(frame(gap, data), 0)
    assert state.take() == (100, b"")


def test_what_came_before_a_gap_can_be_taken() -> None:
    """Goal: good bytes are not thrown away with bad ones."""
    state = following(100)
    with pytest.raises(RemoteProtocolError):
        state.on_bytes(frame(100, b"12345678") + frame(300, b"x"), 0)
    assert state.take() == (100, b"12345678")


def test_empty_log_begins_where_the_master_does() -> None:
    """Goal: an Apache master sends a new slave its last file; the start of a file is the only place to begin."""
    state = following(0)
    state.on_bytes(frame(3 * SEGMENT, b""), 0)
    assert state.starts_at is None
    state.on_bytes(frame(3 * SEGMENT, b"12345678"), 0)
    assert state.starts_at == 3 * SEGMENT
    assert state.take() == (3 * SEGMENT, b"12345678")
    with pytest.raises(RemoteProtocolError):
        following(0).on_bytes(frame(3 * SEGMENT + 1, b"12345678"), 0)


def test_silence_is_measured_by_what_is_read() -> None:
    """Goal: a master that says nothing for 20 s is given up, however much we write."""
    state = following(0)
    state.on_tick(15_000)
    assert not state.is_silent(20_000)
    assert state.is_silent(20_001)
    state.on_bytes(frame(0, b""), 20_000)
    assert not state.is_silent(40_000)
