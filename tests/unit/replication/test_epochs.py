"""Epoch lists, their text file, and the point where two logs part."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import ConfigError, ProtocolError, StoreError
from rocketq.replication.election import Lease, LeaseTimes
from rocketq.replication.epochs import (
    CannotRejoin,
    CopyFrom,
    Epoch,
    EpochList,
    LogShape,
    decode_epochs,
    encode_epochs,
    find_rejoin_point,
)
from rocketq.replication.recovery import HaState, decode_ha_state, encode_ha_state


def epochs(*entries: tuple[int, int]) -> EpochList:
    return EpochList(Epoch(number, start) for number, start in entries)


def test_the_file_is_the_text_that_apache_writes() -> None:
    """Goal: count, checksum of the entries' text, one entry a line."""
    text = b"1-0\n3-4096\n"
    assert encode_epochs(epochs((1, 0), (3, 4096))) == b"2\n%d\n" % (crc32(text) & 0x7FFFFFFF) + text


@pytest.mark.parametrize(
    "data",
    [b"", b"1\n", b"x\n0\n1-0\n", b"2\n0\n1-0\n", b"1\n5\n1-0\n", b"2\n0\n2-0\n1-5\n", b"1\n0\n1-x\n", b"1\n0\n\xff\n"],
    ids=range(8),
)
def test_a_damaged_file_is_noticed(data: bytes) -> None:
    """Goal: the backup is used rather than half a list."""
    with pytest.raises(ProtocolError):
        decode_epochs(data)


def test_a_checksum_of_zero_is_not_checked() -> None:
    """Goal: as Apache reads it."""
    assert decode_epochs(b"1\n0\n7-99\n") == epochs((7, 99))


numbered = st.lists(st.integers(0, 50), max_size=8).map(
    lambda steps: epochs(*((at + 1, sum(steps[: at + 1])) for at in range(len(steps))))
)


@given(numbered)
def test_lists_survive_their_file(some: EpochList) -> None:
    """Goal: what is written is what is read."""
    assert decode_epochs(encode_epochs(some)) == some


def test_an_epoch_without_data_gives_way_to_the_next() -> None:
    """Goal: of two elections without a write between them one entry is left."""
    some = epochs((1, 0), (2, 100))
    some.add(3, 100)
    assert some == epochs((1, 0), (3, 100))
    with pytest.raises(StoreError):
        some.add(3, 200)


def test_entries_end_where_the_next_starts() -> None:
    """Goal: the epoch of every byte, and its end."""
    some = epochs((1, 10), (3, 100))
    assert some.at(9) is None
    assert some.at(10) == (Epoch(1, 10), 100)
    assert some.at(100) == (Epoch(3, 100), None)
    assert some.end_of(Epoch(1, 10), 500) == 100
    assert some.end_of(Epoch(3, 100), 500) == 500


def test_retention_keeps_the_entry_of_the_first_byte() -> None:
    """Goal: the first entry may start before the log does."""
    some = epochs((1, 0), (2, 100), (3, 200))
    assert some.drop_before(150)
    assert some == epochs((2, 100), (3, 200))
    assert not some.drop_before(150)


@pytest.mark.parametrize(
    ("local", "local_end", "master", "master_end", "expected"),
    [
        (((1, 0),), 100, ((1, 0),), 100, 100),
        (((1, 0),), 80, ((1, 0),), 100, 80),
        (((1, 0),), 120, ((1, 0), (2, 100)), 150, 100),
        (((1, 0), (2, 100)), 150, ((1, 0), (3, 100)), 130, 100),
        (((1, 0), (2, 100)), 150, ((1, 0), (2, 100), (4, 120)), 130, 120),
        (((1, 0), (2, 90)), 150, ((1, 0), (2, 100)), 130, 90),
        (((2, 50),), 90, ((1, 0),), 40, CannotRejoin),
        (((1, 0),), 90, ((2, 0),), 40, 0),
        ((), 90, ((2, 0),), 40, CannotRejoin),
        (((1, 0), (3, 90)), 90, ((1, 0), (2, 90)), 95, 90),
    ],
    ids=range(10),
)
def test_the_newest_common_epoch_decides(
    local: tuple[tuple[int, int], ...],
    local_end: int,
    master: tuple[tuple[int, int], ...],
    master_end: int,
    expected: object,
) -> None:
    """Goal: the smaller end of the newest entry both have, whatever lies behind it."""
    found = find_rejoin_point(LogShape(0, local_end, epochs(*local)), LogShape(0, master_end, epochs(*master)))
    assert found == CopyFrom(expected) if isinstance(expected, int) else isinstance(found, CannotRejoin)


def test_an_empty_log_copies_everything_the_master_has() -> None:
    """Goal: from the master's first byte, wherever that is."""
    master = LogShape(4096, 9000, epochs((2, 1000)))
    assert find_rejoin_point(LogShape(0, 0, epochs()), master) == CopyFrom(4096, fresh=True)


def test_a_point_before_the_masters_log_cannot_be_copied() -> None:
    """Goal: never a silent gap."""
    found = find_rejoin_point(LogShape(0, 100, epochs((1, 0))), LogShape(200, 300, epochs((1, 0), (2, 250))))
    assert found == CannotRejoin("the logs diverge at 100, before the master's start 200")


def test_a_replicas_state_survives_its_file_and_damage_is_noticed() -> None:
    """Goal: an epoch that was promised is never forgotten by half a file."""
    state = HaState(cluster="c", broker_name="b", check_code="x", broker_id=3, epoch=9, truncating_to=4096)
    data = encode_ha_state(state)
    assert decode_ha_state(data) == state
    for at in range(len(data) - 1):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(ProtocolError):
            decode_ha_state(bytes(damaged))
    for end in range(len(data) - 1):
        with pytest.raises(ProtocolError):
            decode_ha_state(data[:end])
    assert state.with_seen(4, 2) == HaState(
        cluster="c", broker_name="b", check_code="x", broker_id=4, epoch=9, truncating_to=4096
    )


def test_a_lease_counts_from_when_its_keep_alive_was_sent() -> None:
    """Goal: however late the answer comes, and in whatever order."""
    lease = Lease(1, 1_000, LeaseTimes())
    assert lease.is_valid(3_999)
    assert not lease.is_valid(4_000)
    lease.asked(2_000)
    assert not lease.is_due(2_999)
    assert lease.is_due(3_000)
    lease.answered(3_000)
    lease.answered(2_000)
    assert lease.valid_to_ms == 6_000


@pytest.mark.parametrize(
    "times", [{"valid_ms": 9_000}, {"valid_ms": 500}, {"ttl_ms": 4_999}, {"keep_alive_ms": 0}], ids=range(4)
)
def test_times_that_could_overlap_are_refused(times: dict[str, int]) -> None:
    """Goal: T is at least L + 2 s, whatever is configured."""
    with pytest.raises(ConfigError, match="haLease"):
        LeaseTimes(**times)
