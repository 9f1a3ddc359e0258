"""Our client next to what a user would pick instead, all on one `rocketq` broker, in the same run.

    python -m bench.client             all rows, five rounds
    python -m bench.client --smoke     ours alone, a moment, no bars: does it still run?

The others are the package `rocketmq` 0.4.4 (a C++ library with a ctypes layer) and Apache's Java client 4.9.7. Each run
is a process of its own; rounds take turns, medians count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cache import Unavailable
from tests.interop.client_programs import cpp
from tests.interop.release import obtain

from bench.bars import Bar, save
from bench.load.folders import run_folder
from bench.load.generator import Load, run
from bench.load.peers import Ours, make_topics

HERE = Path(__file__).parent / "sdk"
THREADS = 100
DRAINED = 100_000
RUN_SECONDS_MAX = 180
Program = Callable[[list[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Row:
    """A load for one client: which program, and its words behind `NAMESERVER TOPIC`."""

    name: str
    client: str
    mode: str
    words: tuple[str, ...]
    drained: bool = False


def rows(seconds: float, drained: int) -> list[Row]:
    span = str(seconds)
    return [
        Row("sends, one await after the other", "ours", "send", ("1", span)),
        Row(f"sends, {THREADS} awaits at once", "ours", "send", (str(THREADS), span)),
        Row(f"sends, {THREADS} awaits, automatic batches", "ours", "send", (str(THREADS), span, "auto")),
        Row(f"sends, {THREADS} threads, C++", "cpp", "send", (str(THREADS), span)),
        Row(f"sends, {THREADS} threads, Java", "java", "send", (str(THREADS), span)),
        Row("consuming one by one", "ours", "consume", (str(drained), "1"), drained=True),
        Row("consuming in batches", "ours", "consume", (str(drained), "32"), drained=True),
        Row("consuming one by one, C++", "cpp", "consume", (str(drained), "8"), drained=True),
        Row("consuming one by one, Java", "java", "consume", (str(drained), "1"), drained=True),
        Row("consuming in batches, Java", "java", "consume", (str(drained), "32"), drained=True),
    ]


def programs(work: Path, notes: list[str]) -> dict[str, list[str]]:
    """How each client's program starts; one that cannot be had is left out, and the notes say why."""
    found = {"ours": [sys.executable, "-m", "bench.sdk.our_load"]}
    try:
        found["cpp"] = [*cpp().command(work)[:1], str(HERE / "cpp_load.py")]
    except Unavailable as reason:
        notes.append(f"the C++ client is left out: {reason}")
    try:
        found["java"] = _java(work)
    except Unavailable as reason:
        notes.append(f"the Java client is left out: {reason}")
    return found


def _java(work: Path) -> list[str]:
    release = obtain("4.9.7")
    classes = work / "classes"
    command = ["javac", "-nowarn", "-Xlint:none", "-proc:none", "-cp", f"{release.jars}/*", "-d", str(classes)]
    subprocess.run([*command, str(HERE / "ClientLoad.java")], check=True, capture_output=True)
    slow = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    words = [word for word in release.java(heap_mb=1024, home=work) if word not in slow]
    return [*words[:-1], f"{classes}:{release.jars}/*", "ClientLoad"]


def per_second(row: Row, command: list[str], name_server: str, topic: str, work: Path) -> float:
    words = [*command, row.mode, name_server, topic, *row.words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX)
    if done.returncode != 0 or not done.stdout.strip():
        raise RuntimeError(f"{row.name} ended with {done.returncode}: {done.stderr[-1500:]}")
    said = json.loads(done.stdout.strip().splitlines()[-1])
    return float(said["count"]) / float(said["seconds"])


def measure(seconds: float, drained: int, rounds: int, notes: list[str], only: str = "") -> dict[str, float]:
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="rocketq-bench-") as folder, Ours({}) as broker:
        work = Path(folder)
        found = {"ours": programs(work, [])["ours"]} if only == "ours" else programs(work, notes)
        make_topics(broker, ["ClientSends", "ClientDrained"], 8)
        stored = 0
        while stored < drained:
            fill = Load(body=128, batch=32, depth=4, topic="ClientDrained", seconds=0.3, warm_up=0)
            stored += run(fill, ports=broker.ports, pids=broker.pids).messages
        for number in range(rounds):
            for row in rows(seconds, drained):
                if row.client in found:
                    topic = "ClientDrained" if row.drained else "ClientSends"
                    rate = per_second(row, found[row.client], broker.name_server, topic, work)
                    taken.setdefault(row.name, []).append(rate)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return {name: statistics.median(rates) for name, rates in taken.items()}


def judge(figures: dict[str, float]) -> list[Bar]:
    wanted = [
        (
            "100 awaits against the C++ binding",
            f"sends, {THREADS} awaits at once",
            f"sends, {THREADS} threads, C++",
            3.0,
        ),
        ("consuming against the C++ binding", "consuming one by one", "consuming one by one, C++", 20.0),
        (
            "automatic batches against the Java client",
            f"sends, {THREADS} awaits, automatic batches",
            f"sends, {THREADS} threads, Java",
            1.0,
        ),
        ("batches consumed against the Java client", "consuming in batches", "consuming in batches, Java", 1.0),
    ]
    return [
        Bar(name, figures[ours] / figures[other], bar)
        for name, ours, other, bar in wanted
        if ours in figures and other in figures
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="ours alone, tiny, no bars")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    notes: list[str] = []
    if given.smoke:
        print(json.dumps(measure(0.3, 2_000, 1, notes, only="ours"), indent=1))
        return
    figures = measure(3.0, DRAINED, given.rounds, notes)
    for name, rate in figures.items():
        print(f"{name:44}{rate:12,.0f} messages/s")
    bars = judge(figures)
    print("\n".join([*map(str, bars), *notes]))
    judged = [{"name": bar.name, "measured": bar.measured, "wanted": bar.wanted, "held": bar.held} for bar in bars]
    print(f"saved as {save('client', {'per_second': figures, 'bars': judged, 'notes': notes})}")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
