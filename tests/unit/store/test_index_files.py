"""Index files: names, presets, roll-over, search across files, cutting, deleting."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketq.runtime.clock import ManualClock
from rocketq.store.disk import Disk
from rocketq.store.index import Index, abs_hash

from .kit import NOW_MS, StagedDisk, fill, message, open_store, small_config


@pytest.fixture
def berlin() -> Iterator[None]:
    """Local time of a place with an offset, so that names are told from UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def make_index(root: Path, **given: int) -> Index:
    return Index(small_config(root, **given), Disk(), lambda: NOW_MS)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "index").iterdir())


@pytest.mark.usefixtures("berlin")
def test_file_is_named_by_local_time_of_its_making(tmp_path: Path) -> None:
    """Goal: 17 digits of local time, as Apache names them."""
    make_index(tmp_path).current()
    assert names(tmp_path) == ["20231114231320000"]
    assert (tmp_path / "index" / names(tmp_path)[0]).stat().st_size == 40 + 4 * 50 + 20 * 100


def test_names_grow_though_the_clock_stands_still(tmp_path: Path) -> None:
    """Goal: files sort in the order of their making, whatever the clock does."""
    index = make_index(tmp_path)
    for _ in range(3):
        index.add_file(NOW_MS)
    index.add_file(NOW_MS - 3_600_000)
    assert [file.path.name for file in index.files] == names(tmp_path)
    assert len(set(names(tmp_path))) == 4
    assert all(re.fullmatch(r"\d{17}", name) for name in names(tmp_path))


def test_file_of_another_size_is_dropped(tmp_path: Path) -> None:
    """Goal: derived data that does not fit the configuration goes; foreign files stay."""
    index = make_index(tmp_path)
    index.current()
    (tmp_path / "index" / "20200101000000000").write_bytes(b"short")
    (tmp_path / "index" / "notes").write_bytes(b"mine")
    again = make_index(tmp_path)
    again.load()
    assert [file.path.name for file in again.files] == [index.files[0].path.name]
    assert (tmp_path / "index" / "notes").exists()
    assert not (tmp_path / "index" / "20200101000000000").exists()


def test_full_file_is_followed_by_one_preset_with_its_end(tmp_path: Path) -> None:
    """Goal: the roll-over of the specification, through the store."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock, index_units=4)
    for number in range(7):
        store.append(message(KEYS=f"k{number}"))
        clock.advance(2_500)
    first, second, third = [file.tail for file in store.index.files]
    assert (first.count, second.count, third.count) == (4, 4, 2)
    assert (second.unit(1)[2], second.unit(2)[2]) == (2, 2)
    assert second.begin_ms == NOW_MS + 7_500
    assert [len(store.query("T", f"k{number}").records) for number in range(7)] == [1] * 7
    store.close()


def test_first_key_of_a_later_file_is_found_within_its_time(tmp_path: Path) -> None:
    """Goal: that unit's time counts from the file before it; a query bounded by the true time finds it."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock, index_units=4)
    for _ in range(3):
        store.append(message(KEYS="other"))
    clock.advance(3_600_000)
    store.append(message(KEYS="k"))
    now_ms = clock.now_ms()
    assert len(store.query("T", "k", begin_ms=now_ms - 1_000, end_ms=now_ms + 1_000).records) == 1
    store.close()


def test_search_goes_from_the_newest_file_to_the_oldest(tmp_path: Path) -> None:
    """Goal: newest first across files, no more than asked for, none outside the times."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock, index_units=4)
    offsets = []
    for _ in range(9):
        offsets.append(store.append(message(KEYS="k")).log_offset)
        clock.advance(10_000)
    assert len(store.index.files) == 3
    assert store.index.search("T", "k", 100, 0, 1 << 60) == offsets[::-1]
    assert store.index.search("T", "k", 4, 0, 1 << 60) == offsets[:-5:-1]
    found = store.query("T", "k", begin_ms=NOW_MS + 70_000).records
    assert [record.log_offset for record in found] == offsets[7:]
    assert store.index.search("T", "other", 100, 0, 1 << 60) == []
    store.close()


@pytest.mark.parametrize("keep", range(8))
def test_truncated_index_forgets_what_lies_behind_the_cut(tmp_path: Path, keep: int) -> None:
    """Goal: keys of cut messages are gone, those before it stay, and new keys can be added."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock, index_units=4)
    offsets = []
    for number in range(8):
        offsets.append(store.append(message(KEYS=f"k{number} all")).log_offset)
        clock.advance(1_000)
    store.index.truncate(offsets[keep], store.log.store_ms_at)
    assert store.index.search("T", "all", 100, 0, 1 << 60) == offsets[:keep][::-1]
    assert [bool(store.index.search("T", f"k{n}", 9, 0, 1 << 60)) for n in range(8)] == [n < keep for n in range(8)]
    for file in store.index.files:
        assert file.tail.check(store.log_end) is None


def test_files_below_the_logs_start_go_but_never_the_last(tmp_path: Path) -> None:
    """Goal: index files live as long as a message in them does."""
    store = open_store(tmp_path, index_units=4)
    offsets = [store.append(message(KEYS="k")).log_offset for _ in range(9)]
    assert store.index.delete_before(offsets[2]) == 0
    assert store.index.delete_before(offsets[2] + 1) == 1
    assert store.index.delete_before(1 << 40) == 1
    assert len(store.index.files) == 1
    store.close()


def test_disk_without_room_for_an_index_file_refuses_messages_until_there_is_room(tmp_path: Path) -> None:
    """Goal: no key is lost: the message at hand is stored, the next is refused; later its keys are made up."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk, index_units=4)
    fill(store, 3, KEYS="k")
    disk.fail("create", part="index")
    assert store.append(message(KEYS="k")).status.stored
    refused = store.append(message(KEYS="k"))
    assert not refused.status.stored
    assert "no index file could be made" in refused.reason
    disk.recover()
    assert store.append(message(KEYS="k")).status.stored
    assert len(store.query("T", "k").records) == 5


def test_idle_files_are_unmapped_but_for_the_last(tmp_path: Path) -> None:
    """Goal: old index files hold no memory until somebody searches them."""
    store = open_store(tmp_path, index_units=4)
    offsets = [store.append(message(KEYS="k")).log_offset for _ in range(9)]
    store.index.drop_idle_mappings()
    store.index.drop_idle_mappings()
    assert [file._tail is None for file in store.index.files] == [True, True, False]
    assert store.index.search("T", "k", 100, 0, 1 << 60) == offsets[::-1]
    store.close()


def test_store_without_an_index_makes_none(tmp_path: Path) -> None:
    """Goal: messageIndexEnable=false is respected, and queries find nothing rather than fail."""
    store = open_store(tmp_path, index_enabled=False)
    store.append(message(KEYS="k"))
    assert store.query("T", "k").records == ()
    assert not (tmp_path / "index").exists()
    store.close()


def test_absolute_hash_is_the_kernels() -> None:
    """Goal: searching and adding use one rule."""
    assert [abs_hash(value) for value in (5, -5, -0x80000000, 0x7FFFFFFF)] == [5, 5, 0, 0x7FFFFFFF]
