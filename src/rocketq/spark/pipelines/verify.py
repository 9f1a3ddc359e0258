"""`verify`: every record, queue unit and index unit of a store directory, checked by parallel tasks. Nothing is
changed, and no broker is needed; the report is that of `rocketq store check`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketq.errors import RocketQError
from rocketq.spark.errors import SparkError, plainly
from rocketq.spark.pipelines.tasks import Progress, Tell, run_tasks
from rocketq.store.config import DEFAULT_DELAY_LEVELS
from rocketq.store.verify import VerifyReport
from rocketq.store.verify_parts import (
    LogTask,
    PartReport,
    PartVerifier,
    QueueName,
    QueueSeen,
    SumVerifier,
    VerifyPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_BYTES: Final = 256 << 20
QUEUE_TASKS_MAX: Final = 64


@plainly
def verify(
    spark: SparkSession,
    root: Path | str,
    *,
    log_dir: Path | str | None = None,
    index_shape: tuple[int, int] | None = None,
    delay_levels: str = DEFAULT_DELAY_LEVELS,
    range_bytes: int = RANGE_BYTES,
    progress: Progress | None = None,
) -> VerifyReport:
    """Checks checksums, offsets, and that queues and index agree with the log. All nodes must be able to read `root`.

    `log_dir`, `index_shape` (slots, units) and `delay_levels` as for `rocketq store check`. `progress` gets bytes.
    """
    folder = Path(str(root).removeprefix("file://")).absolute()
    plan = VerifyPlan(
        root=folder,
        log_dir=None if log_dir is None else Path(log_dir).absolute(),
        index_shape=index_shape,
        delay_levels=delay_levels,
    )
    try:
        total = SumVerifier(plan)
    except RocketQError as error:
        raise SparkError(str(error)) from None
    return _Run(spark, replace(plan, queue_file_bytes=total.queue_file_bytes), total, progress).report(range_bytes)


class _Run:
    """Three rounds: the log, then queues and index, which must know what the log holds."""

    def __init__(self, spark: SparkSession, plan: VerifyPlan, total: SumVerifier, progress: Progress | None) -> None:
        self._spark, self._plan, self._total, self._progress = spark, plan, total, progress
        self._done_bytes = 0
        self._all_bytes = 0

    def report(self, range_bytes: int) -> VerifyReport:
        total, plan = self._total, self._plan
        log_tasks, index_files = total.log_tasks(range_bytes), total.index_files()
        log_bytes = sum(task.stop - task.start for task in log_tasks)
        index_bytes = sum(path.stat().st_size for path in index_files)
        self._all_bytes = log_bytes + index_bytes
        total.take_log(self._round(log_tasks, partial(_check_log, plan=plan), log_bytes))
        start, end, holes = total.report.log_start, total.report.log_end, total.holes
        groups = [(names, total.seen(names)) for names in total.queue_tasks(QUEUE_TASKS_MAX)]
        total.take_queues(self._round(groups, partial(_check_queues, plan=plan, log_start=start, holes=holes), 0))
        work = partial(_check_index, plan=plan, files=index_files, log_start=start, log_end=end, holes=holes)
        return total.take_index(self._round(list(range(len(index_files))), work, index_bytes))

    def _round(self, tasks: list, work: partial[PartReport], size_bytes: int) -> list[PartReport]:  # type: ignore[type-arg]
        before = self._done_bytes

        def told(done: int, _: int) -> None:
            if self._progress is not None:
                self._progress(before + done, self._all_bytes)

        results = run_tasks(
            self._spark, tasks, partial(_as_text, work), total=size_bytes, progress=told if self._progress else None
        )
        self._done_bytes += size_bytes
        numbered = [text.partition(" ") for text in results]
        ordered = sorted(numbered, key=lambda parts: int(parts[0]))
        return [PartReport.from_json(parts[2]) for parts in ordered]


def _as_text(work: partial[PartReport], number: int, task: object, tell: Tell) -> str:
    """Results come in any order: each has its number in front."""
    return f"{number} {work(task, tell).to_json()}"


def _check_log(task: LogTask, tell: Tell, *, plan: VerifyPlan) -> PartReport:
    found = PartVerifier(plan).check_log(task)
    tell(task.stop - task.start)
    return found


def _check_queues(
    task: tuple[list[QueueName], list[QueueSeen]],
    tell: Tell,
    *,
    plan: VerifyPlan,
    log_start: int,
    holes: list[tuple[int, int]],
) -> PartReport:
    return PartVerifier(plan).check_queues(*task, log_start, holes)


def _check_index(
    number: int,
    tell: Tell,
    *,
    plan: VerifyPlan,
    files: list[Path],
    log_start: int,
    log_end: int,
    holes: list[tuple[int, int]],
) -> PartReport:
    found = PartVerifier(plan).check_index_file(files[number], files[:number], log_start, log_end, holes)
    tell(files[number].stat().st_size)
    return found
