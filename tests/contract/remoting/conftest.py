"""Every test here runs on asyncio's loop and on uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rocketq.remoting.loops import loop_factory

TEST_SECONDS_MAX = 60

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = asyncio.new_event_loop if request.param == "asyncio" else loop_factory()
    if factory is None:
        pytest.skip("uvloop is not installed")

    def run_on_loop(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(main, TEST_SECONDS_MAX))

    return run_on_loop
