"""Single messages, for operators: find by id, key or time, and send again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rocketq.client.admin.brokers import BrokerDirectory
from rocketq.client.core.messages import born_ms_of, copy_of
from rocketq.client.core.routes import masters_of, subscribe_queues
from rocketq.client.core.send_flow import SendResult
from rocketq.client.core.stored_messages import StoredMessage, stored_message
from rocketq.client.core.subscriptions import ALL
from rocketq.client.errors import NotFoundError
from rocketq.client.fan_out import on_each
from rocketq.client.fetcher import Puller, PullStatus
from rocketq.client.offsets import QueuePositions
from rocketq.client.send import Sender
from rocketq.client.session import Session
from rocketq.model import decode_message_id
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.failures import InternalBrokerError
from rocketq.protocol.headers.pull import QueryMessageRequest, ViewMessageRequest
from rocketq.protocol.messages import decode_records

RESEND_GROUP: Final = "ROCKETQ_RESEND"
COUNT_MAX: Final = 64
ALWAYS_MS: Final = (1 << 63) - 1
_CLOCKS_DIFFER_MS: Final = 60_000


class AsyncMessages:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)
        self._positions = QueuePositions(session)
        self._puller = Puller(session)
        self._sender = Sender(session, RESEND_GROUP)

    async def get(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """By the place in a broker's log that an offset id names; of a topic also by unique key, newest first."""
        place = await self._place(message_id)
        if place is not None:
            return await self._at(message_id, *place)
        if topic is None:
            reason = "no broker here has the address in it; for a unique key the topic is needed"
            raise NotFoundError("message", message_id, reason)
        found = await self.by_unique_key(topic, message_id)
        if not found:
            raise NotFoundError("message", message_id, f"topic {topic} has none with that unique key")
        return found[-1]

    async def by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = ALWAYS_MS, count_max: int = COUNT_MAX
    ) -> tuple[StoredMessage, ...]:
        """Messages with this among their keys, oldest first."""
        request = QueryMessageRequest(
            topic=topic, key=key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms, by_unique_key=False
        )
        return await self._query(request, lambda message: key in message.keys)

    async def by_unique_key(self, topic: str, unique_key: str) -> tuple[StoredMessage, ...]:
        """Messages with this id, oldest first; more than one when it was sent again."""
        born_ms = born_ms_of(unique_key, self._session.clock.now_ms())
        request = QueryMessageRequest(
            topic=topic,
            key=unique_key,
            count_max=COUNT_MAX,
            begin_ms=max(0, born_ms - _CLOCKS_DIFFER_MS) if born_ms is not None else 0,
            end_ms=ALWAYS_MS,
            by_unique_key=True,
        )
        return await self._query(request, lambda message: message.unique_key == unique_key)

    async def by_time(
        self, topic: str, begin_ms: int, end_ms: int, *, expression: str = ALL, count_max: int = COUNT_MAX
    ) -> tuple[StoredMessage, ...]:
        """The first messages stored in that time, oldest first."""
        route = await self._session.routes.refresh(topic)
        queues = subscribe_queues(topic, route)
        calls = {queue: self._read(queue, begin_ms, end_ms, expression, count_max) for queue in queues}
        parts = await on_each(calls)
        return tuple(sorted((message for part in parts.values() for message in part), key=_by_store_time)[:count_max])

    async def resend(self, message_id: str, topic: str | None = None, *, to_topic: str | None = None) -> SendResult:
        """Send a copy with a new id, to its original topic unless another is named."""
        return await self._sender.send(copy_of(await self.get(message_id, topic), to_topic))

    async def _place(self, message_id: str) -> tuple[str, str, int] | None:
        """Broker name, address and log offset, if the id contains these and its broker is in this cluster."""
        try:
            host, log_offset = decode_message_id(message_id)
        except ValueError:
            return None
        name = await self._directory.name_of(str(host))
        return None if name is None else (name, str(host), log_offset)

    async def _at(self, message_id: str, broker_name: str, addr: str, log_offset: int) -> StoredMessage:
        try:
            answer = await self._session.call(addr, ViewMessageRequest(log_offset=log_offset))
        except InternalBrokerError as failure:
            raise NotFoundError("message", message_id, failure.remark) from failure
        (record,) = decode_records(answer.body)
        return stored_message(record, broker_name)

    async def _query(
        self, request: QueryMessageRequest, wanted: Callable[[StoredMessage], bool]
    ) -> tuple[StoredMessage, ...]:
        """From all brokers of the topic. The index compares hashes: `wanted` filters the results by the real key."""
        masters = masters_of(await self._session.routes.refresh(request.topic))
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        calls = {name: self._session.call(addr, request, accept=accept) for name, addr in masters.items()}
        found = [
            stored_message(record, name)
            for name, answer in (await on_each(calls)).items()
            if answer.code == ResponseCode.SUCCESS
            for record in decode_records(answer.body)
        ]
        return tuple(sorted(filter(wanted, found), key=_by_store_time))

    async def _read(
        self, queue: MessageQueue, begin_ms: int, end_ms: int, expression: str, count_max: int
    ) -> list[StoredMessage]:
        end = (await self._positions.bounds(queue)).max_offset
        offset = await self._positions.at_time(queue, begin_ms)
        found: list[StoredMessage] = []
        while offset < end and len(found) < count_max:
            result = await self._puller.pull(queue, offset, expression=expression)
            found += [message for message in result.messages if begin_ms <= message.store_ms <= end_ms]
            passed = any(message.store_ms > end_ms for message in result.messages)
            stuck = result.next_offset <= offset or result.status is PullStatus.NO_NEW_MESSAGE
            if passed or stuck:
                break
            offset = result.next_offset
        return found


def _by_store_time(message: StoredMessage) -> tuple[int, str, int, int]:
    return message.store_ms, message.queue.broker_name, message.queue.queue_id, message.queue_offset
