"""Options: every key is read, every slip and contradiction is one clear line, no secret is in any text."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rocketq.protocol.flags import ExpressionType
from rocketq.spark.errors import OptionError
from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import AtTime, Limits, Mark, SourceOptions, TimesByQueue, parse_source
from rocketq.spark.planner import QueueSlice

NEEDED = {"nameServer": "a:1;b:2", "subscribe": "T"}
OFFSETS = '{"T": {"b": {"0": 5}}}'
QUEUE = QueueKey("T", "b", 0)


def batch(**given: str) -> SourceOptions:
    return parse_source({**NEEDED, **dotted(given)}, streaming=False)


def stream(**given: str) -> SourceOptions:
    return parse_source({**NEEDED, **dotted(given)}, streaming=True)


def dotted(given: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in given.items()}


def test_defaults_are_those_of_the_reference() -> None:
    """Goal: a read that names a NameServer and a topic is complete; batches begin at the start, streams at the end."""
    options = batch()
    assert options.connection.name_servers == "a:1;b:2"
    assert options.subscription.topics == ("T",)
    assert (options.starting, options.ending) == (Mark.EARLIEST, Mark.LATEST)
    assert stream().starting is Mark.LATEST
    assert options.fail_on_data_loss
    assert not options.include_properties
    assert options.fetching.group == "spark-rocketmq-reader"
    assert options.filter_pushdown == "auto"


def test_keys_come_in_any_case() -> None:
    """Goal: Spark lower-cases keys."""
    options = parse_source({"NAMESERVER": "a:1", "topic": "T", "includeproperties": "TRUE"}, streaming=False)
    assert options.include_properties
    assert not options.user_properties_only
    assert parse_source({"rocketmq.nameserver.address": "a:1", "topic": "T"}, streaming=False).subscription.topics


def test_properties_may_be_those_of_the_application_only() -> None:
    """Goal: a map may leave out what has columns of its own, and a slip is told with what there is."""
    assert batch(includeProperties="user").include_properties
    assert batch(includeProperties="user").user_properties_only
    with pytest.raises(OptionError, match=r"includeProperties must be one of true, false, user, not 'some'"):
        batch(includeProperties="some")


def test_every_key_of_a_read_is_read() -> None:
    options = batch(
        groupIdPrefix="mine",
        subExpression="A || B",
        startingOffsets=OFFSETS,
        endingTimestamp="77",
        startingOffsetsByTimestampStrategy="latest",
        failOnDataLoss="false",
        minPartitions="3",
        maxRecordsPerPartition="9",
        pullBatchSize="11",
        pullBatchBytes="2048",
        pullsInFlight="2",
        pullTimeoutMs="13",
        fetchOffset__numRetries="0",
        fetchOffset__retryIntervalMs="15",
        filterPushdown="always",
    )
    fetching = options.fetching
    assert (fetching.group, fetching.expression, fetching.expression_type) == (
        "mine-reader",
        "A || B",
        ExpressionType.TAG,
    )
    assert (fetching.count_max, fetching.bytes_max, fetching.depth) == (11, 2048, 2)
    assert (fetching.timeout_ms, fetching.retries, fetching.retry_ms) == (13, 0, 15)
    assert options.starting == Offsets({QUEUE: 5})
    assert options.ending == AtTime(77)
    assert (options.slices_min, options.slice_rows_max) == (3, 9)
    assert options.no_match_is_latest
    assert not options.fail_on_data_loss
    assert options.filter_pushdown == "always"


def test_every_key_of_a_stream_is_read() -> None:
    options = stream(
        maxOffsetsPerTrigger="5",
        maxBytesPerTrigger="6",
        minOffsetsPerTrigger="4",
        maxTriggerDelay="2m",
        rocketmq__group__id="g",
        commitOffsets="batch",
        startingOffsets="committed",
        subExpression="n > 3",
        subExpressionType="SQL92",
    )
    assert options.limits == Limits(rows_max=5, bytes_max=6, rows_min=4, delay_max_ms=120_000)
    assert (options.commit_group, options.commit_each_batch, options.starting) == ("g", True, Mark.COMMITTED)
    assert options.fetching.group == "g"
    assert options.fetching.expression_type == ExpressionType.SQL92


def test_topics_patterns_and_queues() -> None:
    assert batch(subscribe="A, B,A").subscription.topics == ("A", "B")
    pattern = parse_source({"nameServer": "a:1", "subscribePattern": "T.*"}, streaming=False)
    assert pattern.subscription.pattern == "T.*"
    assigned = parse_source({"nameServer": "a:1", "assign": '{"T": {"b": [1, 0, 1]}}'}, streaming=False)
    assert assigned.subscription.assigned == {"T": {"b": [0, 1]}}


@pytest.mark.parametrize(
    "given",
    [
        {"subExpression": "kind=card || a>b"},
        {"subExpression": "in stock || sold out"},
        {"subExpression": "n > 3", "subExpressionType": "tag"},
    ],
)
def test_odd_tags_are_tags(given: dict[str, str]) -> None:
    """Goal: what can be a tag is not taken for a condition, least of all where it is said that it is one."""
    assert batch(**given).fetching.expression_type == ExpressionType.TAG


def test_times_by_queue() -> None:
    assert batch(startingOffsetsByTimestamp=OFFSETS).starting == TimesByQueue(Offsets({QUEUE: 5}))
    assert batch(endingOffsetsByTimestamp=OFFSETS).ending == TimesByQueue(Offsets({QUEUE: 5}))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffset": "earliest"}, "option startingoffset is unknown; did you mean startingOffsets?"),
        ({"zzz": "1"}, "option zzz is unknown"),
        ({"startingOffsets": "soon"}, "must be earliest, latest, committed or JSON of offsets, not 'soon'"),
        ({"startingOffsets": '{"T": {"b": {"0": -3}}}'}, "T queue 0 of b: -3 is no offset"),
        ({"startingOffsets": '{"T": {"b": {"²": 3}}}'}, "is no queue and number"),
        ({"startingOffsets": '{"T": {"b": 3}}'}, "a queue of T on b is expected"),
        ({"startingOffsets": '{"T": '}, "not JSON"),
        ({"startingOffsets": "latest"}, "a batch read would find nothing"),
        ({"startingOffsets": '{"T": {"b": {"0": -1}}}'}, "a batch read would find nothing"),
        ({"startingOffsets": OFFSETS, "startingTimestamp": "5"}, "contradict each other"),
        ({"startingTimestamp": "yesterday"}, "must be a time in milliseconds since 1970, such as "),
        ({"startingOffsets": "committed"}, "option rocketmq.group.id is missing"),
        ({"endingOffsets": "earliest"}, "option endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"T": {"b": {"0": -2}}}'}, "option endingOffsets cannot be -2"),
        ({"subscribePattern": "T"}, "give exactly one of the options subscribe, subscribePattern and assign"),
        ({"topic": "T"}, "subscribe and topic mean the same"),
        ({"subscribe": " , "}, "names no topic"),
        ({"failOnDataLoss": "maybe"}, "must be true or false, not 'maybe'"),
        ({"minPartitions": "0"}, "must be a number of 1 or more, not 0"),
        ({"pullBatchBytes": "12"}, "must be a number of 1024 or more"),
        ({"maxOffsetsPerTrigger": "5"}, "are for streams"),
        ({"commitOffsets": "batch", "rocketmq.group.id": "g"}, "commitOffsets is for streams"),
        ({"subExpressionType": "sql92"}, "needs a condition in option subExpression"),
        ({"subExpressionType": "sql92", "subExpression": "a >"}, "option subExpression: "),
        ({"subExpression": "n > 3"}, "looks like a condition: option subExpressionType=sql92"),
        ({"subExpression": "a IS NULL"}, "looks like a condition: option subExpressionType=sql92"),
        ({"subExpressionType": "xpath"}, "must be one of tag, sql92"),
        ({"rocketmq.accessKey": "a"}, "rocketmq.accessKey and rocketmq.secretKey go together"),
        ({"rocketmq.securityToken": "t"}, "rocketmq.securityToken goes with rocketmq.accessKey and rocketmq.secretKey"),
        (
            {"rocketmq.tls.keyPath": "/key.pem"},
            "rocketmq.tls.keyPath and rocketmq.tls.keyPassword go with rocketmq.tls.certPath",
        ),
        (
            {"rocketmq.tls.keyPassword": "p", "rocketmq.tls.enable": "false"},
            "rocketmq.tls.keyPath and rocketmq.tls.keyPassword go with rocketmq.tls.certPath",
        ),
        ({"rocketmq.group.id": "g", "groupIdPrefix": "p"}, "contradict each other"),
        ({"rocketmq.group.id": "a group"}, "group"),
        ({"groupIdPrefix": "a group"}, "group"),
        ({"subscribe": "", "assign": '{"T": [0]}'}, 'is expected with its parts, as in {"topic": {"broker": [0, 1]}}'),
        ({"startingTimestamp": "6", "endingTimestamp": "5"}, "startingTimestamp=6 is later than endingTimestamp=5"),
        ({"startingOffsets": OFFSETS, "endingOffsets": OFFSETS.replace("5", "4")}, "endingOffsets has 4"),
        ({"path": "/data"}, "a path means nothing here"),
        ({"filterPushdown": "yes"}, "must be one of auto, always, never"),
    ],
)
def test_what_is_wrong_with_a_batch_read_is_one_line(given: dict[str, str], told: str) -> None:
    """Goal: whoever reads it knows which option to change."""
    with pytest.raises(OptionError) as caught:
        parse_source({**NEEDED, **given}, streaming=False)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "5"}, "a stream has no end"),
        ({"maxTriggerDelay": "soon"}, "must be a duration such as 15m or 30s"),
        ({"commitOffsets": "batch"}, "option rocketmq.group.id is missing"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is more than maxOffsetsPerTrigger"),
    ],
)
def test_what_is_wrong_with_a_stream_is_one_line(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_source({**NEEDED, **given}, streaming=True)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(OptionError, match=r"option rocketmq\.nameserver\.address is missing"):
        parse_source({"subscribe": "T"}, streaming=False)
    with pytest.raises(OptionError, match="give exactly one"):
        parse_source({"nameServer": "a:1"}, streaming=False)
    with pytest.raises(OptionError, match="is no pattern"):
        parse_source({"nameServer": "a:1", "subscribePattern": "("}, streaming=False)
    with pytest.raises(OptionError, match="option assign: assign: queues of T on b must be a list of numbers"):
        parse_source({"nameServer": "a:1", "assign": '{"T": {"b": "all"}}'}, streaming=False)


SECRETS = {
    "rocketmq.accessKey": "AccessX",
    "rocketmq.secretKey": "SecretX",
    "rocketmq.securityToken": "TokenX",
    "rocketmq.tls.enable": "true",
    "rocketmq.tls.certPath": "/shown.pem",
    "rocketmq.tls.keyPassword": "PasswordX",
}


def test_secrets_are_in_no_text_and_in_no_task() -> None:
    """Goal: logs and plans may show options and tasks; keys and passwords travel with the reader alone."""
    options = parse_source({**NEEDED, **SECRETS}, streaming=False)
    credentials = options.connection.credentials
    assert credentials is not None
    assert (credentials.access_key, credentials.secret_key, credentials.security_token) == (
        "AccessX",
        "SecretX",
        "TokenX",
    )
    shown = repr(options) + str(options.connection) + repr(pickle.dumps(QueueSlice(QUEUE, 0, 1)))
    assert not [value for value in SECRETS.values() if value.endswith("X") and value in shown]


def test_tls_is_on_when_a_file_is_named() -> None:
    tls = batch(rocketmq__tls__trustPath="/ca.pem").connection.tls
    assert tls is not None
    assert tls.trust_path == Path("/ca.pem")
    assert batch(rocketmq__tls__trustPath="/ca.pem", rocketmq__tls__enable="false").connection.tls is None
