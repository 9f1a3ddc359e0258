"""Runs an asynchronous client on a private event loop in a background thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from rocketq.client.errors import ClientClosedError
from rocketq.client.sync.shared import CLOSE_TIMEOUT_S, LOOP
from rocketq.errors import RocketQError

log = logging.getLogger(__name__)

_Owner = TypeVar("_Owner")
_Target = TypeVar("_Target")
_Result = TypeVar("_Result")
_Params = ParamSpec("_Params")


class Engine(Generic[_Owner]):
    """A client on the shared loop of its process; created at first use, and again in a forked child.

    `make` returns the client and a function to call after it was closed.
    """

    def __init__(
        self,
        make: Callable[[], tuple[_Owner, Callable[[], None]]],
        begin: Callable[[_Owner], Coroutine[Any, Any, object]] | None = None,
        what: str = "it",
    ) -> None:
        self._make = make
        self._begin = begin
        self._what = what
        self._lock = threading.Lock()
        self._closed = False
        self._process_id = -1
        self._loop: asyncio.AbstractEventLoop
        self._owner: _Owner
        self._leave: Callable[[], None]

    def start(self) -> None:
        self._ready()

    def run(self, work: Callable[[_Owner], Coroutine[Any, Any, _Result]]) -> _Result:
        """The result; exceptions are raised here. An interrupt cancels the work too."""
        if LOOP.is_current:
            raise RuntimeError("this call would wait for itself: use the asynchronous client in callbacks on its loop")
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosedError(self._what) from None
        except RocketQError as error:
            raise shortened(error) from error.__cause__
        except BaseException:
            future.cancel()
            raise

    def owner_here(self) -> _Owner | None:
        """The owner, for what any thread may do with it; None if it is not started, or closed, in this process."""
        if self._closed or self._process_id != os.getpid() or LOOP.is_current:
            return None
        return self._owner

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
        self._end(self._owner, closing)

    def _ready(self) -> asyncio.AbstractEventLoop:
        with self._lock_here():
            if self._closed:
                raise ClientClosedError(self._what)
            if self._process_id != os.getpid():
                self._start()
            return self._loop

    def _start(self) -> None:
        self._loop = LOOP.acquire()
        try:
            self._owner, self._leave = self._make()
        except BaseException:
            LOOP.release()
            raise
        try:
            if self._begin is not None:
                asyncio.run_coroutine_threadsafe(self._begin(self._owner), self._loop).result()
        except BaseException:
            self._leave()
            LOOP.release()
            raise
        self._process_id = os.getpid()

    def _end(self, owner: _Owner, closing: Callable[[_Owner], Coroutine[Any, Any, None]]) -> None:
        future = asyncio.run_coroutine_threadsafe(closing(owner), self._loop)
        try:
            future.result(CLOSE_TIMEOUT_S)
        except TimeoutError:
            log.warning("%s did not close within %d s: cancelling the remaining tasks", self._what, CLOSE_TIMEOUT_S)
            future.cancel()
        finally:
            self._leave()
            LOOP.release()

    def _lock_here(self) -> threading.Lock:
        """A thread of the parent may have held the lock at the fork."""
        if self._process_id not in (-1, os.getpid()) and not self._closed:
            self._lock = threading.Lock() if self._lock.locked() else self._lock
        return self._lock


def shortened(error: RocketQError) -> RocketQError:
    """Without the frames of the event loop's thread, also in its causes."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__
    return error


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
