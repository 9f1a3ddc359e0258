"""Topics as DataFrames, next to Spark's Kafka source and sink on the same data in the same session.

    python -m bench.spark                       all rows: two rounds to warm up, five that count; about 20 minutes
    python -m bench.spark --rows sink,1KiB      only rows whose name has one of these texts
    python -m bench.spark --rounds 2 --warm 1   fewer rounds; --scale 0.2 fewer messages
    python -m bench.spark --smoke               a few messages, ours alone, no bars: does it still run?

Figures are rows per CPU second of Spark: its JVM, its Python workers and all else that it started. Wall time stands
beside it, and the CPU time of brokers apart. Peers take turns within each round, so that noise hits all; medians count.
Each row is kept as soon as it is measured, with its commit: rows that are not run again keep what they had.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.interop.cache import Unavailable

from bench.bars import Bar
from bench.kept import Kept
from bench.load.folders import run_folder
from bench.load.peers import Ours, make_topics
from bench.spark_cpu import cpu_seconds, settled_cpu_seconds
from bench.spark_kafka import KafkaBroker, connector_jars
from bench.spark_rows import KAFKA, OURS, PARTITIONS, TOPICS, Bench, Row, all_rows
from rocketq.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP, ROUNDS = 2, 5
CONF: Final = {
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one peer."""

    rows_per_cpu_s: float
    rows_per_s: float
    cpu_s: float
    wall_s: float
    broker_cpu_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """The medians of a row, by peer."""

    peers: Mapping[str, Measured]
    mb: float | None = None

    @property
    def ours(self) -> Measured:
        return self.peers[OURS]


# Measuring


def measure(bench: Bench, count: int, run: Callable[[], object]) -> Measured:
    jvm = bench.spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    cpu, brokers, began = settled_cpu_seconds([jvm]), cpu_seconds(bench.broker_pids), time.perf_counter()
    run()
    wall = time.perf_counter() - began
    used = max(0.01, settled_cpu_seconds([jvm]) - cpu)  # streams leave processes that are just ending
    return Measured(count / used, count / wall, used, wall, cpu_seconds(bench.broker_pids) - brokers)


def run_row(bench: Bench, row: Row, warm: int, rounds: int) -> Result:
    row.fill()
    names = [name for name in row.runs if name != KAFKA or bench.kafka is not None]
    taken: dict[str, list[Measured]] = {name: [] for name in names}
    for number in range(warm + rounds):
        for name in names if number % 2 else reversed(names):  # nobody is always the one who comes first
            figures = measure(bench, row.count_of(name), row.runs[name])
            if number >= warm:
                taken[name].append(figures)
    peers = {name: median(each) for name, each in taken.items()}
    return Result(peers, None if row.mb is None else row.mb())


def median(rounds: list[Measured]) -> Measured:
    return Measured(**{name: statistics.median(asdict(each)[name] for each in rounds) for name in asdict(rounds[0])})


def judge(row: Row, result: Result) -> list[Bar]:
    if row.wanted is None:
        return []
    if result.mb is not None:
        return [Bar(f"{row.name}, MB per CPU second", result.mb / result.ours.cpu_s, row.wanted)]
    if row.against not in result.peers:
        return []
    ratio = result.ours.rows_per_cpu_s / result.peers[row.against].rows_per_cpu_s
    return [Bar(f"{row.name}, rows per CPU second over {row.against}", ratio, row.wanted)]


def table(results: Mapping[str, Result]) -> str:
    columns = f"{'rows/CPU-s':>12}{'rows/s':>12}{'CPU s':>8}{'wall s':>8}{'broker':>8}{'ratio':>7}{'wall':>6}"
    lines = [f"{'':42}{'':10}{columns}"]
    for name, result in results.items():
        for peer, each in result.peers.items():
            figures = f"{each.rows_per_cpu_s:12,.0f}{each.rows_per_s:12,.0f}{each.cpu_s:8.2f}{each.wall_s:8.2f}"
            lines.append(f"{name:42}{peer:10}{figures}{each.broker_cpu_s:8.2f}{_beside(result, peer)}")
    return "\n".join(lines)


def _beside(result: Result, peer: str) -> str:
    """Ours over a peer; MB a second, where that is the figure."""
    ours, other = result.ours, result.peers[peer]
    if peer != OURS:
        return f"{ours.rows_per_cpu_s / other.rows_per_cpu_s:7.2f}{ours.rows_per_s / other.rows_per_s:6.2f}"
    return f"  {result.mb / ours.cpu_s:.0f} MB/CPU-s, {result.mb / ours.wall_s:.0f} MB/s" if result.mb else ""


# Running


@contextmanager
def prepared(*, scale: float, with_kafka: bool) -> Iterator[Bench]:
    notes: list[str] = []
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="rocketq-bench-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(temporary))
        keep_bytecode(folder / "bytecode")
        ours = stack.enter_context(Ours({"flushDiskType": "ASYNC_FLUSH"}))
        make_topics(ours, list(TOPICS), PARTITIONS)
        conf, kafka = {**CONF, "spark.local.dir": str(folder / "local")}, None
        if with_kafka:
            try:
                jars = connector_jars()
                kafka = stack.enter_context(KafkaBroker(partitions=PARTITIONS))
                conf["spark.jars"] = ",".join(map(str, jars))
                notes += [f"Spark's Kafka connector: {jar.name}" for jar in jars if jar.name.startswith("spark-sql")]
            except Unavailable as reason:
                notes.append(f"Kafka is left out: {reason}")
        spark = session("rocketq-bench", master="local[2]", conf=conf)
        stack.callback(spark.sparkContext._gateway.proc.kill)  # type: ignore[union-attr]  # a task may wait forever
        register_others(spark)
        pids = [*ours.pids, *(kafka.pids if kafka is not None else [])]
        yield Bench(spark, ours.name_server, folder, pids, kafka.addr if kafka is not None else None, scale, notes)


def keep_bytecode(folder: Path) -> None:
    """Python processes that Spark starts find modules compiled, as they do where all is installed; rounds to warm up
    do that here."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)


def register_others(spark: SparkSession) -> None:
    from pyspark import cloudpickle  # noqa: PLC0415

    from bench import spark_sources  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(spark_sources)
    for source in (spark_sources.TupleSource, spark_sources.ReadySource):
        spark.dataSource.register(source)


def smoke() -> None:
    with prepared(scale=0.0, with_kafka=False) as bench:
        results = {row.name: run_row(bench, row, 0, 1) for row in all_rows(bench)}
    print(json.dumps({name: asdict(result) for name, result in results.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="ours alone, tiny, no bars")
    parser.add_argument("--rows", default="", help="only rows whose name has one of these texts: 200B,sink")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--warm", type=int, default=WARM_UP, help="rounds that do not count")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    given = parser.parse_args()
    if given.smoke:
        return smoke()
    began, results, bars = time.monotonic(), dict[str, Result](), list[Bar]()
    with prepared(scale=given.scale, with_kafka=True) as bench:
        every = list(all_rows(bench))
        kept = Kept("spark", [row.name for row in every])
        rows = [row for row in every if any(part in row.name for part in given.rows.split(","))]
        if not rows:
            parser.error(f"no row has {given.rows!r} in its name; there are: {', '.join(row.name for row in every)}")
        about = [f"{given.scale:g} of the messages", *bench.notes] if given.scale != 1 else bench.notes
        for number, row in enumerate(rows, 1):
            results[row.name] = result = run_row(bench, row, given.warm, given.rounds)
            judged = judge(row, result)
            bars += judged
            path = kept.put(row.name, dict(result.peers), judged, rounds=given.rounds, notes=about)
            told = f"{number} of {len(rows)} after {time.monotonic() - began:.0f} s"
            print(f"{told}\n{table({row.name: result})}", file=sys.stderr, flush=True)
    print(table(results))
    print("\n".join([*map(str, bars), *about]))
    print(f"saved as {path}; took {time.monotonic() - began:.0f} s")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
