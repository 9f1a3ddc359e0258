"""From the queues a consumer owns to those it should own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rocketq.client.core.routes import queue_order
from rocketq.protocol.bodies.queues import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePlan:
    """What to give away, then what to take (lock it first, in order); a stuck queue is in both."""

    drop: tuple[MessageQueue, ...]
    add: tuple[MessageQueue, ...]

    @property
    def changes(self) -> bool:
        return bool(self.drop or self.add)


def plan_topic(
    owned: Iterable[MessageQueue],
    target: Collection[MessageQueue],
    stuck: Collection[MessageQueue] = (),
) -> RebalancePlan:
    """For one topic. `stuck` are owned queues whose pulls have stopped: they are begun anew."""
    have, want = set(owned), set(target)
    again = have & want & set(stuck)
    return RebalancePlan(
        drop=tuple(sorted((have - want) | again, key=queue_order)),
        add=tuple(sorted((want - have) | again, key=queue_order)),
    )


def unsubscribed(owned: Iterable[MessageQueue], topics: Collection[str]) -> tuple[MessageQueue, ...]:
    """Owned queues of topics that are subscribed to no more."""
    return tuple(sorted((queue for queue in owned if queue.topic not in topics), key=queue_order))
