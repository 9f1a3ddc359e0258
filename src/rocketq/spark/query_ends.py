"""Listeners hear of a query's last batch and end a moment after the query has ended: whoever needs both waits here."""

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
        """Until this listener knows of all batches of a query and of its end.

        Before `removeListener`, which drops what it has not heard yet, and under Spark Connect can wait for ever
        for a listener that is just being told (SPARK-59623).
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
