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
from rocketq.kernel.queue_units import FILLER_SIZE, put_unit_at
from rocketq.kernel.reader import READ_COLD, READ_DONE, LogMap, QueueRead, ReadLimits, ReadRequest
from rocketq.kernel.residency import CHUNK_BITS, PAGE_BITS, ResidentPages

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
        request = ReadRequest(limits, 0, given.get("tag_codes"), None, None, True)
        state = found.read(self.log, self.tail, self.units, first, stop, request)
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


@needs_pages
def test_units_are_read_as_far_as_they_are_in_memory(tmp_path: Path) -> None:
    """Goal: from page to page, over units that lie on two; the read ends there and says so."""
    log = FileLog(tmp_path)
    count = 3 * PAGE // 20
    units = mapped(tmp_path / "more", bytes(log.units.memory[:20]) * count)
    for number in range(count):
        put_unit_at(units, number, 0, FILLER_SIZE, 0)
    log.units = units
    drop(tmp_path / "more", units)
    fetch_page(tmp_path / "more", 0)
    fetch_page(tmp_path / "more", PAGE)
    whole = 2 * PAGE // 20
    behind = {"log_end": log.end + PAGE, "scan_max": count}
    assert facts(log.read(0, count, **behind)) == (READ_COLD, 0, whole, True)
    assert facts(log.read(whole - 1, count, **behind)) == (READ_COLD, 0, 1, True)
    assert facts(log.read(whole, count, **behind)) == (READ_COLD, 0, 0, True)
    assert facts(log.read(0, whole, **behind)) == (READ_DONE, 0, whole, False)


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
def test_chunks_are_remembered_until_they_are_forgotten(tmp_path: Path) -> None:
    """Goal: neighbours within a chunk are one question; other chunks and mappings are asked about."""
    path, chunk = tmp_path / "file", 1 << PAGE_BITS + CHUNK_BITS
    buffer = mapped(path, bytes(8 * chunk))
    pages = ResidentPages()
    assert pages.covers(buffer, 2 * chunk, 10)
    drop(path, buffer)
    assert pages.covers(buffer, 2 * chunk, 10)
    assert not pages.covers(buffer, 6 * chunk, 1)
    pages.forget()
    assert not pages.covers(buffer, 2 * chunk, 10)
    assert pages.covers(buffer, buffer.size, 1)


@needs_pages
def test_what_was_missing_is_asked_for_again(tmp_path: Path) -> None:
    """Goal: a page that was loaded counts at once, without forgetting the others."""
    path = tmp_path / "file"
    buffer = mapped(path, bytes(8 * PAGE))
    drop(path, buffer)
    pages = ResidentPages()
    for page in (3, 0, 7):
        assert not pages.covers(buffer, page * PAGE, PAGE)
        fetch_page(path, page * PAGE)
        assert pages.covers(buffer, page * PAGE, PAGE)
    assert not pages.covers(buffer, 0, 8 * PAGE)


@needs_pages
def test_bytes_are_resident_whatever_their_chunk_lacks(tmp_path: Path) -> None:
    """Goal: the pages of these very bytes decide, at chunk borders and across them."""
    path, chunk = tmp_path / "file", 1 << PAGE_BITS + CHUNK_BITS
    buffer = mapped(path, bytes(4 * chunk))
    drop(path, buffer)
    for page in range(1, 4 * chunk // PAGE - 1):
        fetch_page(path, page * PAGE)
    pages = ResidentPages()
    for _ in range(2):
        for at, count, expected in (
            (0, 1, False),
            (PAGE, 1, True),
            (PAGE - 1, 2, False),
            (PAGE, 4 * chunk - 2 * PAGE, True),
            (PAGE, 4 * chunk - PAGE, False),
            (chunk, chunk, True),
            (chunk - 1, 2 * chunk, True),
            (4 * chunk - PAGE - 1, 1, True),
            (4 * chunk - PAGE, 1, False),
            (4 * chunk - PAGE, 1 << 40, False),
            (PAGE, -1, True),
        ):
            assert pages.covers(buffer, at, count) is expected, (at, count)
