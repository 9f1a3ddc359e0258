"""Extensions of queue units: Apache's bytes, looked up and written beside the queue, never in the way of a message."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.runtime.clock import ManualClock
from rocketq.store import ReadStatus, Store, tag_code
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.disk import Disk
from rocketq.store.queue_extensions import (
    Extension,
    QueueExtensions,
    address_of,
    decode_extension,
    is_address,
    is_torn,
    position_of,
)
from rocketq.store.redelivery import Redeliverer
from rocketq.store.verify import Verifier

from .kit import NOW_MS, SEGMENT, StagedDisk, bodies, fill, message, open_store, packed
from .test_reopen import crashed
from .test_replica import copy_log

FIRST_ADDRESS = -(1 << 63)
BITMAP = bytes(range(1, 15))
i64 = st.integers(-(1 << 63), (1 << 63) - 1)


def open_extended(root: Path, **given: Any) -> Store:
    """A store that extends its units, in files of six extensions with a bitmap."""
    store = open_store(root, **({"queue_extensions": True, "extension_file_bytes": 216} | given))
    store.calculate_bitmaps(lambda topic, properties, store_ms: BITMAP)
    return store


def queue_of(store: Store, topic: str = "T") -> ConsumeQueue:
    found = store.queues.get(topic, 0)
    assert found is not None
    return found


def codes(store: Store, topic: str = "T") -> list[int]:
    """What the units of a queue hold in place of tags codes."""
    queue = queue_of(store, topic)
    return [(queue.unit(offset) or (0, 0, 0))[2] for offset in range(queue.min_offset, queue.end_offset)]


def extensions_of(store: Store, topic: str = "T") -> list[Extension | None]:
    found = queue_of(store, topic).extensions
    assert found is not None
    return [found.get(code) if is_address(code) else None for code in codes(store, topic)]


def files_of(store: Store, topic: str = "T") -> list[Path]:
    return sorted((store.config.root / "consumequeue_ext" / topic / "0").glob("*"))


# the codec


def test_unit_has_the_layout_of_the_format() -> None:
    """Goal: size, tags code, store time, length of the bitmap, bitmap, as Apache lays them down."""
    assert Extension(-5, 1_700_000_000_000).encode() == pack(">hqqh", 20, -5, 1_700_000_000_000, 0)
    assert Extension(65, 7, BITMAP).encode() == pack(">hqqh", 34, 65, 7, 14) + BITMAP


def test_addresses_are_below_every_tags_code() -> None:
    """Goal: a unit's field tells by itself whether it is an address."""
    assert address_of(0) == FIRST_ADDRESS
    assert position_of(address_of(12_345)) == 12_345
    assert [is_address(code) for code in (FIRST_ADDRESS, -(1 << 31) - 1, -(1 << 31), -1, 0, NOW_MS)] == [
        *(True, True),
        *(False, False, False, False),
    ]


@given(i64, i64, st.binary(max_size=40), st.integers(0, 50))
def test_what_was_written_is_read_back(tags_code: int, store_ms: int, bitmap: bytes, at: int) -> None:
    """Goal: any unit, wherever it lies; nothing where only a part of it is."""
    unit = Extension(tags_code, store_ms, bitmap)
    data = bytes(at) + unit.encode()
    assert decode_extension(data, at) == unit
    assert decode_extension(data[:-1], at) is None


@given(st.binary(max_size=80), st.integers(-5, 90))
def test_garbage_is_no_unit_or_one_that_encodes_to_itself(data: bytes, at: int) -> None:
    """Goal: no bytes make the decoder fail."""
    found = decode_extension(data, at)
    assert found is None or found.encode() == data[at : at + found.size]


def test_a_unit_is_torn_when_one_of_its_sectors_is_empty() -> None:
    """Goal: a bitmap whose sector never reached the disk is not taken for one without groups."""
    data = bytearray(2048)
    data[490:524] = Extension(65, 7, BITMAP).encode()
    assert not is_torn(data, 490, 34)
    data[512:524] = bytes(12)
    assert is_torn(data, 490, 34)
    assert not is_torn(data, 490, 22)


# writing


def test_units_hold_addresses_and_extensions_the_rest(tmp_path: Path) -> None:
    """Goal: files as Apache writes them: back to back, an end mark where four bytes would not stay, the next."""
    clock = ManualClock(NOW_MS)
    store = open_extended(tmp_path, clock=clock)
    for number in range(8):
        clock.advance(1)
        store.append(message(TAGS="AB"[number % 2]))
    units = [Extension(tag_code("AB"[n % 2]), NOW_MS + 1 + n, BITMAP) for n in range(8)]
    assert extensions_of(store) == units
    assert codes(store) == [FIRST_ADDRESS + at for at in (0, 34, 68, 102, 136, 170, 216, 250)]
    assert [path.name for path in files_of(store)] == [f"{0:020d}", f"{216:020d}"]
    first, second = (path.read_bytes() for path in files_of(store))
    assert first == b"".join(unit.encode() for unit in units[:6]) + b"\xff\xff" + bytes(10)
    assert second == b"".join(unit.encode() for unit in units[6:]) + bytes(216 - 68)


def test_batches_and_unknown_bitmaps_are_extended_too(tmp_path: Path) -> None:
    """Goal: every message of a batch has its own; without groups the bitmap is empty; half messages have no unit."""
    store = open_extended(tmp_path)
    store.calculate_bitmaps(lambda topic, properties, store_ms: b"")
    store.append_batch(message(packed(b"1", b"2")))
    store.append(message(sys_flag=4))
    assert extensions_of(store) == [Extension(0, NOW_MS)] * 2
    assert codes(store) == [FIRST_ADDRESS, FIRST_ADDRESS + 20]


def test_nothing_is_written_unless_it_is_wanted(tmp_path: Path) -> None:
    """Goal: off by default, and then there is not even a folder."""
    with open_store(tmp_path) as store:
        store.append(message(TAGS="A"))
        assert codes(store) == [tag_code("A")]
    assert not (tmp_path / "consumequeue_ext").exists()


def test_replicas_extend_as_the_master_does(tmp_path: Path) -> None:
    """Goal: records that come whole are dispatched with their extensions: the files are equal."""
    master, replica = open_extended(tmp_path / "master"), open_extended(tmp_path / "replica")
    fill(master, 30, TAGS="A")
    copy_log(master, replica)
    assert codes(replica) == codes(master)
    assert [path.read_bytes() for path in files_of(replica)] == [path.read_bytes() for path in files_of(master)]


@pytest.mark.parametrize("operation", ["reserve", "create"])
def test_a_full_disk_costs_the_extension_and_not_the_message(tmp_path: Path, operation: str) -> None:
    """Goal: plain tags codes while there is no room, extensions again afterwards, at addresses nobody else has."""
    disk = StagedDisk()
    store = open_extended(tmp_path, disk=disk)
    store.append(message(b"0", TAGS="A"))
    disk.fail(operation, part="consumequeue_ext")
    for number in range(1, 10):
        assert store.append(message(b"%d" % number, TAGS="A")).status.stored
    assert [is_address(code) for code in codes(store)] == [True] * 6 + [False] * 4
    disk.recover()
    store.append(message(b"10", TAGS="A"))
    assert codes(store)[-1] == FIRST_ADDRESS + 216
    assert len(bodies(store.read("T", 0, 0, tag_codes=frozenset([tag_code("A")])))) == 11


def test_what_goes_wrong_with_bitmaps_does_not_reach_the_message(tmp_path: Path) -> None:
    """Goal: the record is in the log already; its unit follows in any case."""
    store = open_extended(tmp_path)

    def broken(topic: str, properties: bytes, store_ms: int) -> bytes:
        raise RuntimeError("no bitmap today")

    store.calculate_bitmaps(broken)
    assert store.append(message(TAGS="A")).status.stored
    store.calculate_bitmaps(lambda topic, properties, store_ms: bytes(40_000))
    assert store.append(message(TAGS="A")).status.stored
    store.calculate_bitmaps(lambda topic, properties, store_ms: bytes(300))  # more than a file holds
    assert store.append(message(TAGS="A")).status.stored
    assert codes(store) == [tag_code("A")] * 3


# reading


@pytest.mark.parametrize("extends", [True, False], ids=["on", "off"])
def test_tags_are_compared_inside(tmp_path: Path, extends: bool) -> None:
    """Goal: also when the option is off now: files there are, are read."""
    with open_extended(tmp_path) as store:
        for number in range(20):
            store.append(message(b"%d" % number, TAGS="ABC"[number % 3]))
    store = open_store(tmp_path, queue_extensions=extends, extension_file_bytes=216)
    store.append(message(b"20", TAGS="B"))
    wanted = frozenset([tag_code("B")])
    assert bodies(store.read("T", 0, 0, tag_codes=wanted)) == [b"%d" % n for n in (1, 4, 7, 10, 13, 16, 19, 20)]
    assert bodies(store.read("T", 0, 0, unit_filter=lambda code: code in wanted))[-2:] == [b"19", b"20"]
    assert store.read("T", 0, 0, tag_codes=frozenset([1])).status is ReadStatus.NO_MATCHED_MESSAGE
    assert is_address(codes(store)[-1]) is extends


def test_entries_whose_extension_is_gone_are_passed_on(tmp_path: Path) -> None:
    """Goal: the client compares the tags itself, so nothing is lost."""
    with open_extended(tmp_path) as store:
        for number in range(8):
            store.append(message(b"%d" % number, TAGS="AB"[number % 2]))
    shutil.rmtree(tmp_path / "consumequeue_ext")
    for options in ({}, {"queue_extensions": True, "extension_file_bytes": 216}):
        with open_store(tmp_path, **options) as store:
            wanted = frozenset([tag_code("A")])
            assert len(bodies(store.read("T", 0, 0, tag_codes=wanted))) == 8
            assert len(bodies(store.read("T", 0, 0, unit_filter=lambda code: False))) == 8


def test_a_look_at_extensions_spares_the_one_at_the_record(tmp_path: Path) -> None:
    """Goal: what it does not let through is not read; units without an extension pass."""
    store = open_extended(tmp_path)
    for number in range(4):
        store.calculate_bitmaps(lambda topic, properties, store_ms, number=number: bytes([number]))  # type: ignore[misc]
        store.append(message(b"%d" % number))
    queue_of(store).tail.extends = False
    store.append(message(b"4"))
    seen: list[bytes] = []
    found = store.read(
        *("T", 0, 0),
        extension_filter=lambda unit: unit.bitmap[0] % 2 == 1,
        record_filter=lambda data: bool(seen.append(data)) or True,
    )
    assert (bodies(found), len(seen), found.next_offset) == ([b"1", b"3", b"4"], 3, 5)


def test_delayed_messages_come_at_their_time(tmp_path: Path) -> None:
    """Goal: the time is inside the extension; a delivery neither hurries nor waits because of that."""
    clock = ManualClock(NOW_MS)
    store = open_extended(tmp_path, clock=clock)
    given = {"topic": "SCHEDULE_TOPIC_XXXX", "DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}
    store.append(message(b"later", **given))
    assert extensions_of(store, "SCHEDULE_TOPIC_XXXX") == [Extension(NOW_MS + 1_000, NOW_MS, BITMAP)]
    deliverer = Redeliverer(store)
    early = deliverer.deliver_due("SCHEDULE_TOPIC_XXXX", 0, 0, now_ms=NOW_MS + 999, count_max=10)
    assert (early.delivered, early.due_ms) == (0, NOW_MS + 1_000)
    assert deliverer.deliver_due("SCHEDULE_TOPIC_XXXX", 0, 0, now_ms=NOW_MS + 1_000, count_max=10).delivered == 1
    assert bodies(store.read("T", 0, 0)) == [b"later"]
    assert is_address(codes(store)[0])


# opening


@pytest.mark.parametrize("count", [1, 5, 6, 7, 12, 40])
def test_a_store_goes_on_where_it_ended(tmp_path: Path, count: int) -> None:
    """Goal: closed or killed, with or without a recovery point: extensions stay, new ones go behind them."""
    with open_extended(tmp_path / "store") as store:
        fill(store, count, size=50, TAGS="A")
        before = codes(store)
        killed = crashed(store, tmp_path / "killed")
        halfway = tmp_path / "halfway"
        store.save_recovery_point()
        fill(store, 3, size=50, TAGS="A")
        after = codes(store)
        shutil.copytree(tmp_path / "store", halfway)
    for root, wanted in ((killed, before), (halfway, after), (tmp_path / "store", after)):
        with open_extended(root) as store:
            assert codes(store) == wanted
            fill(store, 2, size=50, TAGS="B")
            found = extensions_of(store)
            assert [unit.tags_code for unit in found if unit is not None] == [tag_code("A")] * len(wanted) + [
                *[tag_code("B")] * 2
            ]
            assert len(set(codes(store))) == len(wanted) + 2
        assert Verifier(root).run().findings == []


def test_queues_built_again_hold_plain_codes(tmp_path: Path) -> None:
    """Goal: what groups wanted is not known then; extensions that nobody points to are removed."""
    with open_extended(tmp_path) as store:
        fill(store, 20, size=50, TAGS="A")
    shutil.rmtree(tmp_path / "consumequeue")
    with open_extended(tmp_path) as store:
        assert codes(store) == [tag_code("A")] * 20
        assert files_of(store) == []
        fill(store, 1, TAGS="A")
        assert codes(store)[-1] == FIRST_ADDRESS
    assert Verifier(tmp_path).run().findings == []


def test_extensions_that_do_not_agree_are_replaced_by_plain_codes(tmp_path: Path) -> None:
    """Goal: a walk over the log mends units whose extension is another message's, is gone, or was torn."""
    with open_extended(tmp_path / "store", extension_file_bytes=4096) as store:
        fill(store, 40, size=50, TAGS="A")
        root = crashed(store, tmp_path / "store")
    path = root / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[34 * 3 + 5] ^= 1  # the tags code
    data[34 * 7 + 15] ^= 1  # the store time
    data[34 * 9 : 34 * 9 + 2] = b"\0\0"
    data[512 : 34 * 16] = bytes(34 * 16 - 512)  # the sector with its end never came to the disk
    path.write_bytes(data)
    with open_extended(root, extension_file_bytes=4096) as store:
        plain = [offset for offset, code in enumerate(codes(store)) if not is_address(code)]
        assert plain == [3, 7, 9, 15]
        assert len(bodies(store.read("T", 0, 0, count_max=40, bytes_max=1 << 20, tag_codes=frozenset([65])))) == 40


def test_an_address_that_was_given_is_not_given_again(tmp_path: Path) -> None:
    """Goal: when the last extension cannot be read, its place stays empty: a bitmap there could cost a message."""
    with open_extended(tmp_path) as store:
        fill(store, 3, size=50, TAGS="A")
        path = files_of(store)[0]
    path.write_bytes(path.read_bytes()[:68] + bytes(216 - 68))
    with open_extended(tmp_path) as store:
        fill(store, 1, size=50, TAGS="A")
        assert codes(store)[2:] == [FIRST_ADDRESS + 68, FIRST_ADDRESS + 216]


def test_files_of_another_size_are_read_and_left_alone(tmp_path: Path) -> None:
    """Goal: new messages get plain codes then, with one line that says why."""
    with open_extended(tmp_path) as store:
        fill(store, 8, size=50, TAGS="A")
        before = [path.read_bytes() for path in files_of(store)]
    for size in (128, 1024):
        with open_extended(tmp_path, extension_file_bytes=size) as store:
            fill(store, 1, size=50, TAGS="A")
            assert not is_address(codes(store)[-1])
            assert [unit for unit in extensions_of(store)[:8] if unit is None] == []
            assert [path.read_bytes() for path in files_of(store)] == before


def test_an_empty_file_harms_nobody(tmp_path: Path) -> None:
    """Goal: as after a crash of another broker while it made the file."""
    with open_extended(tmp_path) as store:
        fill(store, 3, size=50, TAGS="A")
        files_of(store)[0].write_bytes(b"")
    with open_store(tmp_path) as store:
        assert len(bodies(store.read("T", 0, 0, tag_codes=frozenset([1])))) == 3


# cutting and deleting


def age(store: Store) -> None:
    """Everything is flushed, and was last written long ago."""
    store.flush()
    store.retention.pause = lambda seconds: None
    for path in (store.config.root / "commitlog").iterdir():
        os.utime(path, (0, 0))


def test_cutting_the_log_cuts_extensions(tmp_path: Path) -> None:
    """Goal: behind the last unit's extension there are zeros again, and files that began there are gone."""
    store = open_extended(tmp_path)
    offsets = fill(store, 20, TAGS="A")
    store.truncate_to(offsets[8])
    assert [path.name for path in files_of(store)] == [f"{0:020d}", f"{216:020d}"]
    assert files_of(store)[1].read_bytes()[68:] == bytes(216 - 68)
    fill(store, 1, TAGS="B")
    assert codes(store)[-1] == FIRST_ADDRESS + 216 + 68
    store.truncate_to(0)
    assert not (tmp_path / "consumequeue_ext" / "T").exists()


def test_old_extensions_go_with_their_messages(tmp_path: Path) -> None:
    """Goal: files all of whose messages are gone are deleted, others are not."""
    store = open_extended(tmp_path, disk=StagedDisk())
    fill(store, 60, TAGS="A")
    age(store)
    names = [path.name for path in files_of(store)]
    assert store.clean()
    left = [path.name for path in files_of(store)]
    assert 0 < len(left) < len(names)
    assert left == names[-len(left) :]
    assert None not in extensions_of(store)
    assert int(left[0]) <= position_of(codes(store)[0]) < int(left[0]) + 216


def test_extensions_nobody_points_to_go_with_old_messages(tmp_path: Path) -> None:
    """Goal: after the option was switched off, all but the last file goes once the messages have gone."""
    with open_extended(tmp_path) as store:
        fill(store, 20, TAGS="A")
    store = open_store(tmp_path, disk=StagedDisk(), extension_file_bytes=216)
    fill(store, 40, TAGS="A")
    age(store)
    assert store.clean()
    assert len(files_of(store)) == 1


def test_a_deleted_topic_takes_its_extensions_along(tmp_path: Path) -> None:
    """Goal: and a new topic of that name starts with none."""
    store = open_extended(tmp_path)
    fill(store, 8, TAGS="A")
    store.delete_topic("T")
    assert not (tmp_path / "consumequeue_ext" / "T").exists()
    fill(store, 1, TAGS="B")
    assert codes(store) == [FIRST_ADDRESS]
    assert extensions_of(store) == [Extension(tag_code("B"), NOW_MS, BITMAP)]


def test_extensions_are_on_disk_before_the_units_that_point_to_them(tmp_path: Path) -> None:
    """Goal: a power cut leaves units without extensions behind the last sync only, never before it."""
    disk = StagedDisk()
    store = open_extended(tmp_path, disk=disk)
    fill(store, 8, TAGS="A")
    disk.synced.clear()
    queue_of(store).flush(pages_min=0)
    folders = [path.parents[2].name for path in disk.synced]
    assert folders == ["consumequeue_ext"] * 2 + ["consumequeue"]
    disk.synced.clear()
    fill(store, 1, TAGS="A")
    queue_of(store).flush(pages_min=0)
    assert [path.parents[2].name for path in disk.synced] == ["consumequeue_ext", "consumequeue"]


def test_idle_mappings_of_extensions_are_let_go(tmp_path: Path) -> None:
    """Goal: and come back when they are asked for."""
    files = QueueExtensions(tmp_path / "T" / "0", 216, Disk())
    address = files.put(Extension(1, 2, BITMAP))
    files.drop_idle_mappings()
    files.drop_idle_mappings()
    assert files._mapped == {}
    assert files.get(address) == Extension(1, 2, BITMAP)
    assert files.get(address_of(SEGMENT)) is None


# checking


def test_the_verifier_looks_into_extensions(tmp_path: Path) -> None:
    """Goal: sound ones are counted; one that is gone, another message's, or followed by anything is found."""
    with open_extended(tmp_path / "store") as store:
        fill(store, 20, size=50, TAGS="A")
    report = Verifier(tmp_path / "store").run()
    assert (report.findings, report.extension_units) == ([], 20)

    def found(change: Any) -> list[str]:
        root = tmp_path / "changed"
        shutil.copytree(tmp_path / "store", root)
        change(sorted((root / "consumequeue_ext" / "T" / "0").iterdir()))
        findings = [finding.what for finding in Verifier(root).run().findings]
        shutil.rmtree(root)
        return findings

    gone = found(lambda paths: paths[1].unlink())
    assert len(gone) == 6
    assert all("no extension at" in what for what in gone)
    assert "its extension says" in found(lambda paths: _flip(paths[0], 9))[0]
    assert "something behind" in found(lambda paths: _flip(paths[-1], 215))[0]
    assert found(lambda paths: paths[-1].write_bytes(b""))[-1] == "is empty"


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
