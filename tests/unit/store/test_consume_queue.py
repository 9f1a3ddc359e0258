"""One consume queue: room in steps, fillers, bounds, cuts, deletion; judged by a list of units."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketq.kernel.queue_units import FILLER_SIZE
from rocketq.store.consume_queue import UNKNOWN, ConsumeQueue
from rocketq.store.disk import Disk

from .kit import StagedDisk, message, open_store

FILLER = pack(">qiq", 0, FILLER_SIZE, 0)
UNITS_PER_FILE = 10


def make_queue(path: Path, *, file_bytes: int = 20 * UNITS_PER_FILE, disk: Disk | None = None) -> ConsumeQueue:
    queue = ConsumeQueue("T", 0, path, file_bytes, disk or Disk())
    queue.files.load()
    return queue


def put(queue: ConsumeQueue, log_offset: int, size: int = 100) -> None:
    if queue.tail.next_offset >= queue.tail.room_end:
        queue.make_room(1)
    if queue.tail.next_offset >= queue.tail.file_end:
        queue.attach_file()
    queue.tail.put_next(log_offset, size, 7)


def filled(path: Path, count: int, **given_options: int) -> ConsumeQueue:
    """Records of 100 bytes, back to back from log offset 0."""
    queue = make_queue(path, **given_options)  # type: ignore[arg-type]
    for number in range(count):
        put(queue, number * 100)
    return queue


def content(queue: ConsumeQueue) -> bytes:
    return b"".join(queue.files.path_of(start).read_bytes() for start in queue.files)


def test_units_lie_at_twenty_bytes_each_across_files(tmp_path: Path) -> None:
    """Goal: unit n at byte 20 n of the endless file, in files of one size."""
    queue = filled(tmp_path, 23)
    assert list(queue.files) == [0, 200, 400]
    assert content(queue) == b"".join(pack(">qiq", n * 100, 100, 7) for n in range(23)) + bytes(7 * 20)
    assert [queue.unit(offset) for offset in (0, 9, 10, 22)] == [(n * 100, 100, 7) for n in (0, 9, 10, 22)]
    assert queue.last_unit() == (2200, 100, 7)
    assert queue.unit(30) is None
    assert (queue.end_offset, queue.tail.log_end, queue.count_written()) == (23, 2300, 23)


def test_small_queues_do_not_reserve_whole_files(tmp_path: Path) -> None:
    """Goal: thousands of queues with a message each stay small, though every file has its full length."""
    store = open_store(tmp_path, queue_file_bytes=6_000_000)
    for queue_id in range(50):
        store.append(message(queue_id=queue_id))
    paths = list((tmp_path / "consumequeue").rglob("0*0"))
    files = [path.stat() for path in paths if path.is_file()]
    assert len(files) == 50
    assert {facts.st_size for facts in files} == {6_000_000}
    assert max(facts.st_blocks * 512 for facts in files) <= 16_384
    store.close()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="a mapping's advice is seen in Linux's /proc only")
def test_a_file_that_is_written_is_not_read_ahead(tmp_path: Path) -> None:
    """Goal: a few hundred units do not have a whole file of nothing in memory, nor do they after the next opening."""
    for _ in range(2):
        queue = filled(tmp_path, 300, file_bytes=6_000_000)
        flags, mine = set[str](), False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            mine = str(tmp_path) in line if "-" in line.split(" ")[0] else mine
            if mine and line.startswith("VmFlags:"):
                flags |= set(line.split()[1:])
        assert "rr" in flags  # random reads: no pages around those that are asked for
        queue.release()


def test_room_is_reserved_in_growing_steps(tmp_path: Path) -> None:
    """Goal: few calls for a busy queue, little waste for a quiet one, never less than what was asked for."""
    disk = StagedDisk()
    reserved: list[str] = []
    disk.on = lambda name, path: reserved.append(name) if name == "reserve" else None
    queue = make_queue(tmp_path, file_bytes=6_000_000, disk=disk)
    for number in range(100_000):
        if queue.tail.next_offset >= queue.tail.room_end:
            before = queue.tail.next_offset
            queue.make_room(1)
            assert 1 <= queue.tail.room_end - before <= (256 << 10) // 20 + 1
        queue.tail.put_next(number * 100, 100, 0)
    assert len(reserved) <= 30
    blocks = queue.files.path_of(0).stat().st_blocks * 512
    assert 2_000_000 <= blocks <= 2_000_000 + (256 << 10) + 8192


def test_room_for_many_units_reaches_into_later_files(tmp_path: Path) -> None:
    """Goal: a batch is placed only when all of it has room, however many files that takes."""
    queue = filled(tmp_path, 8)
    queue.make_room(25)
    assert queue.tail.room_end >= 33
    assert list(queue.files) == [0, 200, 400, 600]
    for number in range(8, 33):
        put(queue, number * 100)
    assert queue.count_written() == 33


def test_full_disk_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    """Goal: no SIGBUS later: blocks are there, or the append fails."""
    disk = StagedDisk()
    queue = make_queue(tmp_path, disk=disk)
    disk.fail("reserve")
    with pytest.raises(OSError, match="No space"):
        queue.make_room(1)
    assert queue.tail.room_end == 0
    disk.recover()
    put(queue, 0)
    assert queue.end_offset == 1


@pytest.mark.parametrize("first", [1, 5, 10, 15])
def test_queue_that_begins_late_is_filled_up_with_fillers(tmp_path: Path, first: int) -> None:
    """Goal: a first message with offset 5 leaves five fillers before it in its file, and the minimum is 5."""
    queue = make_queue(tmp_path)
    queue.begin_at(first)
    put(queue, 700)
    start = first // UNITS_PER_FILE * UNITS_PER_FILE
    assert list(queue.files) == [20 * start]
    expected = FILLER * (first - start) + pack(">qiq", 700, 100, 7)
    assert content(queue) == expected + bytes(200 - len(expected))
    assert (queue.min_offset, queue.end_offset) == (first, first + 1)
    queue.correct_min(0)
    assert queue.min_offset == first


def test_lost_messages_keep_their_offsets(tmp_path: Path) -> None:
    """Goal: fillers that point to where the loss lies, in order with their neighbours, across files."""
    queue = filled(tmp_path, 8)
    queue.fill_to(12)
    put(queue, 5000)
    assert [queue.unit(n) for n in (8, 11)] == [(800, FILLER_SIZE, 0)] * 2
    assert queue.unit(12) == (5000, 100, 7)
    assert queue.end_offset == 13


UNIT_COUNTS = st.integers(1, 35)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(count=UNIT_COUNTS, lost=st.integers(0, 35), place=st.integers(0, 4000), begin=st.integers(0, 25))
def test_bounds_agree_with_a_walk_over_all_units(
    tmp_path_factory: pytest.TempPathFactory, count: int, lost: int, place: int, begin: int
) -> None:
    """Goal: minimum and end for any log position, over fillers and several files."""
    queue = make_queue(tmp_path_factory.mktemp("queue"))
    if begin:
        queue.begin_at(begin)
    units: list[tuple[int, int]] = []
    for number in range(count):
        if number == lost:
            queue.fill_to(queue.end_offset + 3)
            units += [(queue.tail.log_end, 0)] * 3
        put(queue, number * 100)
        units.append((number * 100, 100))
    ends = [log_offset + size for log_offset, size in units]
    expected_end = next((n for n, end in enumerate(ends) if end > place), len(units))
    assert queue.end_below(place) == begin + expected_end
    queue.correct_min(place)
    real = [n for n, (log_offset, size) in enumerate(units) if size and log_offset >= place]
    assert queue.min_offset == begin + (real[0] if real else len(units))


@pytest.mark.parametrize(
    ("log_end", "kept"), [(3500, 35), (3499, 34), (2100, 21), (2000, 20), (1999, 19), (100, 1), (99, 0), (0, 0)]
)
def test_truncation_drops_units_whose_records_end_behind_and_zeroes_them(
    tmp_path: Path, log_end: int, kept: int
) -> None:
    """Goal: nothing of a cut unit is left on disk, and the queue goes on at the cut."""
    queue = filled(tmp_path, 35)
    assert queue.truncate(log_end) == 35 - kept
    assert (queue.end_offset, queue.tail.log_end if kept else 0) == (kept, 100 * kept)
    data = content(queue)
    assert data[: 20 * kept] == b"".join(pack(">qiq", n * 100, 100, 7) for n in range(kept))
    assert not any(data[20 * kept :])
    put(queue, 9000)
    assert queue.unit(kept) == (9000, 100, 7)


def test_files_of_deleted_messages_go_but_never_the_last(tmp_path: Path) -> None:
    """Goal: a file goes when its last unit's message is gone; the newest stays, however old."""
    queue = filled(tmp_path, 25)
    assert queue.delete_before(900) == 0
    assert queue.delete_before(901) == 1
    assert list(queue.files) == [200, 400]
    assert queue.delete_before(1 << 40) == 1
    queue.correct_min(1 << 40)
    assert (list(queue.files), queue.min_offset, queue.end_offset) == ([400], 25, 25)
    put(queue, 1 << 41)
    assert queue.unit(25) == (1 << 41, 100, 7)


def test_flush_waits_for_enough_pages_and_syncs_only_what_was_written(tmp_path: Path) -> None:
    """Goal: two pages at least in passing, everything when thorough, each file once."""
    disk = StagedDisk()
    queue = make_queue(tmp_path, file_bytes=40_000, disk=disk)
    for number in range(300):
        put(queue, number * 100)
    assert not queue.flush(pages_min=2)
    assert queue.flush(pages_min=1)
    assert not queue.flush(pages_min=0)
    disk.synced.clear()
    for number in range(300, 2500):
        put(queue, number * 100)
    assert queue.flush(pages_min=2)
    assert [path.name for path in disk.synced] == ["0" * 20, f"{40_000:020d}"]
    assert queue.flushed_offset == 2500


def test_idle_mappings_go_and_come_back(tmp_path: Path) -> None:
    """Goal: a queue nobody uses holds no mapping; the next append or read maps again and loses nothing."""
    queue = filled(tmp_path, 25)
    queue.drop_idle_mappings()
    queue.drop_idle_mappings()
    queue.drop_idle_mappings()
    assert queue.tail.units is None
    put(queue, 2500)
    assert [queue.unit(n) for n in (3, 25)] == [(300, 100, 7), (2500, 100, 7)]
    assert queue.count_written() == 26


def test_written_units_of_a_queue_without_files_are_unknown(tmp_path: Path) -> None:
    """Goal: no files is not the same as no messages."""
    assert make_queue(tmp_path / "none").count_written() == UNKNOWN


def test_removed_queue_leaves_nothing(tmp_path: Path) -> None:
    """Goal: files and directory go."""
    queue = filled(tmp_path / "q", 25)
    queue.remove()
    assert not (tmp_path / "q").exists()
