"""Our own broker next to itself: a thousand topics against one, two brokers against one."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, replace

from bench.bars import Bar
from bench.load.generator import Load, Measured, run
from bench.load.peers import Ours, Peer, make_topics

TOPICS, QUEUES = 1_000, 8
ASYNC = {"flushDiskType": "ASYNC_FLUSH"}
MANY_TOPICS_MIN, TWO_BROKERS_MIN = 0.8, 1.3
MEET_SECONDS_MAX = 400.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Rates and CPU of the plain load and of the spread one, medians of rounds that took turns."""

    one_per_s: float
    many_per_s: float
    one_cpu_us: float
    many_cpu_us: float
    generator_us: float = 0.0
    """CPU of the load generator for a message of the spread load."""

    @classmethod
    def of(cls, one: list[Measured], many: list[Measured]) -> Spread:
        return cls(
            statistics.median(each.messages_per_s for each in one),
            statistics.median(each.messages_per_s for each in many),
            statistics.median(each.cpu_us_per_message for each in one),
            statistics.median(each.cpu_us_per_message for each in many),
            statistics.median(each.generator_cpu_share * 1e6 / max(each.messages_per_s, 1.0) for each in many),
        )

    @property
    def ratio(self) -> float:
        return self.many_per_s / self.one_per_s if self.one_per_s else 0.0

    def explain(self, cores: int) -> str:
        """What CPU allows: one broker has one core, several share with the generator all there are."""
        together_us = self.many_cpu_us + self.generator_us
        limit = cores * self.one_cpu_us / together_us if together_us else 0.0
        parts = f"{cores} cores / ({self.many_cpu_us:.2f} + {self.generator_us:.2f} us of the generator)"
        return f"CPU allows {limit:.2f}: {parts} against one core / {self.one_cpu_us:.2f} us"


def many_topics(rounds: int, topics: int = TOPICS, load: Load | None = None, before_s: float = 2.0) -> Spread:
    """Uniform sends over all queues of many topics, and the same to one topic."""
    single = load or Load()
    spread = replace(single, topic="BenchMany", topics=topics)
    with Ours(ASYNC) as peer:
        make_topics(peer, ["BenchTopic", *(f"BenchMany{number}" for number in range(topics))], QUEUES)
        run(replace(single, seconds=before_s, warm_up=0), ports=peer.ports, pids=peer.pids)
        _meet_every_queue(peer, replace(spread, seconds=before_s, warm_up=0), topics * QUEUES)
        one, many = [], []
        for number in range(rounds):
            one.append(run(single, ports=peer.ports, pids=peer.pids))
            many.append(run(spread, ports=peer.ports, pids=peer.pids))
            print(f"  {topics} topics: round {number + 1} of {rounds}", file=sys.stderr)
    return Spread.of(one, many)


def _meet_every_queue(peer: Peer, load: Load, queues: int) -> None:
    """A queue's file is made with its first message, which is no part of what is measured."""
    deadline = time.monotonic() + MEET_SECONDS_MAX
    while (met := run(load, ports=peer.ports, pids=peer.pids).messages) < 2 * queues:
        print(f"  {met:,} sends to {queues:,} queues: their files are being made …", file=sys.stderr)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{queues} queues were not met in {MEET_SECONDS_MAX:g} s")


def two_brokers(rounds: int, load: Load | None = None) -> Spread:
    """The same load over both brokers of `up --brokers 2`, and over one alone."""
    wanted = load or Load()
    with Ours(ASYNC) as alone, Ours(ASYNC, brokers=2) as pair:
        for peer in (alone, pair):
            make_topics(peer, ["BenchTopic"], QUEUES)
            run(replace(wanted, seconds=1.0, warm_up=0), ports=peer.ports, pids=peer.pids)
        one, many = [], []
        for number in range(rounds):
            one.append(run(wanted, ports=alone.ports, pids=alone.pids))
            many.append(run(wanted, ports=pair.ports, pids=pair.pids))
            print(f"  two brokers: round {number + 1} of {rounds}", file=sys.stderr)
    return Spread.of(one, many)


def judge(spreads: dict[str, Spread]) -> list[Bar]:
    wanted = {"1,000 topics x 8 queues": MANY_TOPICS_MIN, "two brokers": TWO_BROKERS_MIN}
    return [
        Bar(name=f"{name}, messages/s of our own", measured=each.ratio, wanted=wanted[name])
        for name, each in spreads.items()
        if name in wanted
    ]


def table(spreads: dict[str, Spread]) -> str:
    lines = [f"{'':28}{'one msg/s':>12}{'many msg/s':>12}{'one CPU us':>12}{'many CPU us':>12}"]
    for name, each in spreads.items():
        figures = f"{each.one_per_s:12,.0f}{each.many_per_s:12,.0f}{each.one_cpu_us:12.2f}{each.many_cpu_us:12.2f}"
        lines.append(f"{name:28}{figures}")
    return "\n".join(lines)
