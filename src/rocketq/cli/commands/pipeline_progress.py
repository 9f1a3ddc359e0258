"""A line on the terminal while Spark works: how many of its tasks are done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAR_CHARS: Final = 30
_INTERVAL_S: Final = 0.2
_CLEAR: Final = "\r\x1b[K"


def bar_text(label: str, done: int, total: int) -> str:
    """`label [####----] 4 of 8 tasks`; nothing is known yet of a total of 0."""
    if total <= 0:
        return f"{label} ..."
    filled = BAR_CHARS * min(done, total) // total
    return f"{label} [{'#' * filled}{'-' * (BAR_CHARS - filled)}] {done} of {total} tasks"


@contextmanager
def shown_progress(spark: SparkSession, label: str, *, shown: bool) -> Iterator[None]:
    """Only on a terminal."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_show, args=(_Tasks(spark), label, stop), name="rocketq-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        click.echo(_CLEAR, nl=False, err=True)


class _Tasks:
    """Of stages that run now, and of those that ran since the beginning."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker: Any = getattr(spark, "sparkContext", None) and spark.sparkContext.statusTracker()
        self._seen: dict[int, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        active = self._tracker.getActiveStageIds() if self._tracker else []
        for stage in [*self._seen, *active]:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._seen[stage] = (info.numCompletedTasks, info.numTasks)
        return sum(done for done, _ in self._seen.values()), sum(total for _, total in self._seen.values())


def _show(tasks: _Tasks, label: str, stop: threading.Event) -> None:
    while not stop.wait(_INTERVAL_S):
        try:
            done, total = tasks.count()
        except Exception:  # a session that ends under our eyes must not be the reason of a failure
            return
        click.echo(_CLEAR + bar_text(label, done, total), nl=False, err=True)
