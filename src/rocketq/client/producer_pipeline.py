"""Steps of a send before the request: encode the message, limit the sends in flight, batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketq.client.core.batches import Accumulator, Batching, batch_request, encode_element, split, stored_bytes
from rocketq.client.core.config import ProducerConfig
from rocketq.client.core.messages import EncodeOptions, Message, Outgoing, check_and_encode, check_properties
from rocketq.client.core.routes import FaultLatency
from rocketq.client.core.send_flow import Accepted, SendResult, batch_results, send_result
from rocketq.client.errors import BatchFailedError, ClientClosedError, TooManySendsError
from rocketq.client.send import Prober, SendPath
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.model import SysFlag
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.compression import compress
from rocketq.protocol.failures import MessageIllegalError
from rocketq.protocol.names import Property
from rocketq.runtime.clock import Clock

ASIDE_BYTES: Final = 256 << 10
"""Larger bodies are compressed on a thread, so that the loop is not blocked."""


class MessageEncoder:
    """Checks messages, assigns ids, compresses. Adds the namespace property."""

    def __init__(self, session: Session, encode_options: EncodeOptions) -> None:
        self._session = session
        self._options = encode_options

    def is_compressed(self, body: bytes) -> bool:
        return len(body) >= self._options.compress_from_bytes

    def encode(self, message: Message, extra: Mapping[str, str] | None = None) -> Outgoing:
        """Encode without compression; MessageInvalidError if the message is invalid."""
        if isinstance(message, Message) and message.properties:
            check_properties(message.properties)
        session = self._session
        if session.namespace.name is not None:
            extra = {**(extra or {}), Property.INSTANCE_ID: session.namespace.name}
        return check_and_encode(message, session.unique_ids.next(session.clock.now_ms()), self._options, extra=extra)

    async def compress(self, outgoing: Outgoing) -> None:
        """The body of a message that is large."""
        kind, level = self._options.compression, self._options.compress_level
        if len(outgoing.body) >= ASIDE_BYTES:
            outgoing.body = await asyncio.to_thread(compress, outgoing.body, kind, level=level)
        else:
            outgoing.body = compress(outgoing.body, kind, level=level)
        outgoing.sys_flag |= kind.sys_flag


class InFlight:
    """Limits the number and bytes of sends in flight; capacity is granted first come, first served."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self.count = 0
        self.size_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._empty: asyncio.Event | None = None

    def try_enter(self, size_bytes: int) -> bool:
        """Reserve capacity if there is enough."""
        if self._waiting or not self._fits(size_bytes):
            return False
        self.count += 1
        self.size_bytes += size_bytes
        return True

    async def enter(self, size_bytes: int, timeout_ms: int) -> None:
        """Wait for capacity; TooManySendsError on timeout."""
        if self.try_enter(size_bytes):
            return
        room = asyncio.get_running_loop().create_future()
        entry = (room, size_bytes)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await room
        except BaseException as error:
            if room.done() and not room.cancelled() and room.exception() is None:
                self.leave(size_bytes)  # capacity was granted at the same time
            elif entry in self._waiting:
                self._waiting.remove(entry)
            self._admit()
            if isinstance(error, TimeoutError):
                raise TooManySendsError(self.count, self.size_bytes, timeout_ms) from None
            raise

    def leave(self, size_bytes: int) -> None:
        self.count -= 1
        self.size_bytes -= size_bytes
        if self._waiting:
            self._admit()
        if self._empty is not None and self.count == 0:
            self._empty.set()

    async def drained(self, timeout_ms: int) -> bool:
        """Whether all sends in flight ended in time."""
        if self.count == 0:
            return True
        self._empty = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def close(self, what: str) -> None:
        """Fail everything that waits for capacity."""
        while self._waiting:
            room, _ = self._waiting.popleft()
            if not room.done():
                room.set_exception(ClientClosedError(what))

    def _fits(self, size_bytes: int) -> bool:
        """A send that is larger than the limit is admitted while no other is in flight."""
        if self.count == 0:
            return True
        return self.count < self._count_max and self.size_bytes + size_bytes <= self._bytes_max

    def _admit(self) -> None:
        while self._waiting:
            room, size_bytes = self._waiting[0]
            if not room.done():
                if not self._fits(size_bytes):
                    return
                self.count += 1
                self.size_bytes += size_bytes
                room.set_result(None)
            self._waiting.popleft()


@dataclass(frozen=True, slots=True)
class _Key:
    """The common properties of messages of one request."""

    topic: str
    queue: MessageQueue | None
    wait: bool


class _Waiting:
    __slots__ = ("deadline_ms", "element", "outgoing", "result")

    def __init__(
        self, outgoing: Outgoing, element: bytes, deadline_ms: int, result: asyncio.Future[SendResult]
    ) -> None:
        self.outgoing = outgoing
        self.element = element
        self.deadline_ms = deadline_ms
        self.result = result


class Batcher:
    """Belongs to one producer and its loop."""

    def __init__(self, path: SendPath, config: Batching, clock: Clock) -> None:
        self._path = path
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._accumulator: Accumulator[_Waiting] = Accumulator(config)
        self._keys: dict[tuple[str, MessageQueue | None, bool], _Key] = {}
        self._turn_set = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def add(
        self, topic: str, outgoing: Outgoing, queue: MessageQueue | None, wait: bool, timeout_ms: int
    ) -> asyncio.Future[SendResult]:
        now_ms = self._clock.monotonic_ms()
        result: asyncio.Future[SendResult] = self._loop.create_future()
        element = encode_element(outgoing)
        key = self._key(topic, queue, wait)
        waiting = _Waiting(outgoing, element, now_ms + timeout_ms, result)
        full = self._accumulator.add(key, waiting, len(element), now_ms)
        if full is not None:
            self._start(key, full)
        if not self._turn_set:
            self._turn_set = True
            self._loop.call_soon(self._turn)
        return result

    async def close(self) -> None:
        """Send or fail everything that was added."""
        if self._timer is not None:
            self._timer.cancel()
        for key, items in self._accumulator.drain():
            self._start(key, items)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def __len__(self) -> int:
        return len(self._accumulator)

    def _key(self, topic: str, queue: MessageQueue | None, wait: bool) -> _Key:
        parts = (topic, queue, wait)
        key = self._keys.get(parts)
        if key is None:
            if len(self._keys) > 10_000:
                self._keys.clear()
            key = self._keys[parts] = _Key(topic, queue, wait)
        return key

    def _turn(self) -> None:
        """Send the batches that are due, and schedule the next run."""
        self._turn_set = False
        now_ms = self._clock.monotonic_ms()
        for key, items in self._accumulator.due(now_ms):
            self._start(key, items)
        if self._config.linger_ms and (next_ms := self._accumulator.next_ms()) is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(max(1, next_ms - now_ms) / 1000, self._turn)

    def _start(self, key: Hashable, items: list[_Waiting]) -> None:
        assert isinstance(key, _Key)
        task = self._loop.create_task(self._send(key, items))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, key: _Key, items: list[_Waiting]) -> None:
        try:
            await self._complete(key, items)
        except RocketQError as error:
            _set_error(items, error)
        except asyncio.CancelledError:
            _set_error(items, ClientClosedError("the producer"))
            raise
        except Exception as error:  # every waiting sender must get the error
            _set_error(items, error)
        finally:
            self._accumulator.ended(key)
            if len(self._accumulator) and not self._turn_set:
                self._turn()

    async def _complete(self, key: _Key, items: list[_Waiting]) -> None:
        if len(items) == 1:
            _set_results(items, [await self._single(key, items[0])])
            return
        try:
            results = await self._several(key, items)
        except MessageIllegalError:  # too large for this broker as a batch, maybe not as single messages
            for item in items:
                try:
                    _set_results([item], [await self._single(key, item)])
                except RocketQError as error:
                    _set_error([item], error)
            return
        _set_results(items, results)

    async def _several(self, key: _Key, items: list[_Waiting]) -> list[SendResult]:
        outgoing = batch_request([item.element for item in items], wait=key.wait)
        code = RequestCode.SEND_BATCH_MESSAGE
        left_ms = self._left_ms(items)
        if key.queue is not None:
            answer = await self._path.to_queue(key.queue, outgoing, left_ms, code)
        else:
            answer = await self._path.anywhere(key.topic, outgoing, left_ms, code)
        return batch_results(answer, [item.outgoing.unique_key for item in items])

    async def _single(self, key: _Key, item: _Waiting) -> SendResult:
        left_ms = self._left_ms([item])
        if key.queue is not None:
            answer = await self._path.to_queue(key.queue, item.outgoing, left_ms)
        else:
            answer = await self._path.anywhere(key.topic, item.outgoing, left_ms)
        return send_result(answer, item.outgoing.unique_key)

    def _left_ms(self, items: Sequence[_Waiting]) -> int:
        """The shortest remaining timeout bounds the request, so that no sender waits longer than its timeout."""
        return max(1, min(item.deadline_ms for item in items) - self._clock.monotonic_ms())


def _set_results(items: Sequence[_Waiting], results: Sequence[SendResult]) -> None:
    for item, result in zip(items, results, strict=True):
        if not item.result.done():
            item.result.set_result(result)


def _set_error(items: Sequence[_Waiting], error: Exception) -> None:
    for item in items:
        if not item.result.done():
            item.result.set_exception(error)


TOPICS_MAX: Final = 10_000


class ProducerPipeline:
    """The path of every send of a producer. Adds the namespace to topics and queues, and removes it from results."""

    def __init__(self, session: Session, group: str, config: ProducerConfig) -> None:
        self._session = session
        self._encoder = MessageEncoder(session, config.encode_options())
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
        """Topics with sends, including the namespace, and the template of new topics."""

    def start(self) -> None:
        """Called on the loop it belongs to."""
        if self._batching is not None:
            self._batcher = Batcher(self.path, self._batching, self._session.clock)
        if self._prober is not None:
            self._prober.start()

    async def close(self, what: str, timeout_ms: int) -> None:
        """Reject sends that wait for capacity; wait for those in flight."""
        self.in_flight.close(what)
        if self._prober is not None:
            await self._prober.close()
        if self._batcher is not None:
            await self._batcher.close()
        await self.in_flight.drained(timeout_ms)

    def check(self, message: Message) -> None:
        """Raise MessageInvalidError before any request is sent."""
        self._encoder.encode(message)

    def topic(self, topic: str) -> str:
        """The topic with the namespace; its route is refreshed in the background from now on."""
        wrapped = self._session.namespace.topic(topic) if isinstance(topic, str) else topic
        if wrapped not in self.topics and len(self.topics) < TOPICS_MAX:
            self.topics[wrapped] = None
        return wrapped

    def one(
        self, message: Message, queue: MessageQueue | None, timeout_ms: int, extra: Mapping[str, str] | None
    ) -> Coroutine[Any, Any, SendResult]:
        """In a single request, or in a batch if batching is on and the message allows it."""
        if self._batcher is not None and extra is None and self._may_batch(message):
            return self._sharing(message, queue, timeout_ms)
        return self.single(message, queue, timeout_ms, extra)

    async def oneway(self, message: Message, queue: MessageQueue | None, timeout_ms: int) -> None:
        outgoing = self._encoder.encode(message)
        if self._encoder.is_compressed(message.body):
            await self._encoder.compress(outgoing)
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
        """In a single request."""
        outgoing = self._encoder.encode(message, extra)
        if self._encoder.is_compressed(message.body):
            await self._encoder.compress(outgoing)
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
        """Within the limit of sends in flight."""
        size_bytes = len(outgoing.body)
        in_flight = self.in_flight
        if not in_flight.try_enter(size_bytes):
            start_ms = self._session.clock.monotonic_ms()
            await in_flight.enter(size_bytes, timeout_ms)
            timeout_ms = max(1, timeout_ms - (self._session.clock.monotonic_ms() - start_ms))
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
            and not self._encoder.is_compressed(message.body)
        )

    async def _sharing(self, message: Message, queue: MessageQueue | None, timeout_ms: int) -> SendResult:
        assert self._batcher is not None
        outgoing = self._encoder.encode(message)
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
        encoded = [self._encoder.encode(message) for message in messages]
        elements = [encode_element(outgoing) for outgoing in encoded]
        sizes = [stored_bytes(element, topic) for element in elements]
        results: list[SendResult] = []
        for first, end in split(sizes, self._batch_bytes_max):
            left_ms = max(1, deadline_ms - self._session.clock.monotonic_ms())
            try:
                if end - first == 1:
                    results.append(await self.single(messages[first], queue, left_ms))
                else:
                    outgoing = batch_request(elements[first:end], wait=messages[0].wait)
                    results += await self._part(topic, outgoing, encoded[first:end], queue, left_ms)
            except RocketQError as error:
                if not results:
                    raise
                raise BatchFailedError([*results, *[None] * (len(messages) - len(results))], error) from error
        return results

    async def _part(
        self,
        topic: str,
        outgoing: Outgoing,
        encoded: Sequence[Outgoing],
        queue: MessageQueue | None,
        timeout_ms: int,
    ) -> list[SendResult]:
        answer = await self._deliver(topic, outgoing, queue, timeout_ms, RequestCode.SEND_BATCH_MESSAGE)
        answer = answer._replace(queue=self._session.namespace.plain_queue(answer.queue))
        return batch_results(answer, [one.unique_key for one in encoded])
