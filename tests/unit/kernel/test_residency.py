"""Reads of records far behind the log's end: which of them are in the page cache, and what a read then takes.

The same tests run with both forms of the kernel: one that cannot ask the system takes no far record for resident.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import pytest
from tests.page_cache import KNOWS_PAGES, drop, fetch_page, is_resident

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.queue_units import put_unit_at
from rocketq.kernel.reader import READ_COLD, READ_DONE, LogMap, QueueRead, ReadLimits
from rocketq.kernel.records import RecordView
from rocketq.kernel.residency import WINDOW_BYTES, ResidentRange

from .kit import MemoryLog, props

PAGE = os.sysconf("SC_PAGE_SIZE")
LOG_BYTES = 64 * PAGE
COUNT = 40
RECORD = PAGE  # one record a page, so that a page is a record that is resident or not

needs_pages = pytest.mark.skipif(not KNOWS_PAGES, reason="the kernel cannot ask which pages are in memory")


def mapped(path: Path, data: bytes, base: int = 0) -> MappedBuffer:
    path.write_bytes(data)
    with path.open("r+b") as file:
        return MappedBuffer(mmap.mmap(file.fileno(), 0), base)


class FileLog:
    """A log of COUNT messages and its queue, both in files whose pages can be dropped."""

    def __init__(self, folder: Path, *, tags: str = "A" * COUNT) -> None:
        memory = MemoryLog(size=LOG_BYTES)
        for number in range(COUNT):
            memory.append(body=b"x" * (RECORD - 91 - 9 - 7), properties=props(TAGS=tags[number]))
        self.tail, units = memory.queue().tail, memory.queue().file_of(0)
        self.log_path, self.units_path = folder / "log", folder / "units"
        self.segment = mapped(self.log_path, bytes(memory.segment.memory))
        self.units = mapped(self.units_path, bytes(units.memory[: COUNT * 20]))
        self.log = LogMap(LOG_BYTES)
        self.log.attach(self.segment)
        self.end = memory.appender.end
        assert self.end == COUNT * RECORD

    def drop_log(self, *kept: int) -> None:
        """All records but those with these numbers."""
        drop(self.log_path, self.segment)
        for number in kept:
            fetch_page(self.log_path, number * RECORD)

    def read(self, first: int = 0, stop: int = COUNT, **given: Any) -> QueueRead:
        limits = ReadLimits(
            given.get("count_max", 32),
            given.get("bytes_max", 1 << 20),
            given.get("disk_count_max", 8),
            given.get("disk_bytes_max", 1 << 16),
            given.get("scan_max", 800),
            given.get("log_end", self.end),
            given.get("memory_bytes", 0),
            resident_only=given.get("resident_only", True),
        )
        found = QueueRead()
        state = found.read(
            self.log,
            self.tail,
            self.units,
            first,
            stop,
            limits,
            0,
            given.get("tag_codes"),
            None,
            None,
            RecordView(),
            True,
        )
        assert state == found.status
        return found


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    return FileLog(tmp_path)


def facts(found: QueueRead) -> tuple[int, int, int, bool]:
    return found.status, found.found, found.scanned, found.cold


def test_far_records_in_memory_are_read_like_fresh_ones(log: FileLog) -> None:
    """Goal: how far behind the log's end a record is does not matter while its pages are in memory."""
    expected = (READ_DONE, 32, 32, False) if KNOWS_PAGES else (READ_COLD, 0, 0, True)
    assert facts(log.read()) == expected


def test_records_on_disk_are_reported_and_not_touched(log: FileLog) -> None:
    """Goal: a read of resident records waits for no page."""
    log.drop_log()
    for _ in range(2):
        assert facts(log.read()) == (READ_COLD, 0, 0, True)
    assert not is_resident(log.segment, 0, 1)


def test_records_near_the_end_are_read_without_asking(log: FileLog) -> None:
    """Goal: within the memory distance there is no system call, as before."""
    log.drop_log()
    assert facts(log.read(memory_bytes=log.end)) == (READ_DONE, 32, 32, False)


@needs_pages
def test_a_read_ends_before_the_first_record_on_disk(log: FileLog) -> None:
    """Goal: what is resident is given, and nothing of what is not."""
    log.drop_log(0, 1, 2, 4)
    assert facts(log.read()) == (READ_DONE, 3, 3, True)
    assert facts(log.read(4)) == (READ_DONE, 1, 1, True)
    assert facts(log.read(3)) == (READ_COLD, 0, 0, True)
    assert facts(log.read(0, 3)) == (READ_DONE, 3, 3, False)
    assert not is_resident(log.segment, 3 * RECORD, 1)


@needs_pages
def test_only_records_with_wanted_tags_need_to_be_in_memory(tmp_path: Path) -> None:
    """Goal: a unit that the tag rules out costs no page."""
    log = FileLog(tmp_path, tags="AB" * (COUNT // 2))
    log.drop_log(0, 2, 4)
    found = log.read(tag_codes=frozenset([65]))
    assert (facts(found), found.filtered) == ((READ_DONE, 3, 6, True), 3)
    assert facts(log.read(5, 10, tag_codes=frozenset([67]))) == (READ_DONE, 0, 5, False)


def test_units_on_disk_are_reported_and_not_touched(log: FileLog) -> None:
    """Goal: the queue's own page is not waited for either."""
    drop(log.units_path, log.units)
    assert facts(log.read(log_end=log.end + PAGE)) == (READ_COLD, 0, 0, True)
    assert not is_resident(log.units, 0, 20)


def test_a_log_without_far_records_needs_no_look_at_the_units(log: FileLog) -> None:
    drop(log.units_path, log.units)
    assert facts(log.read(memory_bytes=log.end)) == (READ_DONE, 32, 32, False)


def test_the_page_that_the_queue_was_written_to_lately_counts_as_resident(log: FileLog) -> None:
    """Goal: whoever reads at the end of a queue costs no system call, however long the log is."""
    drop(log.units_path, log.units)
    assert facts(log.read(COUNT - 1, memory_bytes=RECORD)) == (READ_DONE, 1, 1, False)


def test_reads_that_may_wait_take_less_from_disk(log: FileLog) -> None:
    """Goal: maxTransferCountOnMessageInDisk and its bytes bound a read that was cold once; one record always."""
    log.drop_log()
    assert facts(log.read(resident_only=False)) == (READ_DONE, 8, 8, True)
    log.drop_log()
    assert log.read(resident_only=False, disk_bytes_max=3 * RECORD).found == 3
    log.drop_log()
    assert log.read(resident_only=False, disk_bytes_max=0).found == 1


@needs_pages
def test_reads_that_may_wait_take_all_that_is_in_memory(log: FileLog) -> None:
    assert facts(log.read(resident_only=False)) == (READ_DONE, 32, 32, False)


@pytest.mark.parametrize("size", [0x7FFFFFFE, -1, 0, LOG_BYTES])
def test_a_damaged_unit_is_skipped_whatever_size_it_names(log: FileLog, size: int) -> None:
    """Goal: only pages of the segment are asked about."""
    put_unit_at(log.units, 0, 0, size, 0)
    found = log.read(0, 2, memory_bytes=log.end)
    assert (found.found, found.bad) == (1, 1)
    far = log.read(0, 2)
    assert (far.status, far.bad) == ((READ_DONE, 1) if KNOWS_PAGES else (READ_COLD, 0))


@needs_pages
def test_a_range_is_known_to_its_end_and_forgotten_with_its_buffer(tmp_path: Path) -> None:
    """Goal: neighbours within a window are one question; another mapping or an earlier place is a new one."""
    size = 2 * WINDOW_BYTES
    one, two = (mapped(tmp_path / name, bytes(size)) for name in ("one", "two"))
    pages = ResidentRange()
    assert pages.covers(one, 0, 10)
    drop(tmp_path / "one", one)
    assert pages.covers(one, WINDOW_BYTES - 10, 10)
    assert not pages.covers(one, WINDOW_BYTES, 1)
    assert pages.covers(two, size - 1, 1)
    assert not pages.covers(one, 0, 10)
    assert pages.covers(one, size, 1)
    pages.forget()
    assert pages.covers(two, 0, size)
