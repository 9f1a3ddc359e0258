"""Calls of a user's listener: in threads, in tasks, or on the event loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Final, Protocol

from rocketq.client.core.config import PushConfig
from rocketq.client.core.consume_results import (
    ConsumeContext,
    ConsumeEvent,
    ConsumeHook,
    ConsumeOutcome,
    ConsumeResult,
    Verdict,
    judge,
)
from rocketq.client.core.process_queue import ProcessQueue
from rocketq.client.core.stored_messages import StoredMessage, mark_consume_start
from rocketq.client.errors import ClientError
from rocketq.protocol.bodies.clients import ConsumeDirectlyResult
from rocketq.protocol.flags import ConsumeResult as DirectResult
from rocketq.runtime.clock import Clock

log = logging.getLogger(__name__)

Listener = Callable[[Sequence[StoredMessage], ConsumeContext], "ConsumeResult | Awaitable[ConsumeResult | None] | None"]
"""Called with messages of one queue and a context. An exception means: deliver them again."""

CALLS_PER_TURN: Final = 64
"""Consecutive calls without a wait, after which other work of the loop runs."""


def accepts_two_arguments(listener: Listener) -> bool:
    """Whether it accepts two arguments, checked at the start to avoid dead letters."""
    try:
        inspect.signature(listener).bind((), None)
    except TypeError:
        return False
    except ValueError:  # some functions in C have no signature
        return True
    return True


class Call:
    """One call of the listener, before and after."""

    __slots__ = ("context", "elapsed_ms", "error", "event", "held", "messages", "returned", "skipped", "started_ms")

    def __init__(self, held: ProcessQueue, messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        self.held = held
        self.messages = messages
        self.context = context
        self.started_ms = 0
        self.elapsed_ms = 0
        self.returned: object = None
        self.error: BaseException | None = None
        self.event: ConsumeEvent | None = None
        self.skipped = False
        """The queue was dropped before the call started."""


class CallBatch:
    """The calls for some messages of a queue, made one by one as they begin: waiting calls cost the collector time."""

    def __init__(self, held: ProcessQueue, parts: Iterator[Sequence[StoredMessage]], count: int, group: str) -> None:
        self._held = held
        self._parts = parts
        self._count = count
        self._group = group

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Call]:
        held, group = self._held, self._group
        for part in self._parts:
            yield Call(held, part, ConsumeContext(group, part[0].queue))


class WaitingCalls:
    """Calls that have not begun, in order."""

    def __init__(self) -> None:
        self._batches: deque[Iterator[Call]] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, calls: Sequence[Call] | CallBatch) -> None:
        if len(calls):
            self._batches.append(iter(calls))
            self._count += len(calls)

    def pop(self) -> Call:
        """The first; there must be one."""
        while (call := next(self._batches[0], None)) is None:
            self._batches.popleft()
        self._count -= 1
        return call

    def clear(self) -> None:
        self._batches.clear()
        self._count = 0


class ListenerRunner:
    """Runs the listener with hooks and timing, in a thread or on the loop."""

    def __init__(self, listener: Listener, clock: Clock, hooks: Sequence[ConsumeHook], timeout_ms: int) -> None:
        self.listener = listener
        self._clock = clock
        self._now_ms = clock.monotonic_ms
        self._skew_ms = self._skew_due_ms = 0
        self._hooks = hooks
        self._timeout_ms = timeout_ms

    def begin(self, call: Call) -> bool:
        """False if the queue was dropped."""
        held = call.held
        if held.dropped:
            call.skipped = True
            return False
        call.started_ms = self._now_ms()
        held.begin(call.messages, call.started_ms)
        mark_consume_start(call.messages, self._wall_ms(call.started_ms))
        if self._hooks:
            call.event = ConsumeEvent(group=call.context.group, queue=call.context.queue, messages=call.messages)
            self._notify(call.event, "before_consume")
        return True

    def end(self, call: Call) -> None:
        call.elapsed_ms = self._now_ms() - call.started_ms
        if call.event is not None:
            verdict = self.verdict(call)
            call.event.outcome, call.event.elapsed_ms = verdict.outcome, verdict.elapsed_ms
            call.event.error = verdict.error
            self._notify(call.event, "after_consume")

    def _wall_ms(self, monotonic_ms: int) -> int:
        """The wall time, whose clock is read once per second, since calls are many."""
        if monotonic_ms >= self._skew_due_ms:
            self._skew_ms = self._clock.now_ms() - monotonic_ms
            self._skew_due_ms = monotonic_ms + 1_000
        return monotonic_ms + self._skew_ms

    def verdict(self, call: Call) -> Verdict:
        return judge(call.returned, call.error, call.elapsed_ms, self._timeout_ms)

    def run(self, call: Call) -> None:
        """The whole call of a plain function."""
        if not self.begin(call):
            return
        try:
            call.returned = self.listener(call.messages, call.context)
            if inspect.iscoroutine(call.returned):
                call.returned.close()
                raise TypeError("the listener returned a coroutine: declare it with async def, so that it is awaited")
        except Exception as error:  # a listener's failure is its message's failure, not the consumer's
            call.error = error
        self.end(call)

    def _notify(self, event: ConsumeEvent, when: str) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, when)(event)
            except Exception:  # a hook must not break the consumer
                log.exception("a consume hook failed")


Done = Callable[[Call], None]


class Calls(Protocol):
    """Executes calls; reports each to `done` on the event loop."""

    def submit(self, calls: Sequence[Call] | CallBatch) -> None: ...

    async def stop(self, wait_ms: int) -> bool:
        """Drop calls that have not started, wait for running ones; False if some still run."""
        ...


def is_asynchronous(listener: Listener) -> bool:
    """Whether it was declared with async def, as a function or as the call of an object."""
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004
    )


def make_calls(runner: ListenerRunner, done: Done, *, workers: int, on_loop: bool) -> Calls:
    if is_asynchronous(runner.listener):
        return TaskCalls(runner, done, workers)
    return LoopCalls(runner, done) if on_loop else ThreadCalls(runner, done, workers)


class TaskCalls:
    """For asynchronous listeners: a fixed number of tasks processes the calls."""

    def __init__(self, runner: ListenerRunner, done: Done, workers: int) -> None:
        self._runner = runner
        self._done = done
        self._workers = workers
        self._waiting = WaitingCalls()
        self._idle: list[asyncio.Future[None]] = []
        self._running = 0
        self._rousing = False
        self._to_wake = 1
        self._tasks: list[asyncio.Task[None]] = []

    def submit(self, calls: Sequence[Call] | CallBatch) -> None:
        self._waiting.add(calls)
        if len(calls) and self._wake_one() and len(self._waiting) > 1 and not self._rousing:
            self._rousing, self._to_wake = True, 1
            asyncio.get_running_loop().call_soon(self._rouse)

    def _rouse(self) -> None:
        """Doubles the number of woken workers per loop iteration while calls wait: a listener that never waits needs
        one worker, and waking the others would cost more than the calls."""
        self._rousing = False
        for _ in range(min(self._to_wake, len(self._waiting))):
            if not self._wake_one():
                return
        if self._waiting:
            self._rousing, self._to_wake = True, self._to_wake * 2
            asyncio.get_running_loop().call_soon(self._rouse)

    def _wake_one(self) -> bool:
        """False if all workers are busy."""
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return True
        if len(self._tasks) < self._workers:
            self._tasks.append(asyncio.get_running_loop().create_task(self._work()))
            return True
        return False

    async def stop(self, wait_ms: int) -> bool:
        self._waiting.clear()
        deadline_s = asyncio.get_running_loop().time() + wait_ms / 1000
        while self._running and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(0.005)
        late = self._running
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return not late

    async def _work(self) -> None:
        calls, waiting, runner, done = 0, self._waiting, self._runner, self._done
        while True:
            while not len(waiting):
                idle = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
            call = waiting.pop()
            self._running += 1
            try:
                if runner.begin(call):
                    try:
                        call.returned = await runner.listener(call.messages, call.context)  # type: ignore[misc]
                    except Exception as error:  # a listener's failure is its message's failure, not the consumer's
                        call.error = error
                    runner.end(call)
            finally:
                self._running -= 1
            done(call)
            calls += 1
            if calls % CALLS_PER_TURN == 0:
                await asyncio.sleep(0)  # listeners that never wait would block the loop


class LoopCalls:
    """For plain functions that never block: called on the loop, some at a time."""

    def __init__(self, runner: ListenerRunner, done: Done) -> None:
        self._runner = runner
        self._done = done
        self._waiting = WaitingCalls()
        self._scheduled = False

    def submit(self, calls: Sequence[Call] | CallBatch) -> None:
        self._waiting.add(calls)
        if len(calls) and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._work)

    async def stop(self, wait_ms: int) -> bool:
        self._waiting.clear()
        return True

    def _work(self) -> None:
        self._scheduled = False
        for _ in range(min(CALLS_PER_TURN, len(self._waiting))):
            call = self._waiting.pop()
            self._runner.run(call)
            self._done(call)
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._work)


class ThreadCalls:
    """For plain functions: threads run the calls; finished calls are reported to the loop in groups."""

    def __init__(self, runner: ListenerRunner, done: Done, workers: int) -> None:
        self._runner = runner
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[Call | None] = SimpleQueue()
        self._finished: deque[Call] = deque()
        self._notified = False
        self._submitted = self._reported = 0
        self._workers = workers
        self._threads: list[threading.Thread] = []

    def submit(self, calls: Sequence[Call] | CallBatch) -> None:
        for call in calls:
            self._submitted += 1
            if len(self._threads) < self._workers and self._submitted - self._reported > len(self._threads):
                thread = threading.Thread(target=self._work, name="rocketq-listener", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._waiting.put(call)

    async def stop(self, wait_ms: int) -> bool:
        while not self._waiting.empty():
            if self._waiting.get_nowait() is not None:
                self._reported += 1
        for _ in self._threads:
            self._waiting.put(None)
        deadline_s = self._loop.time() + wait_ms / 1000
        while self._reported < self._submitted and self._loop.time() < deadline_s:
            await asyncio.sleep(0.005)
        return self._reported == self._submitted

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            self._runner.run(call)
            self._finished.append(call)
            if not self._notified:
                self._notified = True
                try:
                    self._loop.call_soon_threadsafe(self._report)
                except RuntimeError:  # the loop was closed: no consumer waits for it
                    return

    def _report(self) -> None:
        self._notified = False
        while self._finished:
            self._reported += 1
            self._done(self._finished.popleft())


WAIT_MS: Final = 9_500
"""A broker waits ten seconds for the result of one direct consumption."""

_RESULTS: Final = {
    ConsumeResult.SUCCESS: DirectResult.CR_SUCCESS,
    ConsumeResult.LATER: DirectResult.CR_LATER,
    ConsumeResult.COMMIT: DirectResult.CR_COMMIT,
    ConsumeResult.ROLLBACK: DirectResult.CR_ROLLBACK,
}


async def call_directly(
    listener: Listener, message: StoredMessage, group: str, config: PushConfig, clock: Clock
) -> ConsumeDirectlyResult:
    """The listener's result for the message; ClientError if it takes too long."""
    runner = ListenerRunner(listener, clock, (), config.consume_timeout_ms)
    done = asyncio.Event()
    calls = make_calls(runner, lambda _: done.set(), workers=1, on_loop=config.on_loop)
    context = ConsumeContext(group=group, queue=message.queue)
    call = Call(ProcessQueue(message.queue, clock.monotonic_ms()), [message], context)
    calls.submit([call])
    try:
        async with asyncio.timeout(WAIT_MS / 1000):
            await done.wait()
    except TimeoutError:
        raise ClientError(f"the listener did not finish within {WAIT_MS} ms") from None
    finally:
        await calls.stop(0)
    verdict = runner.verdict(call)
    return ConsumeDirectlyResult(
        order=config.orderly,
        auto_commit=context.auto_commit,
        result=_direct_result(verdict),
        remark=repr(verdict.error) if verdict.error is not None else None,
        spent_ms=verdict.elapsed_ms,
    )


def _direct_result(verdict: Verdict) -> DirectResult:
    match verdict.outcome:
        case ConsumeOutcome.EXCEPTION:
            return DirectResult.CR_THROW_EXCEPTION
        case ConsumeOutcome.NULL:
            return DirectResult.CR_RETURN_NULL
    return _RESULTS[verdict.result]
