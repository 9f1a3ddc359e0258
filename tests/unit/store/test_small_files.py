"""The small files beside the data: checkpoint, lock, abort mark, recovery point."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest

from rocketq.errors import StoreClosedError
from rocketq.runtime.clock import ManualClock
from rocketq.store import Store
from rocketq.store.checkpoint import Checkpoint, DirectoryLock
from rocketq.store.disk import Disk
from rocketq.store.index import IndexState
from rocketq.store.recovery_point import FILE_NAME, QueueState, RecoveryPoint

from .kit import NOW_MS, fill, message, open_store, small_config

POINT = RecoveryPoint(
    log_start=16384,
    log_end=20000,
    last_record=19000,
    last_record_crc=0xDEADBEEF,
    segment_bytes=16384,
    queue_file_bytes=800,
    queues=(QueueState("%RETRY%g", 3, 5, 9, 19000, 1000),),
    index=(IndexState("20231114221320000", 7, 1, 2, 3, 4),),
    index_missing=(16384, 17000),
    holes=((17000, 17100),),
    index_shape=(50, 100),
    digests=((16384, 20000, 1),),
)


def test_checkpoint_is_five_numbers_in_a_page(tmp_path: Path) -> None:
    """Goal: the bytes that Apache's brokers read."""
    Checkpoint(1, 2, 3, 4, 5).save(tmp_path / "checkpoint", Disk())
    assert (tmp_path / "checkpoint").read_bytes() == pack(">5q", 1, 2, 3, 4, 5) + bytes(4096 - 40)
    assert Checkpoint.load(tmp_path / "checkpoint") == Checkpoint(1, 2, 3, 4, 5)


@pytest.mark.parametrize("data", [None, b"", bytes(39)])
def test_missing_or_short_checkpoint_is_all_zero(tmp_path: Path, data: bytes | None) -> None:
    """Goal: nothing known is nothing promised."""
    if data is not None:
        (tmp_path / "checkpoint").write_bytes(data)
    assert Checkpoint.load(tmp_path / "checkpoint") == Checkpoint()


def test_closed_store_leaves_the_last_store_time_in_the_checkpoint(tmp_path: Path) -> None:
    """Goal: as 5.x does after a clean stop: log and queues at the store time of the last message."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock, index_units=3)
    for number in range(3):
        clock.advance(1_000)
        store.append(message(KEYS=f"k{number}"))
    store.close()
    assert Checkpoint.load(tmp_path / "checkpoint") == Checkpoint(NOW_MS + 3_000, NOW_MS + 3_000, NOW_MS + 2_000)


def test_recovery_point_reads_back_as_written(tmp_path: Path) -> None:
    """Goal: every field survives, with and without the optional ones."""
    for point in (POINT, replace(POINT, queues=(), index=(), index_missing=None, holes=(), digests=())):
        point.save(tmp_path, Disk())
        assert RecoveryPoint.load(tmp_path) == point


@pytest.mark.parametrize("at", [0, 10, -2, -5])
def test_damaged_recovery_point_is_none(tmp_path: Path, at: int) -> None:
    """Goal: a point that cannot be trusted to the byte is not believed at all."""
    POINT.save(tmp_path, Disk())
    data = bytearray((tmp_path / FILE_NAME).read_bytes())
    data[at] ^= 1
    (tmp_path / FILE_NAME).write_bytes(data)
    assert RecoveryPoint.load(tmp_path) is None


@pytest.mark.parametrize("data", [b"", b"{}\n", b"\xff\xfe\n00000000\n"])
def test_garbage_in_place_of_a_recovery_point_is_none(tmp_path: Path, data: bytes) -> None:
    """Goal: any file of that name can be read."""
    (tmp_path / FILE_NAME).write_bytes(data)
    assert RecoveryPoint.load(tmp_path) is None


def test_missing_recovery_point_is_none(tmp_path: Path) -> None:
    """Goal: a directory of another broker has none."""
    assert RecoveryPoint.load(tmp_path) is None


def test_clean_stop_makes_the_next_opening_short(tmp_path: Path) -> None:
    """Goal: nothing is walked, every offset is where it was, appending goes on."""
    store = open_store(tmp_path)
    fill(store, 30)
    end = store.log_end
    store.close()
    again = open_store(tmp_path)
    assert again.report.from_point
    assert again.report.records == 0
    assert again.log_end == end
    assert again.append(message()).queue_offset == 30
    again.close()


def test_abort_mark_stands_while_the_store_is_open(tmp_path: Path) -> None:
    """Goal: present while running, gone after a clean stop, with the process id as 5.x writes it."""
    store = open_store(tmp_path)
    assert (tmp_path / "abort").read_text().isdigit()
    store.close()
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_directory_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    """Goal: a second process is refused by name, and let in once the first is gone."""
    lock = DirectoryLock(tmp_path / "lock")
    code = f"""
from rocketq.errors import StoreLockedError
from rocketq.store.checkpoint import DirectoryLock
from pathlib import Path
try:
    DirectoryLock(Path({str(tmp_path)!r}) / "lock")
    print("free")
except StoreLockedError as error:
    print("held", error)
"""
    held = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert held.startswith("held")
    assert str(tmp_path) in held
    lock.release()
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "free\n"


def test_closed_store_refuses_reads_and_closes_twice(tmp_path: Path) -> None:
    """Goal: use after close is an error that says so; closing again is not."""
    with open_store(tmp_path) as store:
        store.append(message())
    store.close()
    for call in (lambda: store.read("T", 0, 0), lambda: store.message_at(0), lambda: store.query("T", "k")):
        with pytest.raises(StoreClosedError):
            call()


def test_failed_opening_releases_the_directory(tmp_path: Path) -> None:
    """Goal: after a refusal the operator can try again in the same process."""
    fill(first := open_store(tmp_path), 20)
    first.close()
    with pytest.raises(Exception, match="mappedFileSizeCommitLog"):
        Store.open(small_config(tmp_path, segment_bytes=12_288), services=False)
    open_store(tmp_path).close()
