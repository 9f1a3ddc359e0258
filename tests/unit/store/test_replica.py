"""Whole records from another broker: an equal second store; and cutting an open store back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.errors import StoreClosedError, StoreError
from rocketq.protocol.messages import encode_record
from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendStatus, Store
from rocketq.store.flush import ReplicaGate

from .kit import NOW_MS, SEGMENT, bodies, fill, message, open_store, packed


def varied_store(root: Path, count: int = 60) -> Store:
    """A store of several log files with all kinds of messages."""
    clock = ManualClock(NOW_MS)
    store = open_store(root, clock=clock, index_units=20)
    for number in range(count):
        clock.advance(700)
        topic, queue_id = ("T", number % 3) if number % 7 else ("SCHEDULE_TOPIC_XXXX", 2)
        kind = {5: 4, 6: 8, 10: 12}.get(number % 11, 0)
        keys = {"KEYS": f"k{number} all", "UNIQ_KEY": f"u{number}"} if number % 4 else {}
        given = {"TAGS": "AB"[number % 2], "DELAY": "3", **keys}
        store.append(message(b"x" * (number * 37 % 900), topic=topic, queue_id=queue_id, sys_flag=kind, **given))
        if number % 13 == 0:
            store.append_batch(message(packed(b"1", b"22", b""), topic="Batch"))
    return store


def copy_log(source: Store, target: Store, *, piece: int | None = None) -> None:
    """What replication does: byte ranges of whole records, none crossing a file."""
    while target.log_end < source.log_end:
        at = target.log_end
        end = min(source.log.files.start_of(at) + SEGMENT, source.log_end)
        if piece is not None:
            end = record_ends(source, at, end, piece)
        assert target.append_raw(at, source.log.bytes_at(at, end - at)) >= end


def record_ends(source: Store, at: int, end: int, piece: int) -> int:
    upto = at
    while upto < end and upto - at < piece:
        upto += int.from_bytes(source.log.bytes_at(upto, 4), "big")
    return upto


def tree(root: Path) -> dict[str, bytes]:
    """Log and queue files byte by byte; index files in their order, since names are times of making."""
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("0*") if path.is_file()}
    for number, path in enumerate(sorted((root / "index").iterdir())):
        files[f"index {number}"] = path.read_bytes()
    return files


@pytest.mark.parametrize("piece", [None, 1, 2_000])
def test_copied_log_makes_an_equal_store(tmp_path: Path, piece: int | None) -> None:
    """Goal: log, queues and index of the copy are the master's, byte by byte, however the log was cut for the way."""
    source = varied_store(tmp_path / "source")
    target = open_store(tmp_path / "target", index_units=20)
    copy_log(source, target, piece=piece)
    assert target.log_end == source.log_end
    source.close()
    target.close()
    assert tree(tmp_path / "target") == tree(tmp_path / "source")


def test_copy_serves_and_wakes_as_the_master_does(tmp_path: Path) -> None:
    """Goal: readers of a replica see new messages at once and listeners are told."""
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    told: list[tuple[str, int, int]] = []
    target.add_listener(lambda topic, queue_id, end: told.append((topic, queue_id, end)))
    fill(source, 3, KEYS="k")
    copy_log(source, target)
    assert told == [("T", 0, 3)]
    assert bodies(target.read("T", 0, 0)) == bodies(source.read("T", 0, 0))
    assert len(target.query("T", "k").records) == 3
    assert target.append(message(b"own")).queue_offset == 3
    source.close()
    target.close()


def test_blank_record_rolls_the_copy_to_its_next_file(tmp_path: Path) -> None:
    """Goal: the master's file ends where its blank says, alone or behind records."""
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    fill(source, 20)
    blank = record_ends(source, 0, SEGMENT, 14 * 1_090)
    assert int.from_bytes(source.log.bytes_at(blank + 4, 4), "big") == 0xCBD43194
    target.append_raw(0, source.log.bytes_at(0, blank))
    assert target.append_raw(blank, source.log.bytes_at(blank, SEGMENT - blank)) == SEGMENT
    assert list(target.log.files) == [0, SEGMENT]
    copy_log(source, target)
    assert target.max_offset("T", 0) == 20
    source.close()
    target.close()


def test_bytes_that_are_no_records_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """Goal: wrong place, half a record, garbage, a bad body, a blank that ends elsewhere, too much for the file."""
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    fill(source, 3)
    good = source.log.bytes_at(0, source.log_end)
    broken = bytearray(good)
    broken[1_095 + 100] ^= 1
    blank = (100).to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(92)
    for log_offset, data in [
        (1, good),
        (SEGMENT, good),
        (0, good[:-1]),
        (0, good + b"\0"),
        (0, b"garbage"),
        (0, bytes(100)),
        (0, bytes(broken)),
        (0, good[1_092:]),
        (0, blank),
        (0, good + blank + good),
        (0, good * 6),
    ]:
        with pytest.raises(StoreError):
            target.append_raw(log_offset, data)
    assert (target.log_end, len(target.queues)) == (0, 0)
    assert target.log.bytes_at(0, SEGMENT) == bytes(SEGMENT)
    assert target.append_raw(0, good) == source.log_end
    source.close()
    target.close()


def test_record_of_the_second_version_is_taken_served_and_kept(tmp_path: Path) -> None:
    """Goal: a 5.x master writes V2 for long retry topics; its replica of ours reads them, also after a crash."""
    topic = "%RETRY%" + "g" * 140
    source, store = open_store(tmp_path / "source"), open_store(tmp_path / "store")
    plain = source.message_at(source.append(message(b"one", KEYS="k")).log_offset)
    assert plain is not None
    first = replace(plain, topic=topic, version=2, size=plain.size + len(topic))
    second = replace(first, body=b"one", queue_offset=1, log_offset=first.size)
    data = encode_record(first) + encode_record(second)
    assert len(data) == 2 * first.size
    store.append_raw(0, data)
    shutil.copytree(tmp_path / "store", tmp_path / "crashed")
    for each in (store, open_store(tmp_path / "crashed")):
        assert each.read(topic, 0, 0).records == data
        assert each.query(topic, "k").records == (first, second)
        each.close()


def test_nothing_to_copy_is_no_error(tmp_path: Path) -> None:
    """Goal: a heartbeat without records moves nothing."""
    store = open_store(tmp_path)
    fill(store, 1)
    end = store.log_end
    assert store.append_raw(end, b"") == end
    store.close()
    with pytest.raises(StoreClosedError):
        store.append_raw(end, b"")


# Cutting back


@pytest.mark.parametrize("keep", [0, 1, 5, 13, 15, 27, 29, 30])
def test_cut_store_is_the_store_before_what_was_cut(tmp_path: Path, keep: int) -> None:
    """Goal: log, queues and index as if the later messages had never come, on disk too, and open for more."""
    store, twin = open_store(tmp_path / "cut"), open_store(tmp_path / "twin")
    offsets = fill(store, 30, KEYS="k", TAGS="A")
    fill(twin, keep, KEYS="k", TAGS="A")
    place = [*offsets, store.log_end][keep]
    assert store.truncate_to(place) == place
    assert store.max_offset("T", 0) == keep
    assert [record.queue_offset for record in store.query("T", "k", count_max=64).records] == list(range(keep))
    first, second = store.append(message(b"new", KEYS="k")), twin.append(message(b"new", KEYS="k"))
    assert (first.status, first.queue_offset, first.log_offset) == (AppendStatus.OK, keep, second.log_offset)
    assert store.gate.position <= store.log_end
    store.close()
    twin.close()
    assert tree(tmp_path / "cut") == tree(tmp_path / "twin")
    again = open_store(tmp_path / "cut")
    assert again.max_offset("T", 0) == keep + 1
    again.close()


def test_cut_at_the_start_of_a_file_goes_on_in_that_file(tmp_path: Path) -> None:
    """Goal: the file before it keeps its blank, the cut file is empty again."""
    store = open_store(tmp_path)
    offsets = fill(store, 30)
    assert offsets[14] == SEGMENT
    assert store.truncate_to(SEGMENT) == SEGMENT
    assert list(store.log.files) == [0, SEGMENT]
    assert store.log.bytes_at(SEGMENT, SEGMENT) == bytes(SEGMENT)
    result = store.append(message(b"new"))
    assert (result.log_offset, result.queue_offset) == (SEGMENT, 14)
    store.close()


def test_cut_in_the_middle_of_a_record_keeps_what_is_whole(tmp_path: Path) -> None:
    """Goal: the boundary at or before the offset."""
    store = open_store(tmp_path)
    offsets = fill(store, 10)
    assert store.truncate_to(offsets[4] + 1) == offsets[4]
    assert store.truncate_to(offsets[4] - 1) == offsets[3]
    assert store.max_offset("T", 0) == 3
    store.close()


def test_cut_beyond_the_end_is_the_end_and_before_the_start_an_error(tmp_path: Path) -> None:
    """Goal: a replica that is told a position it never had stays as it is; what was deleted cannot be cut to."""
    store = open_store(tmp_path)
    fill(store, 30)
    end = store.log_end
    assert store.truncate_to(1 << 40) == end
    store.flush()
    store.log.delete_first()
    with pytest.raises(StoreError, match="starts at"):
        store.truncate_to(100)
    assert store.log_end == end
    store.close()


def test_cut_removes_queues_that_never_were(tmp_path: Path) -> None:
    """Goal: a queue all of whose messages were cut is gone, directory and all, and starts at 0 again."""
    store = open_store(tmp_path)
    fill(store, 2)
    cut = store.append(message(topic="Gone")).log_offset
    store.truncate_to(cut)
    assert store.min_offset("Gone", 0) == -1
    assert not (tmp_path / "consumequeue" / "Gone").exists()
    assert store.append(message(topic="Gone")).queue_offset == 0
    assert store.max_offset("Gone", 0) == 1
    store.close()


def test_cut_store_takes_records_of_another_again(tmp_path: Path) -> None:
    """Goal: a replica that went astray is cut back and follows its master."""
    source, target = varied_store(tmp_path / "source"), open_store(tmp_path / "target", index_units=20)
    copy_log(source, target)
    common = source.log.files.start_of(source.log_end) - SEGMENT + record_ends(source, source.log_start, SEGMENT, 5_000)
    target.truncate_to(common)
    copy_log(source, target)
    source.close()
    target.close()
    assert tree(tmp_path / "target") == tree(tmp_path / "source")


def test_those_who_wait_for_what_was_cut_are_let_go(tmp_path: Path) -> None:
    """Goal: nobody waits for a position that will never be reached, or is told of another message's."""
    store = open_store(tmp_path)
    fill(store, 3)
    answers: list[bool] = []
    store.gate.hold(store.log_end + 1_000, answers.append)
    store.truncate_to(0)
    assert answers == [False]
    store.close()


# Topics


def test_deleted_topic_leaves_its_messages_in_the_log_only(tmp_path: Path) -> None:
    """Goal: its queues go with their directories, others stay; a queue made again starts at 0."""
    store = open_store(tmp_path)
    first = fill(store, 3)
    store.append(message(queue_id=1))
    store.append(message(topic="Other"))
    assert store.delete_topic("T") == 2
    assert store.delete_topic("T") == 0
    assert not (tmp_path / "consumequeue" / "T").exists()
    assert (store.min_offset("T", 0), store.max_offset("Other", 0)) == (-1, 1)
    assert store.message_at(first[0]) is not None
    assert store.append(message(b"again")).queue_offset == 0
    store.close()
    again = open_store(tmp_path)
    assert (again.max_offset("T", 0), again.min_offset("T", 1), again.max_offset("Other", 0)) == (1, -1, 1)
    assert bodies(again.read("T", 0, 0)) == [b"again"]
    again.close()


# A stretch of another broker's log, cut anywhere


@pytest.mark.parametrize("piece", [1, 7, 100, 1_089, 4_096, 50_000])
def test_stream_cut_anywhere_makes_an_equal_store(tmp_path: Path, piece: int) -> None:
    """Goal: pieces that end within records, blanks and size fields are put together; files roll as the master's."""
    source, target = varied_store(tmp_path / "source"), open_store(tmp_path / "target", index_units=20)
    stream = b"".join(source.log.bytes_at(at, min(SEGMENT, source.log_end - at)) for at in source.log.files)
    rest, received = b"", 0
    while received < len(stream):
        rest += stream[received : received + piece]
        received = min(received + piece, len(stream))
        start = target.log_end
        rest = rest[target.append_stream(start, rest) - start :]
    assert (rest, target.log_end) == (b"", source.log_end)
    source.close()
    target.close()
    assert tree(tmp_path / "target") == tree(tmp_path / "source")


def test_stream_that_turns_into_garbage_is_taken_up_to_there(tmp_path: Path) -> None:
    """Goal: nothing is written that is no record of this place, and what is good before it stays."""
    source = open_store(tmp_path / "source")
    fill(source, 3)
    good = source.log.bytes_at(0, source.log_end)
    size = int.from_bytes(good[:4], "big")
    huge = (SEGMENT + 1).to_bytes(4, "big") + good[4:8]
    for number, tail in enumerate([bytes(8), b"\xff" * 90, good[:size], huge, b"\0\0\0\x50" + good[4:8] + bytes(80)]):
        target = open_store(tmp_path / f"target{number}")
        with pytest.raises(StoreError, match="no record"):
            target.append_stream(0, good + tail)
        assert target.log_end == len(good)
        assert target.log.bytes_at(len(good), SEGMENT - len(good)) == bytes(SEGMENT - len(good))
        assert target.max_offset("T", 0) == 3
        target.close()
    source.close()


def test_empty_store_begins_in_the_middle_of_anothers_history(tmp_path: Path) -> None:
    """Goal: an Apache master gives a new slave its last file only; queues then start where that file's messages do."""
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    fill(source, 40)
    start = source.log.files.start_of(source.log_end)
    assert start > 0
    first = source.message_at(start)
    assert first is not None
    with pytest.raises(StoreError, match="cannot begin"):
        target.start_at(start + 1)
    target.start_at(start)
    assert (target.log_start, target.log_end) == (start, start)
    target.append_stream(start, bytes(source.raw_range(start, SEGMENT)))
    with pytest.raises(StoreError, match="cannot begin"):
        target.start_at(start)
    target.close()
    shutil.copytree(tmp_path / "target", tmp_path / "crashed")
    (tmp_path / "crashed" / "recovery.rocketq").unlink()
    for root in ("target", "crashed"):
        store = open_store(tmp_path / root)
        assert (store.log_start, store.log_end) == (start, source.log_end)
        assert store.min_offset("T", 0) == first.queue_offset
        assert bodies(store.read("T", 0, first.queue_offset)) == bodies(source.read("T", 0, first.queue_offset))
        store.close()
    source.close()


def test_ranges_come_from_one_file_and_end_where_the_log_does(tmp_path: Path) -> None:
    """Goal: what a master sends is what its files hold, never more; a file that is gone is an error and no bytes."""
    store = varied_store(tmp_path)
    at, taken = 0, b""
    while at < store.log_end:
        piece = store.raw_range(at, 3_000)
        assert 0 < len(piece) <= 3_000
        assert at // SEGMENT == (at + len(piece) - 1) // SEGMENT
        taken, at = taken + piece, at + len(piece)
    assert taken == b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))[: store.log_end]
    assert len(store.raw_range(store.log_end, 100)) == 0
    for outside in (-1, store.log_end + 1):
        with pytest.raises(StoreError, match="outside the log"):
            store.raw_range(outside, 1)
    store.close()


@pytest.mark.parametrize("bytes_max", [1, 1_200, 5_000, SEGMENT])
def test_ranges_of_whole_records_lose_nothing(tmp_path: Path, bytes_max: int) -> None:
    """Goal: each range starts and ends at record boundaries, is as long as allowed, and has one record at least."""
    store, copy = varied_store(tmp_path / "one"), open_store(tmp_path / "copy", index_units=20)
    while copy.log_end < store.log_end:
        piece = bytes(store.whole_range(copy.log_end, bytes_max))
        first = int.from_bytes(piece[:4], "big")
        assert len(piece) <= max(bytes_max, first)
        copy.append_raw(copy.log_end, piece)
    assert len(store.whole_range(store.log_end, bytes_max)) == 0
    store.close()
    copy.close()
    assert tree(tmp_path / "copy") == tree(tmp_path / "one")


def test_full_disk_at_dispatch_is_made_up_for_before_more_is_copied(tmp_path: Path) -> None:
    """Goal: a replica whose queue files cannot grow stops; when there is room again nothing was skipped."""
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    fill(source, 6)
    data = source.log.bytes_at(0, source.log_end)
    reserve, full = target.disk.reserve, True

    def refuse(path: Path, start: int, stop: int) -> None:
        if full and "consumequeue" in str(path):
            raise OSError(28, "No space left on device")
        reserve(path, start, stop)

    target.disk.reserve = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        target.append_stream(0, data[: len(data) // 2])
    with pytest.raises(OSError, match="No space"):
        target.append_stream(target.log_end, data[target.log_end :])
    full = False
    target.append_stream(target.log_end, data[target.log_end :])
    assert bodies(target.read("T", 0, 0)) == bodies(source.read("T", 0, 0))
    source.close()
    target.close()


def test_answers_may_wait_for_replicas_while_readers_do_not(tmp_path: Path) -> None:
    """Goal: a classic master's messages are visible at once; only their answers need a replica's word."""
    store = open_store(tmp_path)
    told: list[int] = []

    def listener() -> None:
        told.append(store.log_end)

    store.add_append_listener(listener)
    store.wait_for_replicas(ReplicaGate(lambda log_end: True, lambda: 1_000))
    end = store.append(message(b"one")).end
    assert (store.visible_to, store.acknowledged_to, told) == (end, 0, [end])
    store.replica_gate.release(end)
    assert store.acknowledged_to == end
    store.remove_append_listener(listener)
    store.append(message(b"two"))
    assert told == [end]
    store.close()
