"""`archive`: topics or store files into Parquet directories topic=/dt=; each message once, also after crashes.

Executors write the files themselves; Spark carries ranges to them and names of files back. A run ends with one commit
to the archive's manifest (rocketq.spark.archive): before it nothing of the run counts, after it everything does.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketq.spark.archive.coverage import Coverage
from rocketq.spark.archive.folder import ArchivedFile, ArchiveFolder, ArchiveState, Change
from rocketq.spark.archive.plan import SLICE_ROWS_MAX, ArchivePlan, lost_coverage, plan_archive
from rocketq.spark.commitlog_files import RANGE_BYTES, find_log_files, plan_ranges
from rocketq.spark.errors import DataLossError, SparkError, plainly
from rocketq.spark.options import SourceOptions, parse_source
from rocketq.spark.pipelines.archive_work import merge_files, write_range, write_slice
from rocketq.spark.pipelines.tasks import Progress, Tell, run_tasks
from rocketq.spark.planner import describe_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_FILE_BYTES: Final = 32 << 20
FILE_BYTES: Final = 256 << 20
CROWD: Final = 16
"""From this many small files on, a day is compacted: fewer cost readers less than rewriting them in each run."""
_DAMAGE_SHOWN_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary:
    """What a run did. `commit` is its number in the manifest, 0 when there was nothing to do."""

    target: str
    commit: int = 0
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    files_replaced: int = 0
    lost: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    seconds: float = 0.0


@plainly
def archive(
    spark: SparkSession,
    options: Mapping[str, str],
    target: Path | str,
    *,
    properties: bool = True,
    compaction: bool = True,
    rows_per_task_max: int = SLICE_ROWS_MAX,
    progress: Progress | None = None,
) -> ArchiveSummary:
    """Add the messages that brokers have and the archive does not. Meant to be run repeatedly.

    `options` are those of format("rocketmq"): nameServer, subscribe or subscribePattern, credentials, ... Starting
    positions count for queues that the archive does not know yet, ending ones for all. Offsets that have aged out
    since the last run are DataLossError, or with failOnDataLoss=false noted as lost. `properties` keeps the map of all
    properties (a replay needs it). `progress` is called with rows.
    """
    parsed = parse_source(options, streaming=False)
    started, folder = time.monotonic(), ArchiveFolder(target)
    with folder.locked():
        state = folder.load()
        plan = _plan(parsed, state, rows_per_task_max)
        if plan.lost and parsed.fail_on_data_loss:
            hint = "option failOnDataLoss=false archives the rest"
            raise DataLossError(f"messages no longer exist: {describe_ranges(list(plan.lost))}; {hint}")
        job = _Job(folder, state, "topics")
        job.run(spark, plan.slices, partial(write_slice, options=parsed, properties=properties), plan.rows, progress)
        job.lost = lost_coverage(plan.lost)
        after = job.finish()
        summary = job.summary(started, lost=tuple(map(str, plan.lost)))
        return _with_compaction(spark, folder, after, summary, started) if compaction else summary


@plainly
def archive_store(
    spark: SparkSession,
    paths: Sequence[str] | str,
    target: Path | str,
    *,
    broker_name: str,
    topics: Collection[str] | None = None,
    topic_pattern: str | None = None,
    properties: bool = True,
    fail_fast: bool = False,
    range_bytes: int = RANGE_BYTES,
    compaction: bool = True,
    progress: Progress | None = None,
) -> ArchiveSummary:
    """Fill the archive from store directories of a broker (see format("rocketmq_commitlog")), without a broker.

    Archived messages are skipped, so a topic may be archived from both, in any order. Without `topics` and
    `topic_pattern` all topics except system topics are archived. `progress` is called with bytes of the log.
    """
    if topics is not None and topic_pattern is not None:
        raise SparkError("topics and topic_pattern exclude each other")
    pattern = None if topic_pattern is None else re.compile(topic_pattern)
    started, folder = time.monotonic(), ArchiveFolder(target)
    files = find_log_files([paths] if isinstance(paths, str) else list(paths))
    ranges = plan_ranges(files, range_bytes=range_bytes)
    with folder.locked():
        state = folder.load()
        job = _Job(folder, state, "store")
        work = partial(
            write_range,
            broker_name=broker_name,
            archived=state.archived,
            topics=None if topics is None else frozenset(topics),
            pattern=pattern,
            properties=properties,
            fail_fast=fail_fast,
        )
        job.run(spark, ranges, work, sum(part.end - part.start for part in ranges), progress)
        after = job.finish()
        summary = job.summary(started)
        return _with_compaction(spark, folder, after, summary, started) if compaction else summary


@plainly
def compact(
    spark: SparkSession,
    target: Path | str,
    *,
    small_bytes: int = SMALL_FILE_BYTES,
    file_bytes: int = FILE_BYTES,
    progress: Progress | None = None,
) -> ArchiveSummary:
    """Replace small files of a topic and day by few large ones. Readers by the manifest see the old or the new."""
    started, folder = time.monotonic(), ArchiveFolder(target)
    with folder.locked():
        state = folder.load()
        return _compact(spark, folder, state, small_bytes, file_bytes, progress, started)


@plainly
def read_archive(
    spark: SparkSession,
    target: Path | str,
    *,
    topics: Collection[str] | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> DataFrame:
    """The archive as a DataFrame with the source's columns and `dt`: the files of its last commit and no others."""
    from rocketq.spark.pipelines.archive_work import frame_of  # noqa: PLC0415 - needs Spark's types

    return frame_of(spark, target, topics, from_ms, to_ms)


def _plan(options: SourceOptions, state: ArchiveState, rows_max: int) -> ArchivePlan:
    from rocketq.spark.catalog import Catalog  # noqa: PLC0415
    from rocketq.spark.planner import ending_offsets, require_named_queues, starting_offsets  # noqa: PLC0415

    catalog = Catalog(options.connection, options.fetching)
    try:
        queues = catalog.queues(options.subscription)
        require_named_queues(options, queues)
        bounds = catalog.bounds(queues)
        start = starting_offsets(options, queues, bounds, catalog)
        end = ending_offsets(options, queues, bounds, catalog)
    finally:
        catalog.close()
    bounded = {queue: min(end[queue], bounds.get(queue, (0, 0))[1]) for queue in end}
    return plan_archive(state, start, bounded, bounds, rows_max=options.slice_rows_max or rows_max)


class _Job:
    """One run: its tasks' results, then its commit."""

    def __init__(self, folder: ArchiveFolder, state: ArchiveState, kind: str) -> None:
        self._folder, self._state, self._kind = folder, state, kind
        self._run = folder.begin()
        self._added: list[ArchivedFile] = []
        self._archived = Coverage({})
        self.lost = Coverage({})
        self.removed: tuple[str, ...] = ()
        self._damage: list[str] = []
        self._after = state

    def run(
        self,
        spark: SparkSession,
        tasks: Sequence[Any],
        work: Callable[..., str],
        total: int,
        progress: Progress | None,
    ) -> None:
        staging = self._folder.staging(self._run)
        bound = partial(_named, work, staging)
        try:
            results = run_tasks(spark, tasks, bound, total=total, progress=progress, folder=staging / "progress")
            for each in map(json.loads, results):
                self._take(each)
        except BaseException:
            self._folder.drop(self._run)
            raise

    def _take(self, result: Mapping[str, Any]) -> None:
        self._added += [ArchivedFile(**each) for each in result["files"]]
        self._damage += result.get("damage", [])
        fresh = Coverage.from_tree(result.get("archived", {}))
        self.lost = self.lost.plus(Coverage.from_tree(result.get("lost", {})))
        twice = self._archived.first_common(fresh)
        if twice is not None or result.get("repeated"):
            where = f"{twice[0]}: offset {twice[1][0]}" if twice else str(result["repeated"])
            raise SparkError(f"{where} is in the log twice: was the topic deleted and made again? Leave it out")
        self._archived = self._archived.plus(fresh)

    def finish(self) -> ArchiveState:
        """The commit, if there is anything to be committed."""
        change = Change(
            kind=self._kind,
            added=tuple(self._added),
            removed=self.removed,
            archived=self._archived,
            lost=self.lost,
        )
        if change.is_empty:
            self._folder.drop(self._run)
        else:
            self._after = self._folder.commit(self._state, change, self._run, int(time.time() * 1000))
        return self._after

    def summary(self, started: float, *, lost: tuple[str, ...] = ()) -> ArchiveSummary:
        return ArchiveSummary(
            target=str(self._folder.target),
            commit=self._after.number if self._after is not self._state else 0,
            rows=sum(file.rows for file in self._added),
            files=len(self._added),
            size_bytes=sum(file.size_bytes for file in self._added),
            files_replaced=len(self.removed),
            lost=lost,
            damage=tuple(self._damage[:_DAMAGE_SHOWN_MAX]),
            seconds=time.monotonic() - started,
        )


def _named(work: Callable[..., str], staging: Path, number: int, task: object, tell: Tell) -> str:
    """Each attempt of a task has unique names, so files of a failed attempt are never used."""
    return work(task, staging, f"part-{staging.name}-{number:05d}-{uuid.uuid4().hex[:8]}", tell)


def _with_compaction(
    spark: SparkSession, folder: ArchiveFolder, state: ArchiveState, summary: ArchiveSummary, started: float
) -> ArchiveSummary:
    """After a run: compact days that have many small files."""
    if summary.commit == 0:
        return summary
    done = _compact(spark, folder, state, SMALL_FILE_BYTES, FILE_BYTES, None, started, group_min=CROWD)
    if done.commit == 0:
        return summary
    return replace(summary, commit=done.commit, files_replaced=done.files_replaced, seconds=done.seconds)


def _compact(
    spark: SparkSession,
    folder: ArchiveFolder,
    state: ArchiveState,
    small_bytes: int,
    file_bytes: int,
    progress: Progress | None,
    started: float,
    *,
    group_min: int = 2,
) -> ArchiveSummary:
    groups = small_file_groups(state, small_bytes, file_bytes, group_min)
    if not groups:
        return ArchiveSummary(target=str(folder.target))
    job = _Job(folder, state, "compact")
    total = sum(file.rows for group in groups for file in group)
    job.run(spark, groups, partial(merge_files, target=folder.target), total, progress)
    job.removed = tuple(file.path for group in groups for file in group)
    job.finish()
    return job.summary(started)


def small_file_groups(
    state: ArchiveState, small_bytes: int, file_bytes: int, group_min: int = 2
) -> list[tuple[ArchivedFile, ...]]:
    """Small files to become one: of one topic and day, oldest first, up to the size of a large file."""
    by_day: dict[tuple[str, str], list[ArchivedFile]] = {}
    for file in sorted(state.files.values(), key=lambda file: (file.first_ms, file.path)):
        if file.size_bytes < small_bytes:
            by_day.setdefault((file.topic, file.date), []).append(file)
    groups: list[tuple[ArchivedFile, ...]] = []
    for own in by_day.values():
        if len(own) < group_min:
            continue
        pack: list[ArchivedFile] = []
        for file in own:
            if pack and sum(each.size_bytes for each in pack) + file.size_bytes > file_bytes:
                groups.append(tuple(pack))
                pack = []
            pack.append(file)
        groups.append(tuple(pack))
    return [group for group in groups if len(group) > 1]
