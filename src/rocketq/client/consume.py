"""Consume services: pulled messages become listener calls, finished calls become offsets or retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketq.client.core.config import PushConfig
from rocketq.client.core.consume_results import (
    TIMEOUT_LEVEL,
    ConsumeContext,
    ConsumeResult,
    RetryCopy,
    Verdict,
    dead_copy,
    may_be_retried,
    retry_copy,
    send_back_request,
    suspend_ms,
)
from rocketq.client.core.consumer_stats import ConsumerStats
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.offsets import OffsetTable
from rocketq.client.core.process_queue import OrderlyQueue, ProcessQueue
from rocketq.client.core.routes import broker_addr, master_addr, publish_queues
from rocketq.client.core.stored_messages import StoredMessage, delivered
from rocketq.client.errors import NoQueueError
from rocketq.client.listener import Call, CallBatch, ListenerRunner, make_calls
from rocketq.client.message_batch import MessageBatch
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import MessageModel
from rocketq.runtime.clock import Clock

log = logging.getLogger(__name__)

SEND_BACK_TIMEOUT_MS: Final = 5_000
SEND_TIMEOUT_MS: Final = 3_000
INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


class SendBacks:
    """Returns failed messages to brokers. `group` includes the namespace."""

    def __init__(self, session: Session, group: str, namespace: Namespace, max_reconsume_times: int) -> None:
        self._session = session
        self._group = group
        self._namespace = namespace
        self._limit = max_reconsume_times
        self._turn = 0

    async def later(self, message: StoredMessage, delay_level: int, failure: str | None = None) -> bool:
        """Have it delivered again after a delay, or moved to the dead letters. False if no broker stored it."""
        try:
            await self._send_back(message, delay_level, failure)
        except RocketQError as error:
            log.info(
                "group %s: message %s was not taken back, sending a copy: %s", self._group, message.message_id, error
            )
            topic = self._namespace.topic(message.topic)
            return await self._resend(message, retry_copy(message, self._group, delay_level, self._limit, topic))
        return True

    async def dead(self, message: StoredMessage) -> bool:
        """Orderly, beyond the retry limit: move it to the dead letters. False if no broker stored it."""
        topic = self._namespace.topic(message.topic)
        return await self._resend(message, dead_copy(message, self._group, self._limit, topic))

    async def _send_back(self, message: StoredMessage, delay_level: int, failure: str | None) -> None:
        topic = self._namespace.topic(message.topic)
        unit_mode = self._session.config.unit_mode
        request = send_back_request(message, self._group, delay_level, self._limit, topic, failure, unit_mode=unit_mode)
        await self._session.call(await self._store_addr(message), request, timeout_ms=SEND_BACK_TIMEOUT_MS)

    async def _store_addr(self, message: StoredMessage) -> str:
        """The address of the broker that stored it: from the route, or from the message if the route lacks it."""
        try:
            route = await self._session.routes.get(self._namespace.topic(message.queue.topic))
            addr = broker_addr(route, message.queue.broker_name)
        except RocketQError:
            addr = None
        return addr or str(message.store_host)

    async def _resend(self, message: StoredMessage, copy: RetryCopy) -> bool:
        try:
            route = await self._session.routes.get(copy.topic)
            queues = publish_queues(copy.topic, route)
            if not queues:
                raise NoQueueError(copy.topic, "no queue of it can be written at present")
            queue = self._choose(queues)
            now_ms, unit_mode = self._session.clock.now_ms(), self._session.config.unit_mode
            request = copy.request(queue.queue_id, queue.broker_name, INNER_GROUP, now_ms, unit_mode=unit_mode)
            await self._session.call(
                master_addr(route, queue),
                request,
                code=RequestCode.SEND_MESSAGE_V2,
                body=copy.body,
                timeout_ms=SEND_TIMEOUT_MS,
                accept=_STORED,
            )
        except RocketQError as error:
            log.warning("group %s: message %s could not be sent back: %s", self._group, message.message_id, error)
            return False
        return True

    def _choose(self, queues: tuple[MessageQueue, ...]) -> MessageQueue:
        self._turn += 1
        return queues[self._turn % len(queues)]


OVERDUE_AT_ONCE_MAX = 16
_FAILURE_CHARS_MAX = 512


def failure_text(error: BaseException | None) -> str | None:
    """An exception as one line without control characters, for the retried message; None without one."""
    if error is None:
        return None
    text = f"{type(error).__name__}: {error}"
    return "".join(char if char.isprintable() else " " for char in text)[:_FAILURE_CHARS_MAX]


def _log_failure(
    group: str, queue: MessageQueue, messages: Sequence[StoredMessage], error: BaseException | None
) -> None:
    first = messages[0]
    log.error(
        "group %s: the listener failed on %s: %d messages, the first id=%s keys=%s attempt=%d",
        group, queue, len(messages), first.message_id, " ".join(first.keys), first.reconsume_times + 1, exc_info=error,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePorts:
    """What a consume service needs of its consumer."""

    group: str
    config: PushConfig
    clock: Clock
    runner: ListenerRunner
    send_backs: SendBacks
    offsets: OffsetTable
    stats: ConsumerStats
    freed: Callable[[ProcessQueue], None]
    """Called when fewer messages of a queue are held than before."""


class CompletedCalls:
    """Successful calls of one queue that are not processed yet."""

    __slots__ = ("calls", "elapsed_ms", "messages", "now_ms")

    def __init__(self) -> None:
        self.messages: list[StoredMessage] = []
        self.calls = self.elapsed_ms = self.now_ms = 0


class ConcurrentService:
    """Belongs to the event loop; only the listener may run elsewhere.

    Successful calls are processed together, once per loop iteration: offsets, stats and flow control.
    """

    def __init__(self, ports: ServicePorts) -> None:
        self._ports = ports
        self._config = ports.config
        self._calls = make_calls(ports.runner, self._done, workers=ports.config.workers, on_loop=ports.config.on_loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self._completed: dict[ProcessQueue, CompletedCalls] = {}
        self._stopping = False

    def submit(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """Split into calls; every message is held already."""
        size, group = self._config.batch_max, self._ports.group
        shown = messages[0].queue if messages else held.queue
        parts: Iterator[Sequence[StoredMessage]]
        if size == 1:
            parts = ([message] for message in messages)
        else:
            parts = (MessageBatch(shown, messages=[*messages[at : at + size]]) for at in range(0, len(messages), size))
        calls = CallBatch(held, parts, -(-len(messages) // size), group)
        held.calls += len(calls)
        self._calls.submit(calls)

    async def stop(self, wait_ms: int) -> bool:
        """True if every listener finished in time."""
        self._stopping = True
        finished = await self._calls.stop(wait_ms)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.001, wait_ms / 1000))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.flush_completed()
        return finished

    async def send_back_overdue(self, queues: Sequence[ProcessQueue]) -> int:
        """Send messages back whose listeners exceed the consume timeout; their later results are ignored."""
        found = 0
        self.flush_completed()
        for held in queues:
            for _ in range(OVERDUE_AT_ONCE_MAX):
                late = held.overdue(self._ports.clock.monotonic_ms(), self._config.consume_timeout_ms)
                if late is None or held.dropped or not await self._ports.send_backs.later(late, TIMEOUT_LEVEL):
                    break
                log.warning("group %s: message %s exceeded the consume timeout", self._ports.group, late.message_id)
                found += 1
                self._finish(held, [late])
        return found

    def _done(self, call: Call) -> None:
        held = call.held
        held.calls -= 1
        if call.skipped:
            return
        if call.returned is None and call.error is None and call.context.acknowledged is None:  # the common case
            done_calls = self._completed.get(held)
            if done_calls is None:
                if not self._completed:
                    asyncio.get_running_loop().call_soon(self.flush_completed)
                done_calls = self._completed[held] = CompletedCalls()
            done_calls.messages += call.messages
            done_calls.calls += 1
            done_calls.elapsed_ms += call.elapsed_ms
            done_calls.now_ms = call.started_ms + call.elapsed_ms
        else:
            self._done_in_part(call, *self._judged(call))

    def flush_completed(self) -> None:
        """Process successful calls now: before a queue is dropped, so that fewer messages are delivered twice."""
        completed, self._completed = self._completed, {}
        for held, done_calls in completed.items():
            self._count(held, done_calls.now_ms, len(done_calls.messages), 0, done_calls.elapsed_ms, done_calls.calls)
            if not held.dropped:
                self._finish(held, done_calls.messages)

    def _done_in_part(self, call: Call, done: Sequence[StoredMessage], failed: Sequence[StoredMessage]) -> None:
        held = call.held
        self._count(held, call.started_ms + call.elapsed_ms, len(done), len(failed), call.elapsed_ms)
        if held.dropped:
            return
        if not failed:
            self._finish(held, done)
        elif self._config.model is MessageModel.BROADCASTING:
            log.warning("group %s: %d failed messages are dropped: broadcasting", self._ports.group, len(failed))
            self._finish(held, call.messages)
        else:
            self._start(self._return_failed(held, done, failed, call.context.delay_level, failure_text(call.error)))

    def _count(self, held: ProcessQueue, now_ms: int, done: int, failed: int, elapsed_ms: int, calls: int = 1) -> None:
        held.last_consume_ms = now_ms
        self._ports.stats.of(held.queue.topic, now_ms).consumed(now_ms, done, failed, elapsed_ms, calls)

    def _judged(self, call: Call) -> tuple[Sequence[StoredMessage], Sequence[StoredMessage]]:
        verdict = self._ports.runner.verdict(call)
        if verdict.error is not None:
            _log_failure(self._ports.group, call.context.queue, call.messages, verdict.error)
        return _split(call, verdict.result)

    async def _return_failed(
        self,
        held: ProcessQueue,
        done: Sequence[StoredMessage],
        failed: Sequence[StoredMessage],
        delay_level: int,
        failure: str | None,
    ) -> None:
        """Send failed messages back to their broker; those that no broker stores are consumed again here."""
        wanted = [message for message in failed if message in held]  # others were overdue and are sent back already
        taken = await asyncio.gather(
            *(self._ports.send_backs.later(message, delay_level, failure) for message in wanted)
        )
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


LOCK_AGAIN_S: Final = 0.1
LOCK_LATER_S: Final = 3.0

Relock = Callable[[OrderlyQueue], Awaitable[bool]]


class OrderlyService:
    """One task per queue that has messages. It holds the queue's lock while the listener runs."""

    def __init__(self, ports: ServicePorts, relock: Relock) -> None:
        self._ports = ports
        self._config = ports.config
        self._relock = relock
        self._needs_lock = ports.config.model is MessageModel.CLUSTERING
        self._calls = make_calls(ports.runner, self._done, workers=ports.config.workers, on_loop=ports.config.on_loop)
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._loops: dict[OrderlyQueue, asyncio.Task[None]] = {}
        self._turns: dict[OrderlyQueue, asyncio.Lock] = {}
        self._stopping = False

    def submit(self, held: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """Starts a task for the queue if there is none; the messages are held already."""
        assert isinstance(held, OrderlyQueue)
        if held not in self._loops and not self._stopping:
            self._loops[held] = asyncio.get_running_loop().create_task(self._run(held))

    async def release(self, held: OrderlyQueue, wait_ms: int) -> bool:
        """Stop consuming a queue. False if its listener runs longer than `wait_ms`: the queue is then kept."""
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
        await asyncio.sleep(0)  # tasks that waited for their calls process the results
        tasks = list(self._loops.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return finished

    async def _run(self, held: OrderlyQueue) -> None:
        try:
            await self._consume(held)
        except Exception:  # the queue restarts with the next pull, or with its next owner
            log.exception("group %s: consuming %s failed", self._ports.group, held.queue)
        finally:
            if self._loops.get(held) is asyncio.current_task():  # before anything else: new messages need a new task
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
                wait_ms = await self._apply_result(held, messages, context, verdict)
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
        shown = MessageBatch(context.queue, messages=[*messages]) if self._config.batch_max > 1 else messages
        call = Call(held, shown, context)
        held.calls += 1
        waiter = self._waiters[id(call)] = asyncio.get_running_loop().create_future()
        self._calls.submit([call])
        await waiter
        if call.skipped:
            return None
        verdict = self._ports.runner.verdict(call)
        if verdict.error is not None:
            _log_failure(self._ports.group, context.queue, messages, verdict.error)
        now_ms = self._ports.clock.monotonic_ms()
        held.last_consume_ms = now_ms
        failed = verdict.result in (ConsumeResult.LATER, ConsumeResult.ROLLBACK)
        done_count, failed_count = (0, len(messages)) if failed else (len(messages), 0)
        stats = self._ports.stats.of(held.queue.topic, now_ms)
        stats.consumed(now_ms, done_count, failed_count, verdict.elapsed_ms)
        return verdict

    def _done(self, call: Call) -> None:
        call.held.calls -= 1
        waiter = self._waiters.pop(id(call), None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _apply_result(
        self, held: OrderlyQueue, messages: Sequence[StoredMessage], context: ConsumeContext, verdict: Verdict
    ) -> int:
        """Apply a result to the queue; returns how long the queue pauses."""
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
        """Messages beyond the retry limit become dead letters, the others stay at the head of the queue."""
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
        held.requeue([delivered(message, reconsume_times=message.reconsume_times + 1) for message in again])
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
