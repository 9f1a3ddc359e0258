"""Options and columns of the sink: every slip is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (it comes with rocketq[spark])")

from pyspark.sql.types import StructType

from rocketq.spark.errors import OptionError, SparkError
from rocketq.spark.sink_options import BadRecords, SinkOptions, parse_sink
from rocketq.spark.sink_schema import check_schema

NAMES = {"nameserver": "127.0.0.1:9876"}


def parse(streaming: bool = True, **given: str) -> SinkOptions:
    return parse_sink({**NAMES, **{key.replace("__", "."): value for key, value in given.items()}}, streaming=streaming)


def test_what_is_given_counts_and_the_rest_has_defaults() -> None:
    found = parse(topic="T", sendsInFlight="2", batchBytes="100000", badRecords="deadLetter", deadLetterTopic="D")
    assert (found.topic, found.sends_in_flight, found.batch_bytes) == ("T", 2, 100_000)
    assert found.bad_records is BadRecords.DEAD_LETTER
    assert not found.is_exactly_once
    assert parse(topic="T", rocketmq__group__id="g").group == "g"


def test_manifests_lie_where_it_is_said_or_in_the_checkpoint() -> None:
    exactly = {"deliveryGuarantee": "exactly-once"}
    assert parse(**exactly, manifestLocation="/m").manifests == Path("/m")
    assert parse(**exactly, manifestLocation="file:///m%20x").manifests == Path("/m x")
    assert parse(**exactly, checkpointLocation="/c").manifests == Path("/c/rocketmq-manifests")
    assert parse(checkpointLocation="hdfs://x/c").manifests is None


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"topic": "no good"}, "option topic: the topic 'no good' may only have"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "the broker's own"),
        ({"deliveryGuarantee": "twice"}, "must be one of at-least-once, exactly-once"),
        ({"deliveryGuarantee": "exactly-once"}, "needs the option manifestLocation"),
        ({"deliveryGuarantee": "exactly-once", "checkpointLocation": "s3://b/c"}, "needs the option manifestLocation"),
        ({"deliveryGuarantee": "exactly-once", "manifestLocation": "s3://b/c"}, "local or mounted file system"),
        ({"deliveryGuarantee": "exactly-once", "manifestLocation": "here"}, "absolute path"),
        ({"manifestLocation": "/m"}, "goes with deliveryGuarantee=exactly-once"),
        ({"transactionTimeoutMs": "5000"}, "goes with deliveryGuarantee=exactly-once"),
        ({"badRecords": "deadLetter"}, "needs the option deadLetterTopic"),
        ({"deadLetterTopic": "D"}, "goes with badRecords=deadLetter"),
        ({"badRecords": "ignore"}, "must be one of fail, skip, deadLetter, not 'ignore'"),
        ({"batchBytes": "12"}, "must be a number of 1024 or more"),
        ({"sendsInFlight": "no"}, "must be a number"),
        ({"rocketmq__group__id": "a b"}, "option rocketmq.group.id"),
        ({"rocketmq__accessKey": "a"}, "go together"),
        ({"batchByte": "4096"}, "did you mean batchBytes?"),
    ],
)
def test_slips_are_told_in_one_line(given: dict[str, str], line: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**given)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_name_of_a_query_is_no_slip() -> None:
    """Goal: Spark puts it among the options of a streaming write."""
    assert parse(topic="T", queryName="orders") == parse(topic="T")


def test_batch_writes_are_not_exactly_once() -> None:
    with pytest.raises(OptionError, match="is for streams"):
        parse(streaming=False, deliveryGuarantee="exactly-once", manifestLocation="/m")


def test_a_name_server_is_needed() -> None:
    with pytest.raises(OptionError, match=r"option rocketmq\.nameserver\.address is missing"):
        parse_sink({"topic": "T"}, streaming=False)


def schema(text: str) -> StructType:
    fields = [part.strip().split(" ", 1) for part in text.split(";")]
    kinds = {"map": {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}}
    tree = [{"name": name, "type": kinds.get(kind, kind), "nullable": True, "metadata": {}} for name, kind in fields]
    return StructType.fromJson({"type": "struct", "fields": tree})


def test_all_columns_together_are_fine() -> None:
    every = "body binary; topic string; tags string; keys string; properties map; shardingKey string; queueId integer"
    check_schema(schema(f"{every}; brokerName string; delayTimeLevel integer; deliverTimestamp timestamp"), parse())
    check_schema(schema("body string; queueId long; deliverTimestamp long"), parse(topic="T"))


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("keys string", "column body is missing; there is keys"),
        ("body integer", "column body must be binary or string, not int"),
        ("body string; value string", "no column value can be sent; select some of body, topic"),
        ("body string; properties string", "column properties must be map<string,string>, not string"),
        ("body string; queueId string", "column queueId must be int, not string"),
        ("body string; deliverTimestamp string", "column deliverTimestamp must be timestamp or bigint"),
        ("body string; body string", "columns come twice: body"),
    ],
)
def test_other_columns_are_refused_in_one_line(columns: str, line: str) -> None:
    with pytest.raises(SparkError) as caught:
        check_schema(schema(columns), parse(topic="T"))
    assert line in str(caught.value)


def test_a_topic_must_come_from_somewhere() -> None:
    with pytest.raises(SparkError, match="give the option topic or a column"):
        check_schema(schema("body string"), parse())


def test_exactly_once_does_not_go_with_delays() -> None:
    with pytest.raises(SparkError, match="column delayTimeLevel does not go with exactly-once"):
        check_schema(
            schema("body string; delayTimeLevel integer"),
            parse(topic="T", deliveryGuarantee="exactly-once", manifestLocation="/m"),
        )
