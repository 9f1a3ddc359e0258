"""Replication of topics and groups: a change is answered when every replica that can be elected has stored it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from rocketq.errors import StoreError


class TableShares:
    """Table versions of one mastership. The number increases with every change. One version at a time is in flight."""

    def __init__(self) -> None:
        self.number = 1
        self._sent: dict[int, int] = {}
        self._stored: dict[int, int] = {}
        self._kept: dict[int, int] = {}  # stored versions remain on a slave's disk while it is disconnected

    def changed(self) -> None:
        self.number += 1

    def next_for(self, slave_id: int) -> int | None:
        """The version to send to a slave now: the newest, unless the slave has it or one is in flight."""
        sent, stored = self._sent.get(slave_id, 0), self._stored.get(slave_id, 0)
        return self.number if sent == stored < self.number else None

    def sent(self, slave_id: int, number: int) -> None:
        self._sent[slave_id] = number

    def stored(self, slave_id: int, number: int) -> bool:
        """Record an acknowledgement; False when this version was not sent."""
        if number != self._sent.get(slave_id, 0):
            return False
        self._stored[slave_id] = self._kept[slave_id] = number
        return True

    def disconnected(self, slave_id: int) -> None:
        """A slave that reconnects is sent everything again."""
        self._sent.pop(slave_id, None)
        self._stored.pop(slave_id, None)

    def has_any(self, slave_id: int) -> bool:
        return self._stored.get(slave_id, 0) > 0

    def lacking(self, number: int, possible_members: Iterable[int]) -> frozenset[int]:
        """Replicas that can be elected now or soon, and have not stored this version."""
        return frozenset(each for each in {*possible_members, *self._stored} if self._kept.get(each, 0) < number)


class TableSharing:
    """Waits for table acknowledgements. Belongs to one event loop; returns immediately without a mastership."""

    def __init__(self, encode: Callable[[], bytes]) -> None:
        """`encode` returns the current topics and groups."""
        self.shares = TableShares()
        self.encode = encode
        self._holders: Callable[[], frozenset[int]] | None = None
        self._waits: list[tuple[int, asyncio.Future[None]]] = []

    def begin(self, possible_members: Callable[[], frozenset[int]]) -> None:
        """Start a mastership; `possible_members` returns the slaves whose copies are required."""
        self.end("a new mastership has started")
        self.shares, self._holders = TableShares(), possible_members

    def end(self, reason: str) -> None:
        self._holders = None
        waits, self._waits = self._waits, []
        for _, future in waits:
            if not future.done():
                future.set_exception(StoreError(reason))

    def lacking(self, number: int) -> frozenset[int]:
        return self.shares.lacking(number, self._holders()) if self._holders is not None else frozenset()

    def release_waiters(self) -> None:
        """Complete the waits that are satisfied now."""
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
        """Return when all changes so far are stored on the required replicas; StoreError after the timeout."""
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
            raise StoreError(
                f"saved on the master only: not stored by replica {names} within {timeout_ms} ms"
            ) from None
