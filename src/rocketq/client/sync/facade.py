"""How an asynchronous object is used without await: on a private loop, on a thread of its own."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from rocketq.remoting.loops import loop_factory

_Owner = TypeVar("_Owner")
_Target = TypeVar("_Target")
_Result = TypeVar("_Result")
_Params = ParamSpec("_Params")


class Engine(Generic[_Owner]):
    """A loop on a thread and the object that lives there; both are made at first use, and anew in a forked child."""

    def __init__(self, make: Callable[[], _Owner]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._closed = False
        self._process_id = -1
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        self._owner: _Owner

    def run(self, work: Callable[[_Owner], Coroutine[Any, Any, _Result]]) -> _Result:
        """The result; whatever is raised there is raised here. An interrupt ends the work too."""
        loop = self._ready()
        future = asyncio.run_coroutine_threadsafe(work(self._owner), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, farewell: Callable[[_Owner], Coroutine[Any, Any, None]]) -> None:
        """The last work; nothing happens where none was ever begun."""
        if not self._closed and self._process_id == os.getpid():
            self.run(farewell)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._closed = True

    def _ready(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise RuntimeError("it was closed")
            if self._process_id != os.getpid():
                self._start()
            return self._loop

    def _start(self) -> None:
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rocketq-client", daemon=True)
        self._thread.start()
        self._owner = self._make()
        self._process_id = os.getpid()


class Facade(Generic[_Owner, _Target]):
    """Stands for a part of what the engine runs."""

    def __init__(self, engine: Engine[_Owner], part: Callable[[_Owner], _Target]) -> None:
        self._engine = engine
        self._part = part

    def _run(self, work: Callable[[_Target], Coroutine[Any, Any, _Result]]) -> _Result:
        return self._engine.run(lambda owner: work(self._part(owner)))


def blocking(
    method: Callable[Concatenate[_Target, _Params], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[Facade[Any, _Target], _Params], _Result]:
    """The method of the same name, arguments and result that waits."""

    @functools.wraps(method)
    def call(self: Facade[Any, _Target], /, *args: _Params.args, **given: _Params.kwargs) -> _Result:
        return self._run(lambda target: method(target, *args, **given))

    return call
