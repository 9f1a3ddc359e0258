"""Runs an asynchronous client on a private event loop in a background thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from rocketq.client.errors import ClientClosedError
from rocketq.remoting.loops import loop_factory

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 120
"""Longer than any timeout inside of close(); beyond it something hangs."""
CANCEL_S: Final = 5

_Owner = TypeVar("_Owner")
_Target = TypeVar("_Target")
_Result = TypeVar("_Result")
_Params = ParamSpec("_Params")


class Engine(Generic[_Owner]):
    """A loop on a thread and the client that runs there; both are created at first use, and again in a forked child."""

    def __init__(
        self,
        make: Callable[[], _Owner],
        begin: Callable[[_Owner], Coroutine[Any, Any, object]] | None = None,
        what: str = "it",
    ) -> None:
        self._make = make
        self._start_queue = begin
        self._what = what
        self._lock = threading.Lock()
        self._closed = False
        self._process_id = -1
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        self._owner: _Owner

    def start(self) -> None:
        self._ready()

    def run(self, work: Callable[[_Owner], Coroutine[Any, Any, _Result]]) -> _Result:
        """The result; exceptions are raised here. An interrupt cancels the work too."""
        self._refuse_own_thread()
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosedError(self._what) from None
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Callable[[_Owner], Coroutine[Any, Any, _Result]]) -> concurrent.futures.Future[_Result]:
        """Start the work; the future has its result or exception."""
        loop = self._ready()
        coroutine = work(self._owner)
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # the loop was closed between the two
            coroutine.close()
            raise ClientClosedError(self._what) from None

    def close(self, closing: Callable[[_Owner], Coroutine[Any, Any, None]]) -> None:
        """Run the closing work; does nothing if the client was never started."""
        with self._lock_here():
            if self._closed:
                return
            self._closed = True
            if self._process_id != os.getpid():
                return
        try:
            asyncio.run_coroutine_threadsafe(closing(self._owner), self._loop).result(CLOSE_TIMEOUT_S)
        except TimeoutError:
            log.warning("%s did not close within %d s: cancelling the remaining tasks", self._what, CLOSE_TIMEOUT_S)
        finally:
            self._end(self._loop, self._thread)

    def _ready(self) -> asyncio.AbstractEventLoop:
        with self._lock_here():
            if self._closed:
                raise ClientClosedError(self._what)
            if self._process_id != os.getpid():
                self._start()
            return self._loop

    def _start(self) -> None:
        loop = (loop_factory() or asyncio.new_event_loop)()
        thread = threading.Thread(target=loop.run_forever, name="rocketq-client", daemon=True)
        thread.start()
        try:
            owner = self._make()
            if self._start_queue is not None:
                asyncio.run_coroutine_threadsafe(self._start_queue(owner), loop).result()
        except BaseException:
            self._end(loop, thread)
            raise
        self._loop, self._thread, self._owner = loop, thread, owner
        self._process_id = os.getpid()

    def _end(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _lock_here(self) -> threading.Lock:
        """A thread of the parent may have held the lock at the fork."""
        if self._process_id not in (-1, os.getpid()) and not self._closed:
            self._lock = threading.Lock() if self._lock.locked() else self._lock
        return self._lock

    def _refuse_own_thread(self) -> None:
        if self._process_id == os.getpid() and threading.current_thread() is self._thread:
            raise RuntimeError("this call would wait for itself: use the asynchronous client in callbacks on its loop")


async def _cancel_others() -> None:
    """Cancel all other tasks before the loop ends."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_S)
    await asyncio.get_running_loop().shutdown_default_executor()


class Facade(Generic[_Owner, _Target]):
    """Calls methods of a part of the client that the engine runs."""

    def __init__(self, engine: Engine[_Owner], part: Callable[[_Owner], _Target]) -> None:
        self._engine = engine
        self._part = part

    def _run(self, work: Callable[[_Target], Coroutine[Any, Any, _Result]]) -> _Result:
        return self._engine.run(lambda owner: work(self._part(owner)))


def blocking(
    method: Callable[Concatenate[_Target, _Params], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[Facade[Any, _Target], _Params], _Result]:
    """The blocking form of an asynchronous method."""

    @functools.wraps(method)
    def call(self: Facade[Any, _Target], /, *args: _Params.args, **given: _Params.kwargs) -> _Result:
        return self._run(lambda target: method(target, *args, **given))

    return call
