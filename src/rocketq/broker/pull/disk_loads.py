"""Loads old messages for pulls on worker threads, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rocketq.store.page_loads import Loaded

LOADS_MAX: Final = 8  # concurrent; each load has several reads in flight


class DiskLoads:
    """Runs at most `loads_max` loads concurrently; others wait in order. Used on the event loop's thread."""

    def __init__(self, *, loads_max: int = LOADS_MAX) -> None:
        self._slots = asyncio.Semaphore(loads_max)
        self._threads = ThreadPoolExecutor(loads_max, thread_name_prefix="rocketq-load")
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, load: Callable[[], Loaded], *, is_wanted: Callable[[], bool]) -> Loaded | None:
        """Run a load; returns None if its result is no longer wanted, before it starts or after it ends."""
        async with self._slots:
            if not is_wanted():
                return None
            loaded = await asyncio.get_running_loop().run_in_executor(self._threads, load)
        return loaded if is_wanted() else None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that waits for a load and answers the request."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait until all started coroutines have answered."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def stop(self) -> None:
        """Stop before the store is closed; running loads finish."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
