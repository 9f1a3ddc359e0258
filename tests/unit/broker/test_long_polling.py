"""Held pulls on a loop: very many that wake at once share it with everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from rocketq.broker.pull.held_pulls import HeldPull, HoldLimits
from rocketq.broker.pull.long_polling import SLICE_MS, LongPolling, Serve
from rocketq.runtime.clock import ManualClock

QUEUE = ("T", 0)
COUNT = 40
LIMITS = HoldLimits(total=COUNT, per_connection=COUNT, per_address=COUNT)


class Served:
    """Answers take 1 ms each; who wants nothing yet goes on waiting."""

    def __init__(self, clock: ManualClock, *, keeps: Callable[[int], bool] = lambda number: False) -> None:
        self._clock = clock
        self._keeps = keeps
        self.numbers: list[int] = []

    def __call__(self, pull: HeldPull[int], last: bool) -> bool:
        self._clock.advance(1)
        if not last and self._keeps(pull.payload):
            pull.scan_offset += 1
            return False
        self.numbers.append(pull.payload)
        return True


def polling_of(clock: ManualClock, served: Serve[int]) -> LongPolling[int]:
    polling: LongPolling[int] = LongPolling(clock, lambda queue: 0, served, limits=lambda: LIMITS)
    for number in range(COUNT):
        assert None is polling.hold(HeldPull(QUEUE, 0, 60_000, connection=number, payload=number))
    return polling


def test_others_have_their_turns_while_many_wake() -> None:
    """Goal: a slice of them a turn, in their order, and those that wait for their turn count as held."""

    async def run() -> list[tuple[int, int]]:
        clock = ManualClock()
        served = Served(clock)
        polling, seen = polling_of(clock, served), []
        polling.on_queue_grown(*QUEUE, 1)
        while len(served.numbers) < COUNT:
            await asyncio.sleep(0)
            seen.append((len(served.numbers), len(polling)))
        assert served.numbers == list(range(COUNT))
        return seen

    seen = asyncio.run(run())
    steps = [after[0] - before[0] for before, after in pairwise(seen)]
    assert max(steps) <= SLICE_MS
    assert all(done + left == COUNT for done, left in seen)


def test_who_goes_on_waiting_is_held_again() -> None:
    """Goal: only what is wanted is answered; the others wake with the next message."""

    async def run() -> None:
        clock = ManualClock()
        served = Served(clock, keeps=lambda number: number % 2 == 1)
        polling = polling_of(clock, served)
        polling.on_queue_grown(*QUEUE, 1)
        while len(served.numbers) < COUNT // 2:
            await asyncio.sleep(0)
        for _ in range(COUNT):
            await asyncio.sleep(0)
        assert served.numbers == list(range(0, COUNT, 2))
        assert len(polling) == COUNT // 2

    asyncio.run(run())


def test_a_stop_answers_everybody_at_once() -> None:
    """Goal: also those that were woken and wait for their turn, each once."""

    async def run() -> None:
        clock = ManualClock()
        served = Served(clock)
        polling = polling_of(clock, served)
        polling.on_queue_grown(*QUEUE, 1)
        await asyncio.sleep(0)
        assert 0 < len(served.numbers) < COUNT
        polling.stop()
        assert sorted(served.numbers) == list(range(COUNT))
        for _ in range(COUNT):
            await asyncio.sleep(0)
        assert len(served.numbers) == COUNT

    asyncio.run(run())


def test_one_that_fails_does_not_keep_the_rest_from_waking() -> None:
    """Goal: a fault in an answer is told to the loop, and the next turn goes on."""

    async def run() -> list[str]:
        clock, faults = ManualClock(), []
        served = Served(clock)

        def serve(pull: HeldPull[int], last: bool) -> bool:
            if pull.payload == 3:
                raise ValueError("no")
            return served(pull, last)

        polling = polling_of(clock, serve)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(str(context["exception"])))
        polling.on_queue_grown(*QUEUE, 1)
        while len(served.numbers) < COUNT - 1:
            await asyncio.sleep(0)
        return faults

    assert asyncio.run(run()) == ["no"]


@pytest.mark.parametrize("now_ms", [59_999, 60_000])
def test_whoever_has_waited_long_enough_is_answered(now_ms: int) -> None:
    """Goal: a deadline is kept to the millisecond, whatever the number."""

    async def run() -> int:
        clock = ManualClock()
        served = Served(clock)
        polling = polling_of(clock, served)
        clock.advance(now_ms - clock.monotonic_ms())
        polling.expire()
        for _ in range(COUNT):
            await asyncio.sleep(0)
        polling_left = len(polling)
        polling.stop()
        return polling_left

    assert asyncio.run(run()) == (COUNT if now_ms < 60_000 else 0)
