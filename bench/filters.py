"""SQL92 conditions: evaluations per second of a three-term one, and messages per second that a filtered read passes.

    python -m bench.filters            the figures and the bar
    python -m bench.filters --smoke    a few thousand, no bar: does it still run?

Rounds of the two kernel forms take turns, so that noise hits both; medians count. Evaluations are counted as Python
callers make them, one call each; a filtered read makes them inside the kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import rocketq.kernel
from bench.bars import Bar, save
from bench.load.folders import run_folder
from rocketq.filter import compile_sql
from rocketq.model import NewMessage
from rocketq.protocol.properties import encode_properties
from rocketq.store import Store, StoreConfig

CONDITION = "price > 100 AND region = 'eu' AND kind IN ('book', 'record', 'film')"
NOTHING = "price > 100 AND region = 'eu' AND kind IN ('none')"
EVALUATIONS_PER_S = 1_000_000
ROUNDS = 5


@dataclass(frozen=True)
class Figures:
    """One round of one kernel form."""

    evaluations_per_s: float
    compilations_per_s: float
    messages_passed_per_s: float


def _properties(number: int) -> bytes:
    """As a Java client sends them; all three terms must be looked at."""
    return encode_properties(
        {
            "KEYS": f"order-{number}",
            "price": str(101 + number % 900),
            "UNIQ_KEY": f"{number:032X}",
            "region": "eu",
            "WAIT": "true",
            "TAGS": "TagA",
            "kind": "film",
        }
    )


def run_round(count: int) -> Figures:
    return Figures(_evaluate(count), _compile(max(20, count // 2_000)), _read(max(1_000, count // 10)))


def _evaluate(count: int) -> float:
    program, batch = compile_sql(CONDITION), [_properties(number) for number in range(1_000)]
    matches = program.matches
    assert all(map(matches, batch))
    began = time.perf_counter()
    for _ in range(max(1, count // 1_000)):
        for properties in batch:
            matches(properties)
    return max(1, count // 1_000) * 1_000 / (time.perf_counter() - began)


def _compile(count: int) -> float:
    """New ones: those that were seen before cost nothing."""
    began = time.perf_counter()
    for number in range(count):
        compile_sql(f"{CONDITION} AND number <> {number}")
    return count / (time.perf_counter() - began)


def _read(count: int) -> float:
    """Messages of 128 bytes that a read passes when none matches, hot."""
    with tempfile.TemporaryDirectory(prefix="rocketq-bench-") as folder:
        config = StoreConfig(root=Path(folder), segment_bytes=1 << 27, index_slots=5_000, index_units=20_000)
        with Store.open(config) as store:
            for number in range(count):
                properties = _properties(number)
                store.append(NewMessage(topic="T", queue_id=0, body=bytes(128), properties=properties, born_ms=1))
            program, offset = compile_sql(NOTHING), 0
            began = time.perf_counter()
            while offset < count:
                offset = store.read("T", 0, offset, record_filter=program).next_offset
            return count / (time.perf_counter() - began)


def run_form(form: str, count: int) -> Figures:
    command = [sys.executable, "-m", "bench.filters", "--round", str(count)]
    done = subprocess.run(
        command, env={**os.environ, "ROCKETQ_KERNEL": form}, capture_output=True, text=True, check=True
    )
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def medians(rounds: list[Figures]) -> Figures:
    return Figures(**{name: statistics.median(asdict(each)[name] for each in rounds) for name in asdict(rounds[0])})


def judge(compiled: Figures) -> list[Bar]:
    return [Bar("evaluations of three terms per second, compiled", compiled.evaluations_per_s, EVALUATIONS_PER_S)]


def table(compiled: Figures, interpreted: Figures) -> str:
    lines = [f"{'per second':32}{'compiled':>14}{'interpreted':>14}{'ratio':>9}"]
    for name, fast in asdict(compiled).items():
        slow = asdict(interpreted)[name]
        title = name.removesuffix("_per_s").replace("_", " ")
        lines.append(f"{title:32}{fast:14,.0f}{slow:14,.0f}{fast / slow:8.1f}x")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny, one round, no bar")
    parser.add_argument("--round", type=int, metavar="COUNT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.round or given.smoke:
        print(json.dumps(asdict(run_round(given.round or 2_000))))
        return
    if not rocketq.kernel.compiled:
        sys.exit("the kernel is not compiled here (no C compiler was found at setup): there is nothing to compare")
    rounds: dict[str, list[Figures]] = {"compiled": [], "interpreted": []}
    for number in range(ROUNDS):
        for form, count in (("compiled", 500_000), ("interpreted", 20_000)):
            print(f"round {number + 1} of {ROUNDS}, {form} …", file=sys.stderr)
            rounds[form].append(run_form(form, count))
    compiled, interpreted = medians(rounds["compiled"]), medians(rounds["interpreted"])
    print(table(compiled, interpreted))
    bars = judge(compiled)
    for bar in bars:
        print(bar)
    print(f"saved as {save('filters', {'compiled': asdict(compiled), 'interpreted': asdict(interpreted)})}")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
