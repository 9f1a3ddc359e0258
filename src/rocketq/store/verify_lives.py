"""Queues that were deleted, and those that were made again: the log keeps the messages of their former lives."""

from __future__ import annotations

import json
from pathlib import Path

from rocketq.store.checked_queue import CheckedQueue
from rocketq.store.recovery_point import RecoveryPoint


class FormerLives:
    """Which queues the log has messages of, and the store no more. The recovery point knows what was there at its log
    position; a directory without one that was stopped cleanly has a table of its topics."""

    def __init__(self, root: Path, point: RecoveryPoint | None, *, cleanly_stopped: bool) -> None:
        self._point = point
        self._ends = {(each.topic, each.queue_id): each.end_offset for each in point.queues} if point else {}
        self._topics = _topics_of(root) if cleanly_stopped else None

    def are_all_of(self, queue: CheckedQueue) -> bool:
        """Whether everything that the log has of a queue is from before its topic was deleted."""
        if queue.first_seen is None:
            return False
        if self._point is not None:
            is_known = queue.tail.log_end <= self._point.log_end
            return is_known and self._ends.get((queue.topic, queue.queue_id), 0) == 0
        return queue.is_missing and self._topics is not None and queue.topic not in self._topics


def _topics_of(root: Path) -> set[str] | None:
    try:
        table = json.loads((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
        return set(table)
    except (OSError, ValueError, KeyError, TypeError):
        return None
