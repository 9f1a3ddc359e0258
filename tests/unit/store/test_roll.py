"""From one log file to the next: nobody who appends waits for the disk, and nothing is acknowledged too early."""

from __future__ import annotations

import threading
from pathlib import Path

from rocketq.store import AppendStatus, FlushType, Store
from rocketq.store.segments import file_name

from .kit import SEGMENT, StagedDisk, bodies, fill, message, open_store, small_config

HANG_S = 30


def test_a_roll_does_not_wait_for_the_old_file(tmp_path: Path) -> None:
    """Goal: with ASYNC_FLUSH an append that opens a new file syncs nothing; the next flush syncs both, in order."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    disk.synced.clear()
    fill(store, 20)
    assert len(store.log.files) == 2
    assert disk.synced == []
    store.flush()
    assert [path.name for path in disk.synced] == [file_name(0), file_name(SEGMENT)]
    assert store.gate.position == store.log_end
    store.close()


def test_no_more_than_one_finished_file_is_behind(tmp_path: Path) -> None:
    """Goal: who appends faster than the disk takes it waits at the second roll, so that a power cut costs little."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    disk.synced.clear()
    fill(store, 40)
    assert len(store.log.files) == 3
    assert [path.name for path in disk.synced] == [file_name(0), file_name(SEGMENT)]
    store.close()


def test_with_sync_flush_the_old_file_is_safe_before_anything_in_the_new_one(tmp_path: Path) -> None:
    """Goal: while the old file's sync hangs, a message of the new one is stored, and neither visible nor answered."""
    disk, hanging, go_on = StagedDisk(), threading.Event(), threading.Event()
    config = small_config(tmp_path, flush_type=FlushType.SYNC_FLUSH, sync_flush_timeout_ms=HANG_S * 1000)
    with Store.open(config, disk=disk) as store:
        while store.log_end < SEGMENT - 2_000:
            assert store.append(message(b"x" * 1_000)).status is AppendStatus.OK
        before = store.max_offset("T", 0)

        def stage(name: str, path: Path) -> None:
            if name == "sync" and path.name == file_name(0):
                hanging.set()
                assert go_on.wait(HANG_S)

        disk.on = stage
        store.append(message(b"y" * 500), wait=False)
        assert hanging.wait(HANG_S)
        last = store.append(message(b"z" * 1_500), wait=False)
        assert last.log_offset >= SEGMENT
        assert store.gate.position <= SEGMENT
        assert not store.gate.wait(last.end, 50)
        assert store.max_offset("T", 0) == before
        go_on.set()
        assert store.gate.wait(last.end, HANG_S * 1000)
        assert store.max_offset("T", 0) == before + 2


def test_the_next_file_is_there_before_it_is_needed(tmp_path: Path) -> None:
    """Goal: once a file is half full the flush service makes the next one; an append finds it."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    store.append(message())
    store.flush_step()
    assert len(store.log.files) == 1
    fill(store, 9)
    store.flush_step()
    assert list(store.log.files) == [0, SEGMENT]
    made: list[str] = []

    def stage(name: str, path: Path) -> None:
        if name == "create" and path.parent.name == "commitlog":
            made.append(path.name)

    disk.on = stage
    fill(store, 10)
    assert store.log_end > SEGMENT
    assert made == []
    store.close()


def test_a_file_prepared_in_vain_is_gone_after_a_clean_stop(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 10)
    store.flush_step()
    assert len(store.log.files) == 2
    store.close()
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [file_name(0)]


def test_a_file_prepared_before_a_crash_does_no_harm(tmp_path: Path) -> None:
    """Goal: the next opening finds every message and goes on behind them."""
    store = open_store(tmp_path)
    fill(store, 10, size=1_000)
    store.flush_step()
    store.flush()
    store._release()  # as a crash leaves it
    again = open_store(tmp_path)
    assert again.report.notes == []
    assert again.max_offset("T", 0) == 10
    assert again.append(message(b"on")).queue_offset == 10
    assert bodies(again.read("T", 0, 10)) == [b"on"]
    again.close()


def test_no_room_for_the_next_file_is_told_when_it_is_needed(tmp_path: Path) -> None:
    """Goal: preparing fails quietly and once; the append that needs the file says so; with room it goes on."""
    disk, tries = StagedDisk(), []
    store = open_store(tmp_path, disk=disk)
    fill(store, 9)

    def stage(name: str, path: Path) -> None:
        if name == "create" and path.parent.name == "commitlog":
            tries.append(path.name)
            raise OSError(28, "No space left on device")

    disk.on = stage
    store.flush_step()
    store.flush_step()
    assert tries == [file_name(SEGMENT)]
    statuses = [store.append(message(b"x" * 1_000)).status for _ in range(8)]
    assert statuses[-1] is AppendStatus.CREATE_FILE_FAILED
    disk.on = lambda name, path: None
    assert store.append(message(b"x" * 1_000)).status is AppendStatus.OK
    store.close()


def test_the_file_being_written_is_never_deleted(tmp_path: Path) -> None:
    """Goal: not even when the next one is prepared and the disk is nearly full."""
    store = open_store(tmp_path, disk_force_clean_ratio=1e-9, disk_refuse_ratio=1.0)
    fill(store, 10)
    store.flush_step()
    store.flush()
    assert store.clean() == []
    assert store.max_offset("T", 0) == 10
    store.close()
