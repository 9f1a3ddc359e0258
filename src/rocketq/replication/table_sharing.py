"""A master's tables at its slaves: a change is answered when everybody who may be elected has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketq.errors import StoreError
from rocketq.replication.table_shares import TableShares


class TableSharing:
    """Belongs to one event loop. Without a mastership there is nobody to wait for."""

    def __init__(self, encode: Callable[[], bytes]) -> None:
        """`encode` gives topics and groups as they are now."""
        self.shares = TableShares()
        self.encode = encode
        self._holders: Callable[[], frozenset[int]] | None = None
        self._waits: list[tuple[int, asyncio.Future[None]]] = []

    def begin(self, holders: Callable[[], frozenset[int]]) -> None:
        """A mastership; `holders` are the slaves whose copies count."""
        self.end("another mastership has begun")
        self.shares, self._holders = TableShares(), holders

    def end(self, reason: str) -> None:
        self._holders = None
        waits, self._waits = self._waits, []
        for _, future in waits:
            if not future.done():
                future.set_exception(StoreError(reason))

    def lacking(self, number: int) -> frozenset[int]:
        return self.shares.lacking(number, self._holders()) if self._holders is not None else frozenset()

    def look(self) -> None:
        """Somebody has taken a state, has come or gone, or counts no more."""
        if not self._waits:
            return
        left = []
        for number, future in self._waits:
            if future.done():
                continue
            if self.lacking(number):
                left.append((number, future))
            else:
                future.set_result(None)
        self._waits = left

    async def wait(self, timeout_ms: int) -> None:
        """Returns when all changes so far are where they must be; StoreError when that takes too long."""
        number = self.shares.number
        if not self.lacking(number):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.append((number, future))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            names = ", ".join(map(str, sorted(self.lacking(number))))
            raise StoreError(f"it is saved here, but replica {names} did not have it in {timeout_ms} ms") from None
