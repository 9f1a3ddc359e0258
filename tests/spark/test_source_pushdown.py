"""Filters: the same rows whatever Spark's setting is, and less is read where the source may narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketq.client import Message
from rocketq.spark.source import PLANS_ARE_KEPT_APART
from tests.spark.filling import Filler, Place
from tests.spark.reading import bodies, contents, reading

SETTING = "spark.sql.python.filterPushdown.enabled"
Known = tuple[str, dict[Place, Message]]


@pytest.fixture(scope="module")
def known(filler: Filler) -> Known:
    """400 messages in four queues on two brokers; tags A and B in turn, keys k0 to k399."""
    return filler.fill(400)


@pytest.fixture(params=["false", "true"])
def setting(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    spark.conf.set(SETTING, request.param)
    yield request.param
    spark.conf.unset(SETTING)


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.unset(SETTING)


def number(message: Message) -> int:
    return int(message.properties["n"])


CONDITIONS: list[tuple[str, Callable[[Place, Message], bool]]] = [
    ("topic = '{topic}'", lambda place, message: True),
    ("topic = 'Other'", lambda place, message: False),
    ("brokerName = 'broker-1' AND queueId IN (1, 7)", lambda place, message: place[:2] == ("broker-1", 1)),
    ("queueOffset >= 20 AND queueOffset < 25", lambda place, message: 20 <= place[2] < 25),
    ("queueOffset IN (3, 90)", lambda place, message: place[2] in (3, 90)),
    ("tags = 'A' AND queueOffset > 95", lambda place, message: message.tag == "A" and place[2] > 95),
    ("tags IN ('B', 'C')", lambda place, message: message.tag == "B"),
    ("keys = 'k7'", lambda place, message: number(message) == 7),
    ("keys IN ('k7', 'k8', 'nope') AND queueId = 1", lambda p, m: number(m) in (7, 8) and p[1] == 1),
    ("keys = 'nope'", lambda place, message: False),
    ("storeTimestamp > timestamp'2020-01-01'", lambda place, message: True),
    ("storeTimestamp < timestamp'2020-01-01'", lambda place, message: False),
    ("queueId = 0 OR queueOffset = 1", lambda place, message: place[1] == 0 or place[2] == 1),
    ("NOT queueId = 0 AND keys LIKE 'k1%'", lambda p, m: p[1] != 0 and m.keys[0].startswith("k1")),
]


@pytest.mark.parametrize(("condition", "passes"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_filters_give_the_same_rows_in_both_settings(
    spark: SparkSession,
    filler: Filler,
    known: Known,
    setting: str,
    condition: str,
    passes: Callable[[Place, Message], bool],
) -> None:
    """Goal: pushed down or not, applied by the source or by Spark: the rows that pass, and no others."""
    topic, sent = known
    frame = reading(spark, filler, topic, filterPushdown="always").where(condition.format(topic=topic))
    assert contents(frame) == bodies({place: message for place, message in sent.items() if passes(place, message)})


def tasks(frame: DataFrame) -> int:
    return frame.rdd.getNumPartitions()


@pytest.mark.usefixtures("pushing")
def test_less_is_read_when_filters_say_where(spark: SparkSession, filler: Filler, known: Known) -> None:
    """Goal: queues that cannot have rows get no task; a key that the index finds is one task that reads one message."""

    def narrowed(condition: str) -> int:
        return tasks(reading(spark, filler, known[0], filterPushdown="always").where(condition))

    assert narrowed("queueId = 1") == 2
    assert narrowed("brokerName = 'broker-0' AND queueId = 1") == 1
    assert narrowed("keys = 'k7'") == 1
    assert narrowed("queueOffset < 1000") == 4
    assert tasks(reading(spark, filler, known[0], filterPushdown="never").where("queueId = 1")) == 4


def test_a_frame_may_be_filtered_in_several_ways(
    spark: SparkSession, filler: Filler, known: Known, setting: str
) -> None:
    """Goal: by default no query sees what the filter of another one left, also where Spark mixes up their plans."""
    frame = reading(spark, filler, known[0])
    assert frame.where("keys = 'k7'").count() == 1
    assert frame.count() == 400
    low, high = frame.where("queueOffset < 5"), frame.where("queueOffset >= 5 AND queueId = 0")
    assert (low.union(high).count(), high.union(low).count()) == (20 + 190, 190 + 20)
    assert frame.join(low, ["brokerName", "queueId", "queueOffset"]).count() == 20


@pytest.mark.skipif(PLANS_ARE_KEPT_APART, reason="this Spark keeps the plans of scans apart")
@pytest.mark.usefixtures("pushing")
def test_this_spark_mixes_up_plans(spark: SparkSession, filler: Filler, known: Known) -> None:
    """Goal: the reason for the default; when this fails, auto may narrow on this Spark too."""
    frame = reading(spark, filler, known[0], filterPushdown="always")
    assert frame.where("keys = 'k7'").count() == 1
    assert frame.count() == 1
