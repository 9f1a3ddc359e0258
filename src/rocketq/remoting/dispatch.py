"""Dispatch of requests: checks, middleware, the handler of the code, hooks, and failures as answers."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rocketq.errors import ProtocolError, RocketQError
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.frame import decode_command
from rocketq.remoting.limits import HandlerSlots
from rocketq.runtime.observed_list import ObservedList

if TYPE_CHECKING:
    from rocketq.remoting.connection import Connection

log = logging.getLogger(__name__)

_REMARK_CHARS_MAX = 1_000


class UnencodedAnswer(Protocol):
    """An answer whose body is not encoded yet."""

    async def complete(self, request: Command, connection: Connection) -> Command | None:
        """Encode the answer; None when the connection was closed in the meantime."""
        ...


class PendingAnswer(Protocol):
    """A coroutine that returns an answer, or an object that can be awaited like one."""

    def __await__(self) -> Generator[Any, None, Command | UnencodedAnswer | None]: ...

    def close(self) -> None:
        """Called when it will not be awaited."""
        ...


@dataclass(slots=True)
class EncodedReply:
    """An answer that is already a whole frame."""

    frame: bytes

    def to_command(self) -> Command:
        """Decode the frame, for hooks."""
        return decode_command(self.frame[4:])


class OrderedAnswer(PendingAnswer, ABC):
    """A pending answer that acts in the order of the requests: `start` is called before the next request is dispatched,
    unless the request is rejected because too many are in progress. Errors of `start` are raised by awaiting."""

    @abstractmethod
    def start(self) -> None: ...


Answer = Command | EncodedReply | None | PendingAnswer
Handler = Callable[[Command, "Connection"], Answer]
"""Returns the answer, a coroutine of it, or None if the handler calls `connection.answer` later or never."""
Check = Callable[[Command, "Connection"], Command | None]
"""Returns the answer that rejects a request, or None to let it pass."""
Middleware = Callable[[int, Handler], Handler]
"""Wraps the handler of a code, or returns it unchanged."""


class Hook(Protocol):
    """Observes every request and its answer; changes nothing. `response` is None without an answer."""

    def before(self, connection: Connection, request: Command) -> None: ...

    def after(self, connection: Connection, request: Command, response: Command | None) -> None: ...


Observe = Callable[[Command, int, float, str], None]
"""Called with an answered request, its response code, the seconds it took, and the result: `success`, `oneway` or
`write_channel_failed`."""


class Registry(Protocol):
    """Accepts handlers: a dispatcher or a wrapper of one."""

    def register(self, code: int, handler: Handler) -> None: ...


class RequestRejected(RocketQError):
    """Raised by a handler to answer with a code and a remark."""

    def __init__(self, code: int, remark: str, ext_fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext_fields = ext_fields


class Dispatcher:
    """Handlers by request code. A failing handler produces an error answer; connection and process continue.

    Every request, of a known code or not, passes `checks` in order, then the handler inside `middleware`, the first
    outermost. With `handlers_max` unfinished handlers, or too many of one connection or source address (see
    HandlerSlots), further requests are answered with code 2. `changed` is called when checks or hooks are added or
    removed. `observe` is called for every answered request; unlike a hook it leaves the fast path on.
    """

    def __init__(
        self,
        *,
        handlers_max: int = 10_000,
        handlers_per_connection_max: int = 0,
        handlers_per_address_max: int = 0,
        checks: Sequence[Check] = (),
        middleware: Sequence[Middleware] = (),
        changed: Callable[[], None] = lambda: None,
        observe: Observe | None = None,
    ) -> None:
        self._observe = observe
        self._handlers: dict[int, Handler] = {}
        self._middleware = tuple(middleware)
        self._slots = HandlerSlots(
            handlers_max, per_connection=handlers_per_connection_max, per_address=handlers_per_address_max
        )
        self.held_count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending_works: list[Callable[[], Coroutine[Any, Any, object]]] = []
        self.checks: MutableSequence[Check] = ObservedList(changed, checks)
        self.hooks: MutableSequence[Hook] = ObservedList(changed)

    def register(self, code: int, handler: Handler) -> None:
        if code in self._handlers:
            raise ValueError(f"two handlers claim request code {int(code)}")
        for wrap in reversed(self._middleware):
            handler = wrap(code, handler)
        self._handlers[int(code)] = handler

    @property
    def codes(self) -> frozenset[int]:
        """The request codes with a handler."""
        return frozenset(self._handlers)

    def dispatch(self, request: Command, connection: Connection) -> None:
        """Answer a request, now or when its handler has finished. Never raises."""
        if request.fault is not None:
            connection.answer(request, request.answer(ResponseCode.SYSTEM_ERROR, remark=request.fault))
            return
        connection.language, connection.version = request.language, request.version
        if self._observe is not None:
            request.received_s = time.perf_counter()
        if self.hooks:
            run_before(self.hooks, connection, request)
        try:
            answer = self._decide(request, connection)
        except Exception as error:  # the boundary: a failing handler must not close the connection
            answer = failure_answer(request, error)
        if answer is None:
            request.is_held = True
            return
        if isinstance(answer, EncodedReply):
            if self.hooks:
                connection.answer(request, answer.to_command())
                return
            if not request.is_oneway:
                connection.write(answer.frame)
            self.answered(request, ResponseCode.SUCCESS, is_closed=connection.is_closed)
        elif isinstance(answer, Command):
            connection.answer(request, answer)
        else:
            self._start(request, connection, answer)

    def answered(self, request: Command, code: int, *, is_closed: bool) -> None:
        """Report an answered request to the observer."""
        if self._observe is not None and request.received_s:
            result = "oneway" if request.is_oneway else "write_channel_failed" if is_closed else "success"
            self._observe(request, code, time.perf_counter() - request.received_s, result)

    def add_pending_work(self, is_done: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Register requests answered outside of handlers. `held_count` counts them; `is_done()` waits for the last."""
        self._pending_works.append(is_done)

    @property
    def free_slots(self) -> int:
        """How many more requests may be in progress."""
        return self._slots.slots_max - self._slots.used - self.held_count

    def set_handlers_max(self, handlers_max: int) -> None:
        self._slots.slots_max = handlers_max

    async def finish(self, timeout_ms: int) -> None:
        """Wait for running handlers; cancel those that exceed the timeout."""
        tasks: set[asyncio.Task[Any]] = {*self._tasks}
        tasks |= {asyncio.get_running_loop().create_task(is_done()) for is_done in self._pending_works}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout_ms / 1000)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def rejection(self, request: Command, connection: Connection) -> Command | None:
        """The answer of the first check that rejects a request, or None."""
        for check in self.checks:
            if (rejection := check(request, connection)) is not None:
                return rejection
        return None

    def _decide(self, request: Command, connection: Connection) -> Answer:
        if (rejection := self.rejection(request, connection)) is not None:
            return rejection
        handler = self._handlers.get(request.code)
        if handler is None:
            return request.answer(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"request code {request.code} is not supported"
            )
        return handler(request, connection)

    def _start(self, request: Command, connection: Connection, answer: PendingAnswer) -> None:
        address = connection.peer_host
        if (reason := self._slots.rejection(connection, address, self.held_count)) is not None:
            answer.close()
            remark = f"[OVERLOAD]system busy, {reason}"
            connection.answer(request, request.answer(ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        self._slots.take(connection, address)
        if isinstance(answer, OrderedAnswer):
            answer.start()
        task = asyncio.get_running_loop().create_task(self._answer_later(request, connection, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_later(self, request: Command, connection: Connection, answer: PendingAnswer) -> None:
        try:
            given = await answer
            if given is None or isinstance(given, Command):
                response = given
            else:
                response = await given.complete(request, connection)
        except Exception as error:  # the same boundary as in dispatch
            response = failure_answer(request, error)
        finally:  # before the answer: the peer may send its next request immediately
            self._slots.release(connection, connection.peer_host)
            if (task := asyncio.current_task()) is not None:
                self._tasks.discard(task)
        if response is not None:
            connection.answer(request, response)


def failure_answer(request: Command, error: Exception) -> Command:
    """The answer to a failed request; unexpected errors are also logged."""
    match error:
        case RequestRejected():
            return request.answer(error.code, remark=error.remark, ext_fields=error.ext_fields)
        case ProtocolError():
            remark = str(error)
        case _:
            log.error("request %d failed", request.code, exc_info=error)
            remark = f"{type(error).__name__}: {error}"
    return request.answer(ResponseCode.SYSTEM_ERROR, remark=remark[:_REMARK_CHARS_MAX])


def run_before(hooks: Iterable[Hook], connection: Connection, request: Command) -> None:
    for hook in hooks:
        try:
            hook.before(connection, request)
        except Exception:  # a failing hook must not affect the request
            log.exception("a hook failed before request %d", request.code)


def run_after(hooks: Iterable[Hook], connection: Connection, request: Command, response: Command | None) -> None:
    for hook in hooks:
        try:
            hook.after(connection, request, response)
        except Exception:  # a failing hook must not affect the request
            log.exception("a hook failed after request %d", request.code)
