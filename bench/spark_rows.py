"""What bench.spark measures: the data, who reads and writes it, and the ratios that we hold ourselves to."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketq.model import NewMessage
from rocketq.protocol.properties import encode_properties
from rocketq.store import Store, StoreConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, KAFKA, TUPLES, READY, SPARK, WHOLE = "rocketq", "kafka", "tuples", "ready", "spark", "all props"
LINE = "by line"
PARTITIONS: Final = 4
COUNTS: Final = {200: 3_000_000, 1024: 1_000_000}
"""By bytes of a body: for targets that cost nothing."""
FEW: Final = {200: 500_000, 1024: 250_000}
"""For what takes long: Parquet, and rows as tuples."""
FILLS_MAX: Final = 3
SINK_COUNT, ARCHIVE_COUNT, STORE_COUNT = 500_000, 500_000, 400_000
SIZES: Final = {200: "200B", 1024: "1KiB"}
TOPICS: Final = (
    *(f"Bench{each}" for each in COUNTS),
    *(f"Bench{each}Few" for each in FEW),
    "BenchSink",
    "BenchArchive",
)
BODY = "body binary"
WITH_PROPERTIES = "keys string, body binary, properties map<string,string>"
STORE_COLUMNS = (
    "topic string, queueId int, queueOffset long, body binary, bornTimestamp timestamp, storeTimestamp timestamp"
)
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the peers do, and the ratio of ours to `against` that we hold ourselves to."""

    name: str
    count: int
    runs: Mapping[str, Callable[[], object]]
    fill: Callable[[], object] = lambda: None
    """Makes the data, before the first run."""
    against: str = KAFKA
    wanted: float | None = None
    mb: Callable[[], float] | None = None
    """Of all rows, once they are there: for figures in MB a second."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of peers that do less, because they take so long."""

    def count_of(self, peer: str) -> int:
        return self.counts.get(peer, self.count)


@dataclass(slots=True)
class Bench:
    """Where everything runs."""

    spark: SparkSession
    name_server: str
    folder: Path
    broker_pids: list[int]
    kafka: str | None
    scale: float = 1.0
    notes: list[str] = field(default_factory=list)
    filled: set[str] = field(default_factory=set)
    kafka_topics: dict[str, str] = field(default_factory=dict)
    """What they are called there."""
    log_bytes: int = 0

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

    def fill(self, topic: str, count: int, body_bytes: int) -> None:
        """Once, on both sides; and what is there is what was sent."""
        if topic in self.filled:
            return
        self.filled.add(topic)
        frame = self.generated(count, body_bytes)
        self.to_ours(frame, topic)
        sums = ["count(*)", "sum(length(body))", "count(distinct keys)", "sum(cast(properties['price'] as long))"]
        wanted = self.from_ours(topic, WITH_PROPERTIES).selectExpr(*sums).first()
        assert wanted == frame.selectExpr(*sums).first(), "our topic does not hold what was sent"
        if self.kafka is not None:
            self._fill_kafka(topic, frame)
            found = self.from_kafka(topic, BODY).selectExpr("count(*)", "sum(length(value))").first()
            assert (found[0], found[1]) == (wanted[0], wanted[1]), "Kafka's topic does not hold what was sent"

    def _fill_kafka(self, topic: str, frame: DataFrame) -> None:
        """On a busy machine its node may take itself for dead for a while: then once more, into another topic."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - Spark is imported late
        from pyspark.errors import PySparkException  # noqa: PLC0415

        for attempt in range(1, FILLS_MAX + 1):
            self.kafka_topics[topic] = f"{topic}-{attempt}"
            try:
                return self.to_kafka(frame, self.kafka_topics[topic])
            except (PySparkException, Py4JError):
                if attempt == FILLS_MAX:
                    raise

    # Writers

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
        patient = {"kafka.delivery.timeout.ms": "90000", "kafka.metadata.max.age.ms": "5000"}  # for a busy machine
        writer.option("topic", topic).options(**patient).mode("append").save()

    # Readers

    def from_ours(
        self,
        topic: str,
        schema: str,
        *,
        kind: str = "rocketmq",
        streaming: bool = False,
        whole_map: bool = False,
        in_place: bool = True,
    ) -> DataFrame:
        """The map has what was sent, as Kafka's headers have; the whole one has RocketMQ's own entries as well. Not
        `in_place`: as if the broker were elsewhere."""
        reader = self.spark.readStream if streaming else self.spark.read
        reader = reader.format(kind).option("nameServer", self.name_server).option("subscribe", topic)
        reader = reader.option("startingOffsets", "earliest").option("minPartitions", str(PARTITIONS))
        reader = reader.option("readInPlace", str(in_place).lower())
        if "properties" in schema:
            reader = reader.option("includeProperties", "true" if whole_map else "user")
        return reader.schema(schema).load()

    def from_kafka(self, topic: str, schema: str, *, streaming: bool = False) -> DataFrame:
        reader = self.spark.readStream if streaming else self.spark.read
        assert self.kafka is not None
        reader = (
            reader.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka)
            .option("subscribe", self.kafka_topics[topic])
        )
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


def all_rows(bench: Bench) -> Iterator[Row]:
    for body_bytes in COUNTS:
        yield from source_rows(bench, body_bytes)
    yield from sink_rows(bench)
    yield from store_rows(bench)
    yield from archive_rows(bench)


def source_rows(bench: Bench, body_bytes: int) -> Iterator[Row]:
    size = SIZES[body_bytes]
    for columns, schema in (("body", BODY), ("keys+properties", WITH_PROPERTIES)):
        yield _source_row(bench, f"batch {size} {columns} noop", body_bytes, schema, wanted=1.5)
        yield _source_row(bench, f"AvailableNow {size} {columns} noop", body_bytes, schema, wanted=1.2)
    yield _source_row(bench, f"batch {size} keys+properties Parquet", body_bytes, WITH_PROPERTIES)
    yield _source_row(bench, f"AvailableNow {size} keys+properties Parquet", body_bytes, WITH_PROPERTIES)


def _source_row(bench: Bench, name: str, body_bytes: int, schema: str, wanted: float | None = None) -> Row:
    streaming, parquet = name.startswith("AvailableNow"), name.endswith("Parquet")
    many, few = f"Bench{body_bytes}", f"Bench{body_bytes}Few"
    count, fewer = bench.sized(COUNTS[body_bytes]), bench.sized(FEW[body_bytes])
    topic, target = (few, bench.to_parquet) if parquet else (many, bench.to_noop)
    runs: dict[str, Callable[[], object]] = {
        OURS: lambda: target(bench.from_ours(topic, schema, streaming=streaming)),
        KAFKA: lambda: target(bench.from_kafka(topic, schema, streaming=streaming)),
    }
    if not parquet:
        runs[LINE] = lambda: target(bench.from_ours(many, schema, streaming=streaming, in_place=False))
        runs[READY] = lambda: target(bench.from_ours(many, schema, kind="rocketmq_ready", streaming=streaming))
    if name.startswith("batch 200B") and not parquet:
        runs[TUPLES] = lambda: target(bench.from_ours(few, schema, kind="rocketmq_tuples"))
    if name == "batch 200B keys+properties noop":
        runs[WHOLE] = lambda: target(bench.from_ours(many, schema, whole_map=True))

    def fill() -> None:
        if not parquet:
            bench.fill(many, count, body_bytes)
        if parquet or TUPLES in runs:
            bench.fill(few, fewer, body_bytes)

    return Row(
        name=name, count=fewer if parquet else count, runs=runs, fill=fill, wanted=wanted, counts={TUPLES: fewer}
    )


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

    def fill() -> None:
        if "store" not in bench.filled:
            bench.filled.add("store")
            bench.log_bytes = write_store(root, count)

    def mb() -> float:
        return bench.log_bytes / 1e6

    def scan(schema: str | None) -> None:
        reader = bench.spark.read.format("rocketmq_commitlog")
        bench.to_noop((reader.schema(schema) if schema else reader).load(str(root)))

    six, all_but = {OURS: lambda: scan(STORE_COLUMNS)}, {OURS: lambda: scan(None)}
    yield Row(name="store 1KiB six columns", count=count, runs=six, fill=fill, mb=mb, wanted=300.0)
    yield Row(name="store 1KiB all but the map", count=count, runs=all_but, fill=fill, mb=mb)


def write_store(root: Path, count: int) -> int:
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
    options = {"nameServer": bench.name_server, "subscribe": topic}

    def fill() -> None:
        bench.to_ours(bench.generated(count, 200), topic)

    def ours() -> None:
        rows = archive(bench.spark, options, bench.place("archive"), compaction=False).rows
        assert rows == count, rows

    def sparks_own() -> None:
        reader = bench.spark.read.format("rocketmq").option("includeProperties", "true")
        frame = reader.options(**options).load().selectExpr("*", "to_date(storeTimestamp) as dt")
        writer = frame.write.partitionBy("topic", "dt").option("compression", "zstd")
        writer.parquet(bench.place("by-spark"))

    runs = {OURS: ours, SPARK: sparks_own}
    yield Row(name="archive 200B", count=count, runs=runs, fill=fill, against=SPARK, wanted=2.0)
