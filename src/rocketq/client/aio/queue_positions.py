"""Where queues begin and end, and where in them a time is."""

from __future__ import annotations

from rocketq.client.aio.session import Session
from rocketq.client.core.resets import QueueBounds, ResetKind, ResetTo, target_of
from rocketq.client.core.routes import broker_addr
from rocketq.client.errors import NoQueueError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.headers.offsets import MaxOffsetRequest, MinOffsetRequest, OffsetResponse, SearchOffsetRequest
from rocketq.protocol.headers.wire import Header


class QueuePositions:
    """Asked of the broker that has the queue."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def addr(self, queue: MessageQueue) -> str:
        route = await self._session.routes.get(queue.topic)
        addr = broker_addr(route, queue.broker_name)
        if addr is None:
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} is not there at present")
        return addr

    async def bounds(self, queue: MessageQueue) -> QueueBounds:
        topic, queue_id = queue.topic, queue.queue_id
        first = await self._offset(queue, MinOffsetRequest(topic=topic, queue_id=queue_id))
        end = await self._offset(queue, MaxOffsetRequest(topic=topic, queue_id=queue_id))
        return QueueBounds(min_offset=max(0, first), max_offset=max(0, first, end))

    async def at_time(self, queue: MessageQueue, time_ms: int) -> int:
        """Of the first message stored then or later; the end when there is none."""
        request = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=time_ms)
        return max(0, await self._offset(queue, request))

    async def resolve(self, queue: MessageQueue, to: ResetTo) -> tuple[QueueBounds, int]:
        """The bounds of a queue, and the offset in it that is meant."""
        bounds = await self.bounds(queue)
        by_time = await self.at_time(queue, to.value) if to.kind is ResetKind.TIME else None
        return bounds, target_of(to, bounds, by_time)

    async def _offset(self, queue: MessageQueue, request: Header) -> int:
        answer = await self._session.call(await self.addr(queue), request)
        return OffsetResponse.decode(answer.ext_fields).queue_offset
