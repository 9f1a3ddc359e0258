"""Loads of old messages for pulls: on worker threads, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rocketq.store.page_loads import Loaded

LOADS_MAX: Final = 8  # at a time; each keeps several reads under way by itself


class DiskLoads:
    """At most `loads_max` at a time; further ones wait, in their order. Used by the thread of its event loop."""

    def __init__(self, *, loads_max: int = LOADS_MAX) -> None:
        self._slots = asyncio.Semaphore(loads_max)
        self._threads = ThreadPoolExecutor(loads_max, thread_name_prefix="rocketq-load")
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, load: Callable[[], Loaded], *, is_wanted: Callable[[], bool]) -> Loaded | None:
        """The result of a load; None when nobody waits for it any more, before it begins or when it has ended."""
        async with self._slots:
            if not is_wanted():
                return None
            loaded = await asyncio.get_running_loop().run_in_executor(self._threads, load)
        return loaded if is_wanted() else None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what waits for a load and answers by itself."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Return when all that was started has answered."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def stop(self) -> None:
        """Before the store is closed: threads end with the load at hand."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
