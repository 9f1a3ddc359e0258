"""The manifest: whoever dies when, every message is in the archive once or not at all."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed (it comes with rocketq[spark])")

import pyarrow.parquet as pq
from tests.unit.spark.archive_writing import add, small_files, stage
from tests.unit.spark.log_writing import record

from rocketq.spark.archive.folder import STAGING, ArchiveFolder, Change, escaped
from rocketq.spark.archive.lookup import Archive
from rocketq.spark.errors import SparkError

KILLED = 9


def parquet_rows(target: Path) -> list[tuple[int, int]]:
    """(queue, offset) of every file in place, as any reader of Parquet directories sees it."""
    found = []
    for path in target.glob("topic=*/dt=*/*.parquet"):
        table = pq.ParquetFile(path).read(columns=["queueId", "queueOffset"])
        found += list(zip(*table.to_pydict().values(), strict=True))
    return sorted(found)


def manifest_rows(target: Path) -> list[tuple[int, int]]:
    opened = Archive(target)
    found = []
    for topic in opened.topics:
        table = opened.by_time(topic).select(["queueId", "queueOffset"])
        found += list(zip(*table.to_pydict().values(), strict=True))
    return sorted(found)


def places(numbers: range) -> list[tuple[int, int]]:
    return sorted((n % 3, n) for n in numbers)


def test_runs_add_up_and_snapshots_shorten_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: state is the sum of all commits, however it is read."""
    monkeypatch.setattr("rocketq.spark.archive.folder.SNAPSHOT_EVERY", 3)
    for step in range(7):
        state = add(tmp_path, [record(n) for n in range(10 * step, 10 * step + 10)])
        loaded = ArchiveFolder(tmp_path).load()
        assert loaded == state
        assert (loaded.number, loaded.archived.count) == (step + 1, 10 * step + 10)
        assert manifest_rows(tmp_path) == parquet_rows(tmp_path) == places(range(10 * step + 10))
    for number in (1, 2, 4, 5):  # what a snapshot made needless may go
        (tmp_path / "_archive" / "commits" / f"{number:020d}.json").unlink()
    assert ArchiveFolder(tmp_path).load() == state


def test_offsets_that_are_there_already_are_refused(tmp_path: Path) -> None:
    add(tmp_path, [record(n) for n in range(10)])
    with pytest.raises(SparkError, match="offsets 9 to 9 are in the archive already"):
        add(tmp_path, [record(n) for n in range(9, 12)])
    assert manifest_rows(tmp_path) == places(range(10))


def killed_run(target: Path, numbers: range, dies_at: int) -> None:
    """In a process of its own: killed at the n-th step of its commit."""
    steps = iter(range(1000))

    def on_step(step: str) -> None:
        if next(steps) == dies_at:
            os.kill(os.getpid(), KILLED)

    add(target, [record(n) for n in numbers], on_step)


@pytest.mark.parametrize("dies_at", range(9))
def test_a_run_killed_at_any_step_counts_whole_or_not_at_all(tmp_path: Path, dies_at: int) -> None:
    """Goal: kill -9 between writing and committing, while committing, while moving: never half, never twice."""
    add(tmp_path, [record(n) for n in range(20)])
    context = multiprocessing.get_context("fork")
    process = context.Process(target=killed_run, args=(tmp_path, range(20, 40), dies_at))
    process.start()
    process.join(60)
    died = process.exitcode == -KILLED
    assert died or process.exitcode == 0
    after = ArchiveFolder(tmp_path).load().number
    assert manifest_rows(tmp_path) == places(range(40 if after == 2 else 20))
    if after == 1:
        assert parquet_rows(tmp_path) == places(range(20)), "nothing of it may be seen"
        add(tmp_path, [record(n) for n in range(20, 40)])
    add(tmp_path, [record(n) for n in range(40, 50)])
    assert manifest_rows(tmp_path) == parquet_rows(tmp_path) == places(range(50))
    assert list((tmp_path / STAGING).iterdir()) == []


def killed_compaction(target: Path, dies_at: int) -> None:
    steps = iter(range(1000))

    def on_step(step: str) -> None:
        if next(steps) == dies_at:
            os.kill(os.getpid(), KILLED)

    compacted(target, on_step)


def compacted(target: Path, on_step: Callable[[str], None] = lambda step: None) -> None:
    """All files of T0 become one."""
    folder = ArchiveFolder(target, on_step=on_step)
    with folder.locked():
        state = folder.load()
        old = [file for file in small_files(state) if file.topic == "T0"]
        run, change = stage(folder, [record(n) for n in range(0, 30, 2)])
        folder.commit(
            state, Change(kind="compact", added=change.added, removed=tuple(f.path for f in old)), run, now_ms=2
        )


@pytest.mark.parametrize("dies_at", range(11))
def test_a_compaction_killed_at_any_step_loses_and_repeats_nothing(tmp_path: Path, dies_at: int) -> None:
    for step in range(3):
        add(tmp_path, [record(n) for n in range(10 * step, 10 * step + 10)])
    process = multiprocessing.get_context("fork").Process(target=killed_compaction, args=(tmp_path, dies_at))
    process.start()
    process.join(60)
    assert manifest_rows(tmp_path) == places(range(30))
    with ArchiveFolder(tmp_path).locked():
        pass
    assert manifest_rows(tmp_path) == parquet_rows(tmp_path) == places(range(30))


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with (
        ArchiveFolder(tmp_path).locked(),
        pytest.raises(SparkError, match="another run is working"),
        ArchiveFolder(tmp_path).locked(),
    ):
        pass


def test_without_a_lock_only_one_of_two_commits_gets_the_number(tmp_path: Path) -> None:
    """Goal: where locks do not reach, on a network file system, the manifest still decides."""
    folder = ArchiveFolder(tmp_path)
    with folder.locked():
        before = folder.load()
        first_run, first = stage(folder, [record(n) for n in range(5)])
        second_run, second = stage(folder, [record(n) for n in range(5)])
        folder.commit(before, first, first_run, now_ms=1)
        with pytest.raises(SparkError, match="another run has changed"):
            folder.commit(before, second, second_run, now_ms=1)
    assert manifest_rows(tmp_path) == places(range(5))


def test_files_that_the_driver_does_not_see_are_an_error_before_the_commit(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    with folder.locked():
        run, change = stage(folder, [record(1)])
        (folder.staging(run) / change.added[0].path).unlink()
        with pytest.raises(SparkError, match="all nodes must share it"):
            folder.commit(folder.load(), change, run, now_ms=1)
    assert folder.load().number == 0


def test_topics_are_directories_as_spark_writes_them(tmp_path: Path) -> None:
    assert escaped("%RETRY%a=b/c") == "%25RETRY%25a%3Db%2Fc"
    add(tmp_path, [record(0, topic="%DLQ%group")])
    (file,) = tmp_path.glob("topic=*/dt=*/*.parquet")
    assert file.parent.parent.name == "topic=%25DLQ%25group"
    assert file.parent.name == "dt=1970-01-01"


def test_messages_of_two_days_lie_in_two_directories(tmp_path: Path) -> None:
    day_ms = 86_400_000
    add(tmp_path, [record(n, topic="T", store_ms=n * day_ms // 4) for n in range(8)])
    assert sorted(each.parent.name for each in tmp_path.glob("topic=T/*/*.parquet")) == [
        "dt=1970-01-01",
        "dt=1970-01-02",
    ]
    assert manifest_rows(tmp_path) == places(range(8))


def test_what_is_no_archive_or_no_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="is no archive"):
        Archive(tmp_path)
    with pytest.raises(SparkError, match="not a URL"):
        ArchiveFolder("s3://bucket/archive")
