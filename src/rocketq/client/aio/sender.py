"""Sending single messages, for tools: no membership, no hooks."""

from __future__ import annotations

from rocketq.client.aio.sends import SEND_TIMEOUT_MS, SendPath
from rocketq.client.aio.session import Session
from rocketq.client.core.messages import Message, prepare
from rocketq.client.core.retries import RetryPolicy
from rocketq.client.core.send_results import SendResult, send_result
from rocketq.protocol.bodies.queues import MessageQueue


class Sender:
    """Sends as a producer of `group` does. Topics and queues are as brokers know them."""

    def __init__(self, session: Session, group: str, *, attempts_max: int = 3) -> None:
        self._session = session
        self._path = SendPath(session, group, policy=RetryPolicy(attempts_max=attempts_max))

    async def send(
        self, message: Message, queue: MessageQueue | None = None, *, timeout_ms: int = SEND_TIMEOUT_MS
    ) -> SendResult:
        """To this queue, once; without one to a queue of the topic, and after a failure to one of another broker.

        The timeout bounds the whole call. A message whose answer did not come may have been stored.
        """
        outgoing = prepare(message, self._session.unique_ids.next(self._session.clock.now_ms()))
        if queue is not None:
            answer = await self._path.to_queue(queue, outgoing, timeout_ms)
        else:
            answer = await self._path.anywhere(message.topic, outgoing, timeout_ms)
        return send_result(answer, outgoing.unique_key)
