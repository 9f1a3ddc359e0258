"""Messages and questions that cannot be: each is refused with a reason and leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest

from rocketq.model import NewMessage, SysFlag
from rocketq.store import AppendStatus, ReadStatus, Store

from . import raw_store
from .stores import batch, fill, message, small_config, verify


@pytest.fixture
def store(work_dir: Path) -> Iterator[Store]:
    """Open, with something in it; whatever a test does, it must end with everything in place."""
    config = small_config(work_dir / "store")
    with Store.open(config, services=False) as opened:
        fill(opened, 0, 20)
        yield opened
        result = opened.append(message(7777, topic="Orders", queue_id=0))
        assert result.status is AppendStatus.OK
        records = raw_store.walk(config)
        verify(opened, records)
    with Store.open(config) as again:
        verify(again, records)


def _refused(store: Store, new: NewMessage, *, as_batch: bool = False) -> AppendStatus:
    """An append that must be refused with a reason and leave no trace."""
    end, queues = store.log_end, len(store.queues)
    result = store.append_batch(new) if as_batch else store.append(new)
    assert not result.status.stored, f"{new.topic!r} {new.queue_id} was stored"
    assert result.reason
    assert (store.log_end, len(store.queues)) == (end, queues)
    return result.status


BAD_TOPICS = ["", " ", "a b", "a/b", "..", ".", "../x", "a\0b", "é", "中", "t" * 128, "a\nb", "a.b", "%2f/"]


@pytest.mark.parametrize("topic", BAD_TOPICS)
@pytest.mark.parametrize("as_batch", [False, True], ids=["single", "batch"])
def test_a_topic_that_cannot_be_a_name_is_refused(store: Store, topic: str, as_batch: bool) -> None:
    """Goal: no file outside the directory, no name that others cannot read."""
    new = message(1, topic="T", queue_id=0)
    bad = replace(batch(1, 3, topic="T", queue_id=0) if as_batch else new, topic=topic)
    assert _refused(store, bad, as_batch=as_batch) is AppendStatus.MESSAGE_ILLEGAL
    assert sorted(path.name for path in store.config.root.parent.iterdir()) == [store.config.root.name]


@pytest.mark.parametrize("queue_id", [-1, -(1 << 31), 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 70])
@pytest.mark.parametrize("as_batch", [False, True], ids=["single", "batch"])
def test_a_queue_id_out_of_bounds_is_refused(store: Store, queue_id: int, as_batch: bool) -> None:
    """Goal: one bad number makes no directory."""
    new = batch(1, 3, topic="T", queue_id=0) if as_batch else message(1, topic="T", queue_id=0)
    assert _refused(store, replace(new, queue_id=queue_id), as_batch=as_batch) is AppendStatus.MESSAGE_ILLEGAL


def test_sizes_beyond_the_limits_are_refused(store: Store) -> None:
    """Goal: a body of the largest size is taken, one more is not; the same for properties and topic."""
    limit = store.config.message_bytes_max
    new = message(1, topic="Orders", queue_id=0)
    assert store.append(replace(new, body=bytes(limit))).status is AppendStatus.OK
    assert _refused(store, replace(new, body=bytes(limit + 1))) is AppendStatus.MESSAGE_ILLEGAL
    assert store.append(replace(new, properties=b"k\x01" + b"v" * 32765)).status is AppendStatus.OK
    too_long = replace(new, properties=b"k\x01" + b"v" * 32766)
    assert _refused(store, too_long) is AppendStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.append(replace(new, topic="t" * 127)).status is AppendStatus.OK
    assert store.append(replace(new, body=b"")).status is AppendStatus.OK


def test_a_message_that_no_log_file_can_hold_is_refused(work_dir: Path) -> None:
    """Goal: not an endless row of new files."""
    config = small_config(work_dir / "store", segment_bytes=8192, message_bytes_max=8191)
    with Store.open(config, services=False) as store:
        new = message(1, topic="T", queue_id=0)
        assert _refused(store, replace(new, body=bytes(8100))) is AppendStatus.MESSAGE_ILLEGAL
        assert _refused(store, replace(new, properties=b"k\x01" + b"v" * 9000)) is AppendStatus.MESSAGE_ILLEGAL
        packed = batch(1, 40, topic="T", queue_id=0)
        assert _refused(store, packed, as_batch=True) is AppendStatus.MESSAGE_ILLEGAL
        assert len(raw_store.log_files(config)) == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"flag": 1 << 31},
        {"flag": -(1 << 31) - 1},
        {"sys_flag": 1 << 40},
        {"born_ms": 1 << 63},
        {"reconsume_times": 1 << 31},
        {"prepared_offset": -(1 << 63) - 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("as_batch", [False, True], ids=["single", "batch"])
def test_numbers_that_do_not_fit_their_fields_are_refused(store: Store, odd: dict[str, int], as_batch: bool) -> None:
    """Goal: never a record with half a number in it, and never an exception that escapes as something else than a
    refusal; the next append is as good as any."""
    new = batch(1, 3, topic="Orders", queue_id=0) if as_batch else message(1, topic="Orders", queue_id=0)
    if as_batch and ("flag" in odd or "prepared_offset" in odd):
        pytest.skip("a batch takes these from its inner messages")
    assert _refused(store, replace(new, **odd), as_batch=as_batch) is AppendStatus.MESSAGE_ILLEGAL  # type: ignore[arg-type]


GOOD_BATCH = batch(1, 3, topic="Orders", queue_id=0)


def test_a_batch_cut_at_any_byte_is_refused(store: Store) -> None:
    """Goal: only whole messages are unpacked; nothing of a bad batch is stored."""
    ends = {0}
    while len(ends) < 4:
        ends.add(max(ends) + int.from_bytes(GOOD_BATCH.body[max(ends) : max(ends) + 4], "big"))
    for size in set(range(len(GOOD_BATCH.body))) - ends | {0}:
        _refused(store, replace(GOOD_BATCH, body=GOOD_BATCH.body[:size]), as_batch=True)


@pytest.mark.parametrize("value", [-1, 0, 1, 21, 0x7FFFFFFF, -(1 << 31)])
@pytest.mark.parametrize("at", [0, 16], ids=["total size", "body length"])
def test_a_batch_with_a_wrong_length_is_refused(store: Store, at: int, value: int) -> None:
    """Goal: lengths are checked against each other and against the payload before anything is used."""
    body = GOOD_BATCH.body[:at] + pack(">i", value) + GOOD_BATCH.body[at + 4 :]
    assert _refused(store, replace(GOOD_BATCH, body=body), as_batch=True) is AppendStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_of_garbage_is_refused(store: Store, seed: int) -> None:
    """Goal: any bytes at all."""
    source = random.Random(seed)
    for _ in range(50):
        garbage = bytearray(GOOD_BATCH.body if source.random() < 0.5 else source.randbytes(source.randrange(400)))
        for _ in range(source.randrange(1, 5)):
            if garbage:
                garbage[source.randrange(min(len(garbage), 24))] = source.randrange(256)
        result = store.append_batch(replace(GOOD_BATCH, body=bytes(garbage)))
        assert result.status in (AppendStatus.OK, AppendStatus.MESSAGE_ILLEGAL)


def test_a_batch_that_cannot_be_is_refused(store: Store) -> None:
    """Goal: transactions, NULs and properties that grow too long when merged."""
    prepared = replace(GOOD_BATCH, sys_flag=SysFlag.TRANSACTION_PREPARED)
    assert _refused(store, prepared, as_batch=True) is AppendStatus.MESSAGE_ILLEGAL
    grown = replace(GOOD_BATCH, properties=b"k\x01" + b"v" * 32760)
    _refused(store, grown, as_batch=True)
    torn = replace(GOOD_BATCH, body=GOOD_BATCH.body.replace(b"UNIQ_KEY\x01", b"UNIQ_KEY\x00"))
    assert _refused(store, torn, as_batch=True) is AppendStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    "properties", [b"\x02\x02\x02", b"\x01", b"noseparator", b"\xff\xfe\x01\x80", b"KEYS\x01" + b" " * 50]
)
def test_odd_properties_are_stored_as_they_are(store: Store, properties: bytes) -> None:
    """Goal: the store does not judge what it does not need."""
    result = store.append(replace(message(1, topic="Orders", queue_id=0), properties=properties))
    assert result.status is AppendStatus.OK
    record = store.message_at(result.log_offset)
    assert record is not None
    assert record.properties == properties


# Questions that cannot be


def test_odd_questions_get_plain_answers(store: Store) -> None:
    """Goal: no offset, id, key or time makes a read fail or run for ever."""
    high = store.max_offset("Orders", 0)
    for queue_offset in (-1, -(1 << 62), high + 1, 1 << 62):
        result = store.read("Orders", 0, queue_offset)
        assert result.status in (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY)
        assert 0 <= result.next_offset <= high
    for topic, queue_id in (("Nobody", 0), ("Orders", 99), ("Orders", -1), ("../Orders", 0), ("", 0)):
        assert store.read(topic, queue_id, 0).status is ReadStatus.NO_MATCHED_QUEUE
    for log_offset in (-1, 1, store.log_end - 1, store.log_end, 1 << 62, -(1 << 62)):
        assert store.message_at(log_offset) is None
    for text in ("", "xyz", "0" * 31, "FF" * 16, "FF" * 28):
        try:
            assert store.message_by_id(text) is None
        except ValueError:
            continue
    for key in ("", " ", "nobody", "\0", "é" * 5000, "😀"):
        assert store.query("Orders", key).records == ()
    assert store.query("Orders", "key-0-0", count_max=0).records == ()
    assert store.query("Orders", "key-0-0", begin_ms=10, end_ms=5).records == ()
    for time_ms in (-(1 << 62), 0, 1 << 62):
        assert 0 <= store.offset_by_time("Orders", 0, time_ms) <= high


def test_reads_with_odd_limits_make_progress(store: Store) -> None:
    """Goal: a reader that asks for nothing, or for too much, neither hangs nor skips."""
    for count_max in (1, 10_000_000):
        result = store.read("Orders", 0, 0, count_max=count_max)
        assert result.status is ReadStatus.FOUND
        assert result.next_offset >= 1
    for bytes_max in (0, 1, 1 << 40):
        result = store.read("Orders", 0, 0, bytes_max=bytes_max)
        assert result.status is ReadStatus.FOUND, "one message comes whatever its size"
