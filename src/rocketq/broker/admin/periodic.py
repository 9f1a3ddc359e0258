"""Things done again and again on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None] | None]


class PeriodicJobs:
    """Each job has its own task; one that fails is logged and done again next time."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_ms: int | Callable[[], int], job: Job) -> None:
        """`interval_ms` may be a function, where it can change; it is asked before each wait."""
        interval = interval_ms if callable(interval_ms) else (lambda: interval_ms)
        self._tasks.append(asyncio.get_running_loop().create_task(_repeat(interval, job)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _repeat(interval_ms: Callable[[], int], job: Job) -> None:
    while True:
        await asyncio.sleep(interval_ms() / 1000)
        try:
            done = job()
            if done is not None:
                await done
        except Exception:  # a job that fails once is tried again
            log.exception("a regular job failed")
