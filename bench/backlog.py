"""Pulls of old messages: the same ones while they are the newest, and with gigabytes of later messages behind them."""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tests.interop.release import ApacheUnavailable

from bench.bars import Bar
from bench.load.generator import Load, Measured, run
from bench.load.peers import Apache, Ours, Peer, make_topics

SETTINGS = {"flushDiskType": "ASYNC_FLUSH"}
TOPIC, LATER_TOPIC, QUEUES = "BenchBacklog", "BenchLater", 8
MESSAGES = 80_000
LATER_GIB = 12.0
LATER = Load(topic=LATER_TOPIC, connections=2, depth=4, body=16 << 10, batch=8, seconds=2.0, warm_up=0)
PULLS = Load(topic=TOPIC, pull=1, depth=4, messages=MESSAGES // QUEUES)
BEHIND_MIN = 0.8


@dataclass(frozen=True, slots=True)
class Backlog:
    """Medians of rounds, before the later messages and behind them."""

    fresh_per_s: float
    behind_per_s: float
    fresh_cpu_us: float
    behind_cpu_us: float
    later_gib: float

    @property
    def ratio(self) -> float:
        return self.behind_per_s / self.fresh_per_s if self.fresh_per_s else 0.0


def measure(
    apaches: list[str],
    rounds: int,
    notes: list[str],
    *,
    later_gib: float = LATER_GIB,
    pulls: Load = PULLS,
    settings: dict[str, str] | None = None,
) -> dict[str, Backlog]:
    """Ours and these releases of Apache, one after the other: the page cache is for one of them at a time."""
    wanted = {**SETTINGS, **(settings or {})}
    found = {"rocketq": _of(Ours(wanted), rounds, later_gib, pulls)}
    for version in apaches:
        try:
            found[f"Apache {version}"] = _of(Apache(version, wanted), rounds, later_gib, pulls)
        except ApacheUnavailable as reason:
            notes.append(f"Apache {version} is left out: {reason}")
    return found


def _of(broker: Peer, rounds: int, later_gib: float, pulls: Load) -> Backlog:
    with ExitStack() as stack:
        peer = stack.enter_context(broker)
        make_topics(peer, [TOPIC, LATER_TOPIC], QUEUES)
        _store(peer, Load(topic=TOPIC, body=128, batch=32, depth=4, seconds=0.5, warm_up=0), MESSAGES)
        _run(peer, pulls)  # compiled by the JVM, mapped by ours
        fresh = [_run(peer, pulls) for _ in range(rounds)]
        stored = _store(peer, LATER, int(later_gib * (1 << 30)) // LATER.body)
        print(f"  {peer.name}: {stored * LATER.body / (1 << 30):.1f} GiB of later messages", file=sys.stderr)
        _run(peer, replace(pulls, seconds=pulls.seconds / 2))
        behind = [_run(peer, pulls) for _ in range(rounds)]
    return Backlog(
        statistics.median(each.messages_per_s for each in fresh),
        statistics.median(each.messages_per_s for each in behind),
        statistics.median(each.cpu_us_per_message for each in fresh),
        statistics.median(each.cpu_us_per_message for each in behind),
        stored * LATER.body / (1 << 30),
    )


def _store(peer: Peer, load: Load, count: int) -> int:
    """At least so many messages."""
    stored = 0
    while stored < count:
        measured = _run(peer, load)
        if not measured.messages:
            raise RuntimeError(f"{peer.name} stores no messages any more: {measured}")
        stored += measured.messages
    return stored


def _run(peer: Peer, load: Load) -> Measured:
    return run(load, ports=peer.ports, pids=peer.pids)


def judge(name: str, found: dict[str, Backlog]) -> list[Bar]:
    return [Bar(name=f"{name}, messages/s of our own", measured=found["rocketq"].ratio, wanted=BEHIND_MIN)]


def table(found: dict[str, Backlog]) -> str:
    lines = [f"{'':14}{'fresh msg/s':>14}{'behind msg/s':>14}{'ratio':>7}{'fresh CPU us':>14}{'behind CPU us':>15}"]
    for name, each in found.items():
        rates = f"{each.fresh_per_s:14,.0f}{each.behind_per_s:14,.0f}{each.ratio:7.2f}"
        lines.append(f"{name:14}{rates}{each.fresh_cpu_us:14.2f}{each.behind_cpu_us:15.2f}")
    return "\n".join(lines)
