"""Disks that fail, are full or cannot be written: a clear error, and everything acknowledged is still there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.errors import StoreError
from rocketq.store import AppendStatus, Store
from rocketq.store.disk import Disk

from . import raw_store
from .stores import (
    Healthy,
    batch,
    fill,
    message,
    read_queue,
    reopen_again_and_again,
    small_config,
    sync_config,
    verify,
)

HealthyOf = Callable[[str], Healthy]
REPOSITORY = Path(__file__).parents[2]


class FailingDisk(Disk):
    """Fails the named operations while told to."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.error = errno.ENOSPC
        self.under = ""

    def _may_fail(self, operation: str, path: Path) -> None:
        if operation in self.failing and self.under in str(path):
            raise OSError(self.error, os.strerror(self.error), str(path))

    def create(self, path: Path, size_bytes: int, *, reserve: bool, head: bytes = b"") -> None:
        self._may_fail("create", path)
        super().create(path, size_bytes, reserve=reserve, head=head)

    def reserve(self, path: Path, start: int, count: int) -> None:
        self._may_fail("reserve", path)
        super().reserve(path, start, count)

    def write(self, path: Path, at: int, data: bytes | memoryview) -> None:
        self._may_fail("write", path)
        super().write(path, at, data)

    def sync(self, path: Path) -> None:
        self._may_fail("sync", path)
        super().sync(path)

    def sync_directory(self, path: Path) -> None:
        self._may_fail("sync_directory", path)
        super().sync_directory(path)

    def replace(self, path: Path, data: bytes) -> None:
        self._may_fail("replace", path)
        super().replace(path, data)


@pytest.mark.parametrize("under", ["commitlog", "consumequeue", "index"])
@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_a_full_disk_refuses_messages_and_goes_on_when_there_is_room(
    work_dir: Path, under: str, operation: str
) -> None:
    """Goal: an error status with a reason, reading goes on, and writing too once space is back; every acknowledged
    message is there, offsets have no gap, keys are found, before and after a restart."""
    config = small_config(work_dir / "store", segment_bytes=16384, message_bytes_max=8000, queue_file_bytes=200)
    disk = FailingDisk()
    disk.under = f"/{under}"
    with Store.open(config, disk=disk, services=False) as store:
        fill(store, 0, 30)
        disk.failing = {operation}
        stored = []
        for number in range(1000, 1400):
            result = store.append(message(number, topic="T", queue_id=0))
            if result.status is AppendStatus.OK:
                stored.append(result)
        if not (under == "index" and operation == "reserve") and not (under == "commitlog" and operation == "reserve"):
            assert len(stored) < 400, "nothing was refused"
        assert len(read_queue(store, "T", 0)) == len(stored)
        disk.failing = set()
        store.clean()
        store.upkeep_step()
        result = store.append(message(5000, topic="T", queue_id=0))
        assert result.status is AppendStatus.OK, f"space is back, and still: {result.reason}"
        assert result.queue_offset == len(stored)
        store.flush()
        records = raw_store.walk(config)
    with Store.open(config) as store:
        verify(store, records)


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_a_full_disk_refuses_a_batch_whole(work_dir: Path, operation: str) -> None:
    """Goal: of a batch that needs more queue files than there is room for, nothing is stored, and later all of it."""
    config = small_config(work_dir / "store", queue_file_bytes=100)
    disk = FailingDisk()
    disk.under = "/consumequeue"
    with Store.open(config, disk=disk, services=False) as store:
        fill(store, 0, 9)
        end = store.log_end
        disk.failing = {operation}
        result = store.append_batch(batch(100, 30, topic="T", queue_id=0))
        assert not result.status.stored
        assert result.reason
        assert store.log_end == end
        disk.failing = set()
        result = store.append_batch(batch(100, 30, topic="T", queue_id=0))
        assert (result.status, result.queue_offset) == (AppendStatus.OK, 0)
        assert [record.queue_offset for record in read_queue(store, "T", 0)] == list(range(30))


@pytest.mark.parametrize("sync", [True, False], ids=["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_log_that_cannot_be_synced_is_never_called_safe(work_dir: Path, sync: bool) -> None:
    """Goal: after a failed fsync nobody knows what is on disk: no append is answered OK under SYNC_FLUSH any more, and
    the store says why; what was written can still be read after a restart."""
    config = (sync_config if sync else small_config)(work_dir / "store", sync_flush_timeout_ms=200)
    disk = FailingDisk()
    disk.error, disk.under = errno.EIO, "/commitlog"
    store = Store.open(config, disk=disk)
    fill(store, 0, 20)
    disk.failing = {"sync"}
    if sync:
        result = store.append(message(100, topic="T", queue_id=0))
        assert result.status is not AppendStatus.OK
        assert result.reason
    else:
        with pytest.raises(OSError, match="Input/output error"):
            store.flush()
    disk.failing = set()
    result = store.append(message(101, topic="T", queue_id=0))
    assert not result.status.stored, "a log whose sync failed once takes messages again"
    assert "flushed" in result.reason
    with suppress(OSError):  # it may complain once more
        store.close()
    assert (config.root / "abort").exists(), "this was no clean stop"
    records = raw_store.walk(config)
    assert len(records) >= 20
    with Store.open(config) as store:
        verify(store, records)
        assert store.append(message(102, topic="T", queue_id=0)).status is AppendStatus.OK


@pytest.mark.parametrize("sync", [True, False], ids=["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_sync_for_which_no_file_can_be_opened_is_tried_again(work_dir: Path, sync: bool) -> None:
    """Goal: whoever opens thousands of connections takes all descriptors for a while, not the store for ever."""
    config = (sync_config if sync else small_config)(work_dir / "store", sync_flush_timeout_ms=200)
    disk = FailingDisk()
    disk.error, disk.under = errno.EMFILE, "/commitlog"
    store = Store.open(config, disk=disk)
    fill(store, 0, 20)
    disk.failing = {"sync"}
    result = store.append(message(100, topic="T", queue_id=0))
    assert result.status is (AppendStatus.FLUSH_DISK_TIMEOUT if sync else AppendStatus.OK)
    with pytest.raises(OSError, match="Too many open files"):
        store.flush()
    disk.failing = set()
    assert store.append(message(101, topic="T", queue_id=0)).status is AppendStatus.OK
    assert store.flush() == store.log_end
    store.close()
    assert not (config.root / "abort").exists()


@pytest.mark.parametrize("operation", ["replace", "sync"])
def test_a_recovery_point_that_cannot_be_written_hurts_nobody(work_dir: Path, operation: str) -> None:
    """Goal: upkeep fails, is logged and tried again; appends and reads go on."""
    config = small_config(work_dir / "store")
    disk = FailingDisk()
    disk.under = "" if operation == "replace" else "/index"
    store = Store.open(config, disk=disk, services=False)
    fill(store, 0, 50)
    disk.failing = {operation}
    with pytest.raises(OSError, match="No space"):
        store.save_recovery_point()
    fill(store, 50, 50)
    disk.failing = set()
    store.save_recovery_point()
    fill(store, 100, 50)
    records = raw_store.walk(config)
    verify(store, records)
    store.close()
    with Store.open(config) as store:
        verify(store, records)


@pytest.fixture
def small_mount(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, 2 MiB large."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting needs root")
    made = tmp_path / "mount"
    made.mkdir()
    ran = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", made], capture_output=True, check=False)
    if ran.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield made
    subprocess.run(["umount", "-l", made], check=True)


FILL_DISK = """
import json, sys
from pathlib import Path
from rocketq.store import AppendStatus, Store
from tests.adversity.stores import batch, message, small_config
root = Path(sys.argv[1])
ballast = root.parent / "ballast"
ballast.write_bytes(bytes(1 << 20))
store = Store.open(small_config(root))
answers = []
def put(number):
    topic = f"T{number % 7}"
    one = number % 5 == 4
    result = store.append_batch(batch(number * 10, 10, topic=topic, queue_id=number % 3)) if one else store.append(
        message(number * 10, topic=topic, queue_id=number % 3))
    answers.append((result.status.name, result.reason, list(result.log_offsets)))
    return result.status
number = 0
while put(number).stored and number < 20000:
    number += 1
for extra in range(200):
    put(number + extra)
ballast.unlink()
store.upkeep_step()
store.clean()
after = [put(number + 300 + extra).name for extra in range(50)]
store.close()
print(json.dumps({"answers": answers, "after": after}))
"""


def test_a_disk_that_is_really_full_kills_nobody(small_mount: Path) -> None:
    """Goal: with a file system of its own, filled to the last block: error statuses, no signal from a mapped page that
    found no room, and all goes on when a file is deleted."""
    root = small_mount / "store"
    ran = subprocess.run(
        [sys.executable, "-c", FILL_DISK, str(root)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ran.returncode == 0, f"the process died: {ran.returncode} {ran.stderr[-2000:]}"
    told = json.loads(ran.stdout)
    refused = [(status, reason) for status, reason, _ in told["answers"] if status != "OK"]
    assert refused, "the disk was never full"
    assert all(reason for _, reason in refused)
    assert set(told["after"]) == {"OK"}
    config = small_config(root)
    records = raw_store.walk(config)
    stored = [at for _, _, offsets in told["answers"] for at in offsets]
    assert set(stored) <= {record.log_offset for record in records}
    with Store.open(config) as store:
        verify(store, records)


def test_a_store_on_a_full_disk_can_be_checked(small_mount: Path) -> None:
    """Goal: queue files are mostly holes, and tmpfs gives those that are read memory, or a signal when it has none."""
    root = small_mount / "store"
    with Store.open(small_config(root, queue_file_bytes=6_000_000)) as store:
        fill(store, 0, 20)
    ballast = small_mount / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    command = [sys.executable, "-m", "rocketq", "store", "check", str(root)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["sound"])


def test_a_full_disk_at_opening_is_a_clear_error_and_harms_nothing(small_mount: Path, healthy_of: HealthyOf) -> None:
    """Goal: a store that cannot even start says so; with room again it has everything."""
    healthy = healthy_of("ours-crash")
    shutil.copytree(healthy.root, small_mount / "store")
    ballast = small_mount / "ballast"
    free = os.statvfs(small_mount).f_bavail * os.statvfs(small_mount).f_frsize
    ballast.write_bytes(bytes(free))
    config = replace(healthy.config, root=small_mount / "store")
    try:
        store = Store.open(config)
    except (OSError, StoreError) as error:
        assert "space" in str(error)  # noqa: PT017 (it may as well open)
    else:
        verify(store, healthy.records)
        with suppress(OSError):  # no room for a recovery point
            store.close()
    ballast.unlink()
    reopen_again_and_again(replace(healthy, config=config))


def test_a_read_only_file_system_is_a_clear_error(small_mount: Path, healthy_of: HealthyOf) -> None:
    """Goal: the error names what cannot be written; nothing hangs or is changed, and it works when writable again."""
    healthy = healthy_of("ours-crash-after-point")
    shutil.copytree(healthy.root, small_mount / "store")
    config = replace(healthy.config, root=small_mount / "store")
    subprocess.run(["mount", "-o", "remount,ro", small_mount], check=True)
    with pytest.raises((OSError, StoreError), match=str(config.root)):
        Store.open(config)
    subprocess.run(["mount", "-o", "remount,rw", small_mount], check=True)
    reopen_again_and_again(replace(healthy, config=config))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_a_clear_error(healthy_of: HealthyOf) -> None:
    """Goal: as above, for a user without the right to write."""
    healthy = healthy_of("ours-clean")
    healthy.root.chmod(0o555)
    with pytest.raises((OSError, StoreError), match=str(healthy.root)):
        Store.open(healthy.config)
    healthy.root.chmod(0o755)


def test_a_file_where_the_store_should_be_is_a_clear_error(work_dir: Path) -> None:
    """Goal: the path is named."""
    (work_dir / "store").write_text("a file")
    with pytest.raises((OSError, StoreError), match="store"):
        Store.open(small_config(work_dir / "store"))
