"""Asks brokers that could not be reached whether they can be again."""

from __future__ import annotations

import asyncio
import logging

from rocketq.client.aio.scatter import outcomes
from rocketq.client.aio.sends import SendPath
from rocketq.client.aio.session import Session
from rocketq.client.core.fault_latency import FaultLatency
from rocketq.protocol.headers.offsets import MaxOffsetRequest

log = logging.getLogger(__name__)


class Prober:
    """Of one producer. A small question that every broker answers, with little patience."""

    def __init__(self, session: Session, faults: FaultLatency, path: SendPath) -> None:
        self._session = session
        self._faults = faults
        self._path = path
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._faults.config.probe_interval_ms is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._faults.config.probe_interval_ms))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await self.probe()
            except Exception:  # probing must go on, whatever failed this time
                log.exception("brokers could not be probed")

    async def probe(self) -> None:
        """All that are out of reach, at once; those that have left all routes are forgotten."""
        masters = self._path.masters()
        self._faults.keep_only(masters)
        timeout_ms = self._faults.config.probe_timeout_ms
        found = await outcomes(
            {
                name: self._session.call(
                    masters[name][0], MaxOffsetRequest(topic=masters[name][1], queue_id=0), timeout_ms=timeout_ms
                )
                for name in self._faults.unreachable()
            }
        )
        for name in found.results:
            self._faults.reached(name)
        for name, error in found.failures.items():
            log.debug("broker %s is still out of reach: %s", name, error)
