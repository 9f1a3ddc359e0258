"""When files go: age, hour, disk; what never goes; how a full disk refuses."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendStatus, ReadStatus, Store
from rocketq.store.commit_log import LogRange
from rocketq.store.disk import DiskUsage
from rocketq.store.upkeep import FILES_PER_PASS_MAX, expired, judge_disk

from .kit import SEGMENT, StagedDisk, fill, message, open_store, small_config

HOUR_MS = 3_600_000
AT_NOON_MS = int(datetime(2024, 5, 6, 12, 0).timestamp() * 1000)
AT_FOUR_MS = int(datetime(2024, 5, 7, 4, 30).timestamp() * 1000)
ROOMY, FILLING, FULLER, FULL = (DiskUsage(1000, used, 1000 - used) for used in (100, 800, 860, 950))


@pytest.mark.parametrize(
    ("ratio", "refuses", "clean_now", "above"),
    [(0.5, False, False, False), (0.75, False, False, False), (0.76, False, False, True), (0.85, False, False, True),
     (0.86, False, True, True), (0.90, False, True, True), (0.91, True, True, True), (1.0, True, True, True)],
)  # fmt: skip
def test_disk_is_judged_by_three_levels(ratio: float, refuses: bool, clean_now: bool, above: bool) -> None:
    """Goal: above 75 % expired files go at any hour, above 85 % files go before their time, above 90 % writes end."""
    state = judge_disk(small_config(Path("r")), {"a": ratio})
    assert (state.refuse is not None, state.clean_now, state.above_limit) == (refuses, clean_now, above)


def test_fullest_file_system_counts() -> None:
    """Goal: a roomy second partition does not clear what the first calls for (a trap of 4.7.1)."""
    state = judge_disk(small_config(Path("r")), {"log": 0.95, "queues": 0.10})
    assert state.refuse == "the disk of log is 95.0% full, writes are refused above 90%"
    assert state.used_ratio == 0.95
    assert judge_disk(small_config(Path("r")), {"log": 0.10, "queues": 0.95}).refuse is not None


@pytest.mark.parametrize(("percent", "above"), [(5, True), (10, True), (99, False)])
def test_limit_is_kept_between_ten_and_ninety_five(percent: int, above: bool) -> None:
    """Goal: a silly diskMaxUsedSpaceRatio is clamped as Apache clamps it."""
    assert judge_disk(small_config(Path("r"), disk_used_percent_max=percent), {"a": 0.5}).above_limit is above


def test_file_expires_after_its_hours_to_the_millisecond() -> None:
    """Goal: kept at least fileReservedTime after it was last written."""
    config = small_config(Path("r"), reserved_hours=72)
    assert expired(config, 0, 72 * HOUR_MS)
    assert not expired(config, 0, 72 * HOUR_MS - 1)


def aged_store(
    root: Path, segments: int = 4, *, now_ms: int = AT_NOON_MS, usage: DiskUsage = ROOMY, **given: object
) -> Store:
    """A flushed store of several segments, all of them last written 100 hours ago."""
    disk = StagedDisk()
    disk.usage_now = usage
    store = open_store(root, clock=ManualClock(now_ms), disk=disk, **given)
    while len(store.log.files) < segments:
        store.append(message(b"x" * 1_000, KEYS="k"))
    store.save_recovery_point()
    age(store, 100)
    store.retention.pause = lambda seconds: None
    return store


def age(store: Store, hours: int) -> None:
    then = store.clock.now_ms() / 1000 - hours * 3600
    for start in store.log.files:
        os.utime(store.log.files.path_of(start), (then, then))


def clean(store: Store) -> list[LogRange]:
    """What the cleaning service does on its turn."""
    return store.retention.run_once(store.clock.now_ms(), store.upkeep.check_disk())


def test_expired_files_go_at_the_quiet_hour_only(tmp_path: Path) -> None:
    """Goal: at noon nothing happens, at four in the morning all but the active file go."""
    store = aged_store(tmp_path)
    assert clean(store) == []
    store.clock.advance(AT_FOUR_MS - AT_NOON_MS)  # type: ignore[attr-defined]
    assert clean(store) == [LogRange(n * SEGMENT, (n + 1) * SEGMENT) for n in range(3)]
    assert (store.log_start, len(store.log.files)) == (3 * SEGMENT, 1)
    assert clean(store) == []
    store.close()


def test_young_files_stay_at_the_quiet_hour(tmp_path: Path) -> None:
    """Goal: the oldest that has not expired ends the pass, whatever lies behind it."""
    store = aged_store(tmp_path, now_ms=AT_FOUR_MS)
    young = store.log.files.path_of(SEGMENT)
    recent = store.clock.now_ms() / 1000 - 71 * 3600
    os.utime(young, (recent, recent))
    assert clean(store) == [LogRange(0, SEGMENT)]
    assert young.exists()
    store.close()


def test_filling_disk_deletes_expired_files_at_any_hour(tmp_path: Path) -> None:
    """Goal: above diskMaxUsedSpaceRatio the hour does not matter, the age still does."""
    store = aged_store(tmp_path, usage=FILLING)
    assert len(clean(store)) == 3
    store.close()
    young = aged_store(tmp_path / "young", usage=FILLING)
    age(young, 1)
    assert clean(young) == []
    young.close()


def test_nearly_full_disk_deletes_files_before_their_time(tmp_path: Path) -> None:
    """Goal: above the force level age does not matter, unless cleanFileForciblyEnable is off."""
    store = aged_store(tmp_path, usage=FULLER)
    age(store, 0)
    assert len(clean(store)) == 3
    store.close()
    kept = aged_store(tmp_path / "kept", usage=FULLER, force_clean_enabled=False)
    age(kept, 0)
    assert clean(kept) == []
    kept.close()


def test_request_deletes_expired_files_now(tmp_path: Path) -> None:
    """Goal: an operator need not wait for the hour."""
    store = aged_store(tmp_path)
    assert len(store.clean()) == 3
    store.close()


def test_one_pass_deletes_ten_files_at_most_with_a_pause_between(tmp_path: Path) -> None:
    """Goal: deletion does not take the disk away from writers."""
    store = aged_store(tmp_path, segments=14, now_ms=AT_FOUR_MS)
    pauses: list[float] = []
    store.retention.pause = pauses.append
    assert len(clean(store)) == FILES_PER_PASS_MAX == 10
    assert pauses == [0.1] * 9
    assert len(clean(store)) == 3
    store.close()


def test_active_file_is_never_deleted(tmp_path: Path) -> None:
    """Goal: however old and however full, the log has a file to write to."""
    store = aged_store(tmp_path, segments=1, usage=FULL, now_ms=AT_FOUR_MS)
    assert clean(store) == []
    with pytest.raises(ValueError, match="never deleted"):
        store.log.delete_first()


def test_what_others_need_is_kept(tmp_path: Path) -> None:
    """Goal: nothing at or behind `keep_from` goes, not even by force."""
    store = aged_store(tmp_path, usage=FULLER)
    store.retention.keep_from(lambda: 2 * SEGMENT - 1)
    assert clean(store) == [LogRange(0, SEGMENT)]
    store.retention.keep_from(lambda: 2 * SEGMENT)
    assert clean(store) == [LogRange(SEGMENT, 2 * SEGMENT)]
    store.retention.keep_from(lambda: None)
    assert clean(store) == [LogRange(2 * SEGMENT, 3 * SEGMENT)]
    store.close()


def test_queues_and_index_follow_the_log(tmp_path: Path) -> None:
    """Goal: the minimum moves to the first message that exists, files of the others go, and keys of them are gone."""
    store = aged_store(tmp_path, now_ms=AT_FOUR_MS, index_units=10, queue_file_bytes=200)
    total = store.max_offset("T", 0)
    queue_files, index_files = len(store.queues.of_topic("T")[0].files), len(store.index.files)
    clean(store)
    first = store.min_offset("T", 0)
    assert 0 < first < total
    assert store.read("T", 0, first - 1).status is ReadStatus.OFFSET_TOO_SMALL
    assert store.read("T", 0, first).status is ReadStatus.FOUND
    unit = store.queues.of_topic("T")[0].unit(first)
    assert unit is not None
    assert unit[0] >= 3 * SEGMENT
    assert len(store.queues.of_topic("T")[0].files) < queue_files
    assert len(store.index.files) < index_files
    assert all(record.log_offset >= 3 * SEGMENT for record in store.query("T", "k", count_max=64).records)
    store.close()
    again = open_store(tmp_path, index_units=10, queue_file_bytes=200)
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (first, total)
    again.close()


def test_queue_whose_messages_are_all_gone_is_empty_at_its_end(tmp_path: Path) -> None:
    """Goal: minimum equals maximum, its offsets are not given out again, also after a restart."""
    store = open_store(tmp_path, clock=ManualClock(AT_FOUR_MS), disk=StagedDisk())
    fill(store, 3, topic="Old")
    while len(store.log.files) < 3:
        store.append(message(b"x" * 1_000))
    store.flush()
    age(store, 100)
    store.retention.pause = lambda seconds: None
    clean(store)
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (3, 3)
    assert store.read("Old", 0, 0).next_offset == 3
    store.close()
    again = open_store(tmp_path)
    assert (again.min_offset("Old", 0), again.max_offset("Old", 0)) == (3, 3)
    assert again.append(message(topic="Old")).queue_offset == 3
    again.close()


def test_reader_that_holds_a_deleted_segment_is_not_disturbed(tmp_path: Path) -> None:
    """Goal: deleting is unlinking; memory goes with the last reader."""
    store = aged_store(tmp_path, now_ms=AT_FOUR_MS)
    segment = store.log.segment(0)
    before = segment.bytes_at(0, 1000)
    clean(store)
    assert not store.log.files.path_of(0).exists()
    assert segment.bytes_at(0, 1000) == before
    assert store.message_at(0) is None
    store.close()


def test_full_disk_refuses_messages_with_the_reason_until_there_is_room(tmp_path: Path) -> None:
    """Goal: the refusal names directory and level; reading goes on; room again means writing again."""
    disk, clock = StagedDisk(), ManualClock(AT_NOON_MS)
    store = open_store(tmp_path, disk=disk, clock=clock)
    fill(store, 2)
    disk.usage_now = FULL
    store.upkeep_step()
    clock.advance(10_000)
    store.upkeep_step()
    refused = store.append(message())
    assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert refused.reason == store.refusal
    assert "95.0% full" in refused.reason
    assert str(tmp_path) in refused.reason
    assert store.read("T", 0, 0).count == 2
    disk.usage_now = ROOMY
    clock.advance(10_000)
    store.upkeep_step()
    assert store.append(message()).status is AppendStatus.OK
    store.close()


def test_log_on_a_partition_of_its_own_is_measured_too(tmp_path: Path) -> None:
    """Goal: both the log's and the root's file system count."""
    measured: list[Path] = []

    class Measured(StagedDisk):
        def usage(self, path: Path) -> DiskUsage:
            measured.append(path)
            return ROOMY

    store = open_store(tmp_path / "root", disk=Measured(), commit_log_dir=tmp_path / "log")
    assert set(measured) == {tmp_path / "root", tmp_path / "log"}
    assert (tmp_path / "log" / ("0" * 20)).exists()
    store.close()
