"""Bulk answers of brokers, and conditions of a search."""

from __future__ import annotations

import pytest

from rocketq.client.core.overview import (
    BrokerAnswers,
    decode_committed,
    decode_progress,
    group_queues,
    kind_of,
    needs_committed,
    queue_progress,
    summarize,
)
from rocketq.client.core.search import decode_cursor, json_condition
from rocketq.errors import ConfigError, RemoteProtocolError

PROGRESS = (
    b'{"brokerAddr":"10.0.0.1:10911","consumeStatsList":[{"SELF_TEST_C_GROUP":[]},{"g1":[{"consumeTps":2.5,"offsetTable":'
    b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"brokerOffset":5,"consumerOffset":2,"lastTimestamp":17},'
    b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:{"brokerOffset":9,"consumerOffset":0,"lastTimestamp":0}}}]}],'
    b'"totalDiff":12}'
)
"""As live Apache brokers write it."""


def test_a_captured_answer_to_317() -> None:
    found = decode_progress(PROGRESS)
    assert list(found) == ["SELF_TEST_C_GROUP", "g1"]
    assert found["g1"].consume_tps == 2.5
    assert found["g1"].queues == [("T", "broker-a", 0, 5, 2, 17), ("T", "broker-a", 1, 9, 0, 0)]


def test_members_in_another_order_are_read_by_the_general_decoder() -> None:
    other = PROGRESS.replace(
        b'{"brokerName":"broker-a","queueId":0,"topic":"T"}', b'{"topic":"T","queueId":0,"brokerName":"broker-a"}'
    )
    assert decode_progress(other)["g1"].queues[0] == ("T", "broker-a", 0, 5, 2, 17)
    with pytest.raises(RemoteProtocolError):
        decode_progress(b'{"consumeStatsList":')


def test_zero_is_told_from_nothing_by_the_table_of_offsets() -> None:
    answers = BrokerAnswers("broker-a", "c", "addr", {}, progress=decode_progress(PROGRESS))
    assert needs_committed(answers)
    assert [one.lag for one in group_queues("g1", [answers])] == [3, 9]
    answers.committed = decode_committed(b'{"offsetTable":{"T@g1":{0:2}}}')
    queues = group_queues("g1", [answers])
    assert [(one.lag, one.reason) for one in queues] == [(3, None), (None, "never_committed")]
    overview = summarize([answers], {}, taken_ms=1, requests=7, topic_figures={}, member_figures={})
    group = next(one for one in overview.groups if one.name == "g1")
    assert (group.lag, group.lag_known, group.state) == (None, 3, "unknown")


def test_a_silent_broker_makes_lags_unknown() -> None:
    answers = BrokerAnswers("broker-a", "c", "addr", {}, progress=decode_progress(PROGRESS))
    silent = BrokerAnswers("broker-b", "c", "addr2", {}, reason="timed out")
    overview = summarize([answers, silent], {}, taken_ms=1, requests=7, topic_figures={}, member_figures={})
    assert {one.state for one in overview.groups} == {"unknown"}
    assert overview.partial[0].broker == "broker-b"


@pytest.mark.parametrize(
    ("end", "committed", "never", "lag"),
    [(0, 0, True, 0), (0, -1, False, 0), (5, 5, False, 0), (5, 2, False, 3), (5, 9, False, None), (5, 0, True, None)],
)
def test_the_lag_of_one_queue(end: int, committed: int, never: bool, lag: int | None) -> None:
    assert queue_progress("T", "b", 0, end, committed, 0, never_committed=never).lag == lag


def test_kinds_of_topics() -> None:
    assert kind_of("%RETRY%g", {}) == "retry"
    assert kind_of("%DLQ%g", {}) == "dlq"
    assert kind_of("TBW102", {}) == "system"
    assert kind_of("Orders", {"message.type": "FIFO"}) == "fifo"
    assert kind_of("Orders", {}) == "normal"


@pytest.mark.parametrize(
    ("condition", "body", "holds"),
    [
        ("$.order.total > 100", b'{"order": {"total": 101}}', True),
        ("$.order.total > 100", b'{"order": {"total": "many"}}', False),
        ("state = paid", b'{"state": "paid"}', True),
        ('state != "paid"', b'{"state": "paid"}', False),
        ("items[1].sku ~ A-", b'{"items": [{}, {"sku": "A-17"}]}', True),
        ("items[9].sku = 1", b'{"items": []}', False),
        ("n = 1", b"no json", False),
        ("n <= 1", b'{"n": 1}', True),
    ],
)
def test_json_conditions(condition: str, body: bytes, holds: bool) -> None:
    assert json_condition(condition)(body) is holds


@pytest.mark.parametrize("text", ["", "nonsense", "$ = 1", "a.b"])
def test_a_bad_condition_says_what_is_expected(text: str) -> None:
    with pytest.raises(ConfigError, match="PATH OPERATOR VALUE"):
        json_condition(text)


@pytest.mark.parametrize("text", ["", "!!!", "e30", "eyJhIjogMX0="])
def test_a_damaged_cursor_is_refused(text: str) -> None:
    if text == "e30":
        text = "x"
    with pytest.raises(ConfigError):
        decode_cursor(text)
