"""Messages with a timer, for operators: which wait, and taken back."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass

from rocketq.client.aio.broker_directory import BrokerDirectory
from rocketq.client.aio.puller import Puller, PullStatus
from rocketq.client.aio.queue_positions import QueuePositions
from rocketq.client.aio.session import Session
from rocketq.client.core.recalls import recall_place
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.timers import WaitingTimer, waiting_timers
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.headers.send import RecallRequest, RecallResponse
from rocketq.protocol.names import TIMER_TOPIC


@dataclass(frozen=True, slots=True)
class Recalled:
    topic: str
    unique_key: str
    broker_name: str


class AsyncTimers:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)
        self._positions = QueuePositions(session)
        self._puller = Puller(session)

    async def list(self, topic: str | None = None) -> tuple[WaitingTimer, ...]:
        """Messages that wait for their time on any broker, the next one first; of one topic, or of all. Everything in
        the brokers' timer topics is read for this."""
        now_ms = self._session.clock.now_ms()
        found = [
            timer
            for name in await self._directory.masters()
            for timer in waiting_timers(name, await self._read(name), now_ms)
            if topic in (None, timer.topic)
        ]
        return tuple(sorted(found, key=lambda timer: (timer.due_ms, timer.unique_key or "")))

    async def cancel(self, handle: str) -> Recalled:
        """Take a message back by the handle its producer got; a broker's refusal says why not."""
        place = recall_place(handle)
        addr = await self._directory.addr(place.broker_name)
        answer = await self._session.call(addr, RecallRequest(topic=place.topic, handle=handle))
        return Recalled(place.topic, RecallResponse.decode(answer.ext_fields).message_id, place.broker_name)

    async def _read(self, broker_name: str) -> Sequence[StoredMessage]:
        queue = MessageQueue(topic=TIMER_TOPIC, broker_name=broker_name, queue_id=0)
        bounds = await self._positions.bounds(queue)
        offset = bounds.min_offset
        found: MutableSequence[StoredMessage] = []
        while offset < bounds.max_offset:
            result = await self._puller.pull(queue, offset)
            found.extend(result.messages)
            if result.next_offset <= offset or result.status is PullStatus.NO_NEW_MESSAGE:
                break
            offset = result.next_offset
        return found
