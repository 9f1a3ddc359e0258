"""Long work on an event loop, cut into slices: everything else on the loop runs between two of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

SLICE_S: Final = 0.00025
"""A producer waits this much longer while something long is built; a slice costs about 10 us besides."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class UnwantedError(Exception):
    """The caller no longer waits for the result."""


def _always() -> bool:
    return True


async def collect(items: Iterable[_Item], is_wanted: Callable[[], bool] = _always) -> list[_Item]:
    """Everything an iterable gives. Each item must take well under a millisecond.

    One slice runs per turn of the loop, however many are under way: they take turns. UnwantedError, and the iterable
    is not read any further, when `is_wanted` is false between two slices.
    """
    lock = _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    iterator = iter(items)
    collected: list[_Item] = []
    while True:
        async with lock:
            if not is_wanted():
                raise UnwantedError
            end_s = time.perf_counter() + SLICE_S
            for item in iterator:
                collected.append(item)
                if time.perf_counter() >= end_s:
                    break
            else:
                return collected
            await asyncio.sleep(0)  # with the lock held: the next slice of anybody is in another turn


async def finish(steps: Generator[None, None, _Result]) -> _Result:
    """What a generator returns at its end."""
    results: list[_Result] = []

    def run() -> Generator[None, None, None]:
        results.append((yield from steps))

    await collect(run())
    return results[0]
