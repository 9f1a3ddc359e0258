"""Counts and reports messages that retention deleted before a group consumed them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.stats.broker_metrics import BrokerMetrics
from rocketq.protocol.names import is_system_group
from rocketq.store import StoreReader

log = logging.getLogger(__name__)


class UnconsumedWatch:
    """Compares committed offsets with the first stored ones whenever the log has lost a file.

    Only groups with a committed offset are compared. What was deleted before the broker started is not counted again.
    """

    def __init__(self, offsets: OffsetTable, store: StoreReader, metrics: BrokerMetrics) -> None:
        self._offsets = offsets
        self._store = store
        self._metrics = metrics
        self._log_start = store.log_start
        self._first = {topic: self._first_offsets(topic) for topic in store.topics()}

    def steps(self) -> Iterator[None]:
        """Compare, one topic per step, if files were deleted since the last call."""
        if self._store.log_start == self._log_start:
            return
        self._log_start = self._store.log_start
        for topic in self._store.topics():
            before, after = self._first.get(topic, {}), self._first_offsets(topic)
            self._first[topic] = after
            for group in self._offsets.groups_of(topic):
                if not is_system_group(group):
                    self._compare(group, topic, before, after)
            yield

    def _compare(self, group: str, topic: str, before: dict[int, int], after: dict[int, int]) -> None:
        lost = 0
        for queue_id, committed in self._offsets.of(group, topic).items():
            first = after.get(queue_id, 0)
            lost += max(0, first - max(committed, before.get(queue_id, 0)))
        if lost:
            self._metrics.deleted_unconsumed(group, topic, lost)
            log.warning("messages deleted before they were consumed: group=%s topic=%s count=%d", group, topic, lost)

    def _first_offsets(self, topic: str) -> dict[int, int]:
        store = self._store
        return {queue_id: max(0, store.min_offset(topic, queue_id)) for queue_id in store.queue_ids(topic)}
