"""Messages that waited in one queue are put into the queue they are for, straight from record to record."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketq.kernel.redeliver import (
    ALL_DELIVERED,
    NEED_FILE,
    NEED_INDEX,
    NEED_LOG,
    NEED_QUEUE,
    NEED_ROOM,
    NOT_DUE,
    UNDELIVERABLE,
    Redelivery,
)
from rocketq.protocol.names import topic_fault
from rocketq.store.consume_queue import QUEUE_ID_MAX, ConsumeQueue
from rocketq.store.results import AppendResult, AppendStatus

if TYPE_CHECKING:
    from rocketq.store.store import Store

log = logging.getLogger(__name__)

_TRIES_MAX: Final = 4  # for one and the same want: a mapping, room, a file


@dataclass(frozen=True, slots=True)
class Redelivered:
    """How far a delivery came; `due_ms` is when the next message is due, None when the queue has no other."""

    next_offset: int
    due_ms: int | None
    delivered: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveredCount:
    topic: str
    count: int
    size_bytes: int


class Redeliverer:
    """Delivers stored messages to their real queues, a bounded number per hold of the store's lock. Messages for topics
    that `may_deliver_to` rejects, and unreadable ones, are skipped and logged."""

    def __init__(self, store: Store, *, may_deliver_to: Callable[[str], bool] = lambda topic: True) -> None:
        self._store = store
        self._may_deliver_to = may_deliver_to
        self._kernel = Redelivery(store.log.appender, store.log.map)
        self._removed_count = 0

    def deliver_due(
        self, topic: str, queue_id: int, first: int, *, now_ms: int, count_max: int, due_to_ms: int | None = None
    ) -> Redelivered:
        """What is due of a queue whose units hold delivery times, from offset `first` on and in order. `due_to_ms`
        given: what is due by then."""
        store, kernel = self._store, self._kernel
        queue = store.queues.get(topic, queue_id)
        if queue is None:
            return Redelivered(first, None, 0)
        first = max(first, queue.min_offset)
        end = store.queries.max_offset_of(queue)
        if first >= end:
            return Redelivered(first, None, 0)
        units = queue.file_at(first)
        if units is None:
            return Redelivered((first // queue.units_per_file + 1) * queue.units_per_file, now_ms, 0)
        stop, at = min(end, units.base + queue.units_per_file, first + count_max), first - units.base

        def step() -> int:
            nonlocal at
            state: int = kernel.deliver_due(
                queue.tail,
                units,
                at,
                stop - units.base,
                now_ms if due_to_ms is None else due_to_ms,
                now_ms,
                store.log.start,
                store.config.check_crc_on_read,
            )
            at = kernel.at
            return state

        state, delivered, failure = self._run(queue, step)
        reached = units.base + at
        due_ms = int(kernel.due_ms) if state == NOT_DUE else (now_ms if reached < end else None)
        return Redelivered(reached, due_ms, delivered, failure)

    def deliver_one(
        self, topic: str, queue_id: int, queue_offset: int, log_offset: int, size: int, *, now_ms: int
    ) -> Redelivered:
        """One message of a queue, now."""
        kernel, check_crc = self._kernel, self._store.config.check_crc_on_read
        queue = self._store.queues.get(topic, queue_id)
        if queue is None:
            return Redelivered(queue_offset, None, 0, f"queue {queue_id} of {topic} does not exist")

        def step() -> int:
            state: int = kernel.deliver_one(queue.tail, queue_offset, log_offset, size, now_ms, check_crc)
            return ALL_DELIVERED if state == NEED_INDEX else state  # it is delivered; the index is seen to next time

        _, delivered, failure = self._run(queue, step)
        return Redelivered(queue_offset + 1, None, delivered, failure)

    def take_counts(self) -> list[DeliveredCount]:
        """What was delivered since the last call, by topic and queue."""
        counts = []
        for destination in self._kernel.destinations():
            if destination.count:
                topic = destination.tail.topic.decode("utf-8", "replace")
                counts.append(DeliveredCount(topic, destination.count, destination.size_bytes))
                destination.count = destination.size_bytes = 0
        return counts

    # What the kernel asks for

    def _run(self, queue: ConsumeQueue, step: Callable[[], int]) -> tuple[int, int, str | None]:
        """Run the kernel; returns its last answer, the number of delivered messages, and the failure."""
        store, kernel, before = self._store, self._kernel, self._kernel.delivered
        state, failure = UNDELIVERABLE, store.refusal
        with store.writer.lock:
            try:
                if failure is None:
                    self._forget_deleted_queues()
                    store.writer.ready_for_kernel()
                    state = self._step_until_done(step)
            except OSError as error:
                failure = f"no room for a delivery: {error}"
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    store.disk.on_pressure()
            delivered = kernel.delivered - before
            if delivered:
                store.writer.stored_by_kernel()
        if delivered:
            store.flusher.settle(AppendResult(AppendStatus.OK), wait=False)
        self._report_bad(queue)
        return state, delivered, failure

    def _step_until_done(self, step: Callable[[], int]) -> int:
        """OSError when the kernel keeps asking for the same."""
        kernel, last, tries = self._kernel, (0, 0, 0), 0
        while self._supply(state := step()):
            now = (state, int(kernel.at), int(kernel.delivered))
            tries = tries + 1 if now == last else 0
            if tries == _TRIES_MAX:
                raise OSError(f"the store did not give what a delivery needs ({state})")
            last = now
        return state

    def _supply(self, state: int) -> bool:
        """Provide what the kernel requested; returns whether it can continue."""
        store, kernel = self._store, self._kernel
        if state == NEED_LOG:
            store.log.segment(kernel.need_log_offset)
        elif state == NEED_QUEUE:
            self._add_destination(kernel.need_topic, int(kernel.need_queue_id))
        elif state == NEED_ROOM:
            assert kernel.waiting is not None
            kernel.waiting.owner.make_room(1)
        elif state == NEED_FILE:
            store.writer.roll()
        elif state == NEED_INDEX:
            store.writer.stored_by_kernel()
            store.writer.ready_for_kernel()
        else:
            return False
        return True

    def _add_destination(self, name: bytes, queue_id: int) -> None:
        topic = name.decode("utf-8", "replace")
        legal = topic_fault(topic) is None and queue_id <= QUEUE_ID_MAX and self._may_deliver_to(topic)
        queue = self._store.queues.find_or_make(topic, queue_id) if legal else None
        self._kernel.add_destination(name, queue_id, None if queue is None else queue.tail)

    def _forget_deleted_queues(self) -> None:
        if self._store.queues.removed_count != self._removed_count:
            self._removed_count = self._store.queues.removed_count
            self._kernel.forget_destinations()

    def _report_bad(self, queue: ConsumeQueue) -> None:
        kernel = self._kernel
        if kernel.bad or kernel.gone:
            log.error(
                "queue %r: %d message(s) could not be delivered, the last at log offset %d; %d more were deleted "
                "before they were due",
                queue,
                kernel.bad,
                kernel.bad_log_offset,
                kernel.gone,
            )
            kernel.bad = kernel.gone = 0
