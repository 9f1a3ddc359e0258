"""Messages that waited in one queue are put into the queue they are for, straight from record to record."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.queue_table import QUEUE_ID_MAX
from rocketq.store.results import AppendResult, AppendStatus
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
    """Takes the store's lock for a bounded number of messages at a time. `may_deliver_to` says which topics messages
    can be for; what is for others, or cannot be read, is passed over and logged."""

    def __init__(self, store: Store, *, may_deliver_to: Callable[[str], bool] = lambda topic: True) -> None:
        self._store = store
        self._may_deliver_to = may_deliver_to
        self._kernel = Redelivery(store.log.appender, store.log.map)
        self._queue_version: object = None

    def deliver_due(self, queue: ConsumeQueue, first: int, *, now_ms: int, count_max: int) -> Redelivered:
        """What is due of a queue whose units hold delivery times, from offset `first` on and in order."""
        store, kernel = self._store, self._kernel
        first = max(first, queue.min_offset)
        end = store.queries.max_offset_of(queue)
        if first >= end:
            return Redelivered(first, None, 0)
        units = queue.file_at(first)
        if units is None:
            return Redelivered((first // queue.units_per_file + 1) * queue.units_per_file, now_ms, 0)
        stop = min(end, units.base + queue.units_per_file, first + count_max)

        def step() -> int:
            state: int = kernel.deliver_due(
                queue.tail,
                units,
                first - units.base,
                stop - units.base,
                now_ms,
                store.log.start,
                store.config.check_crc_on_read,
            )
            return state

        before = kernel.delivered
        with store.writer.lock:
            kernel_at = first
            failure = None
            state = NEED_QUEUE
            while state not in (ALL_DELIVERED, NOT_DUE):
                state, failure = self._supply_until(step)
                kernel_at = first = units.base + kernel.at
                if failure is not None:
                    break
        delivered = kernel.delivered - before
        self._settle(delivered)
        self._report_bad(queue)
        due_ms = int(kernel.due_ms) if state == NOT_DUE else (now_ms if kernel_at < end else None)
        return Redelivered(kernel_at, due_ms, delivered, failure)

    def deliver_one(
        self, queue: ConsumeQueue, queue_offset: int, log_offset: int, size: int, *, now_ms: int
    ) -> Redelivered:
        """One message of a queue, now."""
        store, kernel, before = self._store, self._kernel, self._kernel.delivered

        def step() -> int:
            state: int = kernel.deliver_one(
                queue.tail, queue_offset, log_offset, size, now_ms, store.config.check_crc_on_read
            )
            return state

        with store.writer.lock:
            _, failure = self._supply_until(step)
        self._settle(kernel.delivered - before)
        self._report_bad(queue)
        return Redelivered(queue_offset + 1, None, kernel.delivered - before, failure)

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

    def _supply_until(self, step: Callable[[], int]) -> tuple[int, str | None]:
        """Run the kernel and give it what it asks for; how it ended, and why it could not go on."""
        store, kernel = self._store, self._kernel
        state = UNDELIVERABLE
        if store.refusal is not None:
            return state, store.refusal
        before = kernel.delivered
        try:
            self._forget_deleted_queues()
            store.writer.ready_for_kernel()
            for _ in range(_TRIES_MAX):
                state = step()
                if not self._supply(state):
                    break
            else:
                return state, f"the store did not give what a delivery needs ({state})"
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                store.disk.on_pressure()
            return state, f"no room for a delivery: {error}"
        finally:
            if kernel.delivered > before:
                store.writer.stored_by_kernel()
        return state, None

    def _supply(self, state: int) -> bool:
        """Whether the kernel asked for something, and has it now."""
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
        if self._store.queues.version != self._queue_version:
            self._queue_version = self._store.queues.version
            self._kernel.forget_destinations()

    def _settle(self, delivered: int) -> None:
        if delivered:
            self._store.flusher.settle(AppendResult(AppendStatus.OK), wait=False)

    def _report_bad(self, queue: ConsumeQueue) -> None:
        kernel = self._kernel
        if kernel.bad or kernel.gone:
            log.error(
                "queue %r: %d message(s) could not be delivered, the last at log offset %d; %d more were deleted before "
                "they were due",
                queue,
                kernel.bad,
                kernel.bad_log_offset,
                kernel.gone,
            )
            kernel.bad = kernel.gone = 0
