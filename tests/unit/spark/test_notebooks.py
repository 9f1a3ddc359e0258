"""After an interrupted cell: which jobs end, and that nothing else is touched."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as Connected

from rocketq.spark.notebooks import Interrupts, is_no_interrupt, shell_of_notebook
from rocketq.spark.sessions import runs_here


class PaperShell:
    """IPython's events, and a cell that ends."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Any], None]] = []
        self.events = self

    def register(self, event: str, function: Callable[..., Any]) -> None:
        assert event == "post_run_cell"
        self.listeners.append(function)

    def end_cell(self, error: BaseException | None) -> None:
        for each in self.listeners:
            each(SimpleNamespace(error_in_exec=error))


class PaperSession:
    """Jobs by number; those of the group `run-1` are a streaming query's."""

    def __init__(self, *, gone: bool = False) -> None:
        self.gone = gone
        self.cancelled: list[int] = []
        self.made_active = 0
        self.streams = SimpleNamespace(active=[SimpleNamespace(runId="run-1")])
        self.sparkContext = SimpleNamespace(
            statusTracker=lambda: SimpleNamespace(
                getActiveJobsIds=self.active_jobs, getJobIdsForGroup={"run-1": [1, 4]}.__getitem__
            ),
            _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(cancelJob=self.cancelled.append)),
        )

    def active_jobs(self) -> list[int]:
        if self.gone:
            raise ConnectionRefusedError
        return [3, 4, 7]

    def createDataFrame(self, rows: list[Any], schema: str) -> None:
        self.made_active += 1


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    """And the loggers as they were."""
    py4j = logging.getLogger("py4j")
    level = py4j.level
    yield Interrupts()
    py4j.setLevel(level)
    logging.getLogger().removeFilter(is_no_interrupt)


def watch(interrupts: Interrupts, shell: PaperShell, session: PaperSession) -> None:
    interrupts.watch(shell, cast(Any, session))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()], ids=["plain", "awaiting"])
def test_an_interrupt_ends_the_jobs_of_no_query(interrupts: Interrupts, error: BaseException) -> None:
    """Goal: the cores are free for the next cell, streams go on, and the thread has its session again."""
    shell, session = PaperShell(), PaperSession()
    watch(interrupts, shell, session)
    shell.end_cell(error)
    assert sorted(session.cancelled) == [3, 7]
    assert session.made_active == 1


@pytest.mark.parametrize("error", [None, ValueError("of the user's")], ids=["well", "error"])
def test_cells_that_end_by_themselves_end_no_job(interrupts: Interrupts, error: BaseException | None) -> None:
    """Goal: jobs of other threads are not the cell's."""
    shell, session = PaperShell(), PaperSession()
    watch(interrupts, shell, session)
    shell.end_cell(error)
    assert (session.cancelled, session.made_active) == ([], 0)


def test_the_newest_session_counts_and_a_shell_is_listened_to_once(interrupts: Interrupts) -> None:
    """Goal: session() in every cell, as notebooks have it, adds nothing."""
    shell, first, second = PaperShell(), PaperSession(), PaperSession()
    for session in (first, first, second):
        watch(interrupts, shell, session)
    shell.end_cell(KeyboardInterrupt())
    assert (first.cancelled, sorted(second.cancelled), len(shell.listeners)) == ([], [3, 7], 1)


def test_a_jvm_that_is_gone_makes_no_noise(interrupts: Interrupts) -> None:
    shell = PaperShell()
    watch(interrupts, shell, PaperSession(gone=True))
    shell.end_cell(KeyboardInterrupt())


def test_py4j_does_not_log_an_interrupt_that_it_raises(
    interrupts: Interrupts, caplog: pytest.LogCaptureFixture
) -> None:
    watch(interrupts, PaperShell(), PaperSession())
    logging.getLogger().error("KeyboardInterrupt while sending command.")
    logging.getLogger().error("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]


def test_a_program_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert shell_of_notebook() is None
    shell = PaperShell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert shell_of_notebook() is shell


def test_a_session_of_spark_connect_is_told_by_what_it_is() -> None:
    """Goal: a server in this very process, with a context of its own, makes its sessions no others."""
    assert not runs_here(cast(Any, Connected.__new__(Connected)))
    assert runs_here(SparkSession.__new__(SparkSession))
