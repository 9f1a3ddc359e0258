"""Appending one message: host mixes, versions, the blank rule, transaction kinds, tags codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.kernel.appender import APPENDED, NO_QUEUE_ROOM, SEGMENT_FULL, Appender
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.queue_units import SCHEDULE_TOPIC
from rocketq.kernel.records import BLANK, END, MAGIC_V1, MAGIC_V2, MESSAGE, RecordView

from .kit import HOST_V4, HOST_V6, V2, Fields, MemoryLog, MemoryQueue, java_text_hash, props

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize("born_host", [HOST_V4, HOST_V6], ids=["born-v4", "born-v6"])
@pytest.mark.parametrize("store_host", [HOST_V4, HOST_V6], ids=["store-v4", "store-v6"])
def test_record_of_every_host_mix_is_laid_out_as_specified(born_host: bytes, store_host: bytes) -> None:
    """Goal: the two IPv6 bits are set by the kernel itself and all later fields move."""
    log = MemoryLog(store_host=store_host, base=65536)
    wrong_bits = 0x30 if len(born_host) == 8 else 0
    assert (
        log.append(body=b"body", properties=props(TAGS="A"), born_host=born_host, sys_flag=0x301 | wrong_bits)
        == APPENDED
    )
    expected = Fields(
        log_offset=65536,
        sys_flag=0x301,
        born_host=born_host,
        store_host=store_host,
        body=b"body",
        properties=props(TAGS="A"),
    ).encode()
    assert log.written() == expected
    assert len(expected) == 91 + 12 * ((len(born_host) == 20) + (len(store_host) == 20)) + 4 + 9 + 7
    state, view = log.view(0)
    assert state == MESSAGE
    assert (view.born_host_len, view.store_host_len) == (len(born_host), len(store_host))


@given(
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
    topic=st.binary(min_size=1, max_size=127),
    queue_id=st.integers(0, 65535),
    flag=INT32,
    sys_flag=INT32.map(lambda flag: flag & ~0x3C),
    born_ms=INT64,
    store_ms=st.integers(0, 1 << 60),
    reconsume_times=INT32,
    prepared_offset=INT64,
)
def test_any_message_is_written_as_the_independent_encoder_writes_it(**given_fields: object) -> None:
    """Goal: no field bleeds into another, whatever its value, and the record parses back as a good one."""
    fields = Fields(**given_fields)  # type: ignore[arg-type]
    log = MemoryLog(base=1 << 32)
    fields.log_offset = 1 << 32
    queue = MemoryQueue(fields.topic, fields.queue_id)
    del given_fields["topic"], given_fields["queue_id"]
    assert log.append(queue, **given_fields) == APPENDED
    assert log.written() == fields.encode()
    assert log.view(0)[0] == MESSAGE
    assert queue.unit(0)[:2] == (1 << 32, len(fields.encode()))


def test_second_version_record_has_a_two_byte_topic_length() -> None:
    """Goal: 5.x writes long retry topics with another magic; they must be readable, body and properties too."""
    topic = b"%RETRY%" + b"g" * 140
    data = Fields(topic=topic, body=b"body", properties=b"p\x01v", magic=V2, log_offset=4096).encode()
    view = RecordView()
    assert view.parse_at(MappedBuffer(data, 4096), 0, True) == MESSAGE
    assert view.magic == MAGIC_V2
    assert data[view.topic_at :][: view.topic_len] == topic
    assert data[view.properties_at :] == b"p\x01v"
    assert len(data) == 92 + len(topic) + 4 + 3


def test_first_version_is_what_is_written() -> None:
    """Goal: 4.x brokers take the second version for damage, so it is never written."""
    log = MemoryLog()
    log.append(MemoryQueue(b"t" * 127))
    assert log.view(0)[1].magic == MAGIC_V1


@pytest.mark.parametrize(("left", "fits"), [(8, True), (7, False), (9, True), (0, False)])
def test_record_must_leave_eight_bytes_for_the_blank(left: int, fits: bool) -> None:
    """Goal: a record that leaves exactly eight bytes fits, one that leaves seven does not, and nothing is touched."""
    size = len(Fields(body=b"x" * 100).encode())
    log = MemoryLog(size=size + left)
    state = log.append(body=b"x" * 100)
    assert state == (APPENDED if fits else SEGMENT_FULL)
    assert log.appender.position == (size if fits else 0)
    if not fits:
        assert log.segment.bytes_at(0, log.size) == bytes(log.size)
        assert log.queue().tail.next_offset == 0


def test_closed_segment_ends_with_a_blank_to_its_last_byte() -> None:
    """Goal: the blank says how much is left, and the log goes on at the next file."""
    log = MemoryLog(size=4096, base=8192)
    log.append(body=b"x")
    at = log.appender.position
    log.appender.close_segment()
    state, view = log.view(at)
    assert (state, view.size) == (BLANK, 4096 - at)
    assert (log.appender.position, log.appender.end) == (4096, 8192 + 4096)
    assert log.append(body=b"x") == SEGMENT_FULL


def test_blank_of_exactly_eight_bytes_is_one() -> None:
    """Goal: the smallest blank there is."""
    size = len(Fields().encode())
    log = MemoryLog(size=size + 8)
    log.append()
    log.appender.close_segment()
    assert log.view(size)[0] == BLANK


@pytest.mark.parametrize(
    ("sys_flag", "queued"),
    [(0, True), (0x4, False), (0x8, True), (0xC, False)],
    ids=["none", "half", "commit", "rollback"],
)
def test_only_plain_and_committed_messages_get_a_queue_unit(sys_flag: int, queued: bool) -> None:
    """Goal: prepared and rollback records say queue offset 0 and take none."""
    log = MemoryLog(slots=10, index_units=100)
    queue = log.queue()
    queue.tail.next_offset = 5
    log.append(sys_flag=sys_flag, properties=props(KEYS="k"))
    assert queue.tail.next_offset == (6 if queued else 5)
    assert log.view(0)[1].queue_offset == (5 if queued else 0)
    assert (queue.tail in log.appender.touched) == queued
    assert log.index_files[0].count == (1 if sys_flag == 0xC else 2)


def test_append_without_room_asks_for_it_and_writes_nothing() -> None:
    """Goal: a full disk is noticed before the first byte is written."""
    log = MemoryLog()
    queue = log.queue()
    state = log.appender.append(queue.tail, b"body", b"", 0, 0, 0, HOST_V4, 0, 0, 0)
    assert state == NO_QUEUE_ROOM
    assert log.appender.position == 0
    assert log.view(0)[0] == END


def test_queue_goes_on_in_its_next_file() -> None:
    """Goal: at the end of a queue file the owner is asked for the next one, and no unit is misplaced."""
    log = MemoryLog(size=1 << 20)
    queue = MemoryQueue(b"T", units_per_file=4)
    for _ in range(11):
        assert log.append(queue) == APPENDED
    size = log.appender.size
    assert [queue.unit(offset)[0] for offset in range(11)] == [size * n for n in range(11)]
    assert sorted(queue.files) == [0, 1, 2]
    assert log.appender.records == 11
    assert queue.tail.log_end == 11 * size


def test_touched_queues_are_named_once() -> None:
    """Goal: whoever wakes readers gets each queue that grew once, until told that they were woken."""
    log = MemoryLog()
    first, second = log.queue(b"A"), log.queue(b"B")
    for queue in (first, second, first, first):
        log.append(queue)
    assert log.appender.touched == [first.tail, second.tail]
    log.appender.touched = []
    first.tail.touched = False
    log.append(first)
    log.append(second)
    assert log.appender.touched == [first.tail]


@pytest.mark.parametrize("position", [-1, 4097])
def test_position_outside_the_segment_is_refused(position: int) -> None:
    """Goal: the kernel writes where it is told; it must not be told nonsense."""
    appender = Appender(HOST_V4)
    with pytest.raises(ValueError, match="segment of 4096"):
        appender.attach_segment(MappedBuffer(bytearray(4096), 0), position)


def test_raw_copy_lands_at_the_position_and_never_beyond_the_end() -> None:
    """Goal: replicas copy records as they are; too many bytes are an error that changes nothing."""
    log = MemoryLog(size=256)
    record = Fields(body=b"raw").encode()
    log.appender.copy_raw(record)
    assert log.written() == record
    with pytest.raises(ValueError, match="do not fit"):
        log.appender.copy_raw(bytes(256 - len(record) + 1))
    assert log.appender.end == len(record)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_raw_copy_takes_any_buffer(kind: type) -> None:
    """Goal: what came from a socket is copied once, wherever it lies; a part of a buffer is that part."""
    log = MemoryLog(size=1024)
    record = Fields(body=b"raw").encode()
    log.appender.copy_raw(kind(record))
    log.appender.copy_raw(memoryview(bytearray(b"before" + record + b"behind"))[6:-6])
    log.appender.copy_raw(kind(b""))
    assert log.written() == record * 2


# Tags codes


@given(st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=30))
def test_tags_code_is_the_hash_of_the_whole_tag(tag: str) -> None:
    """Goal: consumers compare the same hash, so any text must hash as Java hashes it."""
    log = MemoryLog()
    log.append(properties=props(A="x", TAGS=tag, B="y"))
    assert log.queue().unit(0)[2] == java_text_hash(tag)


@given(st.binary(max_size=40).filter(lambda data: b"\x02" not in data))
def test_tags_code_of_any_bytes_is_some_hash(tag: bytes) -> None:
    """Goal: text that is not UTF-8 never crashes the append and never reads beyond the tag."""
    log = MemoryLog()
    assert log.append(properties=b"TAGS\x01" + tag + b"\x02") == APPENDED
    code = log.queue().unit(0)[2]
    assert -(1 << 31) <= code < 1 << 31
    other = MemoryLog()
    other.append(properties=b"TAGS\x01" + tag + b"\x02next\x01\xbf\xbf\xbf\x02")
    assert other.queue().unit(0)[2] == code


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        (b"\xc3", "\ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\x80\x80", "\ufffd\ufffd"),
        (b"\xc0\xafA", "\ufffd\ufffdA"),
        (b"\xe4AB", "\ufffdAB"),
        (b"\xe4\xb8A", "\ufffdA"),
        (b"\xf0\x9f\x98A", "\ufffdA"),
    ],
)
def test_bytes_that_are_no_utf8_hash_as_replacement_characters(tag: bytes, text: str) -> None:
    """Goal: what Java reads as U+FFFD hashes as U+FFFD, and a broken character does not swallow what follows."""
    log = MemoryLog()
    log.append(properties=b"TAGS\x01" + tag + b"\x02")
    assert log.queue().unit(0)[2] == java_text_hash(text)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        (b"", 0),
        (b"TAGS\x01\x02", 0),
        (b"TAGS\x01A", 65),
        (b"TAGS\x01A\x02TAGS\x01B\x02", 66),
        (b"TAG\x01A\x02XTAGS\x01A\x02TAGSX\x01A\x02tags\x01A\x02", 0),
        (b"TAGS\x02A\x01x\x02", 0),
        (b"TAGS\x01A\x02TAGS\x02", 65),
        (b"TAGS\x01A||B\x02", java_text_hash("A||B")),
        (b"TAGS\x01A\x01B\x02", java_text_hash("A\x01B")),
        (b"\x02\x02TAGS\x01A\x02\x02", 65),
        (b"\x01A\x02", 0),
    ],
)
def test_tag_is_found_in_any_wellformed_or_odd_properties(properties: bytes, code: int) -> None:
    """Goal: names match whole, the last of a name wins, an item without 0x01 is no property."""
    log = MemoryLog()
    log.append(properties=properties)
    assert log.queue().unit(0)[2] == code


@pytest.mark.parametrize(
    ("delay", "code"),
    [
        ("1", 1_700_000_001_000),
        ("3", 1_700_000_010_000),
        ("10", 1_700_000_010_000),
        ("99", 1_700_000_010_000),
        ("0", 65),
        ("-1", 65),
        ("x", 65),
        ("", 65),
        ("9999999999", 65),
    ],
)
def test_delayed_message_has_its_delivery_time_as_tags_code(delay: str, code: int) -> None:
    """Goal: in the schedule topic a DELAY above zero, clamped to the last level, becomes a time; else the hash."""
    log = MemoryLog()
    log.appender.delays_ms = [1_000, 5_000, 10_000]
    log.append(log.queue(SCHEDULE_TOPIC), properties=props(TAGS="A", DELAY=delay), store_ms=1_700_000_000_000)
    assert log.queue(SCHEDULE_TOPIC).unit(0)[2] == code


def test_delay_means_nothing_outside_the_schedule_topic() -> None:
    """Goal: a delivered message still carries DELAY; its unit holds the tag's hash again."""
    log = MemoryLog()
    log.appender.delays_ms = [1_000]
    log.append(properties=props(TAGS="A", DELAY="1"))
    assert log.queue().unit(0)[2] == 65


def test_without_delay_levels_the_schedule_topic_holds_hashes() -> None:
    """Goal: no levels, no times; nothing divides or indexes into an empty list."""
    log = MemoryLog()
    log.append(log.queue(SCHEDULE_TOPIC), properties=props(TAGS="A", DELAY="1"))
    assert log.queue(SCHEDULE_TOPIC).unit(0)[2] == 65
