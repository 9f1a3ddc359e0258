"""Settings changed while a store is open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.errors import ConfigError, StoreClosedError
from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendStatus, FlushType, ReadStatus, StoreConfig

from .kit import NOW_MS, SEGMENT, StagedDisk, bodies, fill, message, open_store

HOUR_MS = 3_600_000


def test_read_limits_count_at_once(tmp_path: Path) -> None:
    """Goal: the next read keeps to the new limit of messages, without a restart."""
    store = open_store(tmp_path)
    fill(store, 5, size=100)
    assert store.read("T", 0, 0).count == 5
    store.reconfigure(replace(store.config, memory_read_count_max=2))
    assert store.read("T", 0, 0).count == 2
    assert store.config.memory_read_count_max == 2
    store.close()


def test_the_largest_message_counts_at_once(tmp_path: Path) -> None:
    """Goal: a message that was fine before is refused after the limit went down, and fine again after it went up."""
    store = open_store(tmp_path)
    for limit, status in ((500, AppendStatus.MESSAGE_ILLEGAL), (2_000, AppendStatus.OK)):
        store.reconfigure(replace(store.config, message_bytes_max=limit))
        assert store.append(message(b"x" * 1_000)).status is status
    store.close()


def test_a_shorter_retention_deletes_at_the_next_cleaning(tmp_path: Path) -> None:
    """Goal: files that may stay for three days go once only an hour is allowed."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock)
    fill(store, 40)
    store.flush()
    clock.advance(int(store.log.files.path_of(0).stat().st_mtime * 1000) - clock.now_ms() + 2 * HOUR_MS)
    assert store.clean() == []
    store.reconfigure(replace(store.config, reserved_hours=1))
    assert store.clean() != []
    store.close()


def test_disk_limits_refuse_and_accept_at_once(tmp_path: Path) -> None:
    """Goal: an operator who lowers or lifts the limits sees what it does with the next message."""
    store = open_store(tmp_path)
    before = store.config
    store.reconfigure(replace(before, disk_refuse_ratio=1e-9, disk_force_clean_ratio=1e-9))
    assert store.append(message()).status is AppendStatus.SERVICE_NOT_AVAILABLE
    store.reconfigure(before)
    assert store.append(message()).status is AppendStatus.OK
    store.close()


def test_sync_flush_can_be_switched_on_and_off(tmp_path: Path) -> None:
    """Goal: what readers have seen stays visible through the switch, and appends behind it are synced when answered."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    store.append(message(b"one"))
    assert store.max_offset("T", 0) == 1
    store.reconfigure(replace(store.config, flush_type=FlushType.SYNC_FLUSH))
    assert store.max_offset("T", 0) == 1
    assert store.gate.position == store.log_end
    disk.synced.clear()
    store.append(message(b"two"))
    assert disk.synced
    assert store.gate.position == store.log_end
    store.reconfigure(replace(store.config, flush_type=FlushType.ASYNC_FLUSH))
    store.append(message(b"three"))
    assert store.gate.position < store.log_end
    assert bodies(store.read("T", 0, 0)) == [b"one", b"two", b"three"]
    store.close()


def test_the_flush_interval_of_a_running_service_changes(tmp_path: Path) -> None:
    """Goal: a store told to flush once an hour flushes within seconds after it was told otherwise."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk, flush_interval_ms=HOUR_MS)
    store.flusher.start()
    store.append(message())
    store.reconfigure(replace(store.config, flush_interval_ms=10, flush_pages_min=0))
    assert store.gate.wait(store.log_end, 30_000)
    store.close()


def test_reading_without_read_ahead_reads_the_same(tmp_path: Path) -> None:
    """Goal: old files are mapped anew; what they hold does not change, nor does the file being written."""
    store = open_store(tmp_path)
    fill(store, 40)
    for read_ahead in (False, True):
        mapped = store.log.segment(0)
        store.reconfigure(replace(store.config, read_ahead=read_ahead))
        assert store.log.segment(0) is not mapped
        assert store.read("T", 0, 0, count_max=32).status is ReadStatus.FOUND
        assert store.append(message()).status is AppendStatus.OK
    store.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"segment_bytes": 2 * SEGMENT}, "mappedFileSizeCommitLog cannot be changed"),
        ({"index_enabled": False, "reserved_hours": 1}, "messageIndexEnable cannot be changed"),
        ({"root": Path("elsewhere")}, "root cannot be changed"),
        ({"transient_buffer": True}, "transientStorePoolEnable cannot be changed"),
    ],
)
def test_what_an_open_store_cannot_change_is_refused_by_name(
    tmp_path: Path, given: dict[str, object], says: str
) -> None:
    """Goal: nothing is taken when one of the settings cannot be."""
    store = open_store(tmp_path)
    before = store.config
    with pytest.raises(ConfigError, match=says):
        store.reconfigure(replace(before, **given))  # type: ignore[arg-type]
    assert store.config is before
    store.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"flushIntervalCommitLog": "0"},
        {"maxTransferCountOnMessageInMemory": "0"},
        {"deleteWhen": "25"},
        {"diskSpaceWarningLevelRatio": "0.5"},
        {"flushDiskType": "SOMETIMES"},
        {"maxMessageSize": str(SEGMENT)},
    ],
)
def test_values_that_cannot_be_are_refused_before_they_reach_the_store(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """Goal: each is a ConfigError that names the key."""
    config = StoreConfig(root=tmp_path, segment_bytes=SEGMENT, message_bytes_max=1_000)
    (key,) = settings
    with pytest.raises(ConfigError, match=f"{key}|disk ratios"):
        config.with_java(settings)


def test_a_closed_store_cannot_be_changed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    with pytest.raises(StoreClosedError):
        store.reconfigure(store.config)
