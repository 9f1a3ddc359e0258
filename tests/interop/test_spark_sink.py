"""The Spark sink against real Apache brokers: at least once as with ours, exactly once refused."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (it comes with rocketq[spark])")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketq.client import Admin, AsyncAdmin
from rocketq.model import Record
from rocketq.protocol.failures import TopicNotFoundError
from tests.spark.conftest import spark
from tests.spark.reading import told
from tests.spark.sinking import properties, stored

from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .guarded import guarded_broker

__all__ = ["spark"]
pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning"),
]

VERSIONS = ["4.9.7", "5.3.3"]
SETTINGS = {"mappedFileSizeCommitLog": str(32 << 20), "mappedFileSizeConsumeQueue": str(20 * 50_000)}


@pytest.fixture(scope="module", params=VERSIONS)
def addr(
    request: pytest.FixtureRequest,
    nameserver: Callable[[str], ApacheNameServer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The NameServer of a cluster of one Apache broker."""
    folder: Path = tmp_path_factory.mktemp("spark-sink")
    names = nameserver(request.param)
    broker = ApacheBroker(
        names, port=free_broker_port(), store=folder / "store", work=folder / "work", settings=dict(SETTINGS)
    )
    with broker:
        asyncio.run(asyncio.wait_for(_routed(names.address), 60))
        yield names.address


async def _routed(name_servers: str) -> None:
    async with AsyncAdmin(name_servers) as admin:
        while True:
            try:
                await admin.topics.route("TBW102")
                return
            except TopicNotFoundError:
                await asyncio.sleep(0.1)


def arrived(addr: str, topic: str, count: int) -> list[Record]:
    """All records, once so many can be read: Apache builds its queues a little behind its log."""
    until = time.monotonic() + 60
    while len(found := stored(addr, topic)) < count and time.monotonic() < until:
        time.sleep(0.2)
    return found


def make_topic(addr: str, name: str) -> str:
    with Admin(addr) as admin:
        admin.topics.create(name, queues=4)
    return name


def test_a_batch_write(spark: SparkSession, addr: str) -> None:
    """Goal: our batch requests are what Apache's broker stores: every row once, with keys and properties."""
    topic = make_topic(addr, "SparkBatch")
    frame = spark.range(0, 20_000, 1, 2).selectExpr(
        "cast(id as string) as body",
        "concat('k', id) as keys",
        "if(id % 2 = 0, 'A', null) as tags",
        "map('n', cast(id as string)) as properties",
    )
    frame.write.format("rocketmq").mode("append").option("nameServer", addr).option("topic", topic).save()
    found = arrived(addr, topic, 20_000)
    assert Counter(record.body for record in found) == Counter(b"%d" % n for n in range(20_000))
    assert {record.queue_id for record in found} == {0, 1, 2, 3}
    for record in found[::100]:
        number = record.body.decode()
        told = properties(record)
        assert (told["KEYS"], told["n"], told.get("TAGS")) == (f"k{number}", number, None if int(number) % 2 else "A")


def test_ordered_and_delayed_rows(spark: SparkSession, addr: str) -> None:
    """Goal: rows of a key in one queue in order; a delayed row is not there at once."""
    topic = make_topic(addr, "SparkOrder")
    frame = spark.range(3_000).coalesce(1).selectExpr(
        "cast(id as string) as body",
        "concat('s', id % 5) as shardingKey",
        "if(id = 7, 16, 0) as delayTimeLevel",
    )  # fmt: skip
    frame.write.format("rocketmq").mode("append").option("nameServer", addr).option("topic", topic).option(
        "batchBytes", "16384"
    ).save()
    order: dict[str, list[int]] = {}
    places: dict[str, set[int]] = {}
    for record in arrived(addr, topic, 2_999):
        key = properties(record)["__SHARDINGKEY"]
        order.setdefault(key, []).append(int(record.body))
        places.setdefault(key, set()).add(record.queue_id)
    assert sorted(number for numbers in order.values() for number in numbers) == [n for n in range(3_000) if n != 7]
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert all(len(each) == 1 for each in places.values())


def test_a_row_that_apaches_broker_refuses_is_found(spark: SparkSession, addr: str) -> None:
    topic = make_topic(addr, "SparkLarge")
    frame = spark.range(300).coalesce(1).selectExpr("if(id = 100, repeat('x', 4300000), cast(id as string)) as body")
    options = {"topic": topic, "maxMessageBytes": "8000000", "batchBytes": "9000000", "badRecords": "skip"}
    frame.write.format("rocketmq").mode("append").option("nameServer", addr).options(**options).save()
    assert Counter(each.body for each in arrived(addr, topic, 299)) == Counter(
        b"%d" % n for n in range(300) if n != 100
    )


def run_stream(spark: SparkSession, addr: str, topic: str, folder: Path, **options: str) -> None:
    source = folder / "input"
    source.mkdir(exist_ok=True)
    (source / "a.txt").write_text("".join(f"{n}\n" for n in range(500)))
    writer = spark.readStream.text(str(source)).selectExpr("value as body").writeStream.format("rocketmq")
    writer = writer.option("nameServer", addr).option("topic", topic)
    query = (
        writer.options(**options)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(120)
    finally:
        query.stop()


def test_a_stream_write(spark: SparkSession, addr: str, tmp_path: Path) -> None:
    topic = make_topic(addr, "SparkStream")
    run_stream(spark, addr, topic, tmp_path)
    assert Counter(each.body for each in arrived(addr, topic, 500)) == Counter(b"%d" % n for n in range(500))


def test_exactly_once_is_refused_in_one_line(spark: SparkSession, addr: str, tmp_path: Path) -> None:
    """Goal: a broker that would store a repeated commit again gets nothing at all."""
    topic = make_topic(addr, "SparkExactly")
    with pytest.raises(Exception) as caught:
        run_stream(spark, addr, topic, tmp_path, deliveryGuarantee="exactly-once")
    lines = [line for line in str(caught.value).splitlines() if "deliveryGuarantee=exactly-once cannot be kept" in line]
    assert lines, str(caught.value)
    assert "only RocketQ brokers do not" in lines[-1]
    assert not stored(addr, topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_write(
    spark: SparkSession, nameserver: Callable[[str], ApacheNameServer], tmp_path: Path, version: str
) -> None:
    """Goal: batches, delayed rows and the read after them are signed as Java signs; a wrong key is told in one line."""
    with guarded_broker(nameserver(version), tmp_path, version) as broker:
        asyncio.run(asyncio.wait_for(_routed(broker.nameserver.address), 60))
        keys = {"rocketmq.accessKey": "alice-key", "rocketmq.secretKey": "secret123"}
        options = {"nameServer": broker.nameserver.address, "topic": f"Signed{version.replace('.', '')}", **keys}
        rows = spark.createDataFrame([(f"{n}", 1) for n in range(20)], "body string, delayTimeLevel int")
        rows.select("body").write.format("rocketmq").mode("append").options(**options).save()
        assert spark.read.format("rocketmq").options(**options).load().count() == 20
        rows.limit(2).write.format("rocketmq").mode("append").options(**options).save()  # one by one
        wrong = {**options, "rocketmq.secretKey": "wrong-secret"}
        with pytest.raises(PySparkException) as caught:
            rows.select("body").write.format("rocketmq").mode("append").options(**wrong).save()
        assert "signature failed" in told(caught.value)
        assert "wrong-secret" not in str(caught.value)
