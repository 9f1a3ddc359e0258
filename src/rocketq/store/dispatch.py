"""Dispatch: from the log to queues and index, again and again if need be."""

from __future__ import annotations

import logging
from typing import cast

from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.records import FIXED_BYTES
from rocketq.kernel.scanner import Scanner
from rocketq.store.commit_log import CommitLog
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import UNKNOWN, ConsumeQueue
from rocketq.store.index import Index
from rocketq.store.queue_table import QUEUE_ID_MAX, QueueTable

log = logging.getLogger(__name__)


class Dispatcher:
    """Brings records of the log to queues and index, as often as needed; decides about those that do not fit."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog, queues: QueueTable, index: Index) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self.scanner = Scanner(self._resolve, self._misfit, index.roll)
        self.scanner.delays_ms = config.delays_ms
        self.misplaced = 0

    def _resolve(self, topic: bytes, queue_id: int) -> QueueTail | None:
        name = safe_topic(topic)
        if name is None or not 0 <= queue_id <= QUEUE_ID_MAX:
            self.misplaced += 1
            log.error(
                "dispatch: a record names topic %r and queue %d, which cannot be: it stays out of any queue",
                topic,
                queue_id,
            )
            return None
        known = self._queues.get(name, queue_id)
        if known is None:
            known = self._queues.find_or_make(name, queue_id)
            known.files.load()
        return known.tail

    def _misfit(self, tail: QueueTail, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        """A record whose queue offset is not the next: the first of its queue, a known one, one behind a loss, or one
        of a queue that was deleted and started again."""
        queue = cast(ConsumeQueue, tail.owner)
        expected = tail.next_offset
        if expected == UNKNOWN or (expected == 0 and len(queue.files) == 0):
            queue.begin_at(queue_offset)
        elif queue_offset > expected:
            if queue_offset - expected > self._lost_records_max(tail.log_end, log_offset):
                self.misplaced += 1
                log.error("dispatch: the record at %d says offset %d of %r, where %d comes next and nothing is missing: "
                          "it stays out of the queue", log_offset, queue_offset, queue, expected)  # fmt: skip
                return
            queue.fill_to(queue_offset)
        else:
            if queue_offset < 0 or log_offset < tail.log_end:
                return
            if queue_offset > 0:
                log.warning(
                    "dispatch: offset %d of %r was given twice: the newer message, at %d, has it",
                    queue_offset,
                    queue,
                    log_offset,
                )
                if queue.unit(queue_offset) is not None:
                    queue.put_at(queue_offset, log_offset, size, tags_code)
                return
            queue.begin_at(0)
        queue.make_room(1)
        tail.put_next(log_offset, size, tags_code)
        self._touch(tail)

    def _touch(self, tail: QueueTail) -> None:
        if not tail.touched:
            tail.touched = True
            self.scanner.touched.append(tail)

    def _lost_records_max(self, start: int, end: int) -> int:
        """How many records may have been lost between two log offsets: what fits in the holes there."""
        lost = sum(
            min(hole.end, end) - max(hole.start, start)
            for hole in self._log.holes
            if hole.start < end and hole.end > start
        )
        return lost // FIXED_BYTES


def safe_topic(topic: bytes) -> str | None:
    """The topic as a directory name, or None for bytes that cannot be one."""
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        return None
    return name if name not in ("", ".", "..") and not set("/\0") & set(name) else None
