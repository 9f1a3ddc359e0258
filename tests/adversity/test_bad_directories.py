"""Directories that are not what they seem: other sizes, stray files, broken indexes and state files, two owners."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest

from rocketq.errors import DamagedStateError, StoreError, StoreLockedError
from rocketq.store import StateFiles, Store

from . import raw_store
from .stores import OUR_VARIANTS, Healthy, fill, reopen_again_and_again, small_config, verify

HealthyOf = Callable[[str], Healthy]
REPOSITORY = Path(__file__).parents[2]
our_variants = pytest.mark.parametrize("variant", OUR_VARIANTS)


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
