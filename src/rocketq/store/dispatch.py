"""Dispatch: from the log to queues and index, again and again if need be."""

from __future__ import annotations

import logging
from typing import cast

from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.records import FIXED_BYTES
from rocketq.kernel.scanner import Scanner
from rocketq.store.commit_log import CommitLog
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import QUEUE_ID_MAX, UNKNOWN, ConsumeQueue, QueueTable
from rocketq.store.index import Index

log = logging.getLogger(__name__)

QUEUE_OFFSET_MAX = 1 << 48
QueueEntry = tuple[int, int, int, int]  # queue offset, log offset, size, tags code


class Dispatcher:
    """Brings records of the log to queues and index, as often as needed; decides about those that do not fit."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog, queues: QueueTable, index: Index) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self.scanner = Scanner(self._resolve, self._misfit, index.roll)
        self.scanner.delays_ms = config.delays_ms
        self.misplaced = 0
        self.copying = False
        """Records come fresh from a master, not from a disk that may have changed them."""
        self._told: set[ConsumeQueue | None] = set()
        self._behind_gap: dict[ConsumeQueue, int] = {}
        self._doubtful: dict[ConsumeQueue, QueueEntry] = {}

    def _resolve(self, topic: bytes, queue_id: int) -> QueueTail | None:
        name = safe_topic(topic)
        if name is None or not 0 <= queue_id <= QUEUE_ID_MAX:
            self._leave_out(
                None, self.scanner.view.log_offset, f"topic {topic!r} and queue {queue_id}, which cannot be"
            )
            return None
        known = self._queues.get(name, queue_id)
        if known is None:
            known = self._queues.find_or_make(name, queue_id)
            known.files.load()
        return known.tail

    def _misfit(self, tail: QueueTail, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        """A record whose queue offset is not the next: the first of its queue, one after a loss, or one of a queue that
        was deleted and recreated. No checksum covers the offset, so that two consecutive records are required to trust
        it."""
        queue, entry = cast(ConsumeQueue, tail.owner), (queue_offset, log_offset, size, tags_code)
        expected = tail.next_offset
        if not 0 <= queue_offset <= QUEUE_OFFSET_MAX:
            self._leave_out(queue, log_offset, f"offset {queue_offset}, which cannot be")
            return
        if expected != UNKNOWN and log_offset < tail.log_end:
            return  # known already
        unit = queue.unit(queue_offset)
        agrees = unit is not None and unit[:2] == (log_offset, size)
        rival = None if agrees else self._rival(queue, queue_offset, unit)
        possible = expected + (log_offset - tail.log_end) // FIXED_BYTES
        if rival is not None and rival > log_offset:
            self._leave_out(queue, log_offset, f"offset {queue_offset}, which is a later message's")
        elif expected == UNKNOWN or (expected == 0 and len(queue.files) == 0):
            self._restart(queue, entry)
        elif queue_offset == expected and (rival is None or rival < tail.log_end):
            self._put(queue, entry)  # a rival from before the queue's last message is of a life it had before
        elif queue_offset == 0 and self.copying:
            self._begin_again(queue, entry)
        elif rival is not None:
            self._doubt(queue, entry)
        elif queue_offset > expected and (agrees or queue_offset <= possible):
            queue.fill_to(queue_offset)
            self._put(queue, entry)
            self._behind_gap[queue] = queue_offset
        elif agrees:
            self._restart(queue, entry)
        else:
            self._doubt(queue, entry)

    def _rival(self, queue: ConsumeQueue, queue_offset: int, unit: tuple[int, int, int] | None) -> int | None:
        """The log offset of another record that the unit points to, if that record claims this queue offset too."""
        if unit is None or unit[1] <= 0:
            return None
        says = self._log.place_at(unit[0])
        return unit[0] if says == (queue.tail.topic, queue.queue_id, queue_offset, unit[1]) else None

    def _begin_again(self, queue: ConsumeQueue, entry: QueueEntry) -> None:
        """Its topic was deleted and made again: a sound record can be the first of a queue for no other reason."""
        log.info("dispatch: %r restarts at offset %d: its topic was deleted and recreated", queue, entry[1])
        self._doubtful.pop(queue, None)
        queue.cut_at(0)
        self._restart(queue, entry)

    def _restart(self, queue: ConsumeQueue, entry: QueueEntry) -> None:
        queue.begin_at(entry[0])
        self._put(queue, entry)

    def _doubt(self, queue: ConsumeQueue, entry: QueueEntry) -> None:
        """The record and its queue disagree; when the record before it disagreed in the same way, they are right."""
        queue_offset, log_offset, size, tags_code = entry
        if self._behind_gap.get(queue) == queue_offset == queue.end_offset - 1:
            self._leave_out(queue, log_offset, f"offset {queue_offset}, as the one before it did, which is left out")
            queue.put_at(queue_offset, log_offset, size, tags_code)
            queue.tail.log_end = log_offset + size
            return
        before = self._doubtful.get(queue)
        self._doubtful[queue] = entry
        if before is None or before[0] + 1 != queue_offset:
            self._leave_out(queue, log_offset, f"offset {queue_offset}, where {queue.end_offset} comes next")
            return
        log.warning("dispatch: %r continues at offset %d instead of %d (two records agree)", queue, before[0],
                    queue.end_offset)  # fmt: skip
        del self._doubtful[queue]
        self.misplaced -= 1
        self._restart(queue, before)
        self._put(queue, entry)

    def _put(self, queue: ConsumeQueue, entry: QueueEntry) -> None:
        _, log_offset, size, tags_code = entry
        queue.make_room(1)
        view, distrust = self.scanner.view, bool(self.scanner.distrust)
        if view.log_offset == log_offset:
            tags_code = queue.code_to_put(log_offset, size, tags_code, view.store_ms, distrust=distrust)
        queue.tail.put_next(log_offset, size, tags_code)
        self._touch(queue.tail)

    def _leave_out(self, queue: ConsumeQueue | None, log_offset: int, says: str) -> None:
        """One line per queue is enough: a deleted queue's old messages are left out too when it has started again."""
        self.misplaced += 1
        if queue not in self._told:
            self._told.add(queue)
            log.error(
                "dispatch: record at log offset %d claims %r, %s: not added to the queue", log_offset, queue, says
            )

    def _touch(self, tail: QueueTail) -> None:
        if not tail.touched:
            tail.touched = True
            self.scanner.touched.append(tail)


def safe_topic(topic: bytes) -> str | None:
    """The topic as a directory name, or None for bytes that cannot be one."""
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        return None
    return name if name not in ("", ".", "..") and not set("/\0") & set(name) else None
