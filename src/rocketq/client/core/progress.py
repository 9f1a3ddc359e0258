"""How far a group has come. What nobody knows stays unknown: None, never a zero that looks like a fact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from rocketq.client.core.routes import queue_order
from rocketq.protocol.bodies.clients import Connection, ConsumerConnections, Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.stats import QueueProgress
from rocketq.protocol.bodies.topics import QueueRange
from rocketq.protocol.flags import ConsumeFromWhere, ConsumeType, MessageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """One queue for one group. `committed` is the next to be consumed; `last_ms` when the last consumed was stored."""

    queue: MessageQueue
    committed: int | None
    max_offset: int | None
    last_ms: int | None = None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.max_offset is None:
            return None
        return self.max_offset - self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group now; `unreachable` says why some brokers were not heard."""

    group: str
    members: tuple[Connection, ...] = ()
    consume_type: ConsumeType | None = None
    model: MessageModel | None = None
    from_where: ConsumeFromWhere | None = None
    subscriptions: Mapping[str, Subscription]
    conflicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By topic, the different things that members want of it, as far as brokers tell."""
    queues: tuple[QueueLag, ...] = ()
    consume_tps: float = 0.0
    unreachable: Mapping[str, str]

    @property
    def online(self) -> bool:
        return bool(self.members)

    @property
    def lag(self) -> int | None:
        """Of all queues together; None as long as one of them is not known."""
        lags = [queue.lag for queue in self.queues]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) and not self.unreachable else None

    @property
    def lag_known(self) -> int:
        """Of those queues that are known."""
        return sum(queue.lag for queue in self.queues if queue.lag is not None)


def queue_lags(
    progress: Mapping[MessageQueue, QueueProgress],
    never_committed: Set[MessageQueue],
    ranges: Mapping[MessageQueue, QueueRange | None],
) -> tuple[QueueLag, ...]:
    """Of queues a broker reported progress for, and of those it did not, which nothing was committed for."""
    reported = (_reported(queue, found, queue in never_committed) for queue, found in progress.items())
    others = (
        QueueLag(queue=queue, committed=None, max_offset=found.max_offset if found is not None else None)
        for queue, found in ranges.items()
        if queue not in progress
    )
    return tuple(sorted((*reported, *others), key=lambda lag: queue_order(lag.queue)))


def _reported(queue: MessageQueue, found: QueueProgress, never_committed: bool) -> QueueLag:
    return QueueLag(
        queue=queue,
        committed=None if never_committed else found.consumer_offset,
        max_offset=found.broker_offset,
        last_ms=found.last_ms or None,
    )


def merge_connections(parts: Iterable[ConsumerConnections]) -> ConsumerConnections | None:
    """What several brokers say about one group; a member of several is one member. None when nobody is connected."""
    found = list(parts)
    if not found:
        return None
    members = {member.client_id: member for part in found for member in part.connections}
    subscriptions = {topic: one for part in found for topic, one in part.subscriptions.items()}
    return ConsumerConnections(
        connections=tuple(members[client_id] for client_id in sorted(members)),
        consume_type=found[0].consume_type,
        model=found[0].model,
        from_where=found[0].from_where,
        subscriptions=dict(sorted(subscriptions.items())),
        conflicts={topic: kinds for part in found for topic, kinds in (part.conflicts or {}).items()} or None,
    )
