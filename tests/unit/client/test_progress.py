"""Lag and resets, worked out without a broker."""

from __future__ import annotations

import pytest

from rocketq.client.admin.groups import GroupStatus, QueueLag, merge_connections, queue_lags
from rocketq.client.core.offsets import OffsetChange, QueueBounds, ResetTo, target_of
from rocketq.model.lag import UnknownLag
from rocketq.protocol.bodies.clients import Connection, ConsumerConnections, Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.stats import QueueProgress
from rocketq.protocol.bodies.topics import QueueRange


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name="b", queue_id=queue_id)


def status(*queues: QueueLag, unreachable: dict[str, str] | None = None) -> GroupStatus:
    return GroupStatus(group="g", subscriptions={}, queues=queues, unreachable=unreachable or {})


def test_unknown_is_unknown() -> None:
    lags = queue_lags(
        {
            queue(0): QueueProgress(broker_offset=10, consumer_offset=4, last_ms=77),
            queue(1): QueueProgress(broker_offset=10, consumer_offset=0),
            queue(2): QueueProgress(broker_offset=10, consumer_offset=0),
        },
        {queue(2)},
        {queue(4): None, queue(3): QueueRange(max_offset=5), queue(0): QueueRange(max_offset=99)},
    )
    assert [(lag.queue.queue_id, lag.committed, lag.max_offset, lag.lag, lag.last_ms) for lag in lags] == [
        (0, 4, 10, 6, 77),
        (1, 0, 10, 10, None),
        (2, None, 10, None, None),
        (3, None, 5, None, None),
        (4, None, None, None, None),
    ]
    assert status(*lags).lag is None
    assert status(*lags).lag_known == 16


def test_lag_is_a_number_when_everything_is_known() -> None:
    one = QueueLag(queue=queue(0), committed=4, max_offset=10)
    caught_up = QueueLag(queue=queue(1), committed=10, max_offset=10)
    empty = QueueLag(queue=queue(2), committed=None, max_offset=0)
    assert status(one, caught_up, empty).lag == 6
    ahead = QueueLag(queue=queue(1), committed=12, max_offset=10)
    assert (ahead.unknown, status(one, ahead).lag, status(one, ahead).lag_known) == (UnknownLag.OFFSET_AHEAD, None, 6)
    assert status(one, unreachable={"c": "gone"}).lag is None
    assert status().lag == 0


def test_a_member_of_several_brokers_is_one_member() -> None:
    def part(*members: str, topic: str) -> ConsumerConnections:
        return ConsumerConnections(
            connections=tuple(Connection(client_id=one) for one in members),
            subscriptions={topic: Subscription(topic=topic)},
        )

    merged = merge_connections([part("b", "a", topic="T"), part("b", topic="U")])
    assert merged is not None
    assert [one.client_id for one in merged.connections] == ["a", "b"]
    assert list(merged.subscriptions) == ["T", "U"]
    assert merge_connections([]) is None


BOUNDS = QueueBounds(min_offset=10, max_offset=100)


@pytest.mark.parametrize(
    ("to", "by_time", "after", "timestamp_ms"),
    [
        (ResetTo.earliest(), None, 10, 0),
        (ResetTo.latest(), None, 100, -1),
        (ResetTo.at_time(5), 42, 42, 5),
        (ResetTo.at_time(5), 0, 10, 5),
        (ResetTo.at_offset(50), None, 50, None),
        (ResetTo.at_offset(5), None, 10, None),
        (ResetTo.at_offset(500), None, 100, None),
    ],
)
def test_a_reset_stays_within_the_queue(to: ResetTo, by_time: int | None, after: int, timestamp_ms: int | None) -> None:
    assert target_of(to, BOUNDS, by_time) == after
    assert to.timestamp_ms == timestamp_ms


def test_a_change_says_how_much_comes_again() -> None:
    assert OffsetChange(queue=queue(0), before=50, after=20, bounds=BOUNDS).again == 30
    assert OffsetChange(queue=queue(0), before=50, after=90, bounds=BOUNDS).again == -40
    assert OffsetChange(queue=queue(0), before=None, after=90, bounds=BOUNDS).again is None


def test_negative_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        ResetTo.at_time(-2)
    with pytest.raises(ValueError, match="negative"):
        ResetTo.at_offset(-1)
