"""Which rows go where, and what is cut into which request."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rocketq.client.core.routes import hash_index
from rocketq.kernel.batch_encode import BatchEncoder
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.messages import decode_batch
from rocketq.spark.batch_rows import LEFT_OUT, Lane, LaneEncoder, Spread, Spreader

QUEUES = [MessageQueue(topic="T", broker_name=name, queue_id=number) for name in ("a", "b") for number in range(2)]


def spread(fixed: str | None = "T", /, **columns: object) -> Spread:
    return Spreader(fixed, lambda asked: QUEUES).spread(pa.RecordBatch.from_pydict(columns), 100)


def lanes(found: Spread) -> dict[Lane, list[int]]:
    return {lane: list(numbers) for lane, numbers in found.lanes.items()}


def test_plain_rows_share_one_lane() -> None:
    """Goal: without columns that choose, nothing is looked at row by row."""
    assert spread(body=[b"1", b"2"], keys=["a", "b"]).lanes == {Lane("T"): range(2)}


def test_the_option_topic_wins_over_the_column() -> None:
    assert lanes(spread("T", body=[b"1", b"2"], topic=["X", None])) == {Lane("T"): [0, 1]}


def test_rows_go_to_their_topics() -> None:
    found = spread(None, body=[b"1", b"2", b"3"], topic=["X", "Y", "X"])
    assert lanes(found) == {Lane("X"): [0, 2], Lane("Y"): [1]}


def test_a_sharding_key_always_means_the_same_queue_as_other_clients_choose() -> None:
    """Goal: order by key, across tasks, batches and languages."""
    keys = ["k1", "k2", "k1", None, ""]
    found = lanes(spread(body=[b"x"] * 5, shardingKey=keys))
    for number, key in enumerate(keys):
        lane = next(lane for lane, numbers in found.items() if number in numbers)
        assert lane.queue == (QUEUES[hash_index(key, 4)] if key else None)


def test_queue_and_broker_choose() -> None:
    found = lanes(spread(body=[b"x"] * 3, queueId=[1, None, 0], brokerName=["b", "a", "b"]))
    first, second, third = found
    assert (first.queue, third.queue) == (QUEUES[3], QUEUES[2])
    assert second.queue in QUEUES[:2]


def test_delayed_rows_and_retry_topics_travel_alone() -> None:
    """Goal: brokers take no batches of these."""
    found = lanes(spread(body=[b"x"] * 3, delayTimeLevel=[0, 3, None]))
    assert found == {Lane("T"): [0, 2], Lane("T", None, True): [1]}
    found = lanes(spread(body=[b"x"] * 2, deliverTimestamp=[None, 5]))
    assert found == {Lane("T"): [0], Lane("T", None, True): [1]}
    assert next(iter(spread("%RETRY%g", body=[b"x"]).lanes)).is_single


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"topic": [None]}, "the topic is null"),
        ({"topic": ["no good"]}, "may only have letters"),
        ({"topic": ["SCHEDULE_TOPIC_XXXX"]}, "the broker's own"),
        ({"topic": ["T"], "queueId": [7]}, "topic T has no queue 7 to write to"),
        ({"topic": ["T"], "brokerName": ["z"], "queueId": [0]}, "topic T has no queue 0 broker z to write to"),
        ({"topic": ["T"], "delayTimeLevel": [-1]}, "less than 0"),
        ({"topic": ["T"], "delayTimeLevel": [2], "deliverTimestamp": [9]}, "contradict"),
    ],
)
def test_rows_without_a_way_are_told_of(columns: dict[str, object], reason: str) -> None:
    """Goal: the row's number in the task and what is wrong with it."""
    found = spread(None, body=[b"x"], **columns)
    assert not found.lanes
    (bad,) = found.bad
    assert bad.row.ordinal == 100
    assert reason in bad.reason


def encoder(origin: bytes = b"o/") -> object:
    return BatchEncoder(b"I" * 20, origin, b"", LEFT_OUT, 100, 32767)


def test_pieces_hold_their_rows_and_can_be_halved() -> None:
    """Goal: whoever is told of a request finds the rows in it, bad ones left out."""
    batch = pa.RecordBatch.from_pydict({"body": [b"0", None, b"2", b"3", b"4"]})
    rows = LaneEncoder(batch, [4, 1, 2, 0, 3], 10, encoder())
    elements, bad = rows.next(1 << 20, 100, "T")
    assert elements is not None
    assert rows.is_done
    assert [(each.row.ordinal, each.reason) for each in bad] == [(11, "the body is null")]
    assert [row.ordinal for row in elements.rows] == [14, 12, 10, 13]
    assert [body for body, _, _ in elements.messages()] == [b"4", b"2", b"0", b"3"]
    assert all(f"SPARK_TX\x01o/{row.ordinal}\x02" in text for _, text, row in elements.messages())
    first, second = elements.halves()
    assert [row.number for row in first.rows] == [4, 2]
    assert [row.number for row in second.rows] == [0, 3]
    assert bytes(first.data + second.data) == bytes(elements.data)
    assert [each.body for each in decode_batch(bytes(second.data))] == [b"0", b"3"]


def test_pieces_are_cut_by_rows_and_bytes() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"x" * 50] * 10})
    by_rows = LaneEncoder(batch, range(10), 0, encoder())
    sizes = []
    while not by_rows.is_done:
        elements, _ = by_rows.next(1 << 20, 4, "T")
        assert elements is not None
        sizes.append(len(elements.rows))
    assert sizes == [4, 4, 2]
    by_bytes = LaneEncoder(batch, range(10), 0, encoder())
    elements, _ = by_bytes.next(1000, 10, "T")
    assert elements is not None
    assert len(elements.rows) == 3
