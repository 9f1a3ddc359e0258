"""An event loop on a background thread, for synchronous tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from rocketq.remoting.loops import loop_factory

_Result = TypeVar("_Result")


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Result], timeout_s: float = 30) -> _Result:
        """Run a coroutine on the loop; returns its result or raises its exception."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def close(self) -> None:
        """May be called where another loop runs."""
        self.run(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _shut_down(self) -> None:
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
