"""Giving failed messages back to brokers."""

from __future__ import annotations

import logging
from typing import Final

from rocketq.client.aio.session import Session
from rocketq.client.core.consume_retry import RetryCopy, dead_copy, retry_copy, send_back_request
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.routes import broker_addr, master_addr, publish_queues
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import NoQueueError
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode, ResponseCode

SEND_BACK_TIMEOUT_MS: Final = 5_000
SEND_TIMEOUT_MS: Final = 3_000
INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)

log = logging.getLogger(__name__)


class SendBacks:
    """As a member of `group`, a name with its namespace."""

    def __init__(self, session: Session, group: str, namespace: Namespace, max_reconsume_times: int) -> None:
        self._session = session
        self._group = group
        self._namespace = namespace
        self._limit = max_reconsume_times
        self._turn = 0

    async def later(self, message: StoredMessage, delay_level: int) -> bool:
        """To be delivered again after a delay, or dead beyond the limit. False when no broker took it."""
        try:
            await self._send_back(message, delay_level)
        except RocketQError as error:
            log.info("group %s: %s was not taken back, it is sent anew: %s", self._group, message.message_id, error)
            topic = self._namespace.topic(message.topic)
            return await self._resend(message, retry_copy(message, self._group, delay_level, self._limit, topic))
        return True

    async def dead(self, message: StoredMessage) -> bool:
        """In order, beyond the limit: to the dead letters. False when no broker took it."""
        topic = self._namespace.topic(message.topic)
        return await self._resend(message, dead_copy(message, self._group, self._limit, topic))

    async def _send_back(self, message: StoredMessage, delay_level: int) -> None:
        topic = self._namespace.topic(message.topic)
        request = send_back_request(message, self._group, delay_level, self._limit, topic)
        await self._session.call(await self._store_addr(message), request, timeout_ms=SEND_BACK_TIMEOUT_MS)

    async def _store_addr(self, message: StoredMessage) -> str:
        """Of the broker that stored it: by name, or where it was when that name is not there."""
        try:
            route = await self._session.routes.get(self._namespace.topic(message.queue.topic))
            addr = broker_addr(route, message.queue.broker_name)
        except RocketQError:
            addr = None
        return addr or str(message.store_host)

    async def _resend(self, message: StoredMessage, copy: RetryCopy) -> bool:
        try:
            route = await self._session.routes.get(copy.topic)
            queues = publish_queues(copy.topic, route)
            if not queues:
                raise NoQueueError(copy.topic, "no queue of it can be written at present")
            queue = self._choose(queues)
            request = copy.request(queue.queue_id, queue.broker_name, INNER_GROUP, self._session.clock.now_ms())
            await self._session.call(
                master_addr(route, queue),
                request,
                code=RequestCode.SEND_MESSAGE_V2,
                body=copy.body,
                timeout_ms=SEND_TIMEOUT_MS,
                accept=_STORED,
            )
        except RocketQError as error:
            log.warning("group %s: %s could not be sent back: %s", self._group, message.message_id, error)
            return False
        return True

    def _choose(self, queues: tuple[MessageQueue, ...]) -> MessageQueue:
        self._turn += 1
        return queues[self._turn % len(queues)]
