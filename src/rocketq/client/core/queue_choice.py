"""Which queue the next message goes to."""

from __future__ import annotations

from collections.abc import Sequence

from rocketq.protocol.bodies.queues import MessageQueue


class RoundRobin:
    """One queue after the other per topic; after a failure one of another broker, where there is one."""

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._next: dict[str, int] = {}

    def choose(self, queues: Sequence[MessageQueue], failed_broker: str | None = None) -> MessageQueue:
        """`queues` are of one topic and not none."""
        topic = queues[0].topic
        at = self._next.get(topic, self._start)
        self._next[topic] = at + 1
        turn = [queues[(at + step) % len(queues)] for step in range(len(queues))]
        return next((queue for queue in turn if queue.broker_name != failed_broker), turn[0])
