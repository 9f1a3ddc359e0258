"""Telling those who wait for messages that a queue has new ones they may see."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rocketq.store.commit_log import CommitLog
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.dispatch import Dispatcher
from rocketq.store.queries import Queries
from rocketq.store.writer import Writer

QueueListener = Callable[[str, int, int], None]  # topic, queue id, new end offset


log = logging.getLogger(__name__)


class Announcer:
    """The kernel collects queues that grew; they are announced once what they hold is visible."""

    def __init__(
        self,
        writer: Writer,
        commit_log: CommitLog,
        dispatcher: Dispatcher,
        queries: Queries,
        visible_to: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._log = commit_log
        self._scanner = dispatcher.scanner
        self._queries = queries
        self._visible_to = visible_to
        self.listeners: list[QueueListener] = []

    def announce(self) -> None:
        """Tell about every queue that has grown; one whose last messages are still hidden is told of again later."""
        if not self._log.appender.touched and not self._scanner.touched:
            return
        with self._writer.lock:
            grown = self._take()
        if self.listeners:
            for queue in grown:
                self._tell(queue)

    def _tell(self, queue: ConsumeQueue) -> None:
        end = self._queries.max_offset_of(queue)
        if end > queue.announced_offset:
            queue.announced_offset = end
            for listener in self.listeners:
                try:
                    listener(queue.topic, queue.queue_id, end)
                except Exception:  # the message is stored: a listener's trouble must not look like the producer's
                    log.exception("a listener failed for queue %r", queue)

    def _take(self) -> list[ConsumeQueue]:
        visible_to = self._visible_to()
        tails: dict[Any, None] = dict.fromkeys([*self._log.appender.touched, *self._scanner.touched])
        self._log.appender.touched, self._scanner.touched = [], []
        for tail in tails:
            if tail.log_end <= visible_to:
                tail.touched = False
            else:
                self._log.appender.touched.append(tail)
        return [tail.owner for tail in tails]
