"""Commits the progress of queries to broker groups, up to the last batch, so that every RocketMQ tool shows the lag."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.streaming.listener import StreamingQueryListener

from rocketq.errors import RocketQError
from rocketq.spark.catalog import Catalog
from rocketq.spark.errors import OptionError, SparkError
from rocketq.spark.offsets import Offsets
from rocketq.spark.options import Fetching, Options, parse_connection

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )


WAIT_S: Final = 60.0


class Run(Protocol):
    """A query of this session or of a Spark Connect client."""

    @property
    def runId(self) -> str: ...


class QueryEnds(StreamingQueryListener):
    """A listener that can be waited for."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._changed = threading.Condition()

    def wait(self, query: Run, timeout_s: float = WAIT_S) -> None:
        """Wait until this listener got all batches of a query and its end.

        Call it before `removeListener`, which drops pending events, and under Spark Connect can block forever while
        an event is delivered (SPARK-59623).
        """
        run = str(query.runId)
        with self._changed:
            if not self._changed.wait_for(lambda: run in self._ended, timeout_s):
                raise SparkError(
                    f"the listener did not hear of an end of query {run} within {timeout_s:g} s:"
                    " the query runs still, or the listener was not added before it ended"
                )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()


log = logging.getLogger(__name__)

SOURCE_MARK: Final = "PythonMicroBatchStream"
"""Spark does not name a Python source; the shape of its offsets does."""


class GroupProgress(QueryEnds):
    """Commits to a group where each finished batch ended.

    spark.streams.addListener(GroupProgress("orders-archive", {"nameServer": "127.0.0.1:9876"}, queries={"archive"}))

    `queries` are names or ids; without any, each query that reads RocketMQ counts. Only the connection options are
    used; the source's other options may be present. A failed commit is repeated with the next batch or at the query's
    end; `wait(query)` returns after the last commit, and raises if it failed.
    """

    def __init__(self, group: str, options: dict[str, str], *, queries: Collection[str] = ()) -> None:
        if not group:
            raise SparkError("a group is needed that is told of the progress")
        super().__init__()
        self._connection = parse_connection(Options(options))
        self._group = group
        self._queries = frozenset(queries)
        self._untold: dict[str, Offsets] = {}
        self._introduced: set[str] = set()
        self._refusals: dict[str, str] = {}

    def wait(self, query: Run, timeout_s: float = WAIT_S) -> None:
        super().wait(query, timeout_s)
        if reason := self._refusals.pop(str(query.runId), None):
            raise SparkError(f"group {self._group} was not told of the last batch: {reason}")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if not self._queries or {str(progress.id), progress.name} & self._queries:
            self._remember(str(progress.runId), progress)
            self._tell(str(progress.runId))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._tell(str(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        try:
            self._tell(str(event.runId))
            self._untold.pop(str(event.runId), None)
        finally:
            super().onQueryTerminated(event)

    def _remember(self, run: str, progress: StreamingQueryProgress) -> None:
        for source in progress.sources:
            offsets = offsets_of(source.description, source.endOffset)
            if offsets is not None:
                self._untold[run] = self._untold.get(run, Offsets({})).merged(offsets)

    def _tell(self, run: str) -> None:
        offsets = self._untold.get(run)
        if not offsets:
            return
        catalog = Catalog(self._connection, Fetching(group=self._group, retries=1))
        try:
            catalog.commit(self._group, offsets)
            self._untold.pop(run, None)
            self._refusals.pop(run, None)
            self._introduce(catalog, offsets)
        except RocketQError as error:  # the checkpoint has it
            log.warning("%s", error)
            if run in self._untold:
                self._refusals[run] = str(error)
        finally:
            catalog.close()

    def _introduce(self, catalog: Catalog, offsets: Offsets) -> None:
        """Once to each broker, so that the group is among those it lists."""
        for broker, queue in {queue.broker_name: queue for queue in offsets}.items():
            if broker not in self._introduced:
                catalog.introduce(self._group, queue)
                self._introduced.add(broker)


def offsets_of(description: str, end_offset: str | None) -> Offsets | None:
    """The offsets that a RocketMQ source has reached; None for other sources and before the first batch."""
    if SOURCE_MARK not in description or not end_offset:
        return None
    try:
        return Offsets.from_json(end_offset)
    except OptionError:
        return None
