"""Periodic jobs on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None] | None]


class PeriodicJobs:
    """Runs each job in its own task; a failed run is logged and the job runs again after its interval."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_ms: int | Callable[[], int], job: Job) -> None:
        """Run `job` periodically. `interval_ms` may be a function; it is called before each wait."""
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
        except Exception:  # the job runs again after its interval
            log.exception("periodic job failed")
