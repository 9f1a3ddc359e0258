"""Sending single messages."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from rocketq.client.aio.session import Session
from rocketq.client.core.messages import SEND_STATUSES, Message, Outgoing, SendResult, prepare, send_result
from rocketq.client.core.queue_choice import RoundRobin
from rocketq.client.core.routes import from_template, master_addr, publish_queues
from rocketq.client.errors import NoQueueError
from rocketq.errors import RequestTimeoutError, RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import TopicNotFound
from rocketq.protocol.headers.send import SendRequest, SendResponse
from rocketq.protocol.names import AUTO_CREATE_TOPIC

SEND_TIMEOUT_MS: Final = 3_000
ATTEMPTS_MAX: Final = 3
NEW_TOPIC_QUEUES: Final = 4


class Sender:
    """Sends as a producer of `group` does."""

    def __init__(self, session: Session, group: str, *, attempts_max: int = ATTEMPTS_MAX) -> None:
        self._session = session
        self._group = group
        self._attempts_max = attempts_max
        self._choice = RoundRobin(start=int.from_bytes(os.urandom(2), "big"))  # many short-lived senders spread

    async def send(
        self, message: Message, queue: MessageQueue | None = None, *, timeout_ms: int = SEND_TIMEOUT_MS
    ) -> SendResult:
        """To this queue, once; without one to a queue of the topic, and after a failure to one of another broker.

        The timeout bounds the whole call. A message whose answer did not come may have been stored.
        """
        outgoing = prepare(message, self._session.unique_ids.next(self._session.clock.now_ms()))
        deadline_ms = self._session.clock.monotonic_ms() + timeout_ms
        if queue is not None:
            route = await self._route_by(message.topic, deadline_ms)
            return await self._attempt(route, queue, message, outgoing, self._left_ms(deadline_ms))
        return await self._send_somewhere(message, outgoing, deadline_ms)

    async def _send_somewhere(self, message: Message, outgoing: Outgoing, deadline_ms: int) -> SendResult:
        failed_broker: str | None = None
        for attempt in range(1, self._attempts_max + 1):
            try:
                route = await self._route_by(message.topic, deadline_ms)
                queue = self._choose(message.topic, route, failed_broker)
                failed_broker = queue.broker_name
                return await self._attempt(route, queue, message, outgoing, self._left_ms(deadline_ms))
            except RocketQError as error:
                out_of_time = self._session.clock.monotonic_ms() >= deadline_ms
                if not error.retriable or attempt == self._attempts_max or out_of_time:
                    raise
                self._session.routes.expire(message.topic)
        raise AssertionError("the last attempt returns or raises")

    def _choose(self, topic: str, route: TopicRoute, failed_broker: str | None) -> MessageQueue:
        queues = publish_queues(topic, route)
        if not queues:
            raise NoQueueError(topic, "no queue of it can be written at present")
        return self._choice.choose(queues, failed_broker)

    def _left_ms(self, deadline_ms: int) -> int:
        return max(1, deadline_ms - self._session.clock.monotonic_ms())

    async def _route_by(self, topic: str, deadline_ms: int) -> TopicRoute:
        left_ms = self._left_ms(deadline_ms)
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await self._route(topic)
        except TimeoutError:
            addrs = ";".join(self._session.name_servers.addrs)
            raise RequestTimeoutError(addrs, RequestCode.GET_ROUTEINFO_BY_TOPIC, left_ms) from None

    async def _route(self, topic: str) -> TopicRoute:
        """Of a topic that does not exist the route it will have once a broker got its first message."""
        try:
            return await self._session.routes.get(topic)
        except TopicNotFound as unknown:
            try:
                template = await self._session.routes.get(AUTO_CREATE_TOPIC)
            except TopicNotFound:
                raise unknown from None
            return from_template(template, NEW_TOPIC_QUEUES)

    async def _attempt(
        self, route: TopicRoute, queue: MessageQueue, message: Message, outgoing: Outgoing, timeout_ms: int
    ) -> SendResult:
        request = SendRequest(
            group=self._group,
            topic=message.topic,
            default_queue_count=NEW_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_ms=self._session.clock.now_ms(),
            flag=message.flag,
            properties=outgoing.properties,
            broker_name=queue.broker_name,
        )
        answer = await self._session.call(
            master_addr(route, queue),
            request,
            code=RequestCode.SEND_MESSAGE_V2,
            body=outgoing.body,
            timeout_ms=timeout_ms,
            accept=SEND_STATUSES,
        )
        return send_result(answer.code, SendResponse.decode(answer.ext_fields), outgoing.unique_key, queue)
