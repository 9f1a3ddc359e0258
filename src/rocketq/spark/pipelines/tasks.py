"""Work spread over Spark's executors: Spark carries what is to be done and what came of it, nothing in between.

It works the same under Spark Connect: tasks are rows of a range, one each, and results are texts.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rocketq.spark.errors import SparkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is, in the units of the pipeline; from one thread."""

Tell = Callable[[int], None]
"""Called by a task with how much of its work is done."""

_TELL_SECONDS: Final = 0.5
_OWN_ERROR: Final = re.compile(r"^(?:rocketq\.[\w.]*)?(?:\w*Error): (.+)$", re.MULTILINE)


def run_tasks(
    spark: SparkSession,
    tasks: Sequence[_Task],
    work: Callable[[int, _Task, Tell], str],
    *,
    total: int = 0,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> list[str]:
    """The results of `work(number, task, tell)` for each task, in any order, one attempt each.

    Progress is reported through small files in `folder`, which executors must be able to write (default: a local one).
    """
    if not tasks:
        return []
    with tempfile.TemporaryDirectory(prefix="rocketq-progress-") as own:
        told = folder if folder is not None else Path(own)
        told.mkdir(parents=True, exist_ok=True)
        with _watched(told, total, progress):
            return _collected(spark, list(tasks), work, str(told))


def _collected(
    spark: SparkSession, tasks: list[_Task], work: Callable[[int, _Task, Tell], str], folder: str
) -> list[str]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = work(number, tasks[number], _Teller(folder, number))
                yield pa.RecordBatch.from_pydict({"result": [result]})

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "result string")
    try:
        return [str(row.result) for row in frame.collect()]
    except Exception as error:  # Spark wraps it; our own line is inside
        raise one_line(error) from None


def one_line(error: Exception) -> SparkError:
    """The first line of our exception inside Spark's; otherwise Spark's first line."""
    if isinstance(error, SparkError):
        return error
    text = str(error)
    found = _OWN_ERROR.search(text)
    if found:
        return SparkError(found.group(1).strip())
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return SparkError(first.strip())


class _Teller:
    """Writes how far a task is, twice a second at most. Who cannot write does without."""

    def __init__(self, folder: str, number: int) -> None:
        self._path = Path(folder) / str(number)
        self._next = 0.0

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _TELL_SECONDS
        try:
            self._path.write_text(str(done))
        except OSError:
            self._next = float("inf")


class _watched:
    """Calls `progress` from a separate thread while tasks run, and once after success."""

    def __init__(self, folder: Path, total: int, progress: Progress | None) -> None:
        self._folder, self._total, self._progress = folder, total, progress
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rocketq-progress", daemon=True)

    def __enter__(self) -> None:
        if self._progress is not None:
            self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._stop.set()
        if self._progress is not None:
            self._thread.join()
            if kind is None:
                self._progress(self._total, self._total)

    def _watch(self) -> None:
        assert self._progress is not None
        while not self._stop.wait(_TELL_SECONDS):
            self._progress(min(_sum(self._folder), self._total), self._total)


def _sum(folder: Path) -> int:
    total = 0
    for each in folder.iterdir():
        try:
            total += int(each.read_text() or 0)
        except (OSError, ValueError):
            continue  # being written
    return total
