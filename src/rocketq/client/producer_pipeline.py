"""Steps of a send before the request: encode the message, limit the sends in flight, batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from rocketq.client.batcher import Batcher, Lane, end_waiter
from rocketq.client.core.batches import Batching, batch_request, encode_element, split, stored_bytes
from rocketq.client.core.config import ProducerConfig
from rocketq.client.core.messages import EncodeOptions, Message, Outgoing, check_and_encode, check_properties
from rocketq.client.core.routes import FaultLatency
from rocketq.client.core.send_flow import Accepted, SendResult, batch_results, send_result
from rocketq.client.errors import BatchFailedError, ClientClosedError, TooManySendsError
from rocketq.client.in_flight import InFlight
from rocketq.client.send import Prober, SendPath, Tried
from rocketq.client.send_many import BatchPart, SendManyResult
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.kernel.send_batch import SendBatch
from rocketq.model import SysFlag
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.compression import compress
from rocketq.protocol.names import RETRY_PREFIX, Property

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
        """The body of a message that is large, unless it becomes larger."""
        kind, level = self._options.compression, self._options.compress_level
        if len(outgoing.body) >= ASIDE_BYTES:
            smaller = await asyncio.to_thread(compress, outgoing.body, kind, level=level)
        else:
            smaller = compress(outgoing.body, kind, level=level)
        if len(smaller) < len(outgoing.body):
            outgoing.body = smaller
            outgoing.sys_flag |= kind.sys_flag


Exchange = Callable[[str, Callable[[int], bytes], int, int], Command]
"""An exchange with an address: the frame for an opaque, the request code and the timeout in ms; the answer."""
TOPICS_MAX: Final = 10_000
MANY_COUNT_MAX: Final = 2_000
"""Messages per request of `send_many`: their ids fit the header of the answer."""


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
        self._retry_policy = config.retry_policy()
        self._prober = Prober(session, faults, self.path) if faults is not None else None
        self._batching = config.batching
        self._batch_bytes_max = config.batch_bytes_max
        self._encode_options = config.encode_options()
        self._send_timeout_ms = config.send_timeout_ms
        self._batcher: Batcher | None = None
        self._sends: set[asyncio.Task[SendResult]] = set()
        self._lanes: dict[str, Lane] = {}
        """Of plain messages, by topics as users know them; only with batches and without a namespace."""
        self.in_flight = InFlight(config.in_flight_count_max, config.in_flight_bytes_max)
        self.topics: dict[str, None] = {config.template_topic: None}
        """Topics with sends, including the namespace, and the template of new topics."""

    def start(self) -> None:
        """Called on the loop it belongs to."""
        self._loop = asyncio.get_running_loop()
        if self._batching is not None:
            self._batcher = Batcher(self._session, self.path, self._batching, self._encode_options, self.in_flight)
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
            return self._batched(self._batcher, message, queue, timeout_ms)
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
        *,
        has_entered: bool = False,
    ) -> SendResult:
        """In a single request. With `has_entered` the caller has the capacity for it, and releases it."""
        outgoing = self._encoder.encode(message, extra)
        if self._encoder.is_compressed(message.body):
            await self._encoder.compress(outgoing)
        if extra is not None and Property.TRANSACTION_PREPARED in extra:
            outgoing.sys_flag |= SysFlag.TRANSACTION_PREPARED
        is_reply = code is RequestCode.SEND_REPLY_MESSAGE_V2  # its topic is the cluster's, in no namespace
        topic = message.topic if is_reply else self.topic(message.topic)
        deliver = self._deliver_now if has_entered else self._deliver
        result = send_result(await deliver(topic, outgoing, queue, timeout_ms, code), outgoing.unique_key)
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
            return await self._deliver_now(topic, outgoing, queue, timeout_ms, code)
        finally:
            in_flight.leave(size_bytes)

    async def _deliver_now(
        self, topic: str, outgoing: Outgoing, queue: MessageQueue | None, timeout_ms: int, code: RequestCode
    ) -> Accepted:
        if queue is None:
            return await self.path.anywhere(topic, outgoing, timeout_ms, code)
        return await self.path.to_queue(self._session.namespace.queue(queue), outgoing, timeout_ms, code)

    def _may_batch(self, message: Message) -> bool:
        return (
            isinstance(message, Message)
            and not message.is_delayed
            and isinstance(message.body, bytes)
            and isinstance(message.topic, str)
            and not message.topic.startswith(RETRY_PREFIX)
            and not self._encoder.is_compressed(message.body)
        )

    async def _batched(
        self, batcher: Batcher, message: Message, queue: MessageQueue | None, timeout_ms: int
    ) -> SendResult:
        """With other messages that are sent at the same time."""
        outgoing = self._encoder.encode(message)
        lane = self._lane_of(batcher, message, queue)
        size_bytes = len(outgoing.body)
        if not self.in_flight.try_enter(size_bytes):
            start_ms = self._session.clock.monotonic_ms()
            await self.in_flight.enter(size_bytes, timeout_ms)
            timeout_ms = max(1, timeout_ms - (self._session.clock.monotonic_ms() - start_ms))
        result: asyncio.Future[SendResult] = self._loop.create_future()
        batcher.add_encoded(lane, outgoing, result, timeout_ms)
        return await result

    def _lane_of(self, batcher: Batcher, message: Message, queue: MessageQueue | None) -> Lane:
        namespace = self._session.namespace
        topic = self.topic(message.topic)
        lane = batcher.lane(topic, namespace.queue(queue) if queue is not None else None, message.wait)
        if queue is None and message.wait and namespace.name is None and len(self._lanes) < TOPICS_MAX:
            self._lanes[topic] = lane
        return lane

    def post(self, message: Message, waiter: Any, timeout_ms: int) -> bool:
        """Add a plain message to the next batch of its topic, which ends the waiter.

        False, with nothing done, for any other message, and where there is no capacity.
        """
        batcher = self._batcher
        if batcher is None or type(message) is not Message:
            return False
        body, lane = message.body, self._lanes.get(message.topic)
        if lane is None:
            if self._session.namespace.name is not None or not self._may_batch(message):
                return False
            self.check(message)  # of the first message to a topic
            lane = self._lane_of(batcher, message, None)
        if type(body) is not bytes or not self.in_flight.try_enter(len(body)):
            return False
        if not batcher.add(lane, message, waiter, timeout_ms):
            self.in_flight.leave(len(body))
            return False
        return True

    def plain(self, message: Message, timeout_ms: int) -> asyncio.Future[SendResult] | None:
        """The future of a plain message's result; None where `one` must be used."""
        if self._batcher is None:
            return None
        result: asyncio.Future[SendResult] = self._loop.create_future()
        return result if self.post(message, result, timeout_ms) else None

    def start_send(self, message: Message, waiter: Any, timeout_ms: int) -> None:
        """Start a send that ends the waiter, a future or a function; TooManySendsError where it would have to wait."""
        if self.post(message, waiter, timeout_ms):
            return
        outgoing = self._encoder.encode(message)  # raises what is wrong
        size_bytes = len(outgoing.body)
        if not self.in_flight.try_enter(size_bytes):
            raise TooManySendsError(self.in_flight.count, self.in_flight.size_bytes, 0)
        if self._batcher is not None and self._may_batch(message):
            self._batcher.add_encoded(self._lane_of(self._batcher, message, None), outgoing, waiter, timeout_ms)
            return
        task = self._loop.create_task(self.single(message, None, timeout_ms, has_entered=True))
        self._sends.add(task)
        task.add_done_callback(partial(self._end_send, waiter, size_bytes))

    def _end_send(self, waiter: Any, size_bytes: int, task: asyncio.Task[SendResult]) -> None:
        self._sends.discard(task)
        self.in_flight.leave(size_bytes)
        if task.cancelled():
            end_waiter(waiter, None, ClientClosedError("the producer"))
        elif (error := task.exception()) is not None:
            end_waiter(waiter, None, error)
        else:
            end_waiter(waiter, task.result(), None)

    def send_directly(
        self, message: Message, timeout_ms: int, exchange: Exchange
    ) -> SendResult | Callable[[], Coroutine[Any, Any, SendResult]] | None:
        """The first try on a socket of the calling thread, which may be any.

        The result; or, when the try failed, the work to be done on the loop; or None when the loop must do it all.
        """
        if (
            type(message) is not Message
            or message.topic not in self.topics
            or self._session.namespace.name is not None
            or type(message.body) is not bytes
            or self._encoder.is_compressed(message.body)
        ):
            return None
        start_ms = self._session.clock.monotonic_ms()
        outgoing, code = self._encoder.encode(message), RequestCode.SEND_MESSAGE_V2
        planned = self.path.plan(message.topic, outgoing)
        if planned is None:
            return None
        queue, addr, frame_of = planned
        outcome: RocketQError | Accepted
        try:
            answer = exchange(addr, frame_of, code, self._retry_policy.timeout_ms(1, timeout_ms))
            outcome = self.path.judge(queue, addr, answer)
            if self.path.is_final(outcome):
                return send_result(outcome, outgoing.unique_key)
        except RocketQError as error:
            outcome = error
        return partial(self._after_try, message.topic, outgoing, timeout_ms, start_ms, (queue, outcome))

    async def _after_try(
        self, topic: str, outgoing: Outgoing, timeout_ms: int, start_ms: int, tried: Tried
    ) -> SendResult:
        answer = await self.path.anywhere(topic, outgoing, timeout_ms, tried=tried, start_ms=start_ms)
        return send_result(answer, outgoing.unique_key)

    async def flush(self) -> None:
        """Send what is gathered, and wait until nothing is in flight."""
        while self.in_flight.count:
            if self._batcher is not None:
                self._batcher.flush()
            await self.in_flight.drained(None)

    async def many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        tags: Sequence[str | None] | None,
        keys: Sequence[tuple[str, ...]] | None,
        properties: Sequence[Mapping[str, str]] | None,
        deadline_ms: int,
    ) -> SendManyResult:
        """Bodies in batches, several of them in flight."""
        batching = self._batching or Batching()
        batcher = self._batcher or Batcher(self._session, self.path, batching, self._encode_options, self.in_flight)
        plain = properties is None and self._session.namespace.name is None
        listed, tag_list = list(bodies), list(tags) if tags is not None else None
        key_list = list(keys) if keys is not None else None
        lane = Lane(self.topic(topic), None, True)
        parts: list[BatchPart | SendResult | None] = []
        running: set[asyncio.Task[None]] = set()
        failed: list[RocketQError] = []
        counts: list[int] = []

        async def send_batch(number: int, batch: SendBatch) -> None:
            try:
                left_ms = max(1, deadline_ms - self._session.clock.monotonic_ms())
                accepted = await batcher.request(lane, batch, left_ms)
                parts[number] = BatchPart(batch, accepted, self._session.namespace.plain_queue(accepted.queue))
            except RocketQError as error:
                failed.append(error)
            finally:
                self.in_flight.leave(batch.body_bytes)

        async def send_single(number: int, message: Message) -> None:
            try:
                left_ms = max(1, deadline_ms - self._session.clock.monotonic_ms())
                parts[number] = await self.single(message, None, left_ms)
            except RocketQError as error:
                failed.append(error)

        def message_at(at: int) -> Message:
            return Message(
                topic=topic,
                body=listed[at],
                tag=tag_list[at] if tag_list is not None else None,
                keys=key_list[at] if key_list is not None else (),
                properties=properties[at] if properties is not None else None,
            )

        at = 0
        try:
            while at < len(listed) and not failed:
                first, now_ms = at, self._session.clock.now_ms()
                batch = batcher.new_batch()
                work: Coroutine[Any, Any, None] | None = None
                if plain:
                    at = batch.add_bodies(listed, tag_list, key_list, at, batching.bytes_max, MANY_COUNT_MAX, now_ms)
                while at < len(listed) and batch.used < batching.bytes_max and len(batch) < MANY_COUNT_MAX:
                    message = message_at(at)
                    if plain and len(batch) and batch.used + len(message.body) + 512 > batching.bytes_max:
                        break
                    if not self._may_batch(message):
                        if len(batch) == 0:
                            self.check(message)
                            work, at = send_single(len(parts), message), at + 1
                        break
                    outgoing = self._encoder.encode(message)
                    batch.add_encoded(outgoing.body, outgoing.flag, outgoing.properties.encode(), None)
                    at += 1
                if work is None:
                    left_ms = max(1, deadline_ms - self._session.clock.monotonic_ms())
                    await self.in_flight.enter(batch.body_bytes, left_ms)
                    work = send_batch(len(parts), batch)
                parts.append(None)
                counts.append(at - first)
                task = asyncio.get_running_loop().create_task(work)
                running.add(task)
                task.add_done_callback(running.discard)
                while len(running) >= batching.requests_max:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        except RocketQError as error:
            failed.append(error)
        finally:
            if running:
                await asyncio.wait(running)
        if not failed:
            return SendManyResult([part for part in parts if part is not None])
        results: list[SendResult | None] = []
        for part, count in zip(parts, counts, strict=True):
            results += [None] * count if part is None else [part] if isinstance(part, SendResult) else part.results()
        results += [None] * (len(listed) - len(results))
        if not any(results):
            raise failed[0]
        raise BatchFailedError(results, failed[0]) from failed[0]

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
