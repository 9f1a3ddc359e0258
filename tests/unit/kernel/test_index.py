"""The index file against a tiny model of the specification: header, slots and units, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import pack, pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import IndexTail

from .kit import MemoryLog, index_hash, props

SLOTS, UNITS = 5, 8
KEYS = st.lists(st.sampled_from(["a", "b", "c", "key", "\u4e2d", "\U0001f600", "aXA4r82"]), max_size=3)


@dataclass
class IndexModel:
    """Section 7 of the specification in Python: files that fill up and roll over."""

    slots: int = SLOTS
    units: int = UNITS
    files: list[bytearray] = field(default_factory=list)
    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        self._add()

    def _add(self) -> None:
        self.files.append(bytearray(40 + 4 * self.slots + 20 * self.units))
        self.used, self.count = 0, 1
        if len(self.files) > 1:  # a later file starts with the end of the one before it
            self.begin_ms, self.begin_offset = self.end_ms, self.end_offset
            self._header()

    def _header(self) -> None:
        values = (self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used, self.count)
        pack_into(">qqqqii", self.files[-1], 0, *values)

    def put(self, hashed: int, log_offset: int, store_ms: int) -> None:
        if self.count >= self.units:
            self._add()
        file, slot_at = self.files[-1], 40 + 4 * (hashed % self.slots)
        newest = int.from_bytes(file[slot_at : slot_at + 4], "big", signed=True)
        newest = 0 if newest <= 0 or newest > self.count else newest
        seconds = 0 if self.begin_ms <= 0 else max(0, min((store_ms - self.begin_ms) // 1000, 0x7FFFFFFF))
        pack_into(">iqii", file, 40 + 4 * self.slots + 20 * self.count, hashed, log_offset, seconds, newest)
        pack_into(">i", file, slot_at, self.count)
        if self.count <= 1:
            self.begin_ms, self.begin_offset = store_ms, log_offset
        self.used += newest == 0
        self.count += 1
        self.end_ms, self.end_offset = store_ms, log_offset
        self._header()

    def put_message(self, topic: str, unique: str, keys: str, log_offset: int, store_ms: int) -> None:
        for key in [unique, *keys.split(" ")]:
            if key:
                self.put(index_hash(f"{topic}#{key}"), log_offset, store_ms)


def content(tail: IndexTail) -> bytes:
    return tail.file.bytes_at(0, tail.file.size)  # type: ignore[no-any-return]


def keyed_log(**given_sizes: int) -> MemoryLog:
    return MemoryLog(size=1 << 16, slots=SLOTS, index_units=UNITS, **given_sizes)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "U1", "U2"]),
            KEYS.map(" ".join),
            st.integers(-5_000, 3_000_000_000_000),
            st.sampled_from(["T", "Other"]),
        ),
        max_size=12,
    )
)
def test_index_files_are_byte_for_byte_what_the_model_makes(messages: list[tuple[str, str, int, str]]) -> None:
    """Goal: header, slots, units, the order of keys, clamped times and the preset of later files, all as specified."""
    log, model = keyed_log(), IndexModel()
    for unique, keys, store_ms, topic in messages:
        log_offset = log.appender.end
        log.append(log.queue(topic.encode()), properties=props(UNIQ_KEY=unique, KEYS=keys), store_ms=store_ms)
        model.put_message(topic, unique, keys, log_offset, store_ms)
    assert [content(tail) for tail in log.index_files] == [bytes(file) for file in model.files]


def test_first_unit_of_a_later_file_counts_from_the_end_of_the_one_before() -> None:
    """Goal: Apache's quirk is kept: the time of that unit is against the previous file's end."""
    log = keyed_log()
    for number in range(UNITS - 1):
        log.append(properties=props(KEYS="k"), store_ms=1_000_000 + number * 1_000)
    log.append(properties=props(KEYS="k"), store_ms=1_096_500)
    first, second = log.index_files
    assert first.full
    assert first.count == UNITS
    assert second.unit(1)[2] == (1_096_500 - (1_000_000 + (UNITS - 2) * 1_000)) // 1000 == 90
    assert (second.begin_ms, second.begin_offset) == (1_096_500, log.appender.log_offset)


def test_new_later_file_is_preset_before_its_first_unit() -> None:
    """Goal: a crash right after the roll leaves a file that other brokers accept."""
    tail = IndexTail(MappedBuffer(bytearray(40 + 4 * SLOTS + 20 * UNITS), 0), SLOTS, UNITS)
    tail.preset(77, 4096)
    assert content(tail) == pack(">qqqqii", 77, 77, 4096, 4096, 0, 1) + bytes(4 * SLOTS + 20 * UNITS)
    assert not tail.full


def test_keys_are_split_at_single_spaces_and_empty_ones_left_out() -> None:
    """Goal: unique key first, then each token, as Apache's order is."""
    log = MemoryLog(slots=50, index_units=50)
    log.append(properties=props(KEYS="  a  b ", UNIQ_KEY="u"))
    tail = log.index_files[0]
    assert [tail.unit(n)[0] for n in range(1, tail.count)] == [index_hash(f"TopicTest#{key}") for key in "uab"]


def test_full_index_without_a_next_file_stops_indexing() -> None:
    """Goal: a disk without room for an index file is told to the owner, and the message itself is stored."""
    log = keyed_log(index_files_max=1)
    for _ in range(UNITS):
        log.append(properties=props(KEYS="k"))
    assert log.appender.index is None
    assert log.append(properties=props(KEYS="k")) == 1
    assert log.queue().tail.next_offset == UNITS + 1


def test_search_follows_the_chain_newest_first_within_times_and_count() -> None:
    """Goal: section 7.4: hash equal, time within to the second, no more than asked for."""
    log = MemoryLog(slots=1, index_units=50)
    offsets = []
    for number in range(6):
        log.append(properties=props(KEYS="even" if number % 2 == 0 else "odd"), store_ms=1_000_000 + number * 10_000)
        offsets.append(log.appender.log_offset)
    tail, even = log.index_files[0], index_hash("TopicTest#even")
    assert tail.search(even, 10, 0, 1 << 60) == [offsets[4], offsets[2], offsets[0]]
    assert tail.search(even, 2, 0, 1 << 60) == [offsets[4], offsets[2]]
    assert tail.search(even, 0, 0, 1 << 60) == []
    assert tail.search(even, 10, 1_020_000, 1_020_000) == [offsets[2]]
    assert tail.search(even, 10, 1_020_001, 1 << 60)[0] == offsets[4]
    assert tail.search(even, 10, 0, 1_039_999) == [offsets[2], offsets[0]]
    assert tail.search(even, 10, 2_000_000, 1 << 60) == []
    assert tail.search(index_hash("TopicTest#none"), 10, 0, 1 << 60) == []


def test_damaged_chain_ends_instead_of_going_round() -> None:
    """Goal: a unit that points to itself or forward must not hold a query for ever."""
    log = keyed_log()
    for _ in range(3):
        log.append(properties=props(KEYS="k"))
    tail, hashed = log.index_files[0], index_hash("TopicTest#k")
    for pointer in (3, 7, -1, 0x7FFFFFFF):
        tail.file.memory[40 + 4 * SLOTS + 20 * 3 + 16 :][:4] = pack(">i", pointer)
        assert len(tail.search(hashed, 10, 0, 1 << 60)) == 1


def checked(log: MemoryLog, at: int, value: bytes) -> str | None:
    """What check() says when these bytes stand at `at` of the first index file."""
    tail = log.index_files[0]
    tail.file.memory[at : at + len(value)] = value
    tail.load_header()
    return tail.check(log.appender.end)  # type: ignore[no-any-return]


UNITS_AT = 40 + 4 * SLOTS


@pytest.mark.parametrize(
    ("at", "value", "complaint"),
    [
        (0, b"", None),
        (36, pack(">i", UNITS + 1), "count"),
        (36, pack(">i", 3), "header"),
        (24, pack(">q", 1), "header"),
        (16, pack(">q", 1), "header"),
        (32, pack(">i", 4), "header"),
        (UNITS_AT + 20, pack(">i", -5), "negative"),
        (UNITS_AT + 20 + 12, pack(">i", -1), "negative"),
        (UNITS_AT + 40 + 16, pack(">i", 2), "follows unit"),
        (UNITS_AT + 40 + 16, pack(">i", -1), "follows unit"),
        (UNITS_AT + 60 + 4, pack(">q", 0), "log offset"),
        (UNITS_AT + 60 + 4, pack(">q", 1 << 40), "log offset"),
        (40, pack(">i", 99), "slots"),
        (44, pack(">i", -1), "slots"),
    ],
)
def test_check_finds_what_is_wrong_with_a_file(at: int, value: bytes, complaint: str | None) -> None:
    """Goal: recovery keeps an index file only when header, units, slots and log agree."""
    log = keyed_log()
    for key in ("a", "a", "b", "c"):
        log.append(properties=props(KEYS=key))
    wrong = checked(log, at, value)
    assert (wrong is None) if complaint is None else (wrong is not None and complaint in wrong)


@given(st.integers(1, UNITS - 1), st.lists(st.sampled_from("abcd"), min_size=UNITS - 1, max_size=UNITS - 1))
def test_cut_file_is_the_file_as_it_once_was(keep: int, keys: list[str]) -> None:
    """Goal: going back to an earlier state gives the bytes of then; units that went leave nothing behind."""
    log, model = keyed_log(), IndexModel()
    for number, key in enumerate(keys):
        if number < keep:
            model.put(index_hash(f"TopicTest#{key}"), log.appender.end, 1_000_000 + number)
        log.append(properties=props(KEYS=key), store_ms=1_000_000 + number)
    tail = log.index_files[0]
    tail.cut_to(keep + 1, model.begin_ms, model.begin_offset, model.end_ms, model.end_offset)
    assert content(tail) == bytes(model.files[0])
    assert tail.check(log.appender.end) is None
    assert (tail.count, tail.end_ms) == (keep + 1, model.end_ms)


@pytest.mark.parametrize("count", [0, -1, UNITS + 1])
def test_cut_to_an_impossible_count_is_refused(count: int) -> None:
    """Goal: nothing is written for a count the file cannot have."""
    tail = keyed_log().index_files[0]
    before = content(tail)
    with pytest.raises(ValueError, match="cannot cut"):
        tail.cut_to(count, 0, 0, 0, 0)
    assert content(tail) == before


def test_cutting_a_damaged_file_writes_only_into_the_file() -> None:
    """Goal: a unit with a negative hash must not become a store in front of the mapping."""
    slots, guard = 100, 4096
    size = 40 + 4 * slots + 20 * UNITS
    memory = bytearray(b"\xee" * guard + bytes(size))
    tail = IndexTail(MappedBuffer(memoryview(memory)[guard:], 0), slots, UNITS)
    pack_into(">iqii", memory, guard + 40 + 4 * slots + 20, -99, 0, 0, 0)
    pack_into(">iqii", memory, guard + 40 + 4 * slots + 40, -0x80000000 + 1, 0, 0, 0)
    tail.cut_to(3, 1, 0, 1, 0)
    assert memory[:guard] == b"\xee" * guard


def test_loaded_header_without_a_count_is_a_new_file() -> None:
    """Goal: indexCount <= 0 means 1, since units are numbered from 1."""
    data = bytearray(40 + 4 * SLOTS + 20 * UNITS)
    pack_into(">qqqqii", data, 0, 1, 2, 3, 4, 5, -7)
    tail = IndexTail(MappedBuffer(data, 0), SLOTS, UNITS)
    assert (tail.begin_ms, tail.end_ms, tail.begin_offset, tail.end_offset) == (1, 2, 3, 4)
    assert (tail.used_slots, tail.count) == (5, 1)


def test_file_too_small_for_its_slots_and_units_is_refused() -> None:
    """Goal: the kernel never addresses beyond a mapping of the wrong size."""
    with pytest.raises(ValueError, match="does not fit"):
        IndexTail(MappedBuffer(bytearray(40 + 4 * SLOTS + 20 * UNITS - 1), 0), SLOTS, UNITS)


@pytest.mark.parametrize("number", [-1, UNITS])
def test_unit_outside_the_file_is_an_error(number: int) -> None:
    """Goal: no unit is read beyond the mapping."""
    with pytest.raises(IndexError):
        keyed_log().index_files[0].unit(number)
