"""A master's end of the classic stream."""

from __future__ import annotations

import pytest

from rocketq.errors import RemoteProtocolError
from rocketq.replication.classic_frames import encode_header, encode_report
from rocketq.replication.classic_master import BATCH_MIN_BYTES, ClassicMasterSession, LogExtent, ReplicaAcks
from rocketq.replication.classic_slave import StreamTimes

LOG = LogExtent(start=1_000, end=5_500, last_file=5_000)


def feeding(*, from_last_file: bool = False) -> ClassicMasterSession:
    return ClassicMasterSession(StreamTimes(), 0, from_last_file=from_last_file)


def test_nothing_is_sent_before_the_slave_has_spoken() -> None:
    """Goal: an Apache slave says nothing for its first 5 s; not even a heartbeat goes out before."""
    state = feeding()
    assert (state.sent_to, state.on_tick(10_000)) == (-1, b"")
    assert not state.on_bytes(encode_report(2_000)[:5], LOG, 0)
    assert state.on_bytes(encode_report(2_000)[5:], LOG, 0)
    assert (state.sent_to, state.acked_to) == (2_000, 2_000)


def test_first_report_says_where_to_begin_later_ones_only_how_far_it_is() -> None:
    """Goal: reports that lag behind what was sent do not make us send it twice."""
    state = feeding()
    state.on_bytes(encode_report(2_000), LOG, 0)
    assert state.sent(100, 0) == encode_header(2_000, 100)
    state.on_bytes(encode_report(2_050), LOG, 0)
    assert (state.sent_to, state.acked_to) == (2_100, 2_050)
    assert state.sent(7, 0) == encode_header(2_100, 7)


def test_empty_slave_gets_all_there_is_or_the_last_file() -> None:
    """Goal: nothing of the history is missing on a new slave unless that is asked for."""
    for state, start in ((feeding(), 1_000), (feeding(from_last_file=True), 5_000)):
        state.on_bytes(encode_report(0), LOG, 0)
        assert state.sent_to == start


@pytest.mark.parametrize("report", [5_501, 1 << 62, -1, 999, int.from_bytes(b"GET / HT", "big")])
def test_slave_that_is_ahead_or_too_far_behind_is_refused(report: int) -> None:
    """Goal: a slave with bytes we do not have never goes on as if nothing were; nor does garbage on the port."""
    with pytest.raises(RemoteProtocolError):
        feeding().on_bytes(encode_report(report), LOG, 0)


def test_heartbeats_go_out_when_idle_and_silence_is_noticed() -> None:
    """Goal: 5 s without a frame makes a heartbeat with the next offset, 20 s without a report end it."""
    state = feeding()
    state.on_bytes(encode_report(2_000), LOG, 0)
    state.sent(10, 1_000)
    assert state.on_tick(5_999) == b""
    assert state.on_tick(6_000) == encode_header(2_010, 0)
    assert state.on_tick(10_999) == b""
    assert not state.is_silent(20_000)
    assert state.is_silent(20_001)


def test_furthest_slave_counts_and_never_goes_back() -> None:
    """Goal: Apache's rule, which one fast slave is enough for."""
    acks = ReplicaAcks(behind_bytes_max=1_000)
    assert not acks.is_available(10)
    assert acks.on_report("one", 500)
    assert not acks.on_report("two", 300)
    assert acks.reached == 500
    assert acks.is_available(1_499)
    assert not acks.is_available(1_500)
    acks.on_disconnected("one")
    assert (acks.reached, acks.is_available(600)) == (500, True)
    acks.on_disconnected("two")
    assert not acks.is_available(600)


def test_little_is_gathered_until_the_slave_has_reported() -> None:
    """Goal: small messages go in large pieces; what is large, or stands behind a part of a record, does not wait."""
    state = ClassicMasterSession(StreamTimes(), 0)
    log = LogExtent(0, 1_000, 0)
    state.on_bytes(encode_report(1_000), log, 0)
    assert not state.waits(1_100), "nothing is on its way"
    state.sent(100, 0, 1_100)
    assert state.waits(1_200)
    assert not state.waits(1_100 + BATCH_MIN_BYTES)
    state.on_bytes(encode_report(1_100), LogExtent(0, 1_200, 0), 0)
    assert not state.waits(1_200)
    state.sent(50, 0, 1_200)
    assert not state.waits(1_200), "a part of a record would never be reported"
