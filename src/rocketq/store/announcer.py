"""Telling those who wait for messages that a queue has new ones they may see."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketq.store.commit_log import CommitLog
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.dispatch import Dispatcher
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
        visible_to: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._log = commit_log
        self._scanner = dispatcher.scanner
        self._visible_to = visible_to
        self.listeners: list[QueueListener] = []

    def announce(self) -> None:
        """Notify listeners of every queue that has grown; again later for one whose last messages are not visible
        yet."""
        if not self._log.appender.touched and not self._scanner.touched:
            return
        visible_to = self._visible_to()
        with self._writer.lock:
            grown = self._take(visible_to)
        if self.listeners:
            for queue, known_end in grown:
                end = queue.end_below(visible_to) if known_end is None else known_end
                if end > queue.announced_offset:
                    queue.announced_offset = end
                    self._notify(queue, end)

    def _notify(self, queue: ConsumeQueue, end: int) -> None:
        for listener in self.listeners:
            try:
                listener(queue.topic, queue.queue_id, end)
            except Exception:  # the message is stored: a listener's trouble must not look like the producer's
                log.exception("a listener failed for queue %r", queue)

    def _take(self, visible_to: int) -> list[tuple[ConsumeQueue, int | None]]:
        """The queues that grew, with the end of each that can be seen whole."""
        appender, scanner = self._log.appender, self._scanner
        tails = appender.touched
        if scanner.touched:
            tails = list(dict.fromkeys([*tails, *scanner.touched]))
            scanner.touched = []
        appender.touched = []
        grown: list[tuple[ConsumeQueue, int | None]] = []
        for tail in tails:
            if tail.log_end <= visible_to:
                tail.touched = False
                grown.append((tail.owner, tail.next_offset))
            else:
                appender.touched.append(tail)
                grown.append((tail.owner, None))
        return grown
