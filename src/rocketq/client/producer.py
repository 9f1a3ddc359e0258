"""Producers."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from rocketq.client.batcher import OnDone
from rocketq.client.core.batches import check_batch
from rocketq.client.core.config import Milliseconds, ProducerConfig, check_group, milliseconds
from rocketq.client.core.messages import Message, check, decode_recall_handle, half_properties
from rocketq.client.core.routes import hash_index
from rocketq.client.core.send_flow import SendContext, SendHook, SendMode, SendResult, TransactionResult, outcome_of
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import (
    ClientClosedError,
    MessageInvalidError,
    NotStartedError,
    ReplyTimeoutError,
    SelectorError,
    TooManySendsError,
    WrongLoopError,
)
from rocketq.client.producer_pipeline import Exchange, ProducerPipeline
from rocketq.client.replies import ReplyWaiters, reply_properties, reply_topic, request_properties
from rocketq.client.send_many import SendManyResult
from rocketq.client.session import Session, SessionConfig
from rocketq.client.transactions import TransactionListener, Transactions
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.clients import ProducerData
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.send import CheckTransactionRequest, RecallRequest, RecallResponse
from rocketq.protocol.names import Property
from rocketq.runtime.clock import Clock

if TYPE_CHECKING:
    from rocketq.client.trace import SendTracer, TraceCollector

log = logging.getLogger(__name__)

Select = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue | None]


_Given = TypeVar("_Given")
Results = Callable[[_Given], tuple[SendResult, ...]]


class SendObserver:
    """Calls hooks around every send of a producer; their exceptions are logged."""

    def __init__(self, hooks: list[SendHook], group: str, clock: Clock) -> None:
        self._hooks = hooks
        self._group = group
        self._clock = clock

    def add(self, hook: SendHook) -> None:
        self._hooks.append(hook)

    def __bool__(self) -> bool:
        """Whether there are hooks."""
        return bool(self._hooks)

    async def around(
        self,
        mode: SendMode,
        messages: tuple[Message, ...],
        queue: MessageQueue | None,
        work: Coroutine[Any, Any, _Given],
        results_of: Results[_Given],
    ) -> _Given:
        """Await the work between the hooks; `results_of` extracts its results."""
        if not self._hooks:
            return await work
        context = SendContext(group=self._group, messages=messages, mode=mode, queue=queue)
        self._notify("before_send", context)
        start_ms = self._clock.monotonic_ms()
        results: tuple[SendResult, ...] = ()
        try:
            given = await work
            results = results_of(given)
            return given
        except BaseException as error:
            context.error = error
            results = tuple(one for one in getattr(error, "results", ()) if one is not None)  # of a part of a batch
            raise
        finally:
            context.results = results
            context.outcome = outcome_of(results, context.error)
            context.elapsed_ms = self._clock.monotonic_ms() - start_ms
            if results:
                context.queue = results[0].queue
            self._notify("after_send", context)

    def _notify(self, what: str, context: SendContext) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, what)(context)
            except Exception:  # a hook must not break a send
                log.exception("a hook failed at %s", what)


def _one_result(result: SendResult) -> tuple[SendResult, ...]:
    return (result,)


def _no_result(nothing: None) -> tuple[SendResult, ...]:
    return ()


def _key_tuple(keys: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if keys is None else (keys,) if isinstance(keys, str) else tuple(keys)


def _call_back(on_done: OnDone, task: asyncio.Task[SendResult]) -> None:
    error = ClientClosedError("the producer") if task.cancelled() else task.exception()
    try:
        on_done(None if error is not None else task.result(), error)
    except Exception:  # a callback of the user
        log.exception("a callback of a send failed")


class AsyncProducer:
    """Sends messages as a member of `group`.

    async with AsyncProducer("orders", name_servers="127.0.0.1:9876") as producer:
        result = await producer.send(Message(topic="Orders", body=b"..."))

    With `name_servers` it opens a session; with `session` it shares one, which its owner closes. It belongs
    to the event loop it is started on.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        session: Session | None = None,
        session_config: SessionConfig | None = None,
        config: ProducerConfig | None = None,
        transaction: TransactionListener | None = None,
        hooks: Sequence[SendHook] = (),
    ) -> None:
        check_group(group)
        if session is not None and (name_servers is not None or session_config is not None):
            raise ConfigError("pass either session, or name_servers and session_config: not both")
        self._own = session is None
        self.session = session if session is not None else Session(name_servers, config=session_config)
        self.config = config or ProducerConfig()
        self._user_group = group
        self.group = self.session.namespace.group(group)
        self._pipeline = ProducerPipeline(self.session, self.group, self.config)
        self._listener = transaction
        self._observer = SendObserver(list(hooks), group, self.session.clock)
        self._replies = ReplyWaiters()
        self._transactions: Transactions | None = None
        self._trace: TraceCollector | None = None
        self._tracer: SendTracer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sends: set[asyncio.Task[SendResult]] = set()
        self._closed = False

    # life cycle

    async def start(self) -> Self:
        """Join the session and register with brokers. Unavailable NameServers and brokers are not an error."""
        if self._closed:
            raise ClientClosedError(self._what)
        if self._loop is not None:
            raise ConfigError(f"{self._what} is started already")
        self._loop = asyncio.get_running_loop()
        if self._listener is not None:
            self._transactions = Transactions(
                self.session,
                self.group,
                self._listener,
                checks_at_once=self.config.checks_at_once,
                checks_max=self.config.checks_max,
            )
        self._pipeline.start()
        if self.config.trace:
            from rocketq.client.trace import SendTracer, TraceCollector  # noqa: PLC0415  # few producers trace

            self._trace = TraceCollector(self.session, self._user_group, "PRODUCE", topic=self.config.trace_topic)
            self._tracer = SendTracer(self._trace, self.session, self._user_group)
            self._observer.add(self._tracer)
        try:
            await self.session.members.join(self)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Wait for sends in flight, within their timeout, then unregister. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._replies.close(self._what)
        await self._pipeline.close(self._what, self.config.send_timeout_ms)
        if self._trace is not None:
            await self._trace.close()
        await self.session.members.leave(self)
        if self._own:
            await self.session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | None = None,
        select: Select | None = None,
        arg: Any = None,
        timeout_ms: Milliseconds | None = None,
    ) -> SendResult:
        """The result once a broker has stored it, on another broker when one fails.

        With `queue`, `sharding_key` (messages of one key go to one queue) or `select` (given the queues, the message
        and `arg`) it goes there, in one attempt. SendFailedError has the reason; without an answer it may have
        been stored.
        """
        self._check_ready()
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        if queue is None and sharding_key is None and select is None and not self._observer:
            future = self._pipeline.plain(message, limit_ms)
            if future is not None:
                return await future
        extra = None
        if sharding_key is not None or select is not None:
            if queue is not None or (sharding_key is not None and select is not None):
                raise ConfigError("pass only one of queue, sharding_key and select")
            queue, limit_ms = await self._selected(message, sharding_key, select, arg, limit_ms)
            extra = {Property.SHARDING_KEY: str(sharding_key)} if sharding_key is not None else None
        if not self._observer:
            return await self._pipeline.one(message, queue, limit_ms, extra)
        return await self._observed(SendMode.SEND, message, queue, self._pipeline.one(message, queue, limit_ms, extra))

    @overload
    def send_nowait(
        self, message: Message, on_done: None = None, *, timeout_ms: Milliseconds | None = None
    ) -> asyncio.Future[SendResult]: ...

    @overload
    def send_nowait(self, message: Message, on_done: OnDone, *, timeout_ms: Milliseconds | None = None) -> None: ...

    def send_nowait(
        self, message: Message, on_done: OnDone | None = None, *, timeout_ms: Milliseconds | None = None
    ) -> asyncio.Future[SendResult] | None:
        """Start a send; the future has the result. Messages of one turn of the loop share requests.

        With `on_done` there is no future: it is called on the loop with the result and None, or None and the error.
        An invalid message raises MessageInvalidError here. TooManySendsError: the limits of `in_flight_count_max` or
        `in_flight_bytes_max` are reached; wait with `wait_for_room()`.
        """
        self._check_ready()
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        result = self._running_loop().create_future() if on_done is None else None
        if not self._observer:
            self._pipeline.start_send(message, on_done or result, limit_ms)
            return result
        self._pipeline.check(message)
        if len(self._sends) >= self.config.in_flight_count_max:
            raise TooManySendsError(len(self._sends), self._pipeline.in_flight.size_bytes, 0)
        task = self._running_loop().create_task(self.send(message, timeout_ms=timeout_ms))
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        if on_done is None:
            return task
        task.add_done_callback(partial(_call_back, on_done))
        return None

    async def wait_for_room(self) -> None:
        """Return when half of what may be in flight is free; at once if it is."""
        self._check_ready()
        await self._pipeline.in_flight.half_empty()

    async def flush(self) -> None:
        """Return when every send that was started has ended."""
        self._check_ready()
        while self._sends or self._pipeline.in_flight.count:
            await self._pipeline.flush()
            if self._sends:
                await asyncio.wait(self._sends)

    async def send_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        tags: str | Sequence[str | None] | None = None,
        keys: Sequence[str | Sequence[str] | None] | None = None,
        properties: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None,
        timeout_ms: Milliseconds | None = None,
    ) -> SendManyResult:
        """Send one message for each body, in batches; the cheapest way for many messages that are there at once.

        `tags` is one tag for all, or one for each; `keys` has a text or texts for each; `properties` are the same for
        all, or one mapping for each. BatchFailedError has the results of those that were sent. Hooks see one send.
        """
        self._check_ready()
        count = len(bodies)
        tag_list = [tags] * count if isinstance(tags, str) else tags
        key_list = None if keys is None else [_key_tuple(each) for each in keys]
        shared = [properties] * count if isinstance(properties, Mapping) else properties
        for name, given in (("tags", tag_list), ("keys", key_list), ("properties", shared)):
            if given is not None and len(given) != count:
                raise ConfigError(f"{name} has {len(given)} values for {count} bodies")
        check(Message(topic=topic, body=b"-"))
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        deadline_ms = self.session.clock.monotonic_ms() + limit_ms
        work = self._pipeline.many(topic, bodies, tag_list, key_list, shared, deadline_ms)
        if not self._observer:
            return await work
        messages = tuple(Message(topic=topic, body=body) for body in bodies)
        return await self._observer.around(SendMode.BATCH, messages, None, work, tuple)

    def send_directly(
        self, message: Message, timeout_ms: Milliseconds | None, exchange: Exchange
    ) -> SendResult | Callable[[], Coroutine[Any, Any, SendResult]] | None:
        """A send on a socket of the calling thread; see ProducerPipeline. None with hooks or traces."""
        if self._observer or self._closed:
            return None
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        return self._pipeline.send_directly(message, limit_ms, exchange)

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: Milliseconds | None = None
    ) -> None:
        """Send without an answer: success and failure are not reported."""
        self._check_ready()
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        work = self._pipeline.oneway(message, queue, limit_ms)
        await self._observer.around(SendMode.ONEWAY, (message,), queue, work, _no_result)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: Milliseconds | None = None
    ) -> list[SendResult]:
        """The results in the order of the messages, which have one topic; split into as few requests as fit.

        BatchFailedError has the results of the sent part if a later part failed.
        """
        self._check_ready()
        check_batch(messages)
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        deadline_ms = self.session.clock.monotonic_ms() + limit_ms
        work = self._pipeline.parts(messages, queue, deadline_ms)
        return await self._observer.around(SendMode.BATCH, tuple(messages), queue, work, tuple)

    async def send_in_transaction(
        self, message: Message, arg: Any = None, *, timeout_ms: Milliseconds | None = None
    ) -> TransactionResult:
        """Store it where no consumer sees it, run the listener's `execute`, and commit it or roll it back.

        If the listener fails or returns UNKNOWN, the broker checks later.
        """
        self._check_ready()
        if self._transactions is None:
            raise ConfigError(f"{self._what} has no transaction listener: give it transaction=TransactionListener(...)")
        check(message, self.config.body_bytes_max)
        if message.is_delayed:
            raise MessageInvalidError("a transactional message cannot be delayed")
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        half = self._pipeline.single(message, None, limit_ms, half_properties(self.group))
        sent = await self._observed(SendMode.HALF, message, None, half)
        topic = self._pipeline.topic(message.topic)
        addr = await self._pipeline.path.master(topic, sent.queue.broker_name, limit_ms)
        result = await self._transactions.finish(message, arg, sent, topic, addr)
        if self._tracer is not None:
            self._tracer.transaction_ended(message, result)
        return result

    async def recall(self, handle: str | None, *, timeout_ms: Milliseconds | None = None) -> str:
        """Cancel a timed message before its delivery, by the `recall_handle` of its result; returns its id.

        Raises the broker's error if it is too late, RecallHandleError if it is not a handle.
        """
        self._check_ready()
        place = decode_recall_handle(handle)
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        addr = await self._pipeline.path.master(place.topic, place.broker_name, limit_ms)
        request = RecallRequest(group=self.group, topic=place.topic, handle=place.encode())
        success = False
        try:
            answer = await self.session.call(addr, request, timeout_ms=limit_ms)
            success = True
        finally:
            if self._tracer is not None:
                self._tracer.recalled(self.session.namespace.plain(place.topic), place.unique_key, success)
        return RecallResponse.decode(answer.ext_fields).message_id

    async def request(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: Milliseconds = 3_000
    ) -> StoredMessage:
        """Send it and wait for the reply of its consumer; ReplyTimeoutError if none arrives."""
        self._check_ready()
        check(message, self.config.body_bytes_max)
        topic = self._pipeline.topic(message.topic)
        timeout_ms = milliseconds(timeout_ms)
        deadline_ms = self.session.clock.monotonic_ms() + timeout_ms
        correlation_id = str(uuid.uuid4())
        extra = request_properties(correlation_id, self.session.client_id, timeout_ms)
        if self.session.routes.peek(topic) is None:  # its brokers need our heartbeat before they can push the reply
            await self._pipeline.path.queues(topic, timeout_ms)
            await self.session.members.heartbeat()
        reply = self._replies.expect(correlation_id)
        try:
            left_ms = max(1, deadline_ms - self.session.clock.monotonic_ms())
            sent = await self._observed(
                SendMode.SEND, message, queue, self._pipeline.single(message, queue, left_ms, extra)
            )
            left_ms = max(1, deadline_ms - self.session.clock.monotonic_ms())
            async with asyncio.timeout(left_ms / 1000):
                return await reply
        except TimeoutError:
            raise ReplyTimeoutError(message.topic, sent.message_id, timeout_ms) from None
        finally:
            self._replies.forget(correlation_id)
            reply.cancel()

    async def reply(
        self,
        to: StoredMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_ms: Milliseconds | None = None,
    ) -> SendResult:
        """Answer a message that was sent by `request`; NotARequestError when it was not."""
        self._check_ready()
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        extra = reply_properties(to.properties, to.message_id)
        message = Message(topic=reply_topic(to), body=body, properties=properties or {})
        work = self._pipeline.single(message, None, limit_ms, extra, RequestCode.SEND_REPLY_MESSAGE_V2)
        return await self._observed(SendMode.REPLY, message, None, work)

    async def queues(self, topic: str, *, timeout_ms: Milliseconds | None = None) -> tuple[MessageQueue, ...]:
        """The writable queues of a topic, in the order a selector gets them."""
        self._check_ready()
        limit_ms = self.config.send_timeout_ms if timeout_ms is None else milliseconds(timeout_ms)
        found = await self._pipeline.path.queues(self._pipeline.topic(topic), limit_ms)
        return tuple(self.session.namespace.plain_queue(queue) for queue in found)

    # as a member of the session

    def topics(self) -> Collection[str]:
        return tuple(self._pipeline.topics)

    def heartbeat_part(self) -> ProducerData:
        return ProducerData(group=self.group)

    async def check_transaction(self, addr: str, header: CheckTransactionRequest, message: StoredMessage) -> None:
        if self._transactions is None:
            log.warning("%s was asked about a transaction and has no listener", self._what)
            return
        await self._transactions.check(addr, header, message)

    def on_reply(self, correlation_id: str, reply: StoredMessage) -> bool:
        return self._replies.take(correlation_id, reply)

    def health(self) -> dict[str, Any]:
        return {
            "kind": "producer",
            "group": self._user_group,
            "topics": sorted(self._pipeline.topics),
            "in_flight_count": self._pipeline.in_flight.count,
            "in_flight_bytes": self._pipeline.in_flight.size_bytes,
            "waiting_for_replies": len(self._replies),
            "traces_dropped": self._trace.dropped_count if self._trace is not None else 0,
        }

    # internals

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    @property
    def _what(self) -> str:
        return f"producer {self._user_group}"

    def _check_ready(self) -> None:
        if self._closed:
            raise ClientClosedError(self._what)
        if self._loop is None:
            raise NotStartedError(self._what)
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoopError(self._what)

    async def _observed(
        self, mode: SendMode, message: Message, queue: MessageQueue | None, work: Coroutine[Any, Any, SendResult]
    ) -> SendResult:
        return await self._observer.around(mode, (message,), queue, work, _one_result)

    async def _selected(
        self, message: Message, sharding_key: str | int | None, select: Select | None, arg: Any, timeout_ms: int
    ) -> tuple[MessageQueue, int]:
        """The queue, and the remaining time."""
        self._pipeline.check(message)  # before the route lookup
        start_ms = self.session.clock.monotonic_ms()
        queues = await self.queues(message.topic, timeout_ms=timeout_ms)
        left_ms = max(1, timeout_ms - (self.session.clock.monotonic_ms() - start_ms))
        if select is None:
            assert sharding_key is not None
            return queues[hash_index(sharding_key, len(queues))], left_ms
        try:
            chosen = select(queues, message, arg)
        except Exception as error:  # the selector is the user's
            raise SelectorError(message.topic, f"{type(error).__name__}: {error}") from error
        if not isinstance(chosen, MessageQueue):
            raise SelectorError(message.topic, f"a MessageQueue was expected, not {type(chosen).__name__}")
        return chosen, left_ms
