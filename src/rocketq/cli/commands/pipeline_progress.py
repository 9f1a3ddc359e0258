"""A line on the terminal while Spark works: how many of its tasks are done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAR_CHARS: Final = 30
_INTERVAL_S: Final = 0.2
_CLEAR: Final = "\r\x1b[K"


Tell = Callable[[int, int], None]
"""Called with how much is done and how much there is."""


def bar_text(label: str, done: int, total: int, unit: str = "tasks") -> str:
    """`label [####----] 4 of 8 tasks`; nothing is known yet of a total of 0."""
    if total <= 0:
        return f"{label} ..."
    filled = BAR_CHARS * min(done, total) // total
    return f"{label} [{'#' * filled}{'-' * (BAR_CHARS - filled)}] {done:,} of {total:,} {unit}"


@contextmanager
def shown_progress(spark: SparkSession, label: str, unit: str, *, shown: bool) -> Iterator[Tell]:
    """A progress bar, only on a terminal. It shows reported progress, and Spark's tasks before the first report."""
    told: list[tuple[int, int]] = []
    if not shown or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    stop, counts = threading.Event(), _Tasks(spark)

    def show() -> None:
        while not stop.wait(_INTERVAL_S):
            try:
                text = bar_text(label, *told[-1], unit) if told else bar_text(label, *counts.now())
            except Exception:  # a session that ends under our eyes must not be the reason of a failure
                return
            click.echo(_CLEAR + text, nl=False, err=True)

    thread = threading.Thread(target=show, name="rocketq-progress", daemon=True)
    thread.start()
    try:
        yield lambda done, total: told.__setitem__(slice(None), [(done, total)])
    finally:
        stop.set()
        thread.join()
        click.echo(_CLEAR, nl=False, err=True)


class _Tasks:
    """Of running stages and of those finished since the start. Spark Connect does not report them."""

    def __init__(self, spark: SparkSession) -> None:
        context = None if "connect" in type(spark).__module__ else spark.sparkContext
        self._tracker: Any = context and context.statusTracker()
        self._seen: dict[int, tuple[int, int]] = {}

    def now(self) -> tuple[int, int]:
        active = self._tracker.getActiveStageIds() if self._tracker else []
        for stage in {*self._seen, *active}:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._seen[stage] = (info.numCompletedTasks, info.numTasks)
        return sum(done for done, _ in self._seen.values()), sum(total for _, total in self._seen.values())
