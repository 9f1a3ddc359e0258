"""Transactions nobody has decided on, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketq.client.aio.group_lookup import GroupLookup
from rocketq.client.aio.puller import Puller, PullStatus
from rocketq.client.aio.queue_positions import QueuePositions
from rocketq.client.aio.scatter import on_each
from rocketq.client.aio.session import Session
from rocketq.client.core.open_halves import OpenHalf, open_halves
from rocketq.client.core.routes import subscribe_queues
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import TopicNotFound
from rocketq.protocol.names import HALF_OP_TOPIC, HALF_TOPIC

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""As this group brokers keep how far they are done with halves and op messages."""


class AsyncTransactions:
    """Of Apache's brokers too: it reads what they keep, and changes nothing."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._groups = GroupLookup(session)
        self._positions = QueuePositions(session)
        self._puller = Puller(session)

    async def list(self) -> tuple[OpenHalf, ...]:
        """Half messages that are neither committed nor rolled back, oldest first on each broker. A broker of 5.x may be
        some seconds late in noting a decision."""
        queues = await self._queues(HALF_TOPIC)
        found = await on_each({queue: self._of(queue) for queue in queues})
        return tuple(half for queue in queues for half in found[queue])

    async def _of(self, queue: MessageQueue) -> tuple[OpenHalf, ...]:
        """Op messages first: a half that moves meanwhile is found at its new place."""
        ops: Sequence[StoredMessage] = ()
        for other in await self._queues(HALF_OP_TOPIC):
            if (other.broker_name, other.queue_id) == (queue.broker_name, queue.queue_id):
                ops = await self._undone(other)
        return open_halves(await self._undone(queue), ops)

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            route = await self._session.routes.refresh(topic)
        except TopicNotFound:  # no broker has ever had one
            return ()
        return tuple(sorted(subscribe_queues(topic, route), key=lambda queue: (queue.broker_name, queue.queue_id)))

    async def _undone(self, queue: MessageQueue) -> Sequence[StoredMessage]:
        """Everything from what the broker is done with to the end."""
        bounds = await self._positions.bounds(queue)
        kept = await self._groups.committed(TRANSACTION_GROUP, queue)
        offset = min(max(bounds.min_offset, kept or 0), bounds.max_offset)
        found: tuple[StoredMessage, ...] = ()
        while offset < bounds.max_offset:
            result = await self._puller.pull(queue, offset)
            found += result.messages
            if result.next_offset <= offset or result.status is PullStatus.NO_NEW_MESSAGE:
                break
            offset = result.next_offset
        return found
