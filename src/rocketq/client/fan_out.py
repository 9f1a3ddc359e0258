"""Concurrent requests to several peers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from rocketq.client.errors import PartlyFailedError
from rocketq.errors import RocketQError

AT_ONCE_MAX: Final = 64

_Key = TypeVar("_Key", bound=Hashable)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Outcomes(Generic[_Key, _Result]):
    """What came of each call; every key is in one of the two."""

    results: dict[_Key, _Result] = field(default_factory=dict)
    failures: dict[_Key, RocketQError] = field(default_factory=dict)


async def outcomes(calls: Mapping[_Key, Coroutine[Any, Any, _Result]]) -> Outcomes[_Key, _Result]:
    """All calls, a bounded number at a time; only errors of this package are kept, others are raised."""
    gate = asyncio.Semaphore(AT_ONCE_MAX)
    found: Outcomes[_Key, _Result] = Outcomes(dict.fromkeys(calls), {})  # type: ignore[arg-type]

    async def run(key: _Key, call: Coroutine[Any, Any, _Result]) -> None:
        try:
            async with gate:
                found.results[key] = await call
        except RocketQError as error:
            del found.results[key]
            found.failures[key] = error

    try:
        async with asyncio.TaskGroup() as group:
            for key, call in calls.items():
                group.create_task(run(key, call))
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    finally:
        for call in calls.values():
            call.close()  # coroutines that never started
    return found


async def on_each(calls: Mapping[_Key, Coroutine[Any, Any, _Result]]) -> dict[_Key, _Result]:
    """The result of every call. Raises the failure of a single call; PartlyFailedError if some of several failed."""
    found = await outcomes(calls)
    if not found.failures:
        return found.results
    if len(calls) == 1:
        raise next(iter(found.failures.values()))
    failures = {str(key): error for key, error in found.failures.items()}
    raise PartlyFailedError(failures, [str(key) for key in found.results])
