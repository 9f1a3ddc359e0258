"""Notebooks: interrupting a cell cancels its Spark jobs and keeps the session usable.

A notebook kernel replaces PySpark's signal handler. So an interrupt ends the cell while its jobs keep running on the
cores that the next cell needs. The session also loses its JVM thread: the new one has no active session, and Spark
finds Python sources for streams only through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_INTERRUPTS: Final = (KeyboardInterrupt, asyncio.CancelledError)
"""Of a plain cell, and of one that awaits something."""
_PY4J_SAYS: Final = "KeyboardInterrupt while sending command."


class _Events(Protocol):
    def register(self, event: str, function: Callable[..., Any]) -> None: ...


class Shell(Protocol):
    """As much of IPython's as is used here."""

    @property
    def events(self) -> _Events: ...


class Interrupts:
    """What is done after a cell of a shell; one at a time, for the newest session."""

    def __init__(self) -> None:
        self._shell: Shell | None = None
        self._session: SparkSession | None = None

    def watch(self, shell: Shell, session: SparkSession) -> None:
        self._session = session
        if self._shell is not shell:
            self._shell = shell
            shell.events.register("post_run_cell", self.after_cell)
            logging.getLogger().addFilter(is_no_interrupt)
            logging.getLogger("py4j").setLevel(logging.CRITICAL)

    def after_cell(self, result: Any) -> None:
        """`result` is IPython's of the cell."""
        if isinstance(result.error_in_exec, _INTERRUPTS) and self._session is not None:
            with contextlib.suppress(Exception):  # it was stopped since, or its JVM is gone
                end_jobs(self._session)
                make_active(self._session)


def shell_of_notebook() -> Shell | None:
    """IPython's, when this runs in one."""
    ipython = sys.modules.get("IPython")
    shell: Shell | None = ipython.get_ipython() if ipython is not None else None
    return shell


def end_jobs(session: SparkSession) -> None:
    """Those of no streaming query: queries end by stop(), not by an interrupt of the cell that waits for them."""
    context = session.sparkContext
    tracker = context.statusTracker()
    active = set(tracker.getActiveJobsIds())  # first: jobs that a query starts later are not included
    streaming = {job for query in session.streams.active for job in tracker.getJobIdsForGroup(str(query.runId))}
    for job in active - streaming:
        context._jsc.sc().cancelJob(job)


def make_active(session: SparkSession) -> None:
    """In this thread: PySpark does it by the way, whenever a DataFrame is made of rows."""
    session.createDataFrame([], "nothing int")


def is_no_interrupt(record: logging.LogRecord) -> bool:
    """Py4J logs the interrupt with all its frames, and then raises it."""
    return record.msg != _PY4J_SAYS
