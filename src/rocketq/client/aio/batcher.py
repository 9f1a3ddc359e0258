"""Sends that share requests: each has its own future, the accumulator says who goes together and when."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rocketq.client.aio.sends import SendPath
from rocketq.client.core.batches import Accumulator, Batching, batch_request, encode_element
from rocketq.client.core.messages import Outgoing
from rocketq.client.core.send_results import SendResult, batch_results, send_result
from rocketq.client.errors import ClientClosedError
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import MessageIllegal
from rocketq.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class _Key:
    """What messages of one request have in common."""

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
        """Everything that was added goes out, or fails."""
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
        """Send what is due, and come back when more will be."""
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
            await self._settle(key, items)
        except RocketQError as error:
            _fail(items, error)
        except asyncio.CancelledError:
            _fail(items, ClientClosedError("the producer"))
            raise
        except Exception as error:  # whatever it is, those who wait must hear of it
            _fail(items, error)
        finally:
            self._accumulator.ended(key)
            if len(self._accumulator) and not self._turn_set:
                self._turn()

    async def _settle(self, key: _Key, items: list[_Waiting]) -> None:
        if len(items) == 1:
            _give(items, [await self._single(key, items[0])])
            return
        try:
            results = await self._several(key, items)
        except MessageIllegal:  # together they are too large for this broker, one by one they may not be
            for item in items:
                try:
                    _give([item], [await self._single(key, item)])
                except RocketQError as error:
                    _fail([item], error)
            return
        _give(items, results)

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
        """The first whose time is up ends it for all, so that nobody waits longer than told."""
        return max(1, min(item.deadline_ms for item in items) - self._clock.monotonic_ms())


def _give(items: Sequence[_Waiting], results: Sequence[SendResult]) -> None:
    for item, result in zip(items, results, strict=True):
        if not item.result.done():
            item.result.set_result(result)


def _fail(items: Sequence[_Waiting], error: Exception) -> None:
    for item in items:
        if not item.result.done():
            item.result.set_exception(error)
