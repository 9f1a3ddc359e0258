"""Reading a queue: limits, filters, gaps and damage; the map of the log's segments."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from struct import iter_unpack, pack
from typing import Any

import pytest

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.queue_units import FILLER_SIZE, put_unit_at
from rocketq.kernel.reader import (
    HAS_MORE,
    MISPLACED,
    NEED_SEGMENT,
    READ_DONE,
    TAKEN,
    TAKEN_MAX,
    LogMap,
    QueueRead,
    ReadLimits,
    ReadRequest,
    copy_places,
)

from .kit import Fields, MemoryLog, props


class Reading:
    """A log with messages in one queue, and reads of it."""

    def __init__(self, sizes: list[int], *, tags: str = "") -> None:
        self.log = MemoryLog(size=1 << 16)
        for number, size in enumerate(sizes):
            body = b"x" * (size - 91 - 9 - (7 if tags else 0))
            self.log.append(body=body, properties=props(TAGS=tags[number]) if tags else b"")
        self.units = self.log.queue().file_of(0)
        self.count = len(sizes)
        self.map = LogMap(1 << 16)
        self.map.attach(self.log.segment)

    def record(self, number: int) -> bytes:
        log_offset, size, _ = self.log.queue().unit(number)
        return self.log.segment.bytes_at(log_offset, size)  # type: ignore[no-any-return]

    def read(
        self, first: int = 0, stop: int | None = None, *, gone_until: int = 0, check_crc: bool = True, **given: Any
    ) -> QueueRead:
        limits = ReadLimits(
            given.get("count_max", 32),
            given.get("bytes_max", 1 << 18),
            given.get("disk_count_max", 8),
            given.get("disk_bytes_max", 1 << 16),
            given.get("scan_max", 800),
            given.get("log_end", self.log.appender.end),
            given.get("memory_bytes", 1 << 40),
        )
        found = QueueRead()
        found.in_place = given.get("in_place", False)
        state = found.read(
            self.map,
            self.log.queue().tail,
            self.units,
            first,
            self.count if stop is None else stop,
            ReadRequest(
                limits,
                gone_until,
                given.get("tag_codes"),
                given.get("unit_filter"),
                given.get("record_filter"),
                check_crc,
            ),
        )
        assert state == found.status
        return found


def test_read_returns_whole_records_back_to_back() -> None:
    """Goal: the answer of a pull is the log's own bytes, in queue order."""
    reading = Reading([200, 300, 150])
    found = reading.read()
    assert found.records == b"".join(reading.record(n) for n in range(3))
    assert (found.found, found.scanned, found.bad, found.filtered) == (3, 3, 0, 0)
    assert reading.read(1, 2).records == reading.record(1)
    assert reading.read(3).records == b""


def test_read_in_place_returns_where_records_lie() -> None:
    """Goal: the same records and limits, told by place and length."""
    reading = Reading([200, 300, 150], tags="ABA")
    units = [reading.log.queue().unit(number) for number in range(3)]
    found = reading.read(in_place=True)
    assert found.records == b"".join(pack(">qqi", at, number, size) for number, (at, size, _) in enumerate(units))
    assert (found.found, found.size_bytes) == (3, 650)
    assert reading.read(in_place=True, bytes_max=400).records == found.records[:20]
    assert reading.read(in_place=True, record_filter=lambda record: len(record) != 300).found == 2
    assert reading.read(3, in_place=True).records == b""


def copied(
    file: MappedBuffer, *wanted: tuple[int, int, int], first: int = 0, low: int = 0, high: int = 99, room: int = 4096
) -> tuple[int, int, bytes]:
    target = bytearray(room)
    places = MappedBuffer(b"".join(pack(">qqi", *place) for place in wanted), 0)
    state, following, used = copy_places(file, places, first, low, high, MappedBuffer(target, 0))
    return state, following, bytes(target[:used])


def test_records_are_copied_from_their_places() -> None:
    """Goal: the same bytes as a read of records, as far as there is room, they lie in this file and are wanted."""
    reading = Reading([200, 300, 150])
    places = list(iter_unpack(">qqi", reading.read(in_place=True).records))
    whole = reading.read().records
    file = reading.log.segment
    assert copied(file, *places) == (TAKEN, 3, whole)
    assert copied(file, *places, first=1) == (TAKEN, 3, whole[200:])
    assert copied(file, *places, first=3) == (TAKEN, 3, b"")
    assert copied(file, *places, high=2) == (TAKEN, 2, whole[:500])
    assert copied(file, *places, room=499) == (HAS_MORE, 1, whole[:200])
    assert copied(file, *places, room=500) == (HAS_MORE, 2, whole[:500])
    elsewhere = (file.base + file.size, 3, 100)
    assert copied(file, *places, elsewhere) == (HAS_MORE, 3, whole)
    assert copied(file, (file.base + file.size - 99, 0, 100)) == (HAS_MORE, 0, b"")
    for first in (-1, 4):
        with pytest.raises(IndexError, match="place"):
            copied(file, *places, first=first)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda at, number, size: (at, number + 1, size),
        lambda at, number, size: (at, number - 1, size),
        lambda at, number, size: (at, number, size + 1),
        lambda at, number, size: (at, number, 90),
        lambda at, number, size: (at, number, -size),
        lambda at, number, size: (at + 1, number, size),
        lambda at, number, size: (-at - 1, number, size),
        lambda at, number, size: (-(1 << 63), number, size),
    ],
)
def test_what_is_not_that_record_is_not_copied(wrong: Callable[[int, int, int], tuple[int, int, int]]) -> None:
    """Goal: a file that was written anew since, or a broker that errs, makes no row of another message."""
    reading = Reading([200, 300, 150])
    places = list(iter_unpack(">qqi", reading.read(in_place=True).records))
    state, following, data = copied(reading.log.segment, places[0], wrong(*places[1]), places[2])
    assert (state, following, len(data)) == (MISPLACED, 1, 200)


def test_places_are_in_queue_order_and_none_comes_twice() -> None:
    reading = Reading([200, 300, 150])
    first, second, third = iter_unpack(">qqi", reading.read(in_place=True).records)
    for places in ([first, first], [second, first], [first, third, second]):
        assert copied(reading.log.segment, *places)[:2] == (MISPLACED, len(places) - 1)
    assert copied(reading.log.segment, first, low=1)[:2] == (MISPLACED, 0)
    assert copied(reading.log.segment, first, third)[:2] == (TAKEN, 2)


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({}, 5),
        ({"count_max": 3}, 3),
        ({"count_max": 1}, 1),
        ({"count_max": 0}, 1),
        ({"bytes_max": 600}, 3),
        ({"bytes_max": 599}, 2),
        ({"bytes_max": 1}, 1),
        ({"scan_max": 2}, 2),
        ({"memory_bytes": 1000, "disk_count_max": 1, "log_end": 1000}, 5),
    ],
)
def test_limits_stop_a_read_before_the_record_that_passes_them(limits: dict[str, int], count: int) -> None:
    """Goal: by count, by bytes, by units scanned; but one record always, whatever its size."""
    found = Reading([200] * 5).read(**limits)
    assert (found.found, found.scanned, len(found.records)) == (count, count, 200 * count)


def test_count_is_capped_at_what_a_read_can_hold() -> None:
    """Goal: the kernel's fixed table is never overrun, whatever a client asks for."""
    assert ReadLimits(1 << 30, 0, 0, 0, 0, 0, 0).count_max == TAKEN_MAX


def test_filtered_units_are_passed_without_reading_records() -> None:
    """Goal: tag codes decide by the unit alone; no segment is asked for."""
    reading = Reading([200] * 4, tags="ABAB")
    found = reading.read(tag_codes=frozenset([65]))
    assert found.records == reading.record(0) + reading.record(2)
    assert (found.found, found.filtered, found.scanned) == (2, 2, 4)
    reading.map.detach(0)
    nothing = reading.read(tag_codes=frozenset([1]))
    assert (nothing.status, nothing.filtered, nothing.scanned) == (READ_DONE, 4, 4)


def test_filters_are_asked_in_order_and_only_about_what_is_left() -> None:
    """Goal: the unit filter sees tags codes, the record filter whole records that the others passed."""
    reading = Reading([200] * 4, tags="ABAC")
    codes: list[int] = []
    records: list[bytes] = []
    found = reading.read(
        tag_codes={65, 66},
        unit_filter=lambda code: codes.append(code) or code == 65,
        record_filter=lambda record: records.append(record) or record != reading.record(0),
    )
    assert codes == [65, 66, 65]
    assert records == [reading.record(0), reading.record(2)]
    assert found.records == reading.record(2)
    assert (found.filtered, found.scanned) == (3, 4)


def test_failing_filter_fails_the_read() -> None:
    """Goal: an error in a filter is the caller's to see; it is not swallowed in compiled code."""

    def fail(_: object) -> bool:
        raise LookupError("no")

    for kind in ("unit_filter", "record_filter"):
        with pytest.raises(LookupError):
            Reading([200]).read(**{kind: fail})


def test_fillers_are_scanned_and_are_no_messages() -> None:
    """Goal: offsets of lost messages are passed over silently."""
    reading = Reading([200] * 3)
    put_unit_at(reading.units, 1, 200, FILLER_SIZE, 0)
    found = reading.read()
    assert (found.found, found.scanned, found.bad) == (2, 3, 0)
    assert found.records == reading.record(0) + reading.record(2)


def test_deleted_records_are_told_from_damaged_ones() -> None:
    """Goal: below `gone_until` a record is missing, not bad, and its segment is not asked for."""
    reading = Reading([200] * 4)
    found = reading.read(gone_until=400)
    assert (found.found, found.scanned, found.bad, found.missing_log_offset) == (2, 4, 0, 200)


def damage_body(reading: Reading) -> None:
    reading.log.segment.memory[200 + 90] ^= 0xFF


def damage_offset(reading: Reading) -> None:
    reading.log.segment.memory[200 + 35] ^= 0xFF


def damage_size(reading: Reading) -> None:
    put_unit_at(reading.units, 1, 200, 199, 0)


def damage_place(reading: Reading) -> None:
    put_unit_at(reading.units, 1, 201, 200, 0)


@pytest.mark.parametrize("damage", [damage_body, damage_offset, damage_size, damage_place])
def test_damaged_record_is_skipped_and_counted(damage: Callable[[Reading], None]) -> None:
    """Goal: what does not say its own offset and size, or fails its CRC, is never served; the rest is."""
    reading = Reading([200] * 3)
    damage(reading)
    found = reading.read()
    assert found.records == reading.record(0) + reading.record(2)
    assert (found.found, found.bad, found.scanned) == (2, 1, 3)
    assert found.bad_log_offset in (200, 201)


@pytest.mark.parametrize(
    "foreign",
    [Fields(queue_id=1), Fields(queue_offset=2), Fields(topic=b"TopicTesT"), Fields(topic=b"TopicTes", body=b"x")],
    ids=["queue", "offset", "topic", "shorter-topic"],
)
def test_message_of_another_queue_is_not_served(foreign: Fields) -> None:
    """Goal: a unit that leads to a good record of somebody else is damaged, whatever its size says."""
    reading = Reading([100] * 2)
    foreign.log_offset = 100
    foreign.queue_offset = foreign.queue_offset or 1
    reading.log.segment.memory[100:200] = foreign.encode()
    found = reading.read()
    assert (found.found, found.bad, found.bad_units, found.bad_log_offset) == (1, 1, 1, 100)
    assert found.records == reading.record(0)


def test_damaged_bodies_are_told_from_units_that_lead_nowhere() -> None:
    """Goal: the first is the log's trouble, the second the queue's, which can be mended."""
    reading = Reading([200] * 3)
    damage_body(reading)
    assert (reading.read().bad, reading.read().bad_units) == (1, 0)
    damage_place(reading)
    assert (reading.read().bad, reading.read().bad_units) == (1, 1)


def test_without_the_crc_check_a_damaged_body_is_served() -> None:
    """Goal: the check can be switched off, and only the body's check is."""
    reading = Reading([200] * 3)
    damage_body(reading)
    assert reading.read(check_crc=False).found == 3


def test_missing_mapping_is_asked_for_and_a_gone_segment_is_bad() -> None:
    """Goal: the owner maps what is needed and the read starts again; an empty buffer stands for a lost file."""
    reading = Reading([200] * 3)
    put_unit_at(reading.units, 1, 70_000, 200, 0)
    found = reading.read()
    assert (found.status, found.need_log_offset) == (NEED_SEGMENT, 70_000)
    reading.map.attach(MappedBuffer(b"", 65536))
    again = reading.read()
    assert (again.status, again.found, again.bad) == (READ_DONE, 2, 1)


@pytest.mark.parametrize(("first", "stop"), [(-1, 2), (0, 65)])
def test_units_outside_the_file_are_an_error(first: int, stop: int) -> None:
    """Goal: a read never leaves its queue file."""
    with pytest.raises(IndexError):
        Reading([200]).read(first, stop)


def test_one_read_object_serves_again_and_again() -> None:
    """Goal: nothing of an earlier read is left in the next."""
    reading, found = Reading([200] * 3), QueueRead()
    limits = ReadLimits(32, 1 << 18, 8, 1 << 16, 800, 600, 1 << 40)
    request = ReadRequest(limits, 0, None, None, None, True)
    for first, stop in [(0, 3), (2, 3), (3, 3), (0, 1)]:
        found.read(reading.map, reading.log.queue().tail, reading.units, first, stop, request)
        assert (found.found, found.scanned, len(found.records)) == (stop - first, stop - first, 200 * (stop - first))


# The map of segments


def test_map_finds_segments_by_offset() -> None:
    """Goal: first and last byte of a segment are in it, their neighbours are not."""
    log = LogMap(4096)
    segments = [MappedBuffer(bytearray(4096), base) for base in (4096, 8192)]
    for segment in segments:
        log.attach(segment)
    for _ in range(2):
        assert [log.segment_of(offset) for offset in (4095, 4096, 8191, 8192, 12287, 12288)] == [
            None,
            segments[0],
            segments[0],
            segments[1],
            segments[1],
            None,
        ]
    log.detach(4096)
    assert log.segment_of(5000) is None
    log.detach(4096)


def test_negative_offset_is_in_no_segment() -> None:
    """Goal: a damaged unit with a negative log offset must not be looked for in the first segment."""
    log = LogMap(4096)
    log.attach(MappedBuffer(bytearray(4096), 0))
    assert log.segment_of(-1) is None
    assert log.segment_of(-4096) is None


def test_idle_segments_are_those_not_asked_for_since_the_last_time() -> None:
    """Goal: a mapping in use stays, one nobody reads is named, and a second round starts anew."""
    log = LogMap(4096)
    for base in (0, 4096, 8192):
        log.attach(MappedBuffer(bytearray(4096), base))
    log.segment_of(5000)
    log.segment_of(5001)
    assert sorted(log.idle()) == [0, 8192]
    log.segment_of(5000)
    assert sorted(log.idle()) == [0, 8192]
    assert sorted(log.idle()) == [0, 4096, 8192]


def test_segment_that_goes_away_during_a_read_does_not_crash_it() -> None:
    """Goal: while a filter runs, another thread may delete the segment; taken records are delivered or dropped."""
    script = """
        from struct import pack
        from rocketq.kernel.buffers import MappedBuffer
        from rocketq.kernel.queue_units import QueueTail, put_unit_at
        from rocketq.kernel.reader import LogMap, QueueRead, ReadLimits, ReadRequest

        record = bytes.fromhex({record!r})
        log, units = LogMap(4096), MappedBuffer(bytearray(40), 0)
        log.attach(MappedBuffer(record + bytes(4096 - len(record)), 0))
        second = record[:20] + pack(">qq", 1, 4096) + record[36:]
        log.attach(MappedBuffer(second + bytes(4096 - len(record)), 4096))
        put_unit_at(units, 0, 0, len(record), 0)
        put_unit_at(units, 1, 4096, len(record), 0)

        def accept(data):
            if int.from_bytes(data[28:36], "big") == 4096:
                log.detach(0)
            return True

        found = QueueRead()
        limits = ReadLimits(32, 1 << 18, 8, 1 << 16, 800, 8192, 1 << 40)
        queue = QueueTail(b"TopicTest", 0, None)
        found.read(log, queue, units, 0, 2, ReadRequest(limits, 0, None, None, accept, True))
        assert len(found.records) == found.found * len(record), (len(found.records), found.found)
        print("survived")
    """
    record = Fields(body=b"body", log_offset=0).encode()
    code = textwrap.dedent(script).replace("{record!r}", repr(record.hex()))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "survived\n", (done.returncode, done.stderr)
