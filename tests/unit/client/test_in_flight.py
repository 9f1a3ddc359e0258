"""Room for sends under way: in order, given back, never lost."""

from __future__ import annotations

import asyncio

import pytest

from rocketq.client.errors import ClientClosedError, TooManySendsError
from rocketq.client.in_flight import InFlight

HANG_MS = 60_000


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_room_is_given_in_the_order_it_is_asked_for() -> None:
    async def work() -> None:
        room = InFlight(2, 100)
        assert room.try_enter(60)
        assert room.try_enter(40)
        order: list[int] = []

        async def enter(name: int, size: int) -> None:
            await room.enter(size, HANG_MS)
            order.append(name)

        tasks = [asyncio.create_task(enter(name, size)) for name, size in ((1, 90), (2, 5))]
        await turns()
        assert not room.try_enter(1)  # others were first
        room.leave(40)
        await turns()
        assert order == []  # the first does not fit yet, and the second does not pass it
        room.leave(60)
        await turns()
        assert order == [1, 2]
        await asyncio.gather(*tasks)
        assert (room.count, room.size_bytes) == (2, 95)

    asyncio.run(work())


def test_who_gives_up_or_is_cancelled_leaves_nothing_behind() -> None:
    async def work() -> None:
        room = InFlight(1, 100)
        assert room.try_enter(10)
        with pytest.raises(TooManySendsError):
            await room.enter(10, 1)
        task = asyncio.create_task(room.enter(10, HANG_MS))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        room.leave(10)
        assert (room.count, room.size_bytes) == (0, 0)
        assert room.try_enter(5_000)  # alone, whatever its size
        assert not await room.drained(1)
        room.leave(5_000)
        assert await room.drained(1)

    asyncio.run(work())


def test_closing_sends_those_who_wait_away() -> None:
    async def work() -> None:
        room = InFlight(1, 100)
        assert room.try_enter(1)
        task = asyncio.create_task(room.enter(1, HANG_MS))
        await turns()
        room.close("it")
        with pytest.raises(ClientClosedError):
            await task
        room.leave(1)
        assert room.count == 0

    asyncio.run(work())
