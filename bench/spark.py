"""Topics as DataFrames, next to Spark's Kafka source and sink on the same data in the same session.

    python -m bench.spark                       all rows: two rounds to warm up, five that count
    python -m bench.spark --rows batch          only rows whose name has that text
    python -m bench.spark --rounds 2 --warm 1   fewer rounds; --scale 0.2 fewer messages
    python -m bench.spark --smoke               a few messages, ours alone, no bars: does it still run?

Figures are rows per CPU second of Spark: its JVM, its Python workers and all else that it started. Wall time stands
beside it, and the CPU time of brokers apart. Peers take turns within each round, so that noise hits all; medians count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.interop.cache import Unavailable

from bench.bars import Bar, save
from bench.load.peers import Ours, make_topics
from bench.spark_cpu import cpu_seconds
from bench.spark_kafka import KafkaBroker, connector_jars
from rocketq.model import NewMessage
from rocketq.protocol.properties import encode_properties
from rocketq.spark import session
from rocketq.store import Store, StoreConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, KAFKA, TUPLES, SPARK = "rocketq", "kafka", "tuples", "spark"
PARTITIONS: Final = 4
WARM_UP, ROUNDS = 2, 5
COUNTS: Final = {200: 3_000_000, 1024: 1_000_000}
SINK_COUNT, ARCHIVE_COUNT, STORE_COUNT = 500_000, 500_000, 400_000
TOPICS: Final = (*(f"Bench{each}" for each in COUNTS), "BenchSink", "BenchArchive")
BODY = "body binary"
WITH_PROPERTIES = "keys string, body binary, properties map<string,string>"
STORE_COLUMNS = (
    "topic string, queueId int, queueOffset long, body binary, bornTimestamp timestamp, storeTimestamp timestamp"
)
CONF: Final = {
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one peer."""

    rows_per_cpu_s: float
    rows_per_s: float
    cpu_s: float
    wall_s: float
    broker_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the peers do, and the ratio of ours to `against` that we hold ourselves to."""

    name: str
    count: int
    runs: Mapping[str, Callable[[], object]]
    against: str = KAFKA
    wanted: float | None = None
    mb: float | None = None
    """Of all rows: for figures in MB a second."""


@dataclass(slots=True)
class Bench:
    """Where everything runs."""

    spark: SparkSession
    name_server: str
    folder: Path
    broker_pids: list[int]
    kafka: str | None
    scale: float = 1.0
    chosen: str = ""
    notes: list[str] = field(default_factory=list)

    def wants(self, name: str) -> bool:
        return self.chosen in name

    def sized(self, count: int) -> int:
        return max(1_000, int(count * self.scale))

    def place(self, kind: str) -> str:
        """A new one for each run; those before are gone."""
        for old in self.folder.glob(f"{kind}-*"):
            shutil.rmtree(old, ignore_errors=True)
        return str(self.folder / f"{kind}-{next(_numbers)}")

    # Data

    def generated(self, count: int, body_bytes: int, *, properties: bool = True) -> DataFrame:
        """The same rows for everybody."""
        frame = self.spark.range(0, count, 1, PARTITIONS)
        columns = [
            f"cast(rpad(concat('order ', cast(id as string), ' '), {body_bytes}, 'abcdefghij') as binary) as body",
            "concat('order-', cast(id as string)) as keys",
        ]
        names = {"region": "'eu'", "kind": "'book'", "price": "cast(id % 1000 as string)"}
        pairs = ", ".join(f"'{name}', {value}" for name, value in names.items())
        return frame.selectExpr(*columns, *([f"map({pairs}) as properties"] if properties else []))

    def to_ours(self, frame: DataFrame, topic: str) -> None:
        writer = frame.write.format("rocketmq").option("nameServer", self.name_server).option("topic", topic)
        writer.mode("append").save()

    def to_kafka(self, frame: DataFrame, topic: str) -> None:
        columns = ["body as value", "cast(keys as binary) as key"]
        if "properties" in frame.columns:
            pair = "e -> struct(e.key as key, cast(e.value as binary) as value)"
            columns.append(f"transform(map_entries(properties), {pair}) as headers")
        assert self.kafka is not None
        writer = frame.selectExpr(*columns).write.format("kafka").option("kafka.bootstrap.servers", self.kafka)
        patient = {"kafka.delivery.timeout.ms": "600000", "kafka.request.timeout.ms": "120000"}  # for a busy machine
        writer.option("topic", topic).options(**patient).mode("append").save()

    # Readers

    def from_ours(self, topic: str, schema: str, *, kind: str = "rocketmq", streaming: bool = False) -> DataFrame:
        reader = self.spark.readStream if streaming else self.spark.read
        reader = reader.format(kind).option("nameServer", self.name_server).option("subscribe", topic)
        reader = reader.option("startingOffsets", "earliest").option("minPartitions", str(PARTITIONS))
        if "properties" in schema:
            reader = reader.option("includeProperties", "true")
        return reader.schema(schema).load()

    def from_kafka(self, topic: str, schema: str, *, streaming: bool = False) -> DataFrame:
        reader = self.spark.readStream if streaming else self.spark.read
        assert self.kafka is not None
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self.kafka).option("subscribe", topic)
        reader = reader.option("startingOffsets", "earliest")
        if "properties" not in schema:
            return reader.load().select("value")
        return reader.option("includeHeaders", "true").load().select("key", "value", "headers")

    # Targets

    def to_noop(self, frame: DataFrame) -> None:
        if not frame.isStreaming:
            return frame.write.format("noop").mode("overwrite").save()
        return self._stream(frame, "noop")

    def to_parquet(self, frame: DataFrame) -> None:
        if not frame.isStreaming:
            return frame.write.option("compression", "zstd").parquet(self.place("parquet"))
        return self._stream(frame, "parquet", compression="zstd", path=self.place("parquet"))

    def _stream(self, frame: DataFrame, kind: str, **options: str) -> None:
        writer = frame.writeStream.format(kind).option("checkpointLocation", self.place("checkpoint"))
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.trigger(availableNow=True).start().awaitTermination()


# Rows


def source_rows(bench: Bench) -> Iterator[Row]:
    for body_bytes, full in COUNTS.items():
        count, topic = bench.sized(full), f"Bench{body_bytes}"
        rows = [row for row in _rows_of_size(bench, topic, count, body_bytes) if bench.wants(row.name)]
        if rows:
            _fill(bench, topic, count, body_bytes)
        yield from rows


def _rows_of_size(bench: Bench, topic: str, count: int, body_bytes: int) -> Iterator[Row]:
    size = "200B" if body_bytes == 200 else "1KiB"
    for columns, schema in (("body", BODY), ("keys+properties", WITH_PROPERTIES)):
        yield _source_row(bench, f"batch {size} {columns} noop", topic, count, schema, wanted=1.5)
        yield _source_row(bench, f"AvailableNow {size} {columns} noop", topic, count, schema, wanted=1.2)
    yield _source_row(bench, f"batch {size} keys+properties Parquet", topic, count, WITH_PROPERTIES)
    yield _source_row(bench, f"AvailableNow {size} keys+properties Parquet", topic, count, WITH_PROPERTIES)


def _source_row(bench: Bench, name: str, topic: str, count: int, schema: str, wanted: float | None = None) -> Row:
    streaming = name.startswith("AvailableNow")
    target = bench.to_parquet if name.endswith("Parquet") else bench.to_noop
    runs: dict[str, Callable[[], object]] = {
        OURS: lambda: target(bench.from_ours(topic, schema, streaming=streaming)),
        KAFKA: lambda: target(bench.from_kafka(topic, schema, streaming=streaming)),
    }
    if name.startswith("batch 200B") and name.endswith("noop"):
        runs[TUPLES] = lambda: target(bench.from_ours(topic, schema, kind="rocketmq_tuples"))
    return Row(name=name, count=count, runs=runs, wanted=wanted)


def _fill(bench: Bench, topic: str, count: int, body_bytes: int) -> None:
    frame = bench.generated(count, body_bytes)
    bench.to_ours(frame, topic)
    sums = ["count(*)", "sum(length(body))", "count(distinct keys)", "sum(cast(properties['price'] as long))"]
    wanted = bench.from_ours(topic, WITH_PROPERTIES).selectExpr(*sums).first()
    assert wanted == frame.selectExpr(*sums).first(), "our topic does not hold what was sent"
    if bench.kafka is not None:
        bench.to_kafka(frame, topic)
        found = bench.from_kafka(topic, BODY).selectExpr("count(*)", "sum(length(value))").first()
        assert (found[0], found[1]) == (wanted[0], wanted[1]), "Kafka's topic does not hold what was sent"


def sink_rows(bench: Bench) -> Iterator[Row]:
    count = bench.sized(SINK_COUNT)
    for columns in ("keys", "keys+properties"):
        frame = bench.generated(count, 200, properties=columns != "keys")

        def ours(frame: DataFrame = frame) -> None:
            bench.to_ours(frame, "BenchSink")

        def kafka(frame: DataFrame = frame) -> None:
            bench.to_kafka(frame, "BenchSink")

        yield Row(name=f"sink 200B {columns}", count=count, runs={OURS: ours, KAFKA: kafka}, wanted=0.7)


def store_rows(bench: Bench) -> Iterator[Row]:
    count = bench.sized(STORE_COUNT)
    root = bench.folder / "store"
    mb = _write_store(root, count) / 1e6

    def scan(schema: str | None) -> None:
        reader = bench.spark.read.format("rocketmq_commitlog")
        bench.to_noop((reader.schema(schema) if schema else reader).load(str(root)))

    yield Row(name="store 1KiB six columns", count=count, runs={OURS: lambda: scan(STORE_COLUMNS)}, mb=mb, wanted=300.0)
    yield Row(name="store 1KiB all but the map", count=count, runs={OURS: lambda: scan(None)}, mb=mb)


def _write_store(root: Path, count: int) -> int:
    """Bytes of its log."""
    config = StoreConfig(root=root, segment_bytes=1 << 28, index_slots=50_000, index_units=200_000)
    body = bytes(range(256)) * 4
    with Store.open(config) as store:
        for number in range(count):
            properties = encode_properties({"KEYS": f"order-{number}", "region": "eu", "kind": "book", "price": "100"})
            born_ms = 1_700_000_000_000 + number
            store.append(NewMessage(topic="T", queue_id=number % 4, body=body, properties=properties, born_ms=born_ms))
        return int(store.log_end)


def archive_rows(bench: Bench) -> Iterator[Row]:
    from rocketq.spark.pipelines.archive import archive  # noqa: PLC0415 - Spark is imported late

    count, topic = bench.sized(ARCHIVE_COUNT), "BenchArchive"
    bench.to_ours(bench.generated(count, 200), topic)
    options = {"nameServer": bench.name_server, "subscribe": topic}

    def ours() -> None:
        rows = archive(bench.spark, options, bench.place("archive"), compaction=False).rows
        assert rows == count, rows

    def sparks_own() -> None:
        reader = bench.spark.read.format("rocketmq").option("includeProperties", "true")
        frame = reader.options(**options).load().selectExpr("*", "to_date(storeTimestamp) as dt")
        writer = frame.write.partitionBy("topic", "dt").option("compression", "zstd")
        writer.parquet(bench.place("by-spark"))

    yield Row(name="archive 200B", count=count, runs={OURS: ours, SPARK: sparks_own}, against=SPARK, wanted=2.0)


def all_rows(bench: Bench) -> Iterator[Row]:
    yield from source_rows(bench)
    for kind, rows in (("sink 200B", sink_rows), ("store 1KiB", store_rows), ("archive 200B", archive_rows)):
        if bench.wants(kind) or bench.chosen.startswith(kind):
            yield from rows(bench)


# Measuring


def measure(bench: Bench, row: Row, run: Callable[[], object]) -> Measured:
    jvm = bench.spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    cpu, brokers, began = cpu_seconds([jvm]), cpu_seconds(bench.broker_pids), time.perf_counter()
    run()
    wall = time.perf_counter() - began
    used = max(0.01, cpu_seconds([jvm]) - cpu)  # a worker that ends and is waited for by nobody takes its time along
    return Measured(row.count / used, row.count / wall, used, wall, cpu_seconds(bench.broker_pids) - brokers)


def run_row(bench: Bench, row: Row, warm: int, rounds: int) -> dict[str, Measured]:
    runs = {name: run for name, run in row.runs.items() if name != KAFKA or bench.kafka is not None}
    taken: dict[str, list[Measured]] = {name: [] for name in runs}
    for number in range(warm + rounds):
        for name, run in runs.items():
            figures = measure(bench, row, run)
            if number >= warm:
                taken[name].append(figures)
        print(f"  {row.name}: round {number + 1} of {warm + rounds}", file=sys.stderr)
    return {name: median(each) for name, each in taken.items()}


def median(rounds: list[Measured]) -> Measured:
    return Measured(**{name: statistics.median(asdict(each)[name] for each in rounds) for name in asdict(rounds[0])})


def judge(row: Row, result: Mapping[str, Measured]) -> list[Bar]:
    ours = result[OURS]
    if row.mb is not None:
        bar = f"{row.name}, MB per CPU second"
        return [] if row.wanted is None else [Bar(bar, row.mb / ours.cpu_s, row.wanted)]
    if row.wanted is None or row.against not in result:
        return []
    other = result[row.against]
    return [
        Bar(
            f"{row.name}, rows per CPU second over {row.against}",
            ours.rows_per_cpu_s / other.rows_per_cpu_s,
            row.wanted,
        )
    ]


def table(results: Mapping[str, Mapping[str, Measured]], rows: Mapping[str, Row]) -> str:
    lines = [
        f"{'':38}{'':9}{'rows/CPU-s':>12}{'rows/s':>12}{'CPU s':>8}{'wall s':>8}{'broker':>8}{'ratio':>7}{'wall':>6}"
    ]
    for name, result in results.items():
        ours = result[OURS]
        for peer, each in result.items():
            ratio = f"{ours.rows_per_cpu_s / each.rows_per_cpu_s:7.2f}{ours.rows_per_s / each.rows_per_s:6.2f}"
            mb = rows[name].mb
            shown = (
                ratio
                if peer != OURS
                else (f"  {mb / each.cpu_s:.0f} MB/CPU-s, {mb / each.wall_s:.0f} MB/s" if mb else "")
            )
            lines.append(
                f"{name:38}{peer:9}{each.rows_per_cpu_s:12,.0f}{each.rows_per_s:12,.0f}{each.cpu_s:8.2f}"
                f"{each.wall_s:8.2f}{each.broker_cpu_s:8.2f}{shown}"
            )
    return "\n".join(lines)


# Running


@contextmanager
def prepared(*, scale: float, with_kafka: bool, chosen: str = "") -> Iterator[Bench]:
    notes: list[str] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketq-bench-")))
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
        stack.callback(spark.stop)
        register_tuples(spark)
        pids = [*ours.pids, *(kafka.pids if kafka is not None else [])]
        addr = kafka.addr if kafka is not None else None
        yield Bench(spark, ours.name_server, folder, pids, addr, scale, chosen, notes)


def register_tuples(spark: SparkSession) -> None:
    from pyspark import cloudpickle  # noqa: PLC0415

    from bench import spark_tuples  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(spark_tuples)
    spark.dataSource.register(spark_tuples.TupleSource)


def smoke() -> None:
    with prepared(scale=0.0, with_kafka=False) as bench:
        results = {row.name: run_row(bench, row, 0, 1) for row in all_rows(bench)}
    print(json.dumps({name: {peer: asdict(each) for peer, each in result.items()} for name, result in results.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="ours alone, tiny, no bars")
    parser.add_argument("--rows", default="", help="only rows whose name has this text, such as 200B or batch")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--warm", type=int, default=WARM_UP, help="rounds that do not count")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    given = parser.parse_args()
    if given.smoke:
        return smoke()
    began = time.monotonic()
    rows: dict[str, Row] = {}
    results: dict[str, dict[str, Measured]] = {}
    with prepared(scale=given.scale, with_kafka=True, chosen=given.rows) as bench:
        for row in all_rows(bench):
            rows[row.name] = row
            results[row.name] = run_row(bench, row, given.warm, given.rounds)
            print(table({row.name: results[row.name]}, rows), file=sys.stderr)
        notes = bench.notes
    print(table(results, rows))
    bars = [bar for name, result in results.items() for bar in judge(rows[name], result)]
    print("\n".join([*map(str, bars), *notes]))
    kept = {name: {peer: asdict(each) for peer, each in result.items()} for name, result in results.items()}
    path = save("spark", {"rows": kept, "bars": [{**asdict(bar), "held": bar.held} for bar in bars], "notes": notes})
    print(f"saved as {path}; took {time.monotonic() - began:.0f} s")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    main()
