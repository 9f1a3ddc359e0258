"""Deliveries of one producer: packed, with room among those under way, alone or with others."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from rocketq.client.aio.batcher import Batcher
from rocketq.client.aio.in_flight import InFlight
from rocketq.client.aio.packer import Packer
from rocketq.client.aio.prober import Prober
from rocketq.client.aio.sends import SendPath
from rocketq.client.aio.session import Session
from rocketq.client.core.batches import batch_request, encode_element, split, stored_bytes
from rocketq.client.core.fault_latency import FaultLatency
from rocketq.client.core.messages import Message, Outgoing
from rocketq.client.core.producer_config import ProducerConfig
from rocketq.client.core.send_results import Accepted, SendResult, batch_results, send_result
from rocketq.client.errors import BatchFailedError
from rocketq.errors import RocketQError
from rocketq.model import SysFlag
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.names import Property

TOPICS_MAX: Final = 10_000


class Deliveries:
    """Topics and queues are as users know them; the namespace is put on here and taken off results."""

    def __init__(self, session: Session, group: str, config: ProducerConfig) -> None:
        self._session = session
        self._packer = Packer(session, config.packing())
        faults = FaultLatency(config.fault_latency) if config.fault_latency is not None else None
        self.path = SendPath(
            session,
            group,
            policy=config.retry_policy(),
            faults=faults,
            template_topic=config.template_topic,
            new_topic_queues=config.new_topic_queues,
        )
        self._prober = Prober(session, faults, self.path) if faults is not None else None
        self._batching = config.batching
        self._batch_bytes_max = config.batch_bytes_max
        self._batcher: Batcher | None = None
        self.in_flight = InFlight(config.in_flight_count_max, config.in_flight_bytes_max)
        self.topics: dict[str, None] = {config.template_topic: None}
        """All that were sent to, as brokers know them, and the one new topics are made after."""

    def start(self) -> None:
        """On the loop it belongs to."""
        if self._batching is not None:
            self._batcher = Batcher(self.path, self._batching, self._session.clock)
        if self._prober is not None:
            self._prober.start()

    async def close(self, what: str, timeout_ms: int) -> None:
        """What waits for room goes no more; what is under way may end."""
        self.in_flight.close(what)
        if self._prober is not None:
            await self._prober.close()
        if self._batcher is not None:
            await self._batcher.close()
        await self.in_flight.drained(timeout_ms)

    def check(self, message: Message) -> None:
        """MessageInvalidError says what is wrong, before anybody is called."""
        self._packer.encode(message)

    def topic(self, topic: str) -> str:
        """As brokers know it; its route is kept fresh from now on."""
        wrapped = self._session.namespace.topic(topic) if isinstance(topic, str) else topic
        if wrapped not in self.topics and len(self.topics) < TOPICS_MAX:
            self.topics[wrapped] = None
        return wrapped

    def one(
        self, message: Message, queue: MessageQueue | None, timeout_ms: int, extra: Mapping[str, str] | None
    ) -> Coroutine[Any, Any, SendResult]:
        """In a request of its own, or with others where that is allowed and wanted."""
        if self._batcher is not None and extra is None and self._may_batch(message):
            return self._sharing(message, queue, timeout_ms)
        return self.single(message, queue, timeout_ms, extra)

    async def oneway(self, message: Message, queue: MessageQueue | None, timeout_ms: int) -> None:
        outgoing = self._packer.encode(message)
        if self._packer.is_compressed(message.body):
            await self._packer.compress(outgoing)
        target = self._session.namespace.queue(queue) if queue is not None else None
        await self.path.oneway(self.topic(message.topic), outgoing, target, timeout_ms)

    async def single(
        self,
        message: Message,
        queue: MessageQueue | None,
        timeout_ms: int,
        extra: Mapping[str, str] | None = None,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    ) -> SendResult:
        """In a request of its own."""
        outgoing = self._packer.encode(message, extra)
        if self._packer.is_compressed(message.body):
            await self._packer.compress(outgoing)
        if extra is not None and Property.TRANSACTION_PREPARED in extra:
            outgoing.sys_flag |= SysFlag.TRANSACTION_PREPARED
        is_reply = code is RequestCode.SEND_REPLY_MESSAGE_V2  # its topic is the cluster's, in no namespace
        topic = message.topic if is_reply else self.topic(message.topic)
        result = send_result(await self._deliver(topic, outgoing, queue, timeout_ms, code), outgoing.unique_key)
        if self._session.namespace.name is not None:
            result.queue = self._session.namespace.plain_queue(result.queue)
        return result

    async def _deliver(
        self, topic: str, outgoing: Outgoing, queue: MessageQueue | None, timeout_ms: int, code: RequestCode
    ) -> Accepted:
        """With room among those under way."""
        size_bytes = len(outgoing.body)
        in_flight = self.in_flight
        if not in_flight.try_enter(size_bytes):
            began_ms = self._session.clock.monotonic_ms()
            await in_flight.enter(size_bytes, timeout_ms)
            timeout_ms = max(1, timeout_ms - (self._session.clock.monotonic_ms() - began_ms))
        try:
            if queue is None:
                return await self.path.anywhere(topic, outgoing, timeout_ms, code)
            return await self.path.to_queue(self._session.namespace.queue(queue), outgoing, timeout_ms, code)
        finally:
            in_flight.leave(size_bytes)

    def _may_batch(self, message: Message) -> bool:
        return (
            isinstance(message, Message)
            and not message.is_delayed
            and isinstance(message.body, bytes)
            and not self._packer.is_compressed(message.body)
        )

    async def _sharing(self, message: Message, queue: MessageQueue | None, timeout_ms: int) -> SendResult:
        assert self._batcher is not None
        outgoing = self._packer.encode(message)
        topic = self.topic(message.topic)
        namespace = self._session.namespace
        target = namespace.queue(queue) if queue is not None else None
        size_bytes = len(outgoing.body)
        if not self.in_flight.try_enter(size_bytes):
            await self.in_flight.enter(size_bytes, timeout_ms)
        try:
            result = await self._batcher.add(topic, outgoing, target, message.wait, timeout_ms)
        finally:
            self.in_flight.leave(size_bytes)
        if namespace.name is not None:
            result.queue = namespace.plain_queue(result.queue)
        return result

    async def parts(
        self, messages: Sequence[Message], queue: MessageQueue | None, deadline_ms: int
    ) -> list[SendResult]:
        """A batch, in as few requests as fit."""
        topic = self.topic(messages[0].topic)
        packed = [self._packer.encode(message) for message in messages]
        elements = [encode_element(outgoing) for outgoing in packed]
        sizes = [stored_bytes(element, topic) for element in elements]
        results: list[SendResult] = []
        for first, end in split(sizes, self._batch_bytes_max):
            left_ms = max(1, deadline_ms - self._session.clock.monotonic_ms())
            try:
                if end - first == 1:
                    results.append(await self.single(messages[first], queue, left_ms))
                else:
                    outgoing = batch_request(elements[first:end], wait=messages[0].wait)
                    results += await self._part(topic, outgoing, packed[first:end], queue, left_ms)
            except RocketQError as error:
                if not results:
                    raise
                raise BatchFailedError([*results, *[None] * (len(messages) - len(results))], error) from error
        return results

    async def _part(
        self,
        topic: str,
        outgoing: Outgoing,
        packed: Sequence[Outgoing],
        queue: MessageQueue | None,
        timeout_ms: int,
    ) -> list[SendResult]:
        answer = await self._deliver(topic, outgoing, queue, timeout_ms, RequestCode.SEND_BATCH_MESSAGE)
        answer = answer._replace(queue=self._session.namespace.plain_queue(answer.queue))
        return batch_results(answer, [one.unique_key for one in packed])
