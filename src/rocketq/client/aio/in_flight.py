"""How many sends may be under way."""

from __future__ import annotations

import asyncio
from collections import deque

from rocketq.client.errors import ClientClosedError, TooManySendsError


class InFlight:
    """Room for a number of sends and of bytes, given in the order in which it is asked for."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self.count = 0
        self.size_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._empty: asyncio.Event | None = None

    def try_enter(self, size_bytes: int) -> bool:
        """Whether there is room; then it is taken."""
        if self._waiting or not self._fits(size_bytes):
            return False
        self.count += 1
        self.size_bytes += size_bytes
        return True

    async def enter(self, size_bytes: int, timeout_ms: int) -> None:
        """Wait for room; TooManySendsError when there is none in time."""
        if self.try_enter(size_bytes):
            return
        room = asyncio.get_running_loop().create_future()
        entry = (room, size_bytes)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await room
        except BaseException as error:
            if room.done() and not room.cancelled() and room.exception() is None:
                self.leave(size_bytes)  # it was given in the same moment
            elif entry in self._waiting:
                self._waiting.remove(entry)
            self._admit()
            if isinstance(error, TimeoutError):
                raise TooManySendsError(self.count, self.size_bytes, timeout_ms) from None
            raise

    def leave(self, size_bytes: int) -> None:
        self.count -= 1
        self.size_bytes -= size_bytes
        if self._waiting:
            self._admit()
        if self._empty is not None and self.count == 0:
            self._empty.set()

    async def drained(self, timeout_ms: int) -> bool:
        """Whether all under way ended in time."""
        if self.count == 0:
            return True
        self._empty = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def close(self, what: str) -> None:
        """Nobody gets room any more."""
        while self._waiting:
            room, _ = self._waiting.popleft()
            if not room.done():
                room.set_exception(ClientClosedError(what))

    def _fits(self, size_bytes: int) -> bool:
        """A send that is larger than all the room goes when it is alone."""
        if self.count == 0:
            return True
        return self.count < self._count_max and self.size_bytes + size_bytes <= self._bytes_max

    def _admit(self) -> None:
        while self._waiting:
            room, size_bytes = self._waiting[0]
            if not room.done():
                if not self._fits(size_bytes):
                    return
                self.count += 1
                self.size_bytes += size_bytes
                room.set_result(None)
            self._waiting.popleft()
