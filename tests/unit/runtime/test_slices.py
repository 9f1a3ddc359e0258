"""Long work in slices: others run in between, one slice in each turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rocketq.runtime.slices import UnwantedError, collect


@pytest.fixture(autouse=True)
def one_item_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketq.runtime.slices.SLICE_S", 0.0)


def test_others_run_between_two_slices() -> None:
    """Goal: a loop turns once for each slice, however many builders there are."""

    async def run() -> None:
        order: list[str] = []

        def items(name: str) -> Iterator[str]:
            for number in range(3):
                order.append(name)
                yield f"{name}{number}"

        async def others() -> None:
            while True:
                order.append("-")
                await asyncio.sleep(0)

        busy = asyncio.create_task(others())
        found = await asyncio.gather(collect(items("a")), collect(items("b")))
        busy.cancel()
        assert found == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
        text = "".join(order)
        assert not {"aa", "ab", "ba", "bb"} & {text[at : at + 2] for at in range(len(text))}

    asyncio.run(run())


def test_what_nobody_wants_is_not_made() -> None:
    async def run() -> None:
        made: list[int] = []
        with pytest.raises(UnwantedError):
            await collect((made.append(number) for number in range(10)), lambda: len(made) < 3)
        assert len(made) == 3
        assert await collect(range(3)) == [0, 1, 2]  # the next one is not held up

    asyncio.run(run())


def test_a_failure_in_the_middle_reaches_the_caller() -> None:
    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            await collect(1 // (2 - number) for number in range(5))
        assert await collect("ab") == ["a", "b"]

    asyncio.run(run())
