"""Consuming in order: one call at a time per queue, under the broker's lock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from rocketq.client.aio.consume_service import ServicePorts
from rocketq.client.aio.listener_calls import Call, make_calls
from rocketq.client.core.consume_results import ConsumeContext, ConsumeResult, Verdict
from rocketq.client.core.consume_retry import may_be_retried, suspend_ms
from rocketq.client.core.process_queue import OrderlyQueue, ProcessQueue
from rocketq.client.core.stored_messages import StoredMessage, delivered
from rocketq.protocol.flags import MessageModel

LOCK_AGAIN_S: Final = 0.1
LOCK_LATER_S: Final = 3.0

Relock = Callable[[OrderlyQueue], Awaitable[bool]]

log = logging.getLogger(__name__)


class OrderlyService:
    """One task per queue that has something to consume. While it runs the listener it has the queue's turn."""

    def __init__(self, ports: ServicePorts, relock: Relock) -> None:
        self._ports = ports
        self._config = ports.config
        self._relock = relock
        self._needs_lock = ports.config.model is MessageModel.CLUSTERING
        self._calls = make_calls(ports.calling, self._done, workers=ports.config.workers, on_loop=ports.config.on_loop)
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._loops: dict[OrderlyQueue, asyncio.Task[None]] = {}
        self._turns: dict[OrderlyQueue, asyncio.Lock] = {}
        self._stopping = False

    def submit(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """They are held already; whoever consumes the queue finds them."""
        assert isinstance(held, OrderlyQueue)
        if held not in self._loops and not self._stopping:
            self._loops[held] = asyncio.get_running_loop().create_task(self._run(held))

    async def release(self, held: OrderlyQueue, wait_ms: int) -> bool:
        """Before a queue is given away: False when its listener runs longer than that; it is ours for another round."""
        turn = self._turns.get(held)
        if turn is not None:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await turn.acquire()
            except TimeoutError:
                return False
            held.dropped = True
            turn.release()
            self._turns.pop(held, None)
        held.dropped = True
        if (task := self._loops.pop(held, None)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return True

    async def stop(self, wait_ms: int) -> bool:
        self._stopping = True
        finished = await self._calls.stop(wait_ms)
        await asyncio.sleep(0)  # those who waited for their calls take what was said
        tasks = list(self._loops.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return finished

    async def _run(self, held: OrderlyQueue) -> None:
        try:
            await self._consume(held)
        except Exception:  # the queue is begun anew when more comes, or at the latest by the next owner
            log.exception("group %s: consuming %s failed", self._ports.group, held.queue)
        finally:
            if self._loops.get(held) is asyncio.current_task():  # at once: what comes now needs a new task
                del self._loops[held]

    async def _consume(self, held: OrderlyQueue) -> None:
        turn = self._turns.setdefault(held, asyncio.Lock())
        while not held.dropped and not self._stopping:
            if not await self._locked(held):
                continue
            async with turn:
                if held.dropped or not self._still_locked(held):
                    continue
                messages = held.take(self._config.batch_max)
                if not messages:
                    return
                context = ConsumeContext(group=self._ports.group, queue=messages[0].queue)
                verdict = await self._call(held, messages, context)
                if verdict is None or held.dropped:
                    return
                wait_ms = await self._settle(held, messages, context, verdict)
            self._ports.freed(held)
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)

    def _still_locked(self, held: OrderlyQueue) -> bool:
        return not self._needs_lock or held.holds_lock(self._ports.clock.monotonic_ms())

    async def _locked(self, held: OrderlyQueue) -> bool:
        if self._still_locked(held):
            return True
        await asyncio.sleep(LOCK_AGAIN_S)
        if not held.dropped and not await self._relock(held):
            await asyncio.sleep(LOCK_LATER_S)
        return False

    async def _call(
        self, held: OrderlyQueue, messages: Sequence[StoredMessage], context: ConsumeContext
    ) -> Verdict | None:
        call = Call(held, messages, context)
        held.calls += 1
        waiter = self._waiters[id(call)] = asyncio.get_running_loop().create_future()
        self._calls.submit([call])
        await waiter
        if call.skipped:
            return None
        verdict = self._ports.calling.verdict(call)
        if verdict.error is not None:
            log.error("group %s: the listener failed on %s", self._ports.group, context.queue, exc_info=verdict.error)
        now_ms = self._ports.clock.monotonic_ms()
        held.last_consume_ms = now_ms
        failed = verdict.result in (ConsumeResult.LATER, ConsumeResult.ROLLBACK)
        done_count, failed_count = (0, len(messages)) if failed else (len(messages), 0)
        figures = self._ports.figures.of(held.queue.topic, now_ms)
        figures.consumed(now_ms, done_count, failed_count, verdict.elapsed_ms)
        return verdict

    def _done(self, call: Call) -> None:
        call.held.calls -= 1
        waiter = self._waiters.pop(id(call), None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _settle(
        self, held: OrderlyQueue, messages: Sequence[StoredMessage], context: ConsumeContext, verdict: Verdict
    ) -> int:
        """What the verdict means for the queue; how long it waits then."""
        match verdict.result:
            case ConsumeResult.LATER:
                return await self._suspend(held, messages, context)
            case ConsumeResult.ROLLBACK if not context.auto_commit:
                held.roll_back()
                return suspend_ms(context.suspend_ms, self._config.suspend_ms)
            case ConsumeResult.SUCCESS if not context.auto_commit:
                return 0
            case ConsumeResult.COMMIT | ConsumeResult.ROLLBACK if context.auto_commit:
                log.warning("group %s: %s counts as SUCCESS while auto_commit is on", self._ports.group, verdict.result)
        self._commit(held)
        return 0

    async def _suspend(self, held: OrderlyQueue, messages: Sequence[StoredMessage], context: ConsumeContext) -> int:
        """Messages beyond their limit are dead, the others wait at the head of the queue."""
        again = []
        for message in messages:
            if may_be_retried(message, self._config.max_reconsume_times):
                again.append(message)
            elif await self._is_dead(message):
                held.discard([message])
            else:
                again.append(message)
        if held.dropped:
            return 0
        if not again:
            self._update(held)
            return 0
        held.again([delivered(message, reconsume_times=message.reconsume_times + 1) for message in again])
        self._update(held)
        return suspend_ms(context.suspend_ms, self._config.suspend_ms)

    async def _is_dead(self, message: StoredMessage) -> bool:
        if self._config.model is MessageModel.BROADCASTING:
            log.warning("group %s: %s is dropped: broadcasting", self._ports.group, message.message_id)
            return True
        return await self._ports.send_backs.dead(message)

    def _commit(self, held: OrderlyQueue) -> None:
        offset = held.commit()
        if offset is not None and not held.dropped:
            self._ports.offsets.update(held.queue, offset)

    def _update(self, held: OrderlyQueue) -> None:
        if (offset := held.next_offset) is not None and not held.dropped:
            self._ports.offsets.update(held.queue, offset)
