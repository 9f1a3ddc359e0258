"""Reading a queue: each status with its next offset, limits, filters, gaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.page_cache import KNOWS_PAGES, drop_log

from rocketq.store import ReadStatus, Store, tag_code

from .kit import SEGMENT, bodies, fill, message, open_store, records

S = ReadStatus


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    opened = open_store(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def windowed(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A queue whose messages have offsets 5 to 9."""
    opened = open_store(tmp_path)
    opened.queues.find_or_make("T", 0).begin_at(5)
    fill(opened, 5)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("offset", "status", "next_offset", "count"),
    [
        (0, S.OFFSET_TOO_SMALL, 5, 0),
        (4, S.OFFSET_TOO_SMALL, 5, 0),
        (-1, S.OFFSET_TOO_SMALL, 5, 0),
        (5, S.FOUND, 10, 5),
        (9, S.FOUND, 10, 1),
        (10, S.OFFSET_OVERFLOW_ONE, 10, 0),
        (11, S.OFFSET_OVERFLOW_BADLY, 10, 0),
        (1 << 40, S.OFFSET_OVERFLOW_BADLY, 10, 0),
    ],
)
def test_offset_around_the_bounds_has_its_status_and_next_offset(
    windowed: Store, offset: int, status: ReadStatus, next_offset: int, count: int
) -> None:
    """Goal: the table of the specification, at min - 1, min, max and max + 1."""
    result = windowed.read("T", 0, offset)
    assert (result.status, result.next_offset, result.count) == (status, next_offset, count)
    assert (result.min_offset, result.max_offset) == (5, 10)


@pytest.mark.parametrize("offset", [0, 4, 10, 11, 1 << 40])
def test_slave_does_not_correct_offsets(windowed: Store, offset: int) -> None:
    """Goal: a replica that is behind must not send consumers elsewhere: the asked offset comes back."""
    assert windowed.read("T", 0, offset, correct_offset=False).next_offset == offset


def test_missing_queue_has_its_own_status(store: Store) -> None:
    """Goal: NO_MATCHED_QUEUE, back to 0, or the asked offset on a slave."""
    for topic, queue_id in [("none", 0), ("T", 9)]:
        result = store.read(topic, queue_id, 7)
        assert (result.status, result.next_offset) == (S.NO_MATCHED_QUEUE, 0)
    assert store.read("none", 0, 7, correct_offset=False).next_offset == 7
    assert (store.min_offset("none", 0), store.max_offset("none", 0)) == (-1, 0)


def test_queue_without_messages_has_its_own_status(store: Store) -> None:
    """Goal: NO_MESSAGE_IN_QUEUE, back to 0, or the asked offset on a slave."""
    store.queues.find_or_make("T", 0)
    assert (store.read("T", 0, 7).status, store.read("T", 0, 7).next_offset) == (S.NO_MESSAGE_IN_QUEUE, 0)
    assert store.read("T", 0, 7, correct_offset=False).next_offset == 7


def lose_queue_file(store: Store, start: int) -> None:
    queue = store.queues.get("T", 0)
    assert queue is not None
    queue._forget(start)
    queue.files.remove(start)


def test_lost_queue_file_is_stepped_over(store: Store) -> None:
    """Goal: OFFSET_FOUND_NULL leads to the next file's first unit, or nowhere on a slave."""
    fill(store, 100, size=100)
    lose_queue_file(store, 800)
    result = store.read("T", 0, 55)
    assert (result.status, result.next_offset) == (S.OFFSET_FOUND_NULL, 80)
    assert store.read("T", 0, 80).count == 20
    assert store.read("T", 0, 55, correct_offset=False).next_offset == 55


def test_read_ends_with_its_queue_file(store: Store) -> None:
    """Goal: one read stays within one file; the next goes on in the next."""
    fill(store, 50, size=100)
    assert [store.read("T", 0, offset).count for offset in (20, 40)] == [20, 10]
    assert store.read("T", 0, 20).next_offset == 40


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 32),
        ({"count_max": 5}, 5),
        ({"count_max": 100}, 32),
        ({"count_max": 100, "bytes_max": 1 << 20}, 40),
        ({"count_max": 100, "bytes_max": 1_000}, 5),
        ({"bytes_max": 1}, 1),
    ],
)
def test_read_is_limited_by_count_and_bytes(store: Store, given: dict[str, int], count: int) -> None:
    """Goal: 32 messages by default, what was asked for otherwise; at least one whatever its size."""
    fill(store, 40, size=108)
    result = store.read("T", 0, 0, **given)
    assert store.message_at(0).size == 200  # type: ignore[union-attr]
    assert (result.count, result.next_offset, len(result.records)) == (count, count, 200 * count)


def test_configured_limits_of_bytes_hold(tmp_path: Path) -> None:
    """Goal: maxTransferBytesOnMessageInMemory ends a read before the record that would pass it."""
    store = open_store(tmp_path, memory_read_bytes_max=4_000, memory_read_count_max=10)
    fill(store, 20, size=908)
    assert store.read("T", 0, 0).count == 4
    store.close()


def test_reads_from_disk_are_smaller_and_name_the_slave(tmp_path: Path) -> None:
    """Goal: eight messages at most, and the answer suggests a slave; neither for what is in memory."""
    store = open_store(tmp_path, memory_ratio_percent=0)
    fill(store, 20)
    drop_log(store)
    result = store.read("T", 0, 0)
    assert (result.count, result.suggest_slave) == (8, True)
    if KNOWS_PAGES:
        for base in store.log.files:
            store.disk.load(store.log.files.path_of(base), 0, SEGMENT)
        result = store.read("T", 0, 0)
        assert (result.count, result.suggest_slave) == (20, False)
    store.close()
    memory = open_store(tmp_path / "memory")
    fill(memory, 20)
    assert memory.read("T", 0, 0).suggest_slave is False
    memory.close()


def test_filtered_read_goes_on_behind_what_it_scanned(store: Store) -> None:
    """Goal: NO_MATCHED_MESSAGE moves the offset, so that nobody scans the same units for ever."""
    for number in range(10):
        store.append(message(b"%d" % number, TAGS="AB"[number % 2]))
    found = store.read("T", 0, 0, tag_codes=frozenset([tag_code("B")]))
    assert (bodies(found), found.next_offset) == ([b"1", b"3", b"5", b"7", b"9"], 10)
    nothing = store.read("T", 0, 3, tag_codes=frozenset([tag_code("C")]))
    assert (nothing.status, nothing.next_offset, nothing.count) == (S.NO_MATCHED_MESSAGE, 10, 0)


def test_scan_is_limited_when_nothing_matches(tmp_path: Path) -> None:
    """Goal: 800 units at most for one read, as Apache scans 16,000 bytes."""
    store = open_store(tmp_path, segment_bytes=1 << 20, queue_file_bytes=20 * 2_000)
    for _ in range(20):
        store.append_batch(message(b"".join([b"\0\0\0\x16" + bytes(18)] * 50)))
    result = store.read("T", 0, 0, unit_filter=lambda code: False)
    assert (result.status, result.next_offset) == (S.NO_MATCHED_MESSAGE, 800)
    store.close()


def test_record_filter_sees_whole_records(store: Store) -> None:
    """Goal: what a hash cannot say is decided on the record."""
    fill(store, 5)
    result = store.read("T", 0, 0, record_filter=lambda record: b"000003" in record)
    assert [body[:6] for body in bodies(result)] == [b"000003"]
    assert result.next_offset == 5


def test_read_continues_across_log_files(store: Store) -> None:
    """Goal: the log's files are not the reader's business, mapped or not."""
    fill(store, 40)
    assert len(store.log.files) == 3
    store.drop_idle_mappings()
    store.drop_idle_mappings()
    first = store.read("T", 0, 0)
    rest = store.read("T", 0, first.next_offset)
    assert [record.queue_offset for record in records(first) + records(rest)] == list(range(40))


def test_message_that_was_deleted_is_being_removed(store: Store) -> None:
    """Goal: units whose records are gone, before the minimum has moved, answer MESSAGE_WAS_REMOVING."""
    fill(store, 30)
    queue = store.queues.get("T", 0)
    store.flush()
    store.log.delete_first()
    assert queue is not None
    assert queue.min_offset == 0
    result = store.read("T", 0, 0, count_max=5)
    first_left = next(n for n in range(30) if (queue.unit(n) or (0,))[0] >= store.log_start)
    assert (result.status, result.next_offset) == (S.FOUND, first_left + 5)
    only_gone = store.read("T", 0, 0, tag_codes=frozenset([tag_code("none")]))
    assert only_gone.status is S.MESSAGE_WAS_REMOVING


def test_damaged_message_is_skipped_and_counted(store: Store) -> None:
    """Goal: a body that does not match its CRC is never served as good; the rest of the queue is."""
    offsets = fill(store, 3)
    store.log.segment(0).memory[offsets[1] + 100] ^= 0xFF
    result = store.read("T", 0, 0)
    assert (result.status, result.count, result.bad_count, result.next_offset) == (S.FOUND, 2, 1, 3)
    assert store.queries.bad_records == 1
    assert store.message_at(offsets[1]) is None


def test_crc_check_of_reads_can_be_switched_off(tmp_path: Path) -> None:
    """Goal: the client checks too; a setting leaves it to the client alone."""
    store = open_store(tmp_path, check_crc_on_read=False)
    offsets = fill(store, 3)
    store.log.segment(0).memory[offsets[1] + 100] ^= 0xFF
    assert store.read("T", 0, 0).count == 3
    store.close()


@pytest.mark.parametrize("offset", [-1, 1, 50, 1 << 40])
def test_no_message_where_no_record_starts(store: Store, offset: int) -> None:
    """Goal: any log offset may be asked for; only the start of a record is answered."""
    fill(store, 1)
    assert store.message_at(offset) is None


def test_message_id_that_is_none_is_a_value_error(store: Store) -> None:
    """Goal: a wrong id is the caller's mistake, a right one without a message is None."""
    with pytest.raises(ValueError, match="message id"):
        store.message_by_id("xyz")
    assert store.message_by_id("7F00000100002A9F0000000000FFFFFF") is None
