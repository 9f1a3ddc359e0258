"""Lag, computed: what is known, what is not, and how long it will take."""

from __future__ import annotations

import pytest

from rocketq.client.admin.groups import GroupStatus, QueueLag
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.spark.offsets import QueueKey
from rocketq.spark.pipelines.lag import GroupLag, drain_s, group_lags, query_rows, rows_of


def queue_lag(queue_id: int, committed: int | None, max_offset: int | None, last_ms: int | None = None) -> QueueLag:
    queue = MessageQueue(topic="T", broker_name="b", queue_id=queue_id)
    return QueueLag(queue=queue, committed=committed, max_offset=max_offset, last_ms=last_ms)


def status(*queues: QueueLag) -> GroupStatus:
    return GroupStatus(group="g", subscriptions={}, queues=queues, unreachable={})


def test_what_nobody_knows_stays_unknown() -> None:
    """Goal: a zero that looks like a fact hides a group that never came."""
    rows = rows_of(status(queue_lag(0, 5, 9), queue_lag(1, None, 9), queue_lag(2, 3, None)), 1_000)
    assert [row.lag for row in rows] == [4, None, None]
    assert group_lags(rows) == [GroupLag(1_000, "g", lag=4, queues=3, unknown=2, behind_ms=None)]


def test_lag_of_an_offset_beyond_the_end_is_unknown() -> None:
    assert [row.lag for row in rows_of(status(queue_lag(0, 12, 9)), 0)] == [None]


def test_age_counts_only_while_messages_wait() -> None:
    rows = rows_of(status(queue_lag(0, 5, 9, last_ms=400), queue_lag(1, 9, 9, last_ms=100)), 1_000)
    assert [row.behind_ms for row in rows] == [600, None]
    assert group_lags(rows)[0].behind_ms == 600


def test_moments_and_groups_are_added_up_apart() -> None:
    early, late = rows_of(status(queue_lag(0, 0, 8)), 1_000), rows_of(status(queue_lag(0, 4, 8)), 2_000)
    assert [(each.at_ms, each.lag) for each in group_lags([*late, *early])] == [(1_000, 8), (2_000, 4)]


@pytest.mark.parametrize(("first", "last", "seconds"), [(100, 50, 10.0), (50, 50, None), (50, 80, None), (7, 0, 0.0)])
def test_how_long_it_takes_is_told_while_it_gets_less(first: int, last: int, seconds: float | None) -> None:
    before = GroupLag(0, "g", first, 1, 0, None)
    assert drain_s(before, GroupLag(10_000, "g", last, 1, 0, None)) == seconds


def test_two_samples_of_one_moment_tell_no_pace() -> None:
    assert drain_s(GroupLag(5, "g", 9, 1, 0, None), GroupLag(5, "g", 3, 1, 0, None)) is None


def test_the_lag_of_a_query_is_what_its_progress_says() -> None:
    source = {
        "description": "RocketMQ[rocketmq]",
        "endOffset": '{"T":{"b":{"0":5,"1":7}}}',
        "latestOffset": '{"T":{"b":{"0":9,"1":7}}}',
    }
    rows = query_rows(at_ms=1, query="q", batch_id=3, sources=[source], mark="rocketmq")
    assert [(row.queue, row.read_to, row.max_offset, row.lag) for row in rows] == [
        (QueueKey("T", "b", 0), 5, 9, 4),
        (QueueKey("T", "b", 1), 7, 7, 0),
    ]


@pytest.mark.parametrize("end", [None, "", "5", "null"])
def test_a_source_without_offsets_and_those_of_others_give_no_rows(end: str | None) -> None:
    ours = {"description": "rocketmq", "endOffset": end, "latestOffset": None}
    other = {"description": "KafkaV2", "endOffset": '{"T":{"b":{"0":5}}}', "latestOffset": None}
    assert query_rows(at_ms=1, query="q", batch_id=0, sources=[ours, other], mark="rocketmq") == []


def test_a_queue_whose_end_is_not_told_counts_as_read() -> None:
    source = {"description": "rocketmq", "endOffset": '{"T":{"b":{"0":5}}}', "latestOffset": None}
    assert [row.lag for row in query_rows(at_ms=1, query="q", batch_id=0, sources=[source], mark="rocketmq")] == [0]
