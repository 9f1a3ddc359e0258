"""The broker under load, next to Apache's brokers on the same machine in the same run.

    python -m bench.broker                          all rows, five rounds
    python -m bench.broker --rows 128B --rounds 2   only rows whose name has that text (or one of several); fewer rounds
    python -m bench.broker --list                   the names of all rows
    python -m bench.broker --smoke                  ours alone, a moment, no bars: does it still run?

The same frames drive every peer. Rounds take turns, so that noise hits all of them; medians count, and every figure is
compared with the faster Apache release of its row. Apache's brokers are warmed up before they are measured. NATS
JetStream and Redis Streams get the same messages in their own protocols, where they are installed: figures, no bars.
Free memory is put into the page cache first (bench/load/memory.py says why).
Every row is saved when it is done: a run that is ended keeps what it has, and a run of some rows replaces only those
(bench/kept.py).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests.interop.release import ApacheUnavailable

from bench import backlog, footprint, spread
from bench.bars import Bar
from bench.kept import Kept
from bench.load.folders import run_folder
from bench.load.foreign import FOREIGN, Foreign, ForeignUnavailable
from bench.load.generator import Load, Measured, NoCompilerError, median, program, run
from bench.load.memory import PageCache, page_cache
from bench.load.peers import Apache, Ours, Peer, make_topics, measure
from bench.progress import Progress

VERSIONS = ("4.9.7", "5.3.3")
WARM_UP_SECONDS = 20.0
ASYNC, SYNC = {"flushDiskType": "ASYNC_FLUSH"}, {"flushDiskType": "SYNC_FLUSH"}
TOPIC = "BenchTopic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A load and the bars it is judged by: ratios of ours to the best of Apache's."""

    name: str
    load: Load
    settings: dict[str, str] = field(default_factory=lambda: dict(ASYNC))
    rate_min: float | None = None
    cpu_max: float | None = None
    p50_max: float | None = None
    fill: int = 0
    """Messages that must be there before, for pulls."""

    @property
    def is_for_all(self) -> bool:
        """Whether brokers of other protocols can be asked the same."""
        return self.settings == ASYNC and not self.load.pull and self.load.batch == 1


ROWS = (
    Row(name="sends 128B 8x128", load=Load(), rate_min=3.0, cpu_max=1 / 6),
    Row(name="sends 128B 64x1", load=Load(connections=64, depth=1), rate_min=2.0, cpu_max=0.3),
    Row(name="sends 1KiB 8x128", load=Load(body=1024), rate_min=2.5, cpu_max=1 / 4),
    Row(name="batches 32x128B 8x16", load=Load(batch=32, depth=16), rate_min=2.0, cpu_max=1 / 3),
    Row(name="sends 128B 1x1", load=Load(connections=1, depth=1), p50_max=0.6, cpu_max=1 / 3),
    Row(name="pulls 32x128B 8x4", load=Load(pull=1, depth=4, topic="BenchSmall"), rate_min=1.3, cpu_max=0.5, fill=128),
    Row(name="pulls 32x1KiB 8x4", load=Load(pull=1, depth=4, topic="BenchLarge"), rate_min=1.3, cpu_max=0.5, fill=1024),
    Row(name="sync sends 128B 64x1", load=Load(connections=64, depth=1), settings=SYNC, rate_min=1.2, cpu_max=0.5),
    Row(name="sync sends 128B 8x128", load=Load(), settings=SYNC, rate_min=2.0, cpu_max=1 / 4),
)
FILL_MESSAGES = 80_000  # over eight queues
MANY_TOPICS, TWO_BROKERS, FOOTPRINT = "1,000 topics x 8 queues", "two brokers", "memory and start"
BACKLOG = f"pulls 32x128B 8x4 behind {backlog.LATER_GIB:g} GiB"
ROW_NAMES = [*(row.name for row in ROWS), BACKLOG, MANY_TOPICS, TWO_BROKERS, FOOTPRINT]
DISK_USED_MAX = 0.7  # with more, the peers start anew with empty stores: Apache's brokers stop writing at 0.9


# Peers


@contextmanager
def all_peers(settings: dict[str, str], notes: list[str]) -> Iterator[list[Peer]]:
    """Ours first; an Apache release that cannot be had is left out, and the notes say why."""
    with ExitStack() as stack:
        peers: list[Peer] = [stack.enter_context(Ours(settings))]
        for version in VERSIONS:
            try:
                peers.append(stack.enter_context(Apache(version, settings)))
            except ApacheUnavailable as reason:
                notes.append(f"Apache {version} is left out: {reason}")
        for peer in peers:
            make_topics(peer, [TOPIC, "BenchSmall", "BenchLarge"], 8)
        yield peers


@contextmanager
def foreign_peers(settings: dict[str, str], notes: list[str]) -> Iterator[list[Foreign]]:
    with ExitStack() as stack:
        peers = []
        for kind in FOREIGN if settings == ASYNC else ():
            try:
                peers.append(stack.enter_context(kind()))
            except ForeignUnavailable as reason:
                notes.append(f"{kind.name} is left out: {reason}")
        yield peers


def warm_up(peers: list[Peer], seconds: float) -> None:
    for peer in peers:
        part = seconds if is_apache(peer.name) else 1.0
        measure(peer, Load(seconds=part / 2, warm_up=0))
        measure(peer, Load(connections=64, depth=1, seconds=part / 4, warm_up=0))
        measure(peer, Load(batch=32, depth=16, seconds=part / 4, warm_up=0))


def is_apache(name: str) -> bool:
    """Whether a peer has to be compiled by a JVM first, and is what ours are compared with."""
    return name.startswith("Apache")


def _measure(peer: Peer | Foreign, load: Load) -> Measured:
    if isinstance(peer, Foreign):
        return run(replace(load, protocol=peer.protocol), ports=peer.ports, pids=peer.pids)
    return measure(peer, load)


def fill(peers: list[Peer], topic: str, body: int) -> None:
    """The same messages for everybody, spread over the queues."""
    per_queue = FILL_MESSAGES // 8
    for peer in peers:
        stored = 0
        while stored < FILL_MESSAGES:
            load = Load(body=body, batch=32, depth=4, topic=topic, seconds=0.5, warm_up=0)
            stored += measure(peer, load).messages
        print(f"  {peer.name}: {per_queue} of {stored // 8} messages a queue are pulled", file=sys.stderr)


# Rounds


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be done, how far it is, and where its results go."""

    rounds: int
    progress: Progress
    kept: Kept

    @classmethod
    def of(cls, wanted: list[str], rounds: int) -> Run:
        return cls(rounds, Progress({name: seconds_of(name, rounds) for name in wanted}), Kept("broker", ROW_NAMES))

    def keep(self, row: str, shown: str, figures: dict[str, Any], bars: list[Bar], notes: list[str]) -> None:
        self.kept.put(row, figures, bars, rounds=self.rounds, notes=notes)
        self.progress.finish(row)
        print("\n".join([shown, *map(str, bars), *dict.fromkeys(notes), ""]), flush=True)


def seconds_of(name: str, rounds: int) -> float:
    """About what a row takes, with the warming up in front of the first; only to guess what is left."""
    beside = {
        BACKLOG: 160.0 + 18.0 * rounds,
        MANY_TOPICS: 60.0 + 9.0 * rounds,
        TWO_BROKERS: 10.0 + 9.0 * rounds,
        FOOTPRINT: 60.0 + 25.0 * rounds,
    }
    if name in beside:
        return beside[name]
    row = next(row for row in ROWS if row.name == name)
    starts = 60.0 if row in (ROWS[0], next(each for each in ROWS if each.settings == SYNC)) else 0.0
    return starts + (20.0 if row.fill else 0.0) + 4.5 * rounds * (5 if row.is_for_all else 3)


def run_rows(rows: list[Row], run: Run, cache: PageCache | None) -> None:
    for settings in (ASYNC, SYNC):
        left = [row for row in rows if row.settings == settings]
        while left:
            notes: list[str] = []
            with all_peers(settings, notes) as peers, foreign_peers(settings, notes) as foreign:
                run.progress.say(left[0].name, f"warming up {', '.join(peer.name for peer in peers)}")
                warm_up(peers, WARM_UP_SECONDS)
                while left:
                    if cache is not None:
                        cache.fill()
                    row = left.pop(0)
                    result = run_row(row, peers, run, foreign if row.is_for_all else [])
                    run.keep(row.name, table({row.name: result}), result, judge([row], {row.name: result}), notes)
                    if disk_used() > DISK_USED_MAX:
                        break


def disk_used() -> float:
    """How full the disk is that stores lie on."""
    usage = shutil.disk_usage(tempfile.gettempdir())
    return usage.used / (usage.used + usage.free)


def run_row(row: Row, peers: list[Peer], run: Run, foreign: list[Foreign]) -> dict[str, Measured]:
    load = row.load
    if row.fill:
        fill(peers, load.topic, row.fill)
        load = replace(load, messages=FILL_MESSAGES // 8)
        for peer in peers:  # pulls are compiled by the JVM too
            measure(peer, replace(load, seconds=4.0 if is_apache(peer.name) else 0.5))
    everybody: list[Peer | Foreign] = [*peers, *foreign]
    taken: dict[str, list[Measured]] = {peer.name: [] for peer in everybody}
    for number in range(run.rounds):
        run.progress.say(row.name, f"round {number + 1} of {run.rounds}", number / run.rounds)
        for peer in everybody:
            taken[peer.name].append(_measure(peer, load))
    return {name: median(each) for name, each in taken.items()}


# Judging


def judge(rows: list[Row], results: dict[str, dict[str, Measured]]) -> list[Bar]:
    bars = []
    for row in rows:
        ours, others = results[row.name]["rocketq"], _others(results[row.name])
        if not others:
            continue
        best = max(others, key=lambda each: each.messages_per_s)
        if row.rate_min is not None:
            ratio = ours.messages_per_s / best.messages_per_s
            bars.append(Bar(name=f"{row.name}, messages/s", measured=ratio, wanted=row.rate_min))
        if row.p50_max is not None:
            ratio = ours.p50_us / min(each.p50_us for each in others)
            bars.append(Bar(name=f"{row.name}, p50", measured=ratio, wanted=row.p50_max, at_most=True))
        if row.cpu_max is not None:
            ratio = ours.cpu_us_per_message / best.cpu_us_per_message
            bars.append(Bar(name=f"{row.name}, CPU", measured=ratio, wanted=row.cpu_max, at_most=True))
    return bars


def _others(result: dict[str, Measured]) -> list[Measured]:
    return [figures for name, figures in result.items() if is_apache(name)]


def table(results: dict[str, dict[str, Measured]]) -> str:
    lines = [f"{'':24}{'':18}{'msg/s':>12}{'CPU us':>9}{'p50 us':>9}{'MB/s in':>9}{'CPU gen':>9}{'anon MiB':>10}"]
    for row, by_peer in results.items():
        for name, each in by_peer.items():
            lines.append(
                f"{row:24}{name:18}{each.messages_per_s:12,.0f}{each.cpu_us_per_message:9.2f}{each.p50_us:9.0f}"
                f"{each.mb_per_s:9.0f}{each.generator_cpu_share:9.2f}{each.anonymous_mib:10.0f}"
            )
    return "\n".join(lines)


# Beside the rows


def run_beside(wanted: list[str], run: Run) -> None:
    """Our own broker next to itself, and what brokers take beside CPU."""
    if BACKLOG in wanted:
        run.progress.say(BACKLOG, "starting")
        notes: list[str] = []
        backlogs = backlog.measure([VERSIONS[0]], run.rounds, notes)
        run.keep(BACKLOG, backlog.table(backlogs), backlogs, backlog.judge(BACKLOG, backlogs), notes)
    for name, measure_spread in ((MANY_TOPICS, spread.many_topics), (TWO_BROKERS, spread.two_brokers)):
        if name in wanted:
            run.progress.say(name, "starting")
            found = {name: measure_spread(run.rounds)}
            notes = [found[name].explain(os.cpu_count() or 1)] if name == TWO_BROKERS else []
            run.keep(name, spread.table(found), found, spread.judge(found), notes)
    if FOOTPRINT in wanted:
        run.progress.say(FOOTPRINT, "starting")
        notes = [footprint.NOTE]
        prints = footprint.measure(["rocketq", *(f"Apache {version}" for version in VERSIONS)], run.rounds, notes)
        run.keep(FOOTPRINT, footprint.table(prints), prints, footprint.judge(prints), notes)


def smoke() -> None:
    with Ours(ASYNC) as peer:
        make_topics(peer, [TOPIC, "BenchSmall"], 8)
        short = Load(seconds=0.3, warm_up=0)
        figures = {"sends": measure(peer, short), "batches": measure(peer, replace(short, batch=8, depth=4))}
        fill([peer], "BenchSmall", 128)
        figures["pulls"] = measure(peer, replace(short, pull=1, topic="BenchSmall", messages=FILL_MESSAGES // 8))
    print_smoke(figures)


def print_smoke(figures: dict[str, Measured]) -> None:
    """As JSON; the run fails where a load did."""
    for name, each in figures.items():
        if each.errors or not each.messages:
            sys.exit(f"{name} failed: {each}")
    backlog.measure([], 1, [], later_gib=0.01, pulls=replace(backlog.PULLS, seconds=0.3, warm_up=0))
    print(json.dumps({name: asdict(each) for name, each in figures.items()}, indent=1))


def compare(wanted: list[str], rounds: int, memory: bool) -> list[Bar]:
    """All that is wanted, shown and saved row by row; the bars of these rows."""
    began, run = time.monotonic(), Run.of(wanted, rounds)
    with page_cache(wanted=memory) as cache:
        run_rows([row for row in ROWS if row.name in wanted], run, cache)
        if cache is not None:
            cache.fill()
        run_beside(wanted, run)
    print("\n".join(map(str, run.kept.bars())))
    print(f"saved in bench/results, broker.json and broker.png; took {time.monotonic() - began:.0f} s")
    return run.kept.bars(wanted)


def named(texts: Sequence[str], names: Sequence[str] = ROW_NAMES) -> list[str]:
    """The rows whose names have one of these texts. Commas separate texts as blanks do, except within a name."""
    parts = [
        part
        for text in texts
        for part in ([text] if any(text in name for name in names) else filter(None, text.split(",")))
    ]
    return [name for name in names if any(part in name for part in parts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="ours alone, tiny, no bars")
    parser.add_argument("--list", action="store_true", help="print the names of all rows")
    parser.add_argument(
        "--rows", nargs="+", default=[""], help="only rows whose name has one of these: 1KiB sync, or 1KiB,sync"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of every row, by turns (5)")
    parser.add_argument("--as-it-is", action="store_true", help="leave free memory alone")
    given = parser.parse_args()
    wanted = named(given.rows)
    if not wanted:
        sys.exit("\n  ".join([f"no row has {' or '.join(given.rows)} in its name; there are", *ROW_NAMES]))
    if given.list:
        return print("\n".join(wanted))
    try:
        program()
    except NoCompilerError as error:
        sys.exit(str(error))
    if given.smoke:
        return smoke()
    bars = compare(wanted, max(1, given.rounds), not given.as_it_is)
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
