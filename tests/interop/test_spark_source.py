"""The Spark source against real Apache brokers: batches, streams, filters, times, keys, groups, access."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketq.client import Admin, Credentials, Message, Producer, SessionConfig
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.spark import GroupProgress
from tests.spark.conftest import spark  # noqa: F401 - the fixture
from tests.spark.filling import Filler
from tests.spark.reading import Archive, bodies, contents, reading
from tests.spark.reading import told as told_line

from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .guarded import guarded_broker

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.3.3"]
SETTINGS = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 5_000),
    "enablePropertyFilter": "true",
}
Start = Callable[[str], Filler]
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(scope="module")
def apache_filler(
    nameserver: Callable[[str], ApacheNameServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """Topics of a running cluster of a version; one of each serves the module."""
    running: dict[str, Filler] = {}
    with ExitStack() as stack:

        def get(version: str) -> Filler:
            if version not in running:
                folder = tmp_path_factory.mktemp(f"spark-{version}-")
                broker = ApacheBroker(
                    nameserver(version),
                    port=free_broker_port(),
                    store=folder / "store",
                    work=folder / "broker",
                    settings=SETTINGS,
                )
                stack.enter_context(broker)
                await_route(broker.nameserver.address)
                running[version] = Filler(broker.nameserver.address)
                stack.callback(running[version].close)
            return running[version]

        yield get


def await_route(name_servers: str) -> None:
    """A broker is ready when the template of new topics has a route."""
    deadline = time.monotonic() + 60
    with Admin(name_servers) as admin:
        while True:
            try:
                admin.topics.route("TBW102")
                return
            except TopicNotFoundError:
                assert time.monotonic() < deadline
                time.sleep(0.1)


@every_version
def test_a_topic_is_read_whole(spark: SparkSession, apache_filler: Start, version: str) -> None:  # noqa: F811
    """Goal: every message once, in tasks of any size, with tags, keys and properties; compressed bodies too."""
    filler = apache_filler(version)
    topic, sent = filler.fill(3_000, queues=3)
    sent |= filler.send([Message(topic=topic, body=bytes([n]) * 50_000, tag="L", keys=(f"l{n}",)) for n in range(6)])
    frame = reading(spark, filler, topic, includeProperties="true", maxRecordsPerPartition="700")
    assert contents(frame) == bodies(sent)
    rows = frame.select("brokerName", "queueId", "queueOffset", "tags", "keys", "properties").collect()
    for row in rows:
        message = sent[row.brokerName, row.queueId, row.queueOffset]
        assert (row.tags, row["keys"]) == (message.tag, message.keys[0])
        assert row.properties["KEYS"] == message.keys[0]


@every_version
def test_brokers_filter(spark: SparkSession, apache_filler: Start, version: str) -> None:  # noqa: F811
    filler = apache_filler(version)
    topic, sent = filler.fill(400)
    even = {place: m.body for place, m in sent.items() if m.tag == "A"}
    assert contents(reading(spark, filler, topic, subExpression="A")) == even
    late = {place: m.body for place, m in sent.items() if int(m.properties["n"]) >= 390}
    sql = {"subExpression": "n >= 390", "subExpressionType": "sql92"}
    assert contents(reading(spark, filler, topic, **sql)) == late


@every_version
def test_times_and_keys(spark: SparkSession, apache_filler: Start, version: str) -> None:  # noqa: F811
    """Goal: to the message, though these brokers answer with the nearest one; keys through their index."""
    filler = apache_filler(version)
    topic, first = filler.fill(200)
    time.sleep(0.05)
    middle_ms = int(time.time() * 1000)
    time.sleep(0.05)
    second = filler.fill(200, topic=topic, first=200)[1]
    assert contents(reading(spark, filler, topic, startingTimestamp=str(middle_ms))) == bodies(second)
    assert contents(reading(spark, filler, topic, endingTimestamp=str(middle_ms))) == bodies(first)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reading(spark, filler, topic, filterPushdown="always").where("keys = 'k321'")
        assert frame.rdd.getNumPartitions() == 1
        assert list(contents(frame).values()) == [b"321".ljust(16, b".")]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@every_version
def test_streams_and_groups(
    spark: SparkSession,  # noqa: F811
    apache_filler: Start,
    version: str,
    tmp_path: Path,
) -> None:
    """Goal: limited batches over restarts, each row once; the broker's group knows the last batch too."""
    filler = apache_filler(version)
    topic, sent = filler.fill(300)
    archive = Archive(spark, filler, tmp_path / "one", topic, maxOffsetsPerTrigger="200")
    listener = GroupProgress(f"group-{topic}", {"nameServer": filler.name_servers})
    spark.streams.addListener(listener)
    try:
        assert archive.catch_up() == [200, 100]
        sent |= filler.fill(50, topic=topic, first=300)[1]
        assert archive.catch_up() == [50]
        deadline = time.monotonic() + 60
        while (told := _committed(filler, f"group-{topic}", topic)) != 350:
            assert time.monotonic() < deadline, told
            time.sleep(0.2)
    finally:
        spark.streams.removeListener(listener)
    assert archive.contents() == bodies(sent)
    rest = filler.fill(7, topic=topic, first=350)[1]
    options = {"startingOffsets": "committed", "rocketmq__group__id": f"group-{topic}"}
    assert contents(reading(spark, filler, topic, **options)) == bodies(rest)


def _committed(filler: Filler, group: str, topic: str) -> int:
    return sum(each.committed or 0 for each in filler.admin.offsets.get(group, topic))


@every_version
def test_who_may_read(
    spark: SparkSession,  # noqa: F811
    nameserver: Callable[[str], ApacheNameServer],
    tmp_path: Path,
    version: str,
) -> None:
    """Goal: driver and tasks sign what they ask; who may not read is told so in one line."""
    with guarded_broker(nameserver(version), tmp_path, version) as broker:
        addr, topic = broker.nameserver.address, f"Guarded{version.replace('.', '')}"
        await_route(addr)
        config = SessionConfig(credentials=Credentials("alice-key", "secret123"))
        with Producer("g", name_servers=addr, session_config=config) as producer:
            producer.send_batch([Message(topic=topic, body=b"x") for _ in range(20)])
        reader = spark.read.format("rocketmq").option("nameServer", addr).option("subscribe", topic)
        signed = reader.option("rocketmq.accessKey", "alice-key").option("rocketmq.secretKey", "secret123")
        assert signed.load().count() == 20
        bad = reader.option("rocketmq.secretKey", "wrong-secret").option("fetchOffset.numRetries", "0")
        with pytest.raises(PySparkException) as caught:
            bad.load().count()
        assert topic in told_line(caught.value)
        assert "wrong-secret" not in str(caught.value)
