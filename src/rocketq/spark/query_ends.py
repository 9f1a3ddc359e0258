"""Waiting for the events of a query's last batch and end, which listeners get shortly after the query has ended."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.streaming.listener import StreamingQueryListener

from rocketq.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryTerminatedEvent

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
