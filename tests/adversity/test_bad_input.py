"""Bad input and faults: each gets a clear error or a repaired store, and nothing readable is lost."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest

from rocketq.errors import DamagedStateError, StoreError, StoreLockedError
from rocketq.model import NewMessage, SysFlag
from rocketq.store import AppendStatus, ReadStatus, StateFiles, Store
from rocketq.store.disk import Disk

from . import raw_store
from .raw_store import RawRecord
from .stores import (
    OUR_VARIANTS,
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
our_variants = pytest.mark.parametrize("variant", OUR_VARIANTS)

# Records that are not what they seem


def _i32(at: int, value: int) -> Callable[[RawRecord], bytes]:
    return lambda record: record.data[:at] + pack(">i", value) + record.data[at + 4 :]


def _body_length(value: int) -> Callable[[RawRecord], bytes]:
    return lambda record: _i32(record.body_at - 4, value)(record)


def _topic_at(record: RawRecord) -> int:
    return record.body_at + len(record.body)


BAD_RECORDS: dict[str, Callable[[RawRecord], bytes]] = {
    "wrong magic": _i32(4, 0x12345678),
    "blank magic": lambda record: record.data[:4] + pack(">I", raw_store.MAGIC_BLANK) + record.data[8:],
    "size zero": _i32(0, 0),
    "size negative": _i32(0, -1),
    "size most negative": _i32(0, -(1 << 31)),
    "size too small": _i32(0, 90),
    "size one more": lambda record: _i32(0, record.size + 1)(record),
    "size beyond the file": _i32(0, 1 << 20),
    "size largest": _i32(0, 0x7FFFFFFF),
    "body length negative": _body_length(-1),
    "body length beyond the record": _body_length(60_000),
    "body length largest": _body_length(0x7FFFFFFF),
    "topic length beyond the record": lambda record: (
        record.data[: _topic_at(record)] + b"\xff" + record.data[_topic_at(record) + 1 :]
    ),
    "properties length negative": lambda record: (
        record.data[: _topic_at(record) + 1 + len(record.topic)]
        + b"\xff\xff"
        + record.data[_topic_at(record) + 3 + len(record.topic) :]
    ),
    "another log offset": lambda record: record.data[:28] + pack(">q", record.log_offset + 8) + record.data[36:],
    "negative log offset": lambda record: record.data[:28] + pack(">q", -1) + record.data[36:],
    "IPv6 bits set": lambda record: record.data[:36] + pack(">i", 0x30) + record.data[40:],
    "zeros": lambda record: bytes(record.size),
    "ones": lambda record: b"\xff" * record.size,
    "text": lambda record: (b"not a record " * 200)[: record.size],
}


@our_variants
@pytest.mark.parametrize("kind", BAD_RECORDS)
def test_a_bad_record_in_the_middle_costs_itself_only(healthy_of: HealthyOf, variant: str, kind: str) -> None:
    """Goal: whatever is wrong with it, the records before and behind it are served, and its offset stays taken."""
    healthy = healthy_of(variant)
    records = healthy.in_file(1)
    victim = next(record for record in records[len(records) // 2 :] if len(record.body) > 20)
    raw_store.overwrite(healthy.path_of(victim), healthy.position(victim), BAD_RECORDS[kind](victim))
    kept = [record for record in healthy.records if record is not victim]
    reopen_again_and_again(healthy, kept=kept, lost=[victim])


@our_variants
@pytest.mark.parametrize("kind", ["wrong magic", "size beyond the file", "zeros"])
def test_a_bad_first_record_of_a_file_costs_itself_only(healthy_of: HealthyOf, variant: str, kind: str) -> None:
    """Goal: not even the place where every recovery starts reading may cost a file."""
    healthy = healthy_of(variant)
    victim = healthy.in_file(0)[0]
    raw_store.overwrite(healthy.path_of(victim), healthy.position(victim), BAD_RECORDS[kind](victim))
    kept = [record for record in healthy.records if record is not victim]
    reopen_again_and_again(healthy, kept=kept, lost=[victim])


@our_variants
def test_a_record_that_lies_where_another_was_is_no_record(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: a misdirected write, good in itself, is told by the log offset it carries."""
    healthy = healthy_of(variant)
    records = healthy.in_file(1)
    victim = records[len(records) // 2]
    stray = next(record for record in healthy.records if record.size == victim.size and record is not victim)
    raw_store.overwrite(healthy.path_of(victim), healthy.position(victim), stray.data)
    kept = [record for record in healthy.records if record is not victim]
    reopen_again_and_again(healthy, kept=kept, lost=[victim])


@our_variants
def test_a_middle_log_file_cut_short_keeps_what_it_holds(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: what was in the rest of the file is lost, what lies behind it is not."""
    healthy = healthy_of(variant)
    records = healthy.in_file(1)
    first_lost = records[len(records) // 2]
    with healthy.path_of(first_lost).open("r+b") as file:
        file.truncate(healthy.position(first_lost) + 10)
    lost = [record for record in records if record.log_offset >= first_lost.log_offset]
    kept = [record for record in healthy.records if record not in lost]
    said = reopen_again_and_again(healthy, kept=kept, lost=lost)
    assert healthy.path_of(first_lost).name in said


@our_variants
def test_a_blank_record_that_is_gone_costs_nothing(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: the end mark of a full log file is not needed to find the next file."""
    healthy = healthy_of(variant)
    last = healthy.in_file(0)[-1]
    raw_store.overwrite(healthy.path_of(last), healthy.position(last) + last.size, b"\x11" * 8)
    reopen_again_and_again(healthy)


# Directories that are not what they seem


@pytest.mark.parametrize("segment_bytes", [32 << 10, 128 << 10])
def test_another_segment_size_than_the_log_was_written_with_is_a_clear_error(
    healthy_of: HealthyOf, segment_bytes: int
) -> None:
    """Goal: refuse by name of file and option, and touch nothing."""
    healthy = healthy_of("ours-clean")
    before = {path: path.read_bytes() for path in raw_store.log_files(healthy.config)}
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        Store.open(replace(healthy.config, segment_bytes=segment_bytes))
    assert {path: path.read_bytes() for path in raw_store.log_files(healthy.config)} == before
    reopen_again_and_again(healthy)


@our_variants
def test_another_queue_file_size_rebuilds_the_queues(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: queues derive from the log, so a changed size is no reason to refuse."""
    healthy = healthy_of(variant)
    reopen_again_and_again(replace(healthy, config=replace(healthy.config, queue_file_bytes=400)))


@our_variants
@pytest.mark.parametrize(("slots", "units"), [(50, 300), (100, 150), (150, 290)])
def test_another_index_shape_rebuilds_the_index(healthy_of: HealthyOf, variant: str, slots: int, units: int) -> None:
    """Goal: even where the file's size stays the same (50 slots more, 10 units less), the shape does not."""
    healthy = healthy_of(variant)
    config = replace(healthy.config, index_slots=slots, index_units=units)
    reopen_again_and_again(replace(healthy, config=config))


def test_files_that_are_not_ours_are_left_alone(healthy_of: HealthyOf) -> None:
    """Goal: notes of an operator, editors' backups and the like change nothing and stay."""
    healthy = healthy_of("ours-crash")
    queue_dir = raw_store.queue_files(healthy.config, healthy.busiest_queue())[0].parent
    strays = [
        healthy.config.log_dir / "README",
        healthy.config.log_dir / "00000000000000000000.bak",
        healthy.config.log_dir / "123",
        queue_dir / "notes.txt",
        healthy.root / "index" / "old",
        healthy.root / "consumequeue" / "a-file",
    ]
    for path in strays:
        path.write_bytes(b"not ours")
    with Store.open(healthy.config) as store:
        verify(store, healthy.records)
    assert all(path.read_bytes() == b"not ours" for path in strays)


@our_variants
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize(
    "kind",
    ["garbage", "zeros", "count too large", "chains that loop", "slots of garbage", "no slots", "short", "empty"],
)
def test_an_index_file_with_garbage_is_built_again(healthy_of: HealthyOf, variant: str, which: int, kind: str) -> None:
    """Goal: every key is found again, and no query runs for ever."""
    healthy = healthy_of(variant)
    path, config = raw_store.index_files(healthy.config)[which], healthy.config
    good = path.read_bytes()
    slots_end = 40 + 4 * config.index_slots
    unit = good[slots_end + 20 : slots_end + 40]
    source = random.Random(kind)
    path.write_bytes(
        {
            "garbage": source.randbytes(len(good)),
            "zeros": bytes(len(good)),
            "count too large": good[:36] + pack(">i", 0x7FFFFFFF) + good[40:],
            "chains that loop": good[: slots_end + 20] + unit[:16] + pack(">i", 1) + good[slots_end + 40 :],
            "slots of garbage": good[:40] + source.randbytes(4 * config.index_slots) + good[slots_end:],
            "no slots": good[:40] + bytes(4 * config.index_slots) + good[slots_end:],
            "short": good[:1000],
            "empty": b"",
        }[kind]
    )
    reopen_again_and_again(healthy)


# State files


@pytest.fixture
def states(work_dir: Path) -> StateFiles:
    config = work_dir / "store" / "config"
    config.mkdir(parents=True)
    topic = {"order": False, "perm": 6, "readQueueNums": 4, "topicName": "A", "topicSysFlag": 0, "writeQueueNums": 4}
    table = {"dataVersion": {"counter": 1, "timestamp": 2}, "topicConfigTable": {"A": topic}}
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_text(json.dumps(table))
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).write_text('{"offsetTable":{"A@group":{0:12,1:9}}}')
    return StateFiles(work_dir / "store")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", bytes(300)])
def test_an_unreadable_state_file_is_taken_from_its_backup(states: StateFiles, content: bytes) -> None:
    """Goal: the .bak is there for this; saving then does not put the damaged file in its place."""
    good = states.topics.load()
    states.topics.path.write_bytes(content)
    again = StateFiles(states.topics.path.parent.parent).topics
    assert again.load() == good
    again.save(good)
    assert StateFiles(states.topics.path.parent.parent).topics.load() == good
    again.path.write_bytes(content)
    assert StateFiles(states.topics.path.parent.parent).topics.load() == good, "the backup was spoilt by the save"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", bytes(300)])
def test_a_state_file_and_backup_both_unreadable_are_a_clear_error_and_stay(states: StateFiles, content: bytes) -> None:
    """Goal: refuse naming the file; save nothing that was not loaded, least of all the other tables."""
    for path in (states.topics.path, states.topics.backup):
        path.write_bytes(content)
    with pytest.raises(DamagedStateError, match=r"topics\.json"):
        states.topics.load()
    with pytest.raises(StoreError, match=r"topics\.json"):
        states.topics.save(type(StateFiles(states.topics.path.parent.parent / "other").topics.load())())
    offsets = states.consumer_offsets.path.read_bytes()
    with pytest.raises(StoreError, match="not loaded"):
        states.consumer_offsets.save(type(StateFiles(states.topics.path.parent / "none").consumer_offsets.load())())
    assert states.consumer_offsets.path.read_bytes() == offsets
    assert states.topics.path.read_bytes() == content


# Two owners


HOLD = """
import sys
from pathlib import Path
from rocketq.store import Store
from tests.adversity.stores import small_config, fill
store = Store.open(small_config(Path(sys.argv[1])))
fill(store, 0, 20)
print("open", flush=True)
sys.stdin.readline()
store.close()
"""


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_two_processes_on_one_directory_get_a_clear_error(work_dir: Path, end: str) -> None:
    """Goal: the second is refused by name of the directory and harms nothing; when the first is gone, it may."""
    config = small_config(work_dir / "store")
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(config.root)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        before = sorted(path.read_bytes() for path in raw_store.log_files(config))
        with pytest.raises(StoreLockedError, match=str(config.root)):
            Store.open(config)
        assert sorted(path.read_bytes() for path in raw_store.log_files(config)) == before
        assert (config.root / "abort").exists()
        if end == "killed":
            first.send_signal(signal.SIGKILL)
        else:
            first.stdin.write("\n")
            first.stdin.flush()
        first.wait(timeout=30)
    with Store.open(config) as store:
        assert len(raw_store.walk(config)) == sum(store.max_offset(q.topic, q.queue_id) for q in store.queues)


def test_two_stores_in_one_process_on_one_directory_get_a_clear_error(work_dir: Path) -> None:
    """Goal: the lock of the operating system is one per process, but two stores would tear each other's files all the
    same; and the refused one must not take the first one's lock away."""
    config = small_config(work_dir / "store")
    with Store.open(config) as store:
        fill(store, 0, 5)
        with pytest.raises(StoreLockedError):
            Store.open(config)
        ran = subprocess.run(
            [sys.executable, "-c", HOLD, str(config.root)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert "StoreLockedError" in ran.stderr, "the lock was lost"
        fill(store, 5, 5)
    Store.open(config).close()


# Disks that fail


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


# Messages that cannot be


@pytest.fixture
def store(work_dir: Path) -> Iterator[Store]:
    """Open, with something in it; whatever a test does, it must end with everything in place."""
    config = small_config(work_dir / "store")
    with Store.open(config, services=False) as opened:
        fill(opened, 0, 20)
        yield opened
        result = opened.append(message(7777, topic="Orders", queue_id=0))
        assert result.status is AppendStatus.OK
        records = raw_store.walk(config)
        verify(opened, records)
    with Store.open(config) as again:
        verify(again, records)


def _refused(store: Store, new: NewMessage, *, as_batch: bool = False) -> AppendStatus:
    """An append that must be refused with a reason and leave no trace."""
    end, queues = store.log_end, len(store.queues)
    result = store.append_batch(new) if as_batch else store.append(new)
    assert not result.status.stored, f"{new.topic!r} {new.queue_id} was stored"
    assert result.reason
    assert (store.log_end, len(store.queues)) == (end, queues)
    return result.status


BAD_TOPICS = ["", " ", "a b", "a/b", "..", ".", "../x", "a\0b", "é", "中", "t" * 128, "a\nb", "a.b", "%2f/"]


@pytest.mark.parametrize("topic", BAD_TOPICS)
@pytest.mark.parametrize("as_batch", [False, True], ids=["single", "batch"])
def test_a_topic_that_cannot_be_a_name_is_refused(store: Store, topic: str, as_batch: bool) -> None:
    """Goal: no file outside the directory, no name that others cannot read."""
    new = message(1, topic="T", queue_id=0)
    bad = replace(batch(1, 3, topic="T", queue_id=0) if as_batch else new, topic=topic)
    assert _refused(store, bad, as_batch=as_batch) is AppendStatus.MESSAGE_ILLEGAL
    assert sorted(path.name for path in store.config.root.parent.iterdir()) == [store.config.root.name]


@pytest.mark.parametrize("queue_id", [-1, -(1 << 31), 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 70])
@pytest.mark.parametrize("as_batch", [False, True], ids=["single", "batch"])
def test_a_queue_id_out_of_bounds_is_refused(store: Store, queue_id: int, as_batch: bool) -> None:
    """Goal: one bad number makes no directory."""
    new = batch(1, 3, topic="T", queue_id=0) if as_batch else message(1, topic="T", queue_id=0)
    assert _refused(store, replace(new, queue_id=queue_id), as_batch=as_batch) is AppendStatus.MESSAGE_ILLEGAL


def test_sizes_beyond_the_limits_are_refused(store: Store) -> None:
    """Goal: a body of the largest size is taken, one more is not; the same for properties and topic."""
    limit = store.config.message_bytes_max
    new = message(1, topic="Orders", queue_id=0)
    assert store.append(replace(new, body=bytes(limit))).status is AppendStatus.OK
    assert _refused(store, replace(new, body=bytes(limit + 1))) is AppendStatus.MESSAGE_ILLEGAL
    assert store.append(replace(new, properties=b"k\x01" + b"v" * 32765)).status is AppendStatus.OK
    too_long = replace(new, properties=b"k\x01" + b"v" * 32766)
    assert _refused(store, too_long) is AppendStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.append(replace(new, topic="t" * 127)).status is AppendStatus.OK
    assert store.append(replace(new, body=b"")).status is AppendStatus.OK


def test_a_message_that_no_log_file_can_hold_is_refused(work_dir: Path) -> None:
    """Goal: not an endless row of new files."""
    config = small_config(work_dir / "store", segment_bytes=8192, message_bytes_max=8191)
    with Store.open(config, services=False) as store:
        new = message(1, topic="T", queue_id=0)
        assert _refused(store, replace(new, body=bytes(8100))) is AppendStatus.MESSAGE_ILLEGAL
        assert _refused(store, replace(new, properties=b"k\x01" + b"v" * 9000)) is AppendStatus.MESSAGE_ILLEGAL
        packed = batch(1, 40, topic="T", queue_id=0)
        assert _refused(store, packed, as_batch=True) is AppendStatus.MESSAGE_ILLEGAL
        assert len(raw_store.log_files(config)) == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"flag": 1 << 31},
        {"flag": -(1 << 31) - 1},
        {"sys_flag": 1 << 40},
        {"born_ms": 1 << 63},
        {"reconsume_times": 1 << 31},
        {"prepared_offset": -(1 << 63) - 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("as_batch", [False, True], ids=["single", "batch"])
def test_numbers_that_do_not_fit_their_fields_are_refused(store: Store, odd: dict[str, int], as_batch: bool) -> None:
    """Goal: never a record with half a number in it, and never an exception that escapes as something else than a
    refusal; the next append is as good as any."""
    new = batch(1, 3, topic="Orders", queue_id=0) if as_batch else message(1, topic="Orders", queue_id=0)
    if as_batch and ("flag" in odd or "prepared_offset" in odd):
        pytest.skip("a batch takes these from its inner messages")
    assert _refused(store, replace(new, **odd), as_batch=as_batch) is AppendStatus.MESSAGE_ILLEGAL  # type: ignore[arg-type]


GOOD_BATCH = batch(1, 3, topic="Orders", queue_id=0)


def test_a_batch_cut_at_any_byte_is_refused(store: Store) -> None:
    """Goal: only whole messages are unpacked; nothing of a bad batch is stored."""
    ends = {0}
    while len(ends) < 4:
        ends.add(max(ends) + int.from_bytes(GOOD_BATCH.body[max(ends) : max(ends) + 4], "big"))
    for size in set(range(len(GOOD_BATCH.body))) - ends | {0}:
        _refused(store, replace(GOOD_BATCH, body=GOOD_BATCH.body[:size]), as_batch=True)


@pytest.mark.parametrize("value", [-1, 0, 1, 21, 0x7FFFFFFF, -(1 << 31)])
@pytest.mark.parametrize("at", [0, 16], ids=["total size", "body length"])
def test_a_batch_with_a_wrong_length_is_refused(store: Store, at: int, value: int) -> None:
    """Goal: lengths are checked against each other and against the payload before anything is used."""
    body = GOOD_BATCH.body[:at] + pack(">i", value) + GOOD_BATCH.body[at + 4 :]
    assert _refused(store, replace(GOOD_BATCH, body=body), as_batch=True) is AppendStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_of_garbage_is_refused(store: Store, seed: int) -> None:
    """Goal: any bytes at all."""
    source = random.Random(seed)
    for _ in range(50):
        garbage = bytearray(GOOD_BATCH.body if source.random() < 0.5 else source.randbytes(source.randrange(400)))
        for _ in range(source.randrange(1, 5)):
            if garbage:
                garbage[source.randrange(min(len(garbage), 24))] = source.randrange(256)
        result = store.append_batch(replace(GOOD_BATCH, body=bytes(garbage)))
        assert result.status in (AppendStatus.OK, AppendStatus.MESSAGE_ILLEGAL)


def test_a_batch_that_cannot_be_is_refused(store: Store) -> None:
    """Goal: transactions, NULs and properties that grow too long when merged."""
    prepared = replace(GOOD_BATCH, sys_flag=SysFlag.TRANSACTION_PREPARED)
    assert _refused(store, prepared, as_batch=True) is AppendStatus.MESSAGE_ILLEGAL
    grown = replace(GOOD_BATCH, properties=b"k\x01" + b"v" * 32760)
    _refused(store, grown, as_batch=True)
    torn = replace(GOOD_BATCH, body=GOOD_BATCH.body.replace(b"UNIQ_KEY\x01", b"UNIQ_KEY\x00"))
    assert _refused(store, torn, as_batch=True) is AppendStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    "properties", [b"\x02\x02\x02", b"\x01", b"noseparator", b"\xff\xfe\x01\x80", b"KEYS\x01" + b" " * 50]
)
def test_odd_properties_are_stored_as_they_are(store: Store, properties: bytes) -> None:
    """Goal: the store does not judge what it does not need."""
    result = store.append(replace(message(1, topic="Orders", queue_id=0), properties=properties))
    assert result.status is AppendStatus.OK
    record = store.message_at(result.log_offset)
    assert record is not None
    assert record.properties == properties


# Questions that cannot be


def test_odd_questions_get_plain_answers(store: Store) -> None:
    """Goal: no offset, id, key or time makes a read fail or run for ever."""
    high = store.max_offset("Orders", 0)
    for queue_offset in (-1, -(1 << 62), high + 1, 1 << 62):
        result = store.read("Orders", 0, queue_offset)
        assert result.status in (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY)
        assert 0 <= result.next_offset <= high
    for topic, queue_id in (("Nobody", 0), ("Orders", 99), ("Orders", -1), ("../Orders", 0), ("", 0)):
        assert store.read(topic, queue_id, 0).status is ReadStatus.NO_MATCHED_QUEUE
    for log_offset in (-1, 1, store.log_end - 1, store.log_end, 1 << 62, -(1 << 62)):
        assert store.message_at(log_offset) is None
    for text in ("", "xyz", "0" * 31, "FF" * 16, "FF" * 28):
        try:
            assert store.message_by_id(text) is None
        except ValueError:
            continue
    for key in ("", " ", "nobody", "\0", "é" * 5000, "😀"):
        assert store.query("Orders", key).records == ()
    assert store.query("Orders", "key-0-0", count_max=0).records == ()
    assert store.query("Orders", "key-0-0", begin_ms=10, end_ms=5).records == ()
    for time_ms in (-(1 << 62), 0, 1 << 62):
        assert 0 <= store.offset_by_time("Orders", 0, time_ms) <= high


def test_reads_with_odd_limits_make_progress(store: Store) -> None:
    """Goal: a reader that asks for nothing, or for too much, neither hangs nor skips."""
    for count_max in (1, 10_000_000):
        result = store.read("Orders", 0, 0, count_max=count_max)
        assert result.status is ReadStatus.FOUND
        assert result.next_offset >= 1
    for bytes_max in (0, 1, 1 << 40):
        result = store.read("Orders", 0, 0, bytes_max=bytes_max)
        assert result.status is ReadStatus.FOUND, "one message comes whatever its size"
