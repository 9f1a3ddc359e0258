"""Records and log files that are not what they seem: each costs itself, and nothing readable is lost."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from . import raw_store
from .raw_store import RawRecord
from .stores import OUR_VARIANTS, Healthy, reopen_again_and_again

HealthyOf = Callable[[str], Healthy]
our_variants = pytest.mark.parametrize("variant", OUR_VARIANTS)


def _i32(at: int, value: int) -> Callable[[RawRecord], bytes]:
    return lambda record: record.data[:at] + pack(">i", value) + record.data[at + 4 :]


def _body_length(value: int) -> Callable[[RawRecord], bytes]:
    return lambda record: _i32(record.body_at - 4, value)(record)


def _topic_at(record: RawRecord) -> int:
    return record.body_at + len(record.body)


BAD_RECORDS: dict[str, Callable[[RawRecord], bytes]] = {
    "wrong magic": _i32(4, 0x12345678),
    "blank magic": lambda record: record.data[:4] + pack(">I", raw_store.MAGIC_BLANK) + record.data[8:],
    "size zero": _i32(0, 0),
    "size negative": _i32(0, -1),
    "size most negative": _i32(0, -(1 << 31)),
    "size too small": _i32(0, 90),
    "size one more": lambda record: _i32(0, record.size + 1)(record),
    "size beyond the file": _i32(0, 1 << 20),
    "size largest": _i32(0, 0x7FFFFFFF),
    "body length negative": _body_length(-1),
    "body length beyond the record": _body_length(60_000),
    "body length largest": _body_length(0x7FFFFFFF),
    "topic length beyond the record": lambda record: (
        record.data[: _topic_at(record)] + b"\xff" + record.data[_topic_at(record) + 1 :]
    ),
    "properties length negative": lambda record: (
        record.data[: _topic_at(record) + 1 + len(record.topic)]
        + b"\xff\xff"
        + record.data[_topic_at(record) + 3 + len(record.topic) :]
    ),
    "another log offset": lambda record: record.data[:28] + pack(">q", record.log_offset + 8) + record.data[36:],
    "negative log offset": lambda record: record.data[:28] + pack(">q", -1) + record.data[36:],
    "IPv6 bits set": lambda record: record.data[:36] + pack(">i", 0x30) + record.data[40:],
    "zeros": lambda record: bytes(record.size),
    "ones": lambda record: b"\xff" * record.size,
    "text": lambda record: (b"not a record " * 200)[: record.size],
}


@our_variants
@pytest.mark.parametrize("kind", BAD_RECORDS)
def test_a_bad_record_in_the_middle_costs_itself_only(healthy_of: HealthyOf, variant: str, kind: str) -> None:
    """Goal: whatever is wrong with it, the records before and behind it are served, and its offset stays taken."""
    healthy = healthy_of(variant)
    records = healthy.in_file(1)
    victim = next(record for record in records[len(records) // 2 :] if len(record.body) > 20)
    raw_store.overwrite(healthy.path_of(victim), healthy.position(victim), BAD_RECORDS[kind](victim))
    kept = [record for record in healthy.records if record is not victim]
    reopen_again_and_again(healthy, kept=kept, lost=[victim])


@our_variants
@pytest.mark.parametrize("kind", ["wrong magic", "size beyond the file", "zeros"])
def test_a_bad_first_record_of_a_file_costs_itself_only(healthy_of: HealthyOf, variant: str, kind: str) -> None:
    """Goal: not even the place where every recovery starts reading may cost a file."""
    healthy = healthy_of(variant)
    victim = healthy.in_file(0)[0]
    raw_store.overwrite(healthy.path_of(victim), healthy.position(victim), BAD_RECORDS[kind](victim))
    kept = [record for record in healthy.records if record is not victim]
    reopen_again_and_again(healthy, kept=kept, lost=[victim])


@our_variants
def test_a_record_that_lies_where_another_was_is_no_record(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: a misdirected write, good in itself, is told by the log offset it carries."""
    healthy = healthy_of(variant)
    records = healthy.in_file(1)
    victim = records[len(records) // 2]
    stray = next(record for record in healthy.records if record.size == victim.size and record is not victim)
    raw_store.overwrite(healthy.path_of(victim), healthy.position(victim), stray.data)
    kept = [record for record in healthy.records if record is not victim]
    reopen_again_and_again(healthy, kept=kept, lost=[victim])


@our_variants
def test_a_middle_log_file_cut_short_keeps_what_it_holds(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: what was in the rest of the file is lost, what lies behind it is not."""
    healthy = healthy_of(variant)
    records = healthy.in_file(1)
    first_lost = records[len(records) // 2]
    with healthy.path_of(first_lost).open("r+b") as file:
        file.truncate(healthy.position(first_lost) + 10)
    lost = [record for record in records if record.log_offset >= first_lost.log_offset]
    kept = [record for record in healthy.records if record not in lost]
    said = reopen_again_and_again(healthy, kept=kept, lost=lost)
    assert healthy.path_of(first_lost).name in said


@our_variants
def test_a_blank_record_that_is_gone_costs_nothing(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: the end mark of a full log file is not needed to find the next file."""
    healthy = healthy_of(variant)
    last = healthy.in_file(0)[-1]
    raw_store.overwrite(healthy.path_of(last), healthy.position(last) + last.size, b"\x11" * 8)
    reopen_again_and_again(healthy)
