"""Batches: unpacking into ordinary records, merging of the batch's own properties, malformed payloads."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.kernel.appender import (
    APPENDED,
    BATCH_ITEM_TOO_LARGE,
    BATCH_MALFORMED,
    NO_QUEUE_ROOM,
    SEGMENT_FULL,
    Appender,
)
from rocketq.protocol.properties import decode_properties

from .kit import HOST_V4, HOST_V6, Fields, MemoryLog, MemoryQueue, packed, props

NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "A", "AB", "CLUSTER", "WAIT"])
VALUES = st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)
PROPERTIES = st.dictionaries(NAMES, VALUES, max_size=4).map(lambda items: props(**items))


def measure(payload: bytes, extra: bytes = b"", *, topic_len: int = 9, body_max: int = 1 << 20) -> tuple[int, int]:
    return Appender(HOST_V4).measure_batch(payload, topic_len, extra, 0, body_max)  # type: ignore[no-any-return]


def bodies_of(log: MemoryLog) -> list[tuple[bytes, bytes]]:
    found, at = [], 0
    while at < log.appender.position:
        state, view = log.view(at)
        assert state == 1
        take = log.segment.bytes_at
        found.append((take(view.body_at, view.body_len), take(view.properties_at, view.properties_len)))
        at += view.size
    return found


def test_batch_becomes_ordinary_records_in_a_row() -> None:
    """Goal: consecutive log and queue offsets, own flags and CRCs, the request's fields in every record."""
    log = MemoryLog(base=4096, slots=50, index_units=50)
    queue = log.queue()
    queue.tail.next_offset = 3
    inner = [(b"one", props(KEYS="a"), 1), (b"", b"", -2), (b"three", props(TAGS="T", KEYS="b c"), 0x7FFFFFFF)]
    payload = b"".join(packed(body, properties, flag) for body, properties, flag in inner)
    assert log.append_batch(payload, reconsume_times=4, born_host=HOST_V6, sys_flag=0x11) == APPENDED
    expected, offsets = b"", []
    for number, (body, properties, flag) in enumerate(inner):
        offsets.append(4096 + len(expected))
        expected += Fields(
            queue_offset=3 + number,
            log_offset=offsets[-1],
            flag=flag,
            sys_flag=1,
            born_host=HOST_V6,
            reconsume_times=4,
            body=body,
            properties=properties,
        ).encode()
    assert log.written() == expected
    assert log.appender.batch_offsets == offsets
    assert (log.appender.log_offset, log.appender.queue_offset) == (4096, 3)
    assert (log.appender.size, log.appender.batch_count) == (len(expected), 3)
    assert [queue.unit(3 + n)[0] for n in range(3)] == offsets
    assert queue.unit(5)[2] == ord("T")
    assert log.index_files[0].count == 1 + 3


def test_measured_bytes_are_the_bytes_written() -> None:
    """Goal: the blank rule is decided on the exact sum."""
    payload = packed(b"x" * 50) + packed(b"y", props(A="b"))
    log = MemoryLog()
    assert measure(payload) == (2, 91 + 9 + 50 + 91 + 9 + 1 + 4)
    log.append_batch(payload)
    assert log.appender.position == measure(payload)[1]


@pytest.mark.parametrize(("left", "state"), [(8, APPENDED), (7, SEGMENT_FULL)])
def test_batch_goes_whole_into_one_file_or_not_at_all(left: int, state: int) -> None:
    """Goal: a batch whose last record does not fit leaves nothing of itself behind."""
    payload = packed(b"x" * 500) + packed(b"y" * 500) + packed(b"z" * 500)
    total = measure(payload)[1]
    log = MemoryLog(size=total + left)
    assert log.append_batch(payload) == state
    if state == SEGMENT_FULL:
        assert log.segment.bytes_at(0, log.size) == bytes(log.size)
        assert log.queue().tail.next_offset == 0


def test_batch_asks_for_room_for_all_of_it_before_it_writes() -> None:
    """Goal: with room for two of three nothing is written; a batch may then cross into the next queue file."""
    log = MemoryLog()
    queue = MemoryQueue(b"TopicTest", units_per_file=2)
    queue.make_room(2)
    payload = packed(b"1") + packed(b"2") + packed(b"3")
    count, total = measure(payload)
    args = (queue.tail, payload, b"", count, total, 0, 0, HOST_V4, 0, 0)
    assert log.appender.append_batch(*args) == NO_QUEUE_ROOM
    assert log.appender.position == 0
    queue.make_room(3)
    assert log.appender.append_batch(*args) == APPENDED
    assert [queue.unit(offset)[0] for offset in range(3)] == list(log.appender.batch_offsets)


@given(inner=PROPERTIES, extra=PROPERTIES, trailing=st.booleans(), extra_trailing=st.booleans())
def test_batch_properties_go_where_the_inner_message_has_none_of_that_name(
    inner: bytes, extra: bytes, trailing: bool, extra_trailing: bool
) -> None:
    """Goal: inner properties win and keep their bytes; with or without the last separator, on either side."""
    inner = inner if trailing else inner.removesuffix(b"\x02")
    extra = extra if extra_trailing else extra.removesuffix(b"\x02")
    log = MemoryLog()
    assert log.append_batch(packed(b"b", inner), extra) == APPENDED
    ((body, stored),) = bodies_of(log)
    assert body == b"b"
    assert stored.startswith(inner)
    assert decode_properties(stored) == decode_properties(extra) | decode_properties(inner)
    names = [item.partition(b"\x01")[0] for item in stored.split(b"\x02") if item]
    assert len(names) == len(set(names))


def test_unique_key_of_the_batch_does_not_replace_the_inner_one() -> None:
    """Goal: producers were told the inner ids, so a query by them must find the message."""
    log = MemoryLog(slots=10, index_units=10)
    log.append_batch(packed(b"b", props(UNIQ_KEY="inner")), props(UNIQ_KEY="batch", CLUSTER="c"))
    assert bodies_of(log)[0][1] == props(UNIQ_KEY="inner") + b"CLUSTER\x01c"
    assert log.index_files[0].count == 2


def test_tags_and_keys_of_the_batch_count_for_the_inner_message() -> None:
    """Goal: units and index see the merged properties, not only the inner ones."""
    log = MemoryLog(slots=10, index_units=10)
    log.append_batch(packed(b"1") + packed(b"2", props(TAGS="B")), props(TAGS="A", KEYS="k"))
    assert [log.queue().unit(offset)[2] for offset in range(2)] == [65, 66]
    assert log.index_files[0].count == 3


@pytest.mark.parametrize("extra", [b"\x02\x02", b"noname", b"noname\x02", b"\x01\x02"])
def test_odd_batch_properties_do_no_harm(extra: bytes) -> None:
    """Goal: items without a name or a value are no properties; the inner ones stay readable."""
    log = MemoryLog()
    log.append_batch(packed(b"b", props(A="x")), extra)
    assert decode_properties(bodies_of(log)[0][1]) == {"A": "x"}


INNER = packed(b"body", props(A="x"))


@pytest.mark.parametrize(
    ("payload", "at"),
    [
        (INNER[:-1], 0),
        (INNER + INNER[:-1], len(INNER)),
        (INNER + b"\0" * 21, len(INNER)),
        (INNER + b"\0" * 22, len(INNER)),
        (pack(">i", -1) + INNER[4:], 0),
        (pack(">i", 21) + INNER[4:], 0),
        (pack(">i", len(INNER) + 1) + INNER[4:], 0),
        (pack(">i", len(INNER) - 1) + INNER[4:], 0),
        (pack(">i", 0x7FFFFFFF) + INNER[4:], 0),
        (INNER[:16] + pack(">i", -1) + INNER[20:], 0),
        (INNER[:16] + pack(">i", 5) + INNER[20:], 0),
        (INNER[:16] + pack(">i", 0x7FFFFFFF) + INNER[20:], 0),
        (INNER[:16] + pack(">i", -0x80000000) + INNER[20:], 0),
        (INNER[:24] + pack(">h", -1) + INNER[26:], 0),
        (INNER[:24] + pack(">h", 5) + INNER[26:], 0),
        (b"\0", 0),
        (packed(b"", b"A\x01x\x00"), 0),
        (INNER + packed(b"\0\0", b"A\x01\x00x\x02"), len(INNER)),
    ],
)
def test_malformed_batch_is_refused_with_the_place(payload: bytes, at: int) -> None:
    """Goal: wrong lengths and NUL in properties are found before anything is written, or read beyond the end."""
    assert measure(payload) == (BATCH_MALFORMED, at)
    assert measure(payload, props(B="y")) == (BATCH_MALFORMED, at)


@given(st.binary(max_size=200))
def test_any_bytes_measure_or_are_refused(payload: bytes) -> None:
    """Goal: garbage never crashes; what measures is exactly the sum of its parts."""
    count, place = measure(payload)
    if count < 0:
        assert count == BATCH_MALFORMED
        assert 0 <= place < len(payload)
    else:
        assert place == count * (91 + 9 - 22) + len(payload)


def test_empty_batch_has_no_messages() -> None:
    """Goal: nothing is nothing; refusing it is the caller's."""
    assert measure(b"") == (0, 0)


def test_too_large_parts_are_told_from_malformed_ones() -> None:
    """Goal: a body above the limit, or merged properties above what a record can say, are refused with the place."""
    first = packed(b"ok")
    assert measure(first + packed(b"x" * 101), body_max=100) == (BATCH_ITEM_TOO_LARGE, len(first))
    assert measure(first + packed(b"x" * 100), body_max=100)[0] == 2
    full = props(A="x" * (32767 - 3))
    assert len(full) == 32767
    assert measure(packed(b"", full))[0] == 1
    assert measure(packed(b"", full), b"B\x01y") == (BATCH_ITEM_TOO_LARGE, 0)
    assert measure(packed(b"", full), b"A\x01y")[0] == 1
    assert measure(packed(b"", full), props(B="y" * 32000, C="z" * 32000)) == (BATCH_ITEM_TOO_LARGE, 0)
