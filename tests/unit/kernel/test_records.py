"""Parsing records: what is good, every kind of damage, and finding the next good one."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.records import (
    BAD_CRC,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_OFFSET,
    BLANK,
    END,
    MESSAGE,
    RecordView,
    find_next_record,
    first_nonzero,
)
from rocketq.kernel.scanner import walk_records

from .kit import BLANK_MAGIC, HOST_V6, V2, Fields, props

GOOD = Fields(body=b"body", properties=props(TAGS="A"), log_offset=4096).encode()
BODY_AT, TOPIC_AT = 88, 92
PROPERTIES_AT = TOPIC_AT + 1 + 9


def parse(data: bytes, base: int = 4096, *, at: int = 0, check_crc: bool = True) -> int:
    return int(RecordView().parse_at(MappedBuffer(data, base), at, check_crc))


def patched(at: int, replacement: bytes, data: bytes = GOOD) -> bytes:
    return data[:at] + replacement + data[at + len(replacement) :]


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (GOOD, MESSAGE),
        (GOOD + b"\xff" * 9, MESSAGE),
        (Fields(topic=b"", log_offset=4096).encode(), MESSAGE),
        (Fields(topic=b"", body=b"all that is in it", log_offset=4096).encode(), MESSAGE),
        (b"", END),
        (GOOD[:7], END),
        (bytes(200), END),
        (GOOD[:-1], BAD_LENGTH),
        (patched(0, pack(">i", len(GOOD) - 1)), BAD_LENGTH),
        (patched(0, pack(">i", len(GOOD) + 1)) + b"\0", BAD_LENGTH),
        (patched(0, pack(">i", 90)), BAD_LENGTH),
        (patched(0, pack(">i", -1)), BAD_LENGTH),
        (patched(0, pack(">i", 0)), BAD_LENGTH),
        (patched(4, pack(">i", 0)), BAD_MAGIC),
        (patched(4, pack(">I", 0xDAA320A8)), BAD_MAGIC),
        (patched(4, pack(">I", V2)), BAD_LENGTH),
        (patched(28, pack(">q", 4097)), BAD_OFFSET),
        (patched(36, pack(">i", 0x10)), BAD_LENGTH),
        (patched(36, pack(">i", 0x20)), BAD_LENGTH),
        (patched(84, pack(">i", -1)), BAD_LENGTH),
        (patched(84, pack(">i", 0x7FFFFFFF)), BAD_LENGTH),
        (patched(84, pack(">i", 3)), BAD_LENGTH),
        (patched(TOPIC_AT, b"\x7f"), BAD_LENGTH),
        (patched(TOPIC_AT, b"\x08"), BAD_LENGTH),
        (patched(PROPERTIES_AT, pack(">h", -1)), BAD_LENGTH),
        (patched(PROPERTIES_AT, pack(">h", 0)), BAD_LENGTH),
        (patched(PROPERTIES_AT, pack(">h", 0x7FFF)), BAD_LENGTH),
        (patched(BODY_AT, b"x"), BAD_CRC),
        (patched(8, pack(">i", 1)), BAD_CRC),
        (pack(">iI", 8, BLANK_MAGIC), BLANK),
        (pack(">iI", 100, BLANK_MAGIC) + b"\xff" * 92, BLANK),
        (pack(">iI", 7, BLANK_MAGIC), BAD_LENGTH),
        (pack(">iI", 9, BLANK_MAGIC), BAD_LENGTH),
        (pack(">iI", -1, BLANK_MAGIC) + bytes(9), BAD_LENGTH),
    ],
)
def test_every_kind_of_damage_has_its_name(data: bytes, state: int) -> None:
    """Goal: recovery decides by these states; none may be taken for another."""
    assert parse(data) == state


def test_without_the_crc_check_a_damaged_body_passes() -> None:
    """Goal: replicas and time lookups need the header only."""
    assert parse(patched(BODY_AT, b"x"), check_crc=False) == MESSAGE


@pytest.mark.parametrize("at", [-1, len(GOOD) + 1])
def test_position_outside_the_buffer_is_bad(at: int) -> None:
    """Goal: the kernel reads no memory that is not its own."""
    assert parse(GOOD, at=at) == BAD_LENGTH


def test_empty_buffer_has_no_record() -> None:
    """Goal: a segment that is gone is mapped as nothing and read as an end."""
    assert parse(b"", at=0) == END


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_bytes_parse_to_some_state(data: bytes, at: int) -> None:
    """Goal: garbage never crashes and never is a message by accident of a missing check."""
    assert parse(data, at=at) in (END, BAD_MAGIC, BAD_LENGTH)


@given(
    cut=st.integers(0, len(GOOD) - 1),
    at=st.integers(0, len(GOOD) - 1),
    value=st.integers(0, 255),
)
def test_damaged_or_cut_record_never_claims_bytes_it_does_not_have(cut: int, at: int, value: int) -> None:
    """Goal: whatever one changed byte says, spans stay inside the record."""
    data = patched(at, bytes([value]))[: max(cut, 8)]
    view = RecordView()
    if view.parse_at(MappedBuffer(data, 4096), 0, False) == MESSAGE:
        assert view.properties_at + view.properties_len == view.size <= len(data)
        assert view.body_at + view.body_len < view.topic_at + view.topic_len < view.properties_at


def log_of(*pieces: bytes | Fields, base: int = 0) -> bytes:
    """Pieces laid end to end; records get the offset at which they come to lie."""
    data = b""
    for piece in pieces:
        if isinstance(piece, Fields):
            piece.log_offset = base + len(data)
            data += piece.encode()
        else:
            data += piece
    return data


def find(data: bytes, at: int = 0, stop: int | None = None, base: int = 0) -> int:
    return int(find_next_record(MappedBuffer(data, base), at, len(data) if stop is None else stop, RecordView()))


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 50,
        bytes(50),
        pack(">I", 0xDAA320A7) * 10,
        pack(">I", V2) * 10,
        pack(">iI", 91, 0xDAA320A7) * 20,
        pack(">iI", 12, BLANK_MAGIC) * 20,
        Fields(body=b"misplaced", log_offset=1 << 40).encode(),
        Fields(body=b"wrong crc", crc=1).encode(),
        b"\xda\xa3\x20",
    ],
)
@pytest.mark.parametrize("magic", [0xDAA320A7, V2])
def test_next_good_record_behind_garbage_is_found(garbage: bytes, magic: int) -> None:
    """Goal: damage costs only the records it hit, whatever the damage looks like."""
    data = log_of(garbage, Fields(body=b"good", magic=magic), Fields(body=b"later"), base=8192)
    assert find(data, base=8192) == len(garbage)
    assert find(data, len(garbage) + 1, base=8192) == len(garbage) + len(Fields(body=b"good", magic=magic).encode())


def test_record_inside_a_body_is_not_taken_for_one() -> None:
    """Goal: a message that carries a copy of another does not confuse the search, since offsets do not match."""
    inside = Fields(body=b"inner", log_offset=0).encode()
    data = log_of(b"\xff" * 9, Fields(body=inside + inside))
    assert find(data) == 9
    assert find(data, 10) == -1


def test_search_is_for_starts_below_its_stop() -> None:
    """Goal: pieces of a file can be searched one by one, and no start is missed or found twice."""
    data = log_of(b"\xff" * 20, Fields(body=b"good"))
    assert find(data, 0, 20) == -1
    assert find(data, 0, 21) == 20
    assert find(data, 20, 21) == 20
    assert find(data, 21) == -1


def test_blank_counts_only_when_it_reaches_the_end() -> None:
    """Goal: a true blank ends its file exactly; anything else with that magic is damage."""
    data = b"\xff" * 30 + pack(">iI", 40, BLANK_MAGIC) + bytes(32)
    assert find(data) == 30
    assert find(data + b"\0") == -1


@pytest.mark.parametrize("at", [-1, 10_000])
def test_search_outside_the_buffer_finds_nothing(at: int) -> None:
    """Goal: nonsense positions are answered, not followed."""
    assert find(GOOD, at) == -1


@given(
    st.lists(st.one_of(st.binary(max_size=60), st.builds(Fields, body=st.binary(max_size=60))), max_size=6),
    st.integers(0, 300),
)
def test_search_agrees_with_trying_every_position(pieces: list[bytes | Fields], at: int) -> None:
    """Goal: the fast search by magic and the slow one by parsing everywhere are the same search."""
    data = log_of(*pieces, base=512)
    states = [parse(data, 512, at=start) for start in range(len(data))]
    slow = [start for start in range(at, len(data)) if states[start] == MESSAGE]
    assert find(data, at, base=512) == (slow[0] if slow else -1)


def test_walk_steps_over_good_records_and_says_why_it_stops() -> None:
    """Goal: state, place, count and the start of the last record; a bad body is still a record."""
    first, second = Fields(body=b"1"), Fields(body=b"22", crc=5, born_host=HOST_V6)
    data = log_of(first, second)
    size = len(first.encode())
    buffer = MappedBuffer(data + bytes(100), 0)
    assert walk_records(buffer, 0, buffer.size, RecordView(), True) == (END, len(data), 2, size)
    assert walk_records(buffer, 0, 1, RecordView(), True) == (MESSAGE, size, 1, 0)
    assert walk_records(buffer, 1, buffer.size, RecordView(), True)[:3] == (BAD_MAGIC, 1, 0)
    with pytest.raises(IndexError):
        walk_records(buffer, 0, buffer.size + 1, RecordView(), True)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_first_nonzero_byte_is_found_wherever_it_lies(size: int, at: int, mark: int) -> None:
    """Goal: the fast loop has no edge, whatever the alignment."""
    data = bytearray(size)
    if mark < size:
        data[mark] = 1
    at = min(at, size)
    expected = next((n for n in range(at, size) if data[n]), size)
    assert first_nonzero(MappedBuffer(data, 0), at, size) == expected


def test_first_nonzero_refuses_what_lies_outside() -> None:
    """Goal: a range beyond the buffer is an error."""
    with pytest.raises(IndexError):
        first_nonzero(MappedBuffer(bytes(8), 0), 0, 9)
    with pytest.raises(IndexError):
        first_nonzero(MappedBuffer(bytes(8), 0), -1, 8)


def test_buffer_gives_copies_of_what_it_holds_and_nothing_else() -> None:
    """Goal: bytes_at is bounded on both sides."""
    buffer = MappedBuffer(b"0123456789", 100)
    assert (buffer.base, buffer.size, buffer.bytes_at(2, 3), buffer.bytes_at(10, 0)) == (100, 10, b"234", b"")
    assert bytes(buffer.memory) == b"0123456789"
    for at, count in [(-1, 2), (0, 11), (11, 0), (5, -1)]:
        with pytest.raises(IndexError):
            buffer.bytes_at(at, count)
