"""What a slave costs, and how fast it catches up.

    python -m bench.replication                 three rounds
    python -m bench.replication --rounds 1
    python -m bench.replication --smoke         ours alone, a moment, no bars: does it still run?
    python -m bench.replication --as-it-is      memory as it is found (bench/load/memory.py says why not)

Sends to a SYNC_MASTER with one slave are compared with the same sends to our broker alone, and to Apache 4.9.7 as
SYNC_MASTER with one slave, all in the same run; rounds take turns. Then an empty slave copies a log that is there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace

from tests.interop.release import ApacheUnavailable

from bench.bars import Bar, save
from bench.load.folders import run_folder
from bench.load.generator import Load, Measured, NoCompilerError, median, program
from bench.load.memory import PageCache, page_cache
from bench.load.pairs import NAME, ApachePair, OurPair, OurSlave, log_end
from bench.load.peers import Ours, Peer, make_topics, measure

TOPIC = "BenchTopic"
SETTINGS = {"flushDiskType": "ASYNC_FLUSH"}
LOADS = {"sends 128B 8x128": Load(), "sends 128B 64x1": Load(connections=64, depth=1)}
VERSION = "4.9.7"
WARM_UP_SECONDS = 20.0
OWN_MIN, APACHE_MIN, CATCH_UP_MB_MIN = 0.6, 2.0, 300.0
CATCH_UP_BYTES = 1 << 30
LOOK_SECONDS = 0.02

Results = dict[str, dict[str, Measured]]


@dataclass(frozen=True, slots=True)
class CatchUp:
    size_bytes: int
    seconds: float

    @property
    def mb_per_s(self) -> float:
        return self.size_bytes / 1e6 / self.seconds if self.seconds else 0.0


def run_sends(rounds: int, cache: PageCache | None, notes: list[str]) -> Results:
    with ExitStack() as stack:
        peers: list[Peer] = [stack.enter_context(Ours(SETTINGS)), stack.enter_context(OurPair(SETTINGS))]
        try:
            peers.append(stack.enter_context(ApachePair(VERSION, SETTINGS)))
        except ApacheUnavailable as reason:
            notes.append(f"Apache {VERSION} is left out: {reason}")
        for peer in peers:
            make_topics(peer, [TOPIC], 8)
            seconds = WARM_UP_SECONDS if peer.name.startswith("Apache") else 2.0
            for load in LOADS.values():
                measure(peer, replace(load, seconds=seconds / 2, warm_up=0))
        taken: dict[str, dict[str, list[Measured]]] = {name: {peer.name: [] for peer in peers} for name in LOADS}
        for name, load in LOADS.items():
            if cache is not None:
                cache.fill()
            for number in range(rounds):
                for peer in peers:
                    taken[name][peer.name].append(measure(peer, load))
                print(f"  {name}: round {number + 1} of {rounds}", file=sys.stderr)
    return {name: {peer: median(each) for peer, each in by_peer.items()} for name, by_peer in taken.items()}


def catch_up(size_bytes: int, cache: PageCache | None = None) -> CatchUp:
    """An empty slave behind a master that has so much; from the first look that finds something to the last byte."""
    with Ours({**SETTINGS, "brokerName": NAME}) as master:
        make_topics(master, [TOPIC], 8)
        addr = f"127.0.0.1:{master.ports[0]}"
        while log_end(addr) < size_bytes:
            measure(master, Load(body=1024, batch=32, depth=8, seconds=0.5, warm_up=0))
        end = log_end(addr)
        if cache is not None:
            cache.fill()
        with OurSlave(master.name_server, SETTINGS) as slave:
            first, began = 0, time.monotonic()
            while (at := log_end(slave.addr)) < end:
                if not first and at:
                    first, began = at, time.monotonic()
                time.sleep(LOOK_SECONDS)
            return CatchUp(end - first, time.monotonic() - began)


def judge(results: Results, caught_up: list[CatchUp]) -> list[Bar]:
    bars = []
    for name, by_peer in results.items():
        pair = by_peer["rocketq + slave"].messages_per_s
        alone = by_peer["rocketq"].messages_per_s
        bars.append(Bar(f"{name} with a slave, of our own without", pair / alone if alone else 0.0, OWN_MIN))
        apache = by_peer.get(f"Apache {VERSION} + slave")
        if apache is not None and apache.messages_per_s:
            bars.append(Bar(f"{name} with a slave, of Apache's", pair / apache.messages_per_s, APACHE_MIN))
    if caught_up:
        rate = statistics.median(each.mb_per_s for each in caught_up)
        bars.append(Bar("a slave catches up, MB/s", rate, CATCH_UP_MB_MIN))
    return bars


def table(results: Results) -> str:
    lines = [f"{'':24}{'':22}{'msg/s':>12}{'CPU us':>9}{'p50 us':>9}{'p99 us':>9}{'errors':>9}"]
    for name, by_peer in results.items():
        for peer, each in by_peer.items():
            lines.append(
                f"{name:24}{peer:22}{each.messages_per_s:12,.0f}{each.cpu_us_per_message:9.2f}{each.p50_us:9.0f}"
                f"{each.p99_us:9.0f}{each.errors:9.0f}"
            )
    return "\n".join(lines)


def smoke() -> None:
    short = Load(depth=2, seconds=2, warm_up=1)  # also where little is left of a machine
    with OurPair(SETTINGS) as pair:
        make_topics(pair, [TOPIC], 8)
        sends = measure(pair, short)
    caught_up = catch_up(8 << 20)
    if sends.errors or not sends.messages or not caught_up.size_bytes:
        sys.exit(f"failed: {sends} {caught_up}")
    print(json.dumps({"sends": asdict(sends), "catch-up": asdict(caught_up)}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="ours alone, tiny, no bars")
    parser.add_argument("--rounds", type=int, default=3, help="of every load, by turns (3)")
    parser.add_argument("--as-it-is", action="store_true", help="leave free memory alone")
    given = parser.parse_args()
    try:
        program()
    except NoCompilerError as error:
        sys.exit(str(error))
    if given.smoke:
        return smoke()
    notes = [f"{given.rounds} rounds"]
    rounds = max(1, given.rounds)
    with page_cache(wanted=not given.as_it_is) as cache:
        results = run_sends(rounds, cache, notes)
        print(table(results), file=sys.stderr)
        caught_up = [catch_up(CATCH_UP_BYTES, cache) for _ in range(rounds)]
    bars = judge(results, caught_up)
    print("\n\n".join([table(results), "\n".join([*map(str, bars), *notes])]))
    rows = {name: {peer: asdict(each) for peer, each in by_peer.items()} for name, by_peer in results.items()}
    judged = [{**asdict(bar), "held": bar.held} for bar in bars]
    figures: dict[str, object] = {
        "rows": rows,
        "catch_up": [asdict(each) for each in caught_up],
        "bars": judged,
        "notes": notes,
    }
    print(f"saved as {save('replication', figures)}")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
