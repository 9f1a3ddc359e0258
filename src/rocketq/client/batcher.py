"""Automatic batches: messages sent at the same time share requests, encoded as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from rocketq.client.core.batches import Batching, batch_request
from rocketq.client.core.messages import EncodeOptions, Message, Outgoing
from rocketq.client.core.send_flow import Accepted, SendResult, send_result, status_of
from rocketq.client.errors import ClientClosedError
from rocketq.client.in_flight import InFlight
from rocketq.client.send import SendPath, Tried
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.kernel.send_batch import SendBatch
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import MessageIllegalError
from rocketq.protocol.properties import PROPERTIES_BYTES_MAX

log = logging.getLogger(__name__)

OnDone = Callable[[SendResult | None, BaseException | None], None]
"""Called with the result of a send, or with its error."""
OnEnd = Callable[[Accepted | None, BaseException | None], None]
LANES_MAX: Final = 10_000
_ELEMENT_BYTES: Final = 22 + 256
"""Of an element, what is not its body: an estimate, for messages without large properties."""


class Lane:
    """Messages that may share a request: of one topic, for one queue (None: any), that wait alike."""

    __slots__ = ("batch", "now_ms", "opened_s", "queue", "timeout_ms", "topic", "under_way", "wait")

    def __init__(self, topic: str, queue: MessageQueue | None, wait: bool) -> None:
        self.topic = topic
        self.queue = queue
        self.wait = wait
        self.batch: SendBatch | None = None
        """What is gathered for the next request."""
        self.now_ms = 0
        self.opened_s = 0.0
        self.timeout_ms = 0
        self.under_way = 0
        """Requests without an answer."""


class _Request:
    """A batch on its way. `on_end` is called once, with what the broker answered or with an error."""

    __slots__ = ("batch", "code", "lane", "on_end", "outgoing", "start_ms", "timeout_ms")

    def __init__(self, lane: Lane, batch: SendBatch, start_ms: int, on_end: OnEnd) -> None:
        self.lane = lane
        self.batch = batch
        self.on_end: OnEnd | None = on_end
        self.start_ms = start_ms
        assert batch.deadline_ms is not None
        self.timeout_ms = max(1, batch.deadline_ms - start_ms)
        """The first message whose time is up ends it for all, so that no sender waits longer than it asked for."""
        self.code: RequestCode
        if len(batch) > 1:
            self.code, self.outgoing = RequestCode.SEND_BATCH_MESSAGE, batch_request([batch.encoded()], wait=lane.wait)
        else:
            self.code, self.outgoing = RequestCode.SEND_MESSAGE_V2, _single(batch, 0)

    def end(self, accepted: Accepted | None, error: BaseException | None = None) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(accepted, error)


class Batcher:
    """Belongs to one producer and its loop. Every waiter ends once: with a result or an error."""

    def __init__(
        self, session: Session, path: SendPath, config: Batching, options: EncodeOptions, in_flight: InFlight
    ) -> None:
        self._session = session
        self._clock = session.clock
        self._path = path
        self._config = config
        self._in_flight = in_flight
        self._plain_bytes_max = min(options.body_bytes_max, options.compress_from_bytes - 1)
        """Larger bodies are compressed, or refused."""
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[str, MessageQueue | None, bool], Lane] = {}
        self._open: list[Lane] = []
        self._turn_set = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def lane(self, topic: str, queue: MessageQueue | None, wait: bool) -> Lane:
        key = (topic, queue, wait)
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                self._lanes.clear()
            lane = self._lanes[key] = Lane(topic, queue, wait)
        return lane

    def add(self, lane: Lane, message: Message, waiter: Any, timeout_ms: int) -> bool:
        """Check and encode a message; False, with nothing done, for one that is not plain."""
        batch = self._batch_for(lane, len(message.body), timeout_ms)
        if not batch.add(message, waiter, lane.now_ms):
            return False
        if len(batch) >= self._config.count_max:
            self._flush(lane)
        return True

    def add_encoded(self, lane: Lane, outgoing: Outgoing, waiter: Any, timeout_ms: int) -> None:
        """A message that was checked and encoded already."""
        properties = outgoing.properties.encode()
        batch = self._batch_for(lane, len(outgoing.body) + len(properties), timeout_ms)
        batch.add_encoded(outgoing.body, outgoing.flag, properties, waiter)
        if len(batch) >= self._config.count_max:
            self._flush(lane)

    def flush(self) -> None:
        """Send everything that is gathered, however many requests are under way."""
        for lane in self._open:
            self._flush(lane)
        self._open.clear()

    async def close(self) -> None:
        """Everything that was added is sent, or fails."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def new_batch(self) -> SendBatch:
        ids = self._session.unique_ids.source(self._clock.now_ms())
        return SendBatch(ids, self._plain_bytes_max, PROPERTIES_BYTES_MAX >> 2)

    def request(self, lane: Lane, batch: SendBatch, timeout_ms: int) -> asyncio.Future[Accepted]:
        """Send a batch that was made elsewhere, in as many tries as it takes."""
        answer: asyncio.Future[Accepted] = self._loop.create_future()

        def on_end(accepted: Accepted | None, error: BaseException | None) -> None:
            if answer.done():
                return
            if accepted is not None:
                answer.set_result(accepted)
            else:
                answer.set_exception(error or ClientClosedError("the producer"))

        batch.deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._begin(_Request(lane, batch, self._clock.monotonic_ms(), on_end))
        return answer

    # gathering

    def _batch_for(self, lane: Lane, size_bytes: int, timeout_ms: int) -> SendBatch:
        """The batch that has room for a message of about this size."""
        batch = lane.batch
        if batch is not None and batch.used and batch.used + size_bytes + _ELEMENT_BYTES > self._config.bytes_max:
            self._flush(lane)
            batch = None
        if batch is None:
            batch = lane.batch = self.new_batch()
            self._open.append(lane)
            if not self._turn_set:
                self._turn_set = True
                self._loop.call_soon(self._turn)
        if len(batch) == 0:
            lane.now_ms, lane.opened_s, lane.timeout_ms = self._clock.now_ms(), self._loop.time(), timeout_ms
            batch.deadline_ms = self._clock.monotonic_ms() + timeout_ms
        elif timeout_ms < lane.timeout_ms and batch.deadline_ms is not None:
            batch.deadline_ms = min(batch.deadline_ms, self._clock.monotonic_ms() + timeout_ms)
        return batch

    def _turn(self) -> None:
        """Send what is due, and come back when more will be."""
        self._turn_set = False
        waiting: list[Lane] = []
        linger_s, now_s = self._config.linger_ms / 1000, self._loop.time()
        for lane in self._open:
            if lane.batch is None or lane in waiting:
                continue
            if lane.under_way < self._config.requests_max and now_s - lane.opened_s >= linger_s:
                self._flush(lane)
            else:
                waiting.append(lane)
        self._open = waiting
        if linger_s and (due := [lane.opened_s for lane in waiting if lane.under_way < self._config.requests_max]):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(max(0.001, min(due) + linger_s - now_s), self._turn)

    def _flush(self, lane: Lane) -> None:
        batch, lane.batch = lane.batch, None
        if batch is None or len(batch) == 0:
            return
        lane.under_way += 1

        def on_end(accepted: Accepted | None, error: BaseException | None) -> None:
            self._finish(lane, batch, accepted, error)

        self._begin(_Request(lane, batch, self._clock.monotonic_ms(), on_end))

    # requests

    def _begin(self, request: _Request) -> None:
        """The first try, without a task where the connection is open."""
        lane = request.lane
        try:
            begun = self._path.begin(lane.topic, lane.queue, request.outgoing, request.timeout_ms, request.code)
        except RocketQError:
            begun = None  # the general way reports it
        if begun is None:
            self._start(request, None)
            return
        queue, addr, future = begun

        def on_answer(future: asyncio.Future[Command]) -> None:
            try:
                accepted = self._path.judge(queue, addr, future.result())
            except asyncio.CancelledError:
                request.end(None, ClientClosedError("the producer"))
            except RocketQError as error:
                self._start(request, (queue, error))
            except Exception as error:  # waiters must get every error
                request.end(None, error)
            else:
                if lane.queue is not None or self._path.is_final(accepted):
                    request.end(accepted)
                else:
                    self._start(request, (queue, accepted))

        future.add_done_callback(on_answer)

    def _start(self, request: _Request, tried: Tried | None) -> None:
        task = self._loop.create_task(self._send(request, tried))
        self._tasks.add(task)

        def on_done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            request.end(None, ClientClosedError("the producer"))  # of a task that was cancelled before it ran

        task.add_done_callback(on_done)

    async def _send(self, request: _Request, tried: Tried | None) -> None:
        """All tries, or those after the first."""
        lane, batch, code = request.lane, request.batch, request.code
        try:
            if lane.queue is None:
                accepted = await self._path.anywhere(
                    lane.topic, request.outgoing, request.timeout_ms, code, tried=tried, start_ms=request.start_ms
                )
            else:
                accepted = await self._path.to_queue(
                    lane.queue, request.outgoing, request.timeout_ms, code, tried=tried, start_ms=request.start_ms
                )
        except MessageIllegalError as error:
            if code is RequestCode.SEND_BATCH_MESSAGE and batch.waiters:
                await self._send_each(request)  # together they are too large for this broker, one by one maybe not
            else:
                request.end(None, error)
        except Exception as error:  # waiters must get every error
            request.end(None, error)
        else:
            request.end(accepted)

    async def _send_each(self, request: _Request) -> None:
        lane, batch = request.lane, request.batch
        request.on_end = lambda accepted, error: self._finish(lane, batch, None, error)  # those that have no result yet
        for index, waiter in enumerate(batch.waiters):
            outgoing, left_ms = _single(batch, index), self._left_ms(batch)
            try:
                if lane.queue is not None:
                    answer = await self._path.to_queue(lane.queue, outgoing, left_ms)
                else:
                    answer = await self._path.anywhere(lane.topic, outgoing, left_ms)
            except RocketQError as error:
                end_waiter(waiter, None, error)
            else:
                end_waiter(waiter, self._shown(send_result(answer, outgoing.unique_key)), None)
            batch.waiters[index] = None
        request.end(None, None)

    # ends

    def _finish(self, lane: Lane, batch: SendBatch, accepted: Accepted | None, error: BaseException | None) -> None:
        """Give every waiter its result, or the error."""
        try:
            if accepted is None:
                for waiter in batch.waiters:
                    end_waiter(waiter, None, error)
            elif len(batch) == 1:
                end_waiter(batch.waiters[0], self._shown(send_result(accepted, batch.unique_key(0))), None)
            else:
                fields = accepted.fields
                batch.finish(
                    SendResult,
                    status_of(accepted),
                    fields["msgId"],
                    self._session.namespace.plain_queue(accepted.queue),
                    accepted.queue_offset,
                    fields.get("MSG_REGION"),
                    fields.get("TRACE_ON") != "false",
                    _log_callback,
                )
        finally:
            self._ended(lane, batch)

    def _ended(self, lane: Lane, batch: SendBatch) -> None:
        self._in_flight.leave(batch.body_bytes, len(batch))
        lane.under_way -= 1
        if lane.batch is not None and not self._turn_set:
            self._turn()

    def _shown(self, result: SendResult) -> SendResult:
        if self._session.namespace.name is not None:
            result.queue = self._session.namespace.plain_queue(result.queue)
        return result

    def _left_ms(self, batch: SendBatch) -> int:
        assert batch.deadline_ms is not None
        return max(1, batch.deadline_ms - self._clock.monotonic_ms())


def _single(batch: SendBatch, index: int) -> Outgoing:
    flag, body, properties = batch.element(index)
    return Outgoing(body, 0, properties.decode(), batch.unique_key(index), flag)


def end_waiter(waiter: Any, result: SendResult | None, error: BaseException | None) -> None:
    """One waiter gets its result or error; a function that raises is logged."""
    if isinstance(waiter, asyncio.Future) or hasattr(waiter, "set_result"):
        if not waiter.done():
            if result is not None:
                waiter.set_result(result)
            else:
                waiter.set_exception(error)
    elif waiter is not None:
        try:
            waiter(result, error)
        except Exception as failure:  # a callback of the user must not keep the others from their results
            _log_callback(failure)


def _log_callback(error: Exception) -> None:
    log.error("a callback of a send failed", exc_info=error)
