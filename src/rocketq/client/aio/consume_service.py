"""Consuming in any order: pulled messages become calls of the listener, finished calls become offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from rocketq.client.aio.listener_calls import Call, Calling, make_calls
from rocketq.client.aio.send_backs import SendBacks
from rocketq.client.core.client_figures import ClientFigures
from rocketq.client.core.consume_results import ConsumeContext, ConsumeResult
from rocketq.client.core.consume_retry import TIMEOUT_LEVEL
from rocketq.client.core.consumer_config import PushConfig
from rocketq.client.core.offset_table import OffsetTable
from rocketq.client.core.process_queue import ProcessQueue
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.flags import MessageModel
from rocketq.runtime.clock import Clock

OVERDUE_AT_ONCE_MAX = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePorts:
    """What a consume service needs of its consumer."""

    group: str
    config: PushConfig
    clock: Clock
    calling: Calling
    send_backs: SendBacks
    offsets: OffsetTable
    figures: ClientFigures
    freed: Callable[[ProcessQueue], None]
    """Told when less is held of a queue than before."""


class Heap:
    """Calls of one queue that went well and are not settled yet."""

    __slots__ = ("calls", "elapsed_ms", "messages", "now_ms")

    def __init__(self) -> None:
        self.messages: list[StoredMessage] = []
        self.calls = self.elapsed_ms = self.now_ms = 0


class ConcurrentService:
    """Belongs to the event loop; only the listener may run elsewhere.

    What went well is settled in heaps, once per turn of the loop: offsets, figures and room for pulls need no more.
    """

    def __init__(self, ports: ServicePorts) -> None:
        self._ports = ports
        self._config = ports.config
        self._calls = make_calls(ports.calling, self._done, workers=ports.config.workers, on_loop=ports.config.on_loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self._heaps: dict[ProcessQueue, Heap] = {}
        self._stopping = False

    def submit(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """Cut into calls; every message is held already."""
        size, group = self._config.batch_max, self._ports.group
        shown = messages[0].queue if messages else held.queue
        calls = [
            Call(held, messages[at : at + size], ConsumeContext(group, shown)) for at in range(0, len(messages), size)
        ]
        held.calls += len(calls)
        self._calls.submit(calls)

    async def stop(self, wait_ms: int) -> bool:
        """True when every listener came to its end in time."""
        self._stopping = True
        finished = await self._calls.stop(wait_ms)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.001, wait_ms / 1000))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.settle()
        return finished

    async def send_back_overdue(self, queues: Sequence[ProcessQueue]) -> int:
        """Messages whose listeners have had them for too long come again elsewhere; what they still say is ignored."""
        found = 0
        self.settle()
        for held in queues:
            for _ in range(OVERDUE_AT_ONCE_MAX):
                late = held.overdue(self._ports.clock.monotonic_ms(), self._config.consume_timeout_ms)
                if late is None or held.dropped or not await self._ports.send_backs.later(late, TIMEOUT_LEVEL):
                    break
                log.warning("group %s: %s took too long, it comes again", self._ports.group, late.message_id)
                found += 1
                self._finish(held, [late])
        return found

    def _done(self, call: Call) -> None:
        held = call.held
        held.calls -= 1
        if call.skipped:
            return
        if call.returned is None and call.error is None and call.context.acknowledged is None:  # as nearly always
            heap = self._heaps.get(held)
            if heap is None:
                if not self._heaps:
                    asyncio.get_running_loop().call_soon(self.settle)
                heap = self._heaps[held] = Heap()
            heap.messages += call.messages
            heap.calls += 1
            heap.elapsed_ms += call.elapsed_ms
            heap.now_ms = call.begun_ms + call.elapsed_ms
        else:
            self._done_in_part(call, *self._judged(call))

    def settle(self) -> None:
        """What went well counts from here on: before a queue is given away, so that as little as can be comes twice."""
        heaps, self._heaps = self._heaps, {}
        for held, heap in heaps.items():
            self._count(held, heap.now_ms, len(heap.messages), 0, heap.elapsed_ms, heap.calls)
            if not held.dropped:
                self._finish(held, heap.messages)

    def _done_in_part(self, call: Call, done: Sequence[StoredMessage], failed: Sequence[StoredMessage]) -> None:
        held = call.held
        self._count(held, call.begun_ms + call.elapsed_ms, len(done), len(failed), call.elapsed_ms)
        if held.dropped:
            return
        if not failed:
            self._finish(held, done)
        elif self._config.model is MessageModel.BROADCASTING:
            log.warning("group %s: %d failed messages are dropped: broadcasting", self._ports.group, len(failed))
            self._finish(held, call.messages)
        else:
            self._start(self._fail(held, done, failed, call.context.delay_level))

    def _count(self, held: ProcessQueue, now_ms: int, done: int, failed: int, elapsed_ms: int, calls: int = 1) -> None:
        held.last_consume_ms = now_ms
        self._ports.figures.of(held.queue.topic, now_ms).consumed(now_ms, done, failed, elapsed_ms, calls)

    def _judged(self, call: Call) -> tuple[Sequence[StoredMessage], Sequence[StoredMessage]]:
        verdict = self._ports.calling.verdict(call)
        if verdict.error is not None:
            where = call.context.queue
            log.error("group %s: the listener failed on %s", self._ports.group, where, exc_info=verdict.error)
        return _split(call, verdict.result)

    async def _fail(
        self, held: ProcessQueue, done: Sequence[StoredMessage], failed: Sequence[StoredMessage], delay_level: int
    ) -> None:
        """Failed messages go back to their broker; what no broker takes is consumed again here."""
        wanted = [message for message in failed if message in held]  # others were overdue and went back already
        taken = await asyncio.gather(*(self._ports.send_backs.later(message, delay_level) for message in wanted))
        gone = [message for message, was_taken in zip(wanted, taken, strict=True) if was_taken]
        if not held.dropped:
            self._finish(held, [*done, *gone])
        left = [message for message, was_taken in zip(wanted, taken, strict=True) if not was_taken]
        if left and not self._stopping:
            await asyncio.sleep(self._config.resubmit_ms / 1000)
            if not held.dropped and not self._stopping:
                self.submit(held, held.counted_up(left))

    def _finish(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        offset = held.finish(messages)
        if offset is not None and not held.dropped:
            self._ports.offsets.update(held.queue, offset, increase_only=True)
        self._ports.freed(held)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _split(call: Call, result: ConsumeResult) -> tuple[Sequence[StoredMessage], Sequence[StoredMessage]]:
    """Messages that are done, and those that failed."""
    if result in (ConsumeResult.LATER, ConsumeResult.ROLLBACK):
        return (), call.messages
    count = call.context.acknowledged
    if count is None or count >= len(call.messages):
        return call.messages, ()
    return call.messages[: max(0, count)], call.messages[max(0, count) :]
