"""Choice of the event loop: uvloop where it is installed, else asyncio."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's factory; None where uvloop is not installed."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine on the fastest available loop."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
