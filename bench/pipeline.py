"""What the broker's request pipeline costs: guards, quotas and signatures, next to the broker without them.

    python -m bench.pipeline                        all rows, five rounds
    python -m bench.pipeline --rows 8x128 --rounds 2
    python -m bench.pipeline --list                 the names of all rows
    python -m bench.pipeline --smoke                ours alone, a moment, no bars: does it still run?

The same frames drive every peer, signed where the peer asks for it; rounds take turns and medians count. Ours runs four
times: as it is, with a guard that lets everything pass, with quotas that are never exceeded, and with signed requests.
Apache 4.9.7 runs as it is and with its access control. The last row sends delayed messages (level 1, one second), which
are not for the fast path; the CPU includes their delivery.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tests.interop.release import ApacheUnavailable

from bench.bars import Bar
from bench.broker import (
    ASYNC,
    DISK_USED_MAX,
    FILL_MESSAGES,
    TOPIC,
    WARM_UP_SECONDS,
    Row,
    Run,
    disk_used,
    fill,
    named,
    print_smoke,
    run_row,
    table,
    warm_up,
)
from bench.kept import Kept
from bench.load.folders import run_folder
from bench.load.generator import Load, Measured, NoCompilerError, program
from bench.load.memory import PageCache, page_cache
from bench.load.peers import VARIANTS, Apache, Ours, Peer, make_topics, measure
from bench.progress import Progress

VERSION = "4.9.7"
PLAIN, GUARD, QUOTAS, SIGNED = "rocketq", "rocketq guard", "rocketq quotas", "rocketq signed"
APACHE_ACL = f"Apache {VERSION} ACL"
TOPICS = [TOPIC, "BenchSmall"]
FULL_LOAD, PULLS = "sends 128B 8x128", "pulls 32x128B 8x4"
DELAYED, SLOW_PATH = "delayed sends 128B 8x128", "slow path sends 128B 8x128"
ROWS = (
    Row(name=FULL_LOAD, load=Load()),
    Row(name="sends 128B 64x1", load=Load(connections=64, depth=1)),
    Row(name="sends 128B 1x1", load=Load(connections=1, depth=1)),
    Row(name="batches 32x128B 8x16", load=Load(batch=32, depth=16)),
    Row(name=PULLS, load=Load(pull=1, depth=4, topic="BenchSmall"), fill=128),
    Row(name=DELAYED, load=Load(delay_level=1)),
    Row(name=SLOW_PATH, load=Load(wide=1)),
)
ROW_NAMES = [row.name for row in ROWS]
UNSIGNED_RATE_MIN = 0.9  # of a guard and of quotas, of the plain broker's
SIGNED_CPU_MAX, SIGNED_APACHE_MIN, SIGNED_PULLS_MIN = 2.5, 3.0, 0.85
SLOW_PATH_CPU_US_MAX = 40.0
START_SECONDS, ROUND_SECONDS = 60.0, 4.5


@contextmanager
def all_peers(notes: list[str]) -> Iterator[list[Peer]]:
    """Ours first; without Apache's release the notes say why."""
    with ExitStack() as stack:
        peers: list[Peer] = [stack.enter_context(Ours(ASYNC, variant=variant)) for variant in VARIANTS]
        try:
            peers += [stack.enter_context(Apache(VERSION, ASYNC, acl=acl)) for acl in (False, True)]
        except ApacheUnavailable as reason:
            notes.append(f"Apache {VERSION} is left out: {reason}")
        for peer in peers:
            make_topics(peer, TOPICS, 8)
        yield peers


def measured_at(row: Row, peers: Sequence[Peer]) -> list[Peer]:
    """Delayed sends and the slow path are measured by themselves: their bar is no ratio."""
    return [peer for peer in peers if row.name not in (DELAYED, SLOW_PATH) or peer.name == PLAIN]


def run_rows(rows: list[Row], run: Run, cache: PageCache | None) -> None:
    left = list(rows)
    while left:
        notes: list[str] = []
        with all_peers(notes) as peers:
            run.progress.say(left[0].name, f"warming up {', '.join(peer.name for peer in peers)}")
            warm_up(peers, WARM_UP_SECONDS)
            while left:
                if cache is not None:
                    cache.fill()
                row = left.pop(0)
                result = run_row(row, measured_at(row, peers), run, [])
                run.keep(row.name, table({row.name: result}), result, judge(row.name, result), notes)
                if disk_used() > DISK_USED_MAX:
                    break


def judge(row: str, result: dict[str, Measured]) -> list[Bar]:
    plain, signed = result[PLAIN], result.get(SIGNED)
    if row in (DELAYED, SLOW_PATH):
        cpu_us = plain.cpu_us_per_message
        return [Bar(f"{row}, CPU us a message", cpu_us, SLOW_PATH_CPU_US_MAX, at_most=True)]
    bars = [
        Bar(f"{row}, messages/s of {name}", result[name].messages_per_s / plain.messages_per_s, UNSIGNED_RATE_MIN)
        for name in (GUARD, QUOTAS)
        if name in result
    ]
    if signed is None:
        return bars
    rate = signed.messages_per_s / plain.messages_per_s
    if row == PULLS:
        bars.append(Bar(f"{row}, messages/s of {SIGNED}", rate, SIGNED_PULLS_MIN))
    if row == FULL_LOAD:
        ratio = signed.cpu_us_per_message / plain.cpu_us_per_message
        bars.append(Bar(f"{row}, CPU of {SIGNED}", ratio, SIGNED_CPU_MAX, at_most=True))
        if APACHE_ACL in result:
            ratio = signed.messages_per_s / result[APACHE_ACL].messages_per_s
            bars.append(Bar(f"{row}, messages/s of {SIGNED}, of {APACHE_ACL}", ratio, SIGNED_APACHE_MIN))
    return bars


def smoke(variants: Sequence[str] = VARIANTS) -> dict[str, Measured]:
    """Sends, pulls and slow sends to each variant, for a moment."""
    figures = {}
    short = Load(connections=2, depth=8, seconds=0.3, warm_up=0)
    for variant in variants:
        with Ours(ASYNC, variant=variant) as peer:
            make_topics(peer, TOPICS, 8)
            figures[f"{variant} sends"] = measure(peer, short)
            fill([peer], "BenchSmall", 128)
            pulls = replace(short, pull=1, topic="BenchSmall", messages=FILL_MESSAGES // 8)
            figures[f"{variant} pulls"] = measure(peer, pulls)
            figures[f"{variant} slow sends"] = measure(peer, replace(short, wide=1))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="ours alone, tiny, no bars")
    parser.add_argument("--list", action="store_true", help="print the names of all rows")
    parser.add_argument("--rows", nargs="+", default=[""], help="only rows whose name has one of these texts")
    parser.add_argument("--rounds", type=int, default=5, help="of every row, by turns (5)")
    parser.add_argument("--as-it-is", action="store_true", help="leave free memory alone")
    given = parser.parse_args()
    wanted = named(given.rows, ROW_NAMES)
    if not wanted:
        sys.exit("\n  ".join([f"no row has {' or '.join(given.rows)} in its name; there are", *ROW_NAMES]))
    if given.list:
        return print("\n".join(wanted))
    try:
        program()
    except NoCompilerError as error:
        sys.exit(str(error))
    if given.smoke:
        return print_smoke(smoke())
    rounds = max(1, given.rounds)
    seconds = {name: START_SECONDS * (name == wanted[0]) + ROUND_SECONDS * rounds * 6 for name in wanted}
    run = Run(rounds, Progress(seconds), Kept("pipeline", ROW_NAMES))
    with page_cache(wanted=not given.as_it_is) as cache:
        run_rows([row for row in ROWS if row.name in wanted], run, cache)
    bars = run.kept.bars(wanted)
    print("\n".join(map(str, bars)))
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
