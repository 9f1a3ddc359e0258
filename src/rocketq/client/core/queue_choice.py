"""Which queue the next message goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketq.client.core.fault_latency import FaultLatency
from rocketq.protocol.bodies.queues import MessageQueue


class RoundRobin:
    """One queue after the other per topic; after a failure one of another broker, where there is one.

    With `faults` brokers that are slow or failing are passed over: first come those that are available, then those
    that can be reached at least, then any.
    """

    def __init__(self, start: int = 0, faults: FaultLatency | None = None) -> None:
        self._start = start
        self._faults = faults
        self._next: dict[str, int] = {}

    def choose(self, queues: Sequence[MessageQueue], failed_broker: str | None = None, now_ms: int = 0) -> MessageQueue:
        """`queues` are of one topic and not none."""
        topic = queues[0].topic
        at = self._next.get(topic, self._start)
        self._next[topic] = at + 1
        faults = self._faults
        if faults is None:
            if failed_broker is None:
                return queues[at % len(queues)]
            return _first(queues, at, failed_broker, _anyone) or queues[at % len(queues)]
        return (
            _first(queues, at, failed_broker, lambda name: faults.is_available(name, now_ms))
            or _first(queues, at, failed_broker, faults.is_reachable)
            or queues[at % len(queues)]
        )


def _first(
    queues: Sequence[MessageQueue], at: int, failed_broker: str | None, fits: Callable[[str], bool]
) -> MessageQueue | None:
    for step in range(len(queues)):
        queue = queues[(at + step) % len(queues)]
        if queue.broker_name != failed_broker and fits(queue.broker_name):
            return queue
    return None


def _anyone(broker_name: str) -> bool:
    return True
