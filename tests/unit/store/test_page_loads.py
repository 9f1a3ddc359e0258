"""Old records brought into the page cache: which, how many, and what becomes of files that go meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest
from tests.page_cache import KNOWS_PAGES, drop_log, drop_queue, is_resident

from rocketq.kernel.queue_units import FILLER_SIZE, put_unit_at
from rocketq.store import ReadStatus, Store, tag_code
from rocketq.store.commit_log import LogRange
from rocketq.store.page_loads import AHEAD_BYTES, GAP_BYTES, RECORD_BYTES_MAX, LoadPlan, plan_load

from .kit import fill, message, open_store, records

SEGMENT = 1 << 30


def plan(*units: tuple[int, int] | tuple[int, int, int], **given: int | frozenset[int]) -> LoadPlan:
    limits = {"count_max": 32, "bytes_max": 1 << 18, "gone_until": 0, "tag_codes": None} | given
    packed = b"".join(pack(">qiq", *unit, *(0,) * (3 - len(unit))) for unit in units)
    return plan_load(packed, segment_bytes=SEGMENT, **limits)  # type: ignore[arg-type]


def test_neighbours_are_one_range() -> None:
    """Goal: records back to back, or with a small gap, are read at once; far ones and other segments by themselves."""
    assert plan((0, 100), (100, 200)).wanted == (LogRange(0, 300),)
    assert plan((0, 100), (100 + GAP_BYTES, 200)).wanted == (LogRange(0, 300 + GAP_BYTES),)
    assert plan((0, 100), (101 + GAP_BYTES, 200)).wanted == (
        LogRange(0, 100),
        LogRange(101 + GAP_BYTES, 301 + GAP_BYTES),
    )
    assert plan((SEGMENT - 100, 100), (SEGMENT, 200)).wanted == (
        LogRange(SEGMENT - 100, SEGMENT),
        LogRange(SEGMENT, SEGMENT + 200),
    )


@pytest.mark.parametrize(("limits", "count"), [({"count_max": 2}, 2), ({"bytes_max": 399}, 3), ({"bytes_max": 1}, 1)])
def test_a_plan_ends_where_the_read_does(limits: dict[str, int], count: int) -> None:
    """Goal: by count and bytes, one record at least; what follows is read ahead."""
    found = plan(*((100 * number, 100) for number in range(10)), **limits)
    assert found.unit_count == count
    assert (found.wanted, found.ahead) == ((LogRange(0, 100 * count),), (LogRange(100 * count, 1_000),))
    assert found.size_bytes == 1_000


def test_read_ahead_is_bounded() -> None:
    size = AHEAD_BYTES // 4
    found = plan(*((size * number, size) for number in range(20)), count_max=1)
    assert found.ahead == (LogRange(size, size + AHEAD_BYTES),)


def test_units_without_a_wanted_record_cost_nothing() -> None:
    """Goal: fillers, deleted records and other tags are passed; an extension's address may be any tag."""
    address = -(1 << 62)
    found = plan(
        (0, FILLER_SIZE),
        (10, 100, 7),
        (200, 100, 8),
        (300, 100, 7),
        (70_000, 100, address),
        (80_000, 100, 8),
        gone_until=150,
        tag_codes=frozenset([7]),
    )
    assert (found.unit_count, found.wanted) == (6, (LogRange(300, 400), LogRange(70_000, 70_100)))


def test_a_damaged_unit_loads_no_more_than_a_record() -> None:
    (huge,) = plan((0, FILLER_SIZE - 1)).wanted
    assert huge.size == RECORD_BYTES_MAX
    assert plan((SEGMENT - 10, 1_000)).wanted == (LogRange(SEGMENT - 10, SEGMENT),)
    assert plan((0, -5)).wanted == (LogRange(0, 1),)


# With a store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Far behind the end is everything."""
    store = open_store(tmp_path, memory_ratio_percent=0, queue_file_bytes=20 * 1_000)
    yield store
    store.close()


def test_what_was_loaded_is_read_like_fresh_messages(store: Store) -> None:
    """Goal: cold is reported with where it begins; after the load the read is as large as any, and names a slave."""
    fill(store, 50)
    drop_log(store)
    drop_queue(store, "T")
    cold = store.read("T", 0, 3, resident_only=True)
    assert (cold.status, cold.next_offset, cold.count, cold.max_offset) == (ReadStatus.NOT_RESIDENT, 3, 0, 50)
    loaded = store.load("T", 0, cold.next_offset, cold.max_offset)
    assert (loaded.stop, loaded.size_bytes > 32_000) == (35, True)
    found = store.read("T", 0, 3, loaded_to=loaded.stop)
    assert (found.count, found.next_offset, found.suggest_slave) == (32, 35, True)
    assert [record.queue_offset for record in records(found)] == list(range(3, 35))


@pytest.mark.skipif(not KNOWS_PAGES, reason="the kernel cannot ask which pages are in memory")
def test_a_load_brings_in_what_comes_next(store: Store) -> None:
    """Goal: a sequential reader finds the next pull's records in memory, or on their way."""
    fill(store, 50)
    drop_log(store)
    loaded = store.load("T", 0, 0, 50)
    first = store.log.segment(0)
    assert is_resident(first, 0, first.size)
    assert loaded.size_bytes >= 50_000
    assert store.read("T", 0, 0, resident_only=True).count >= 15


def test_a_load_within_limits(store: Store) -> None:
    fill(store, 20)
    drop_log(store)
    assert store.load("T", 0, 0, 20, count_max=5).stop == 5
    assert store.load("T", 0, 0, 20, bytes_max=1).stop == 1
    assert store.load("T", 0, 18, 20).stop == 20
    assert store.load("Nowhere", 0, 0, 20).size_bytes == 0


def test_a_load_ends_with_the_queue_file(tmp_path: Path) -> None:
    store = open_store(tmp_path, memory_ratio_percent=0, queue_file_bytes=20 * 10)
    fill(store, 25)
    assert store.load("T", 0, 7, 25).stop == 10
    store.close()


def test_a_load_with_tags_passes_other_messages(store: Store) -> None:
    """Goal: only matching records are loaded and counted; the read goes on behind them all."""
    for number in range(40):
        store.append(message(b"x" * 900, TAGS="AB"[number % 2]))
    drop_log(store)
    tags = frozenset([tag_code("B")])
    loaded = store.load("T", 0, 0, 40, count_max=10, tag_codes=tags)
    assert loaded.stop in (20, 21)
    found = store.read("T", 0, 0, tag_codes=tags, loaded_to=loaded.stop)
    assert [record.queue_offset for record in records(found)] == list(range(1, 20, 2))


def test_files_that_went_are_no_error(store: Store) -> None:
    """Goal: retention may delete what is being loaded; the read then says that it is gone."""
    fill(store, 40)
    cold = store.read("T", 0, 0, resident_only=True)
    while store.log.files.first != store.log.files.start_of(store.log.end):
        store.log.delete_first()
    assert store.load("T", 0, 0, 40).stop == 40
    found = store.read("T", 0, 0, loaded_to=5)
    assert (found.status, found.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 5)
    queue = store.queues.get("T", 0)
    assert queue is not None
    path = queue.files.path_of(0)
    path.rename(path.with_name("away"))
    assert store.load("T", 0, 0, 40).size_bytes == 0
    path.with_name("away").rename(path)
    assert cold.max_offset == 40


def test_a_damaged_record_is_skipped_after_its_load(store: Store) -> None:
    fill(store, 5)
    queue = store.queues.get("T", 0)
    assert queue is not None
    units = queue.file_at(0)
    assert units is not None
    put_unit_at(units, 2, store.log.end - 7, 0x7FFFFFF0, 0)
    drop_log(store)
    loaded = store.load("T", 0, 0, 5)
    bodies: list[int] = []
    at = 0
    while at < 5:
        found = store.read("T", 0, at, loaded_to=max(loaded.stop, at + 1))
        bodies += [record.queue_offset for record in records(found)]
        at = found.next_offset
        loaded = store.load("T", 0, at, 5)
    assert bodies == [0, 1, 3, 4]


@pytest.mark.parametrize("far", [True, False])
def test_what_is_cold_is_far_and_not_in_memory(tmp_path: Path, far: bool) -> None:
    """Goal: one truth for limits, for slaves and for flow control."""
    store = open_store(tmp_path, memory_ratio_percent=0 if far else 40)
    fill(store, 5)
    assert store.is_far("T", 0, 0) is far
    assert store.is_cold("T", 0, 0) is (far and not KNOWS_PAGES)
    drop_log(store)
    assert store.is_cold("T", 0, 0) is far
    assert not store.is_cold("T", 0, 5)
    assert not store.is_far("Nowhere", 0, 0)
    store.close()
