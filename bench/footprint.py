"""What a broker takes beside CPU: its own memory after a run, and the time from its start to the first message.

Memory is compared with Apache at a heap of 1 GiB. A start counts from the moment the broker's process is made until a
send to it is acknowledged; for ours the NameServer in the same command is part of it, for Apache it runs already. One
start of each is not counted: files come into the page cache by it, and Python keeps its bytecode as in an installation.
"""

from __future__ import annotations

import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.interop.release import ApacheUnavailable

from bench.bars import Bar
from bench.load.first_send import first_acknowledged
from bench.load.generator import Load, run
from bench.load.peers import Apache, Ours, Peer, make_topics

HEAP_MB = 1024
START_SECONDS_MAX = 120.0
ASYNC = {"flushDiskType": "ASYNC_FLUSH"}
MEMORY_MAX, START_MAX = 1 / 10, 1 / 5
NOTE = "starts: with bytecode and a warm page cache, the first of each peer is not counted; a new store each"


@dataclass(frozen=True, slots=True)
class Footprint:
    anonymous_mib: float
    first_send_s: float


def measure(peers: list[str], rounds: int, notes: list[str]) -> dict[str, Footprint]:
    """By peer; one that cannot be had is left out."""
    starts: dict[str, list[float]] = {name: [] for name in peers}
    memory: dict[str, float] = {}
    for number in range(rounds + 1):
        for name in list(starts):
            try:
                took, memory[name] = _start(name, loaded=number == rounds)
            except ApacheUnavailable as reason:
                notes.append(f"{name} is left out: {reason}")
                del starts[name]
                continue
            if number:
                starts[name].append(took)
            counted = f"start {number} of {rounds}" if number else "not counted"
            print(f"  {name}: first send after {took:.2f} s, {counted}", file=sys.stderr)
    return {name: Footprint(memory[name], statistics.median(each)) for name, each in starts.items()}


def _start(name: str, *, loaded: bool) -> tuple[float, float]:
    """Seconds to the first acknowledged send, and the memory after a load (0 without one)."""
    peer: Peer = Ours(ASYNC) if name == "rocketq" else Apache(name.removeprefix("Apache "), ASYNC, heap_mb=HEAP_MB)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_first, peer)
        with peer:
            took = waiting.result(START_SECONDS_MAX)
            return took, _load(peer) if loaded else 0.0


def _first(peer: Peer) -> float:
    deadline = time.monotonic() + START_SECONDS_MAX
    while peer.started is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{peer.name} was not started")
        time.sleep(0.001)
    began, port = peer.started
    return first_acknowledged(port, deadline) - began


def _load(peer: Peer) -> float:
    make_topics(peer, ["BenchTopic"], 8)
    run(Load(seconds=5.0, warm_up=0), ports=peer.ports, pids=peer.pids)
    run(Load(connections=64, depth=1, seconds=2.0, warm_up=0), ports=peer.ports, pids=peer.pids)
    return run(Load(batch=32, depth=16, seconds=3.0, warm_up=0), ports=peer.ports, pids=peer.pids).anonymous_mib


def judge(found: dict[str, Footprint]) -> list[Bar]:
    ours, others = found.get("rocketq"), [each for name, each in found.items() if name != "rocketq"]
    if ours is None or not others:
        return []
    memory = ours.anonymous_mib / min(each.anonymous_mib for each in others)
    start = ours.first_send_s / min(each.first_send_s for each in others)
    return [
        Bar(name="anonymous memory after the run", measured=memory, wanted=MEMORY_MAX, at_most=True),
        Bar(name="start to the first acknowledged send", measured=start, wanted=START_MAX, at_most=True),
    ]


def table(found: dict[str, Footprint]) -> str:
    lines = [f"{'':24}{'anon MiB':>12}{'first send s':>14}"]
    lines += [f"{name:24}{each.anonymous_mib:12,.0f}{each.first_send_s:14.2f}" for name, each in found.items()]
    return "\n".join(lines)
