"""A run from its connections to its figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rocketq.cli.load.connections import LoadConnection, Run
from rocketq.cli.load.figures import CpuUse, Figures, figures_of
from rocketq.cli.load.processes import cpu_seconds
from rocketq.errors import RemotingError, RocketQError, UnreachableError
from rocketq.remoting import ClientTls
from rocketq.remoting.address import split_addr

TICK_S = 1.0
COUNT_TICK_S = 0.01
ANSWER_S_MAX = 30.0
RECONNECT_PAUSE_S = 0.05

Locate = Callable[[str], Awaitable[str]]
"""The current address of the master that had this address when the run started; a RocketQError if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """For how long, how hard; `links` has the address and the requests of every connection. With `count` messages
    given it ends with them, however long that takes, and there is no warming up."""

    links: Sequence[tuple[str, list[bytes]]]
    in_flight: int
    messages_per_request: int | None
    body_bytes: int = 0
    seconds: float
    warm_up_s: float
    pids: tuple[int, ...]
    count: int | None = None
    locate: Locate | None = None
    """Where to continue after a lost connection. None: the run ends with it."""
    tls: ClientTls | None = None

    @property
    def requests_count(self) -> int | None:
        if self.count is None or self.messages_per_request is None:
            return None
        return -(-self.count // self.messages_per_request)


@dataclass(frozen=True, slots=True)
class Outcome:
    figures: Figures
    refusal: str
    """The remark of the first rejection."""
    broken_off: str = ""
    """Why the run ended before its time: a broker went away, or gave its mastership to another."""


async def drive(plan: Plan, tell: Callable[[float, float], None]) -> Outcome:
    """What a run came to, also when it did not come to its end. `tell` hears every second how long it has run and at
    what rate."""
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()
    run = Run(plan.in_flight, plan.messages_per_request, plan.body_bytes, plan.requests_count)
    connections: list[LoadConnection] = []
    replacing: dict[asyncio.Task[None], LoadConnection] = {}

    def lost(connection: LoadConnection, error: Exception) -> None:
        if plan.locate is not None and run.counting:
            task = loop.create_task(_replace(run, plan.locate, connection, connections, failed))
            replacing[task] = connection
            task.add_done_callback(replacing.pop)
        elif not failed.done():
            failed.set_exception(error)

    run.lost = lost
    run.counting = plan.count is not None
    before, began, broken_off = _cpu_use(plan.pids), loop.time(), ""
    try:
        run.tls = None if plan.tls is None else plan.tls.context()
        for addr, requests in plan.links:
            connections.append(await _connect(run, addr, requests))
        if not run.counting:
            await _first_answer(run, failed)
            await _wait(plan.warm_up_s, failed)
            before, began = _cpu_use(plan.pids), loop.time()
            run.counting = True
        try:
            await _watch(run, plan, failed, tell)
        except RemotingError as error:
            if not run.tally.requests:
                raise
            broken_off = str(error)
        run.counting = False
        for connection in replacing.values():
            run.tally.gap_s = max(run.tally.gap_s, loop.time() - connection.answered_s)
        took, used = loop.time() - began, _cpu_use(plan.pids).since(before)
    finally:
        for task in list(replacing):
            task.cancel()
        await asyncio.gather(*replacing, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in connections))
        if not failed.done():
            failed.cancel()
    return Outcome(figures_of(run.tally, run.latencies, took, used), run.tally.refusal, broken_off)


def _cpu_use(pids: tuple[int, ...]) -> CpuUse:
    try:
        return CpuUse(time.process_time(), cpu_seconds(pids))
    except OSError:  # a broker has ended during the run
        return CpuUse(time.process_time(), None)


async def _replace(
    run: Run,
    locate: Locate,
    lost: LoadConnection,
    connections: list[LoadConnection],
    failed: asyncio.Future[None],
) -> None:
    """Connect to the current master instead of a lost connection, for as long as the run waits for answers."""
    connections.remove(lost)
    deadline_s = asyncio.get_running_loop().time() + ANSWER_S_MAX
    while True:
        try:
            addr = await locate(lost.addr)
            connections.append(await _connect(run, addr, lost.requests, lost.answered_s))
        except RocketQError as error:
            if asyncio.get_running_loop().time() >= deadline_s:
                if not failed.done():
                    failed.set_exception(error)
                return
            await asyncio.sleep(RECONNECT_PAUSE_S)
        else:
            run.tally.reconnects += 1
            return


async def _connect(run: Run, addr: str, requests: list[bytes], answered_s: float | None = None) -> LoadConnection:
    host, port = split_addr(addr)
    try:
        _, made = await asyncio.get_running_loop().create_connection(
            lambda: LoadConnection(run, addr, requests, answered_s), host, port, ssl=run.tls
        )
    except OSError as error:
        raise UnreachableError(addr, str(error)) from error
    return made


async def _first_answer(run: Run, failed: asyncio.Future[None]) -> None:
    """One-time costs, such as files created for the first message, are not measured."""
    answered = asyncio.ensure_future(run.answered.wait())
    either: set[asyncio.Future[Any]] = {answered, failed}
    try:
        await asyncio.wait(either, timeout=ANSWER_S_MAX, return_when=asyncio.FIRST_COMPLETED)
    finally:
        answered.cancel()
    if failed.done():
        failed.result()


async def _wait(seconds: float, failed: asyncio.Future[None]) -> None:
    await asyncio.wait({failed}, timeout=seconds)
    if failed.done():
        failed.result()


async def _watch(run: Run, plan: Plan, failed: asyncio.Future[None], tell: Callable[[float, float], None]) -> None:
    loop = asyncio.get_running_loop()
    began, seen, turn = loop.time(), 0, loop.time()
    moved = (run.tally.requests, loop.time())
    while not _is_done(run, plan, loop.time() - began):
        await _wait(_pause_s(plan, loop.time() - began), failed)
        now = loop.time()
        if run.tally.requests != moved[0]:
            moved = (run.tally.requests, now)
        elif now - moved[1] > ANSWER_S_MAX:
            raise RemotingError(plan.links[0][0], f"no request was answered for {ANSWER_S_MAX:g} s")
        if now - turn >= TICK_S:
            tell(now - began, (run.tally.messages - seen) / (now - turn))
            seen, turn = run.tally.messages, now


def _is_done(run: Run, plan: Plan, ran_s: float) -> bool:
    if plan.requests_count is not None:
        return run.tally.requests >= plan.requests_count
    return run.tally.messages >= plan.count if plan.count is not None else ran_s >= plan.seconds


def _pause_s(plan: Plan, ran_s: float) -> float:
    """A count may be reached any moment."""
    return COUNT_TICK_S if plan.count is not None else min(TICK_S, plan.seconds - ran_s)
