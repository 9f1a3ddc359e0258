"""Which event loop runs: uvloop's where it is installed, else asyncio's own."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes a fast loop; None where there is none but asyncio's."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run until done, on the fastest loop there is."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
