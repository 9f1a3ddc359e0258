"""Queue units in a file: reading, writing and searching them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.queue_units import (
    FILLER_SIZE,
    QueueTail,
    count_units,
    first_real_unit,
    first_unit_beyond,
    first_unit_from,
    put_unit_at,
    unit_at,
)

Unit = tuple[int, int, int]


def file_of(units: list[Unit], capacity: int | None = None) -> MappedBuffer:
    buffer = MappedBuffer(bytearray(20 * max(capacity or len(units), len(units))), 0)
    for index, unit in enumerate(units):
        put_unit_at(buffer, index, *unit)
    return buffer


def growing(gaps: list[tuple[int, int]], fillers: int) -> list[Unit]:
    """Fillers of an old broker, then units whose records follow each other with gaps."""
    units: list[Unit] = [(0, FILLER_SIZE, 0)] * fillers
    log_offset = 0
    for gap, size in gaps:
        log_offset += gap
        units.append((log_offset, size, 7))
        log_offset += size
    return units


UNITS = st.builds(
    growing, st.lists(st.tuples(st.integers(0, 500), st.integers(91, 300)), max_size=30), st.integers(0, 5)
)


def test_unit_is_twenty_big_endian_bytes() -> None:
    """Goal: the layout of the specification, negative tags code included."""
    buffer = MappedBuffer(bytearray(60), 0)
    put_unit_at(buffer, 1, 0x40001000, 0x84, -367331910)
    assert buffer.bytes_at(20, 20) == bytes.fromhex("0000000040001000 00000084 ffffffffea1af5ba")
    assert unit_at(buffer, 1) == (0x40001000, 0x84, -367331910)
    assert buffer.bytes_at(0, 20) == buffer.bytes_at(40, 20) == bytes(20)


@pytest.mark.parametrize("index", [-1, 3])
def test_unit_outside_the_file_is_an_error(index: int) -> None:
    """Goal: neither read nor written beyond the mapping."""
    buffer = MappedBuffer(bytearray(79), 0)
    with pytest.raises(IndexError):
        unit_at(buffer, index)
    with pytest.raises(IndexError):
        put_unit_at(buffer, index, 1, 1, 1)


@given(UNITS, st.integers(0, 10))
def test_written_units_are_counted_up_to_the_first_empty_one(units: list[Unit], empty: int) -> None:
    """Goal: fillers count as written, zeros end the queue."""
    buffer = file_of(units, len(units) + empty)
    assert count_units(buffer, 0, buffer.size // 20) == len(units)
    assert count_units(buffer, 0, 1000) == len(units)


def test_negative_log_offset_or_size_ends_the_count() -> None:
    """Goal: damage is no unit."""
    assert count_units(file_of([(0, 91, 0), (-1, 91, 0), (200, 91, 0)]), 0, 3) == 1
    assert count_units(file_of([(0, 91, 0), (91, -5, 0), (200, 91, 0)]), 0, 3) == 1


@given(UNITS, st.integers(0, 8000), st.data())
def test_searches_agree_with_looking_at_every_unit(units: list[Unit], place: int, data: st.DataObject) -> None:
    """Goal: the binary searches find what a walk finds."""
    start = data.draw(st.integers(0, len(units)))
    buffer = file_of(units)
    stop = len(units)
    ends = [log_offset + (0 if size == FILLER_SIZE else size) for log_offset, size, _ in units]
    assert first_unit_from(buffer, start, stop, place) == next(
        (n for n in range(start, stop) if units[n][0] >= place), stop
    )
    assert first_unit_beyond(buffer, start, stop, place) == next(
        (n for n in range(start, stop) if ends[n] > place), stop
    )
    assert first_real_unit(buffer, start, stop) == next(
        (n for n in range(start, stop) if units[n][1] != FILLER_SIZE), stop
    )


@pytest.mark.parametrize("search", [first_unit_from, first_unit_beyond])
def test_searches_refuse_ranges_outside_the_file(search) -> None:  # type: ignore[no-untyped-def]
    """Goal: no search leaves the mapping."""
    buffer = file_of([(0, 91, 0)] * 3)
    with pytest.raises(IndexError):
        search(buffer, -1, 3, 0)
    with pytest.raises(IndexError):
        search(buffer, 0, 4, 0)
    with pytest.raises(IndexError):
        first_real_unit(buffer, 0, 4)


def test_tail_writes_to_the_attached_file_and_forgets_it_when_told() -> None:
    """Goal: the first unit's queue offset is the file's base; a detached tail has no room."""
    tail = QueueTail(b"T", 7, None)
    units = MappedBuffer(bytearray(200), 100)
    tail.next_offset = 103
    tail.attach(units, 105)
    assert (tail.file_first, tail.file_end, tail.room_end) == (100, 110, 105)
    tail.put_next(5000, 91, -3)
    assert unit_at(units, 3) == (5000, 91, -3)
    assert (tail.next_offset, tail.log_end) == (104, 5091)
    tail.detach()
    assert (tail.units, tail.file_end, tail.room_end) == (None, 0, 0)
    assert (tail.next_offset, tail.log_end) == (104, 5091)
    assert (tail.topic, tail.queue_id, tail.scheduled) == (b"T", 7, False)
    assert QueueTail(b"SCHEDULE_TOPIC_XXXX", 0, None).scheduled
