"""Pulled bodies, frames of pulls, what a pull consumer holds, stats, subscriptions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.client.core.consumer_stats import ConsumerStats
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.process_queue import MessageList, PulledQueue
from rocketq.client.core.requests import PullTemplate
from rocketq.client.core.stored_messages import pulled_messages, stored_message
from rocketq.client.core.subscriptions import SubscriptionInvalidError, SubscriptionTable, make_subscription
from rocketq.errors import RemoteProtocolError
from rocketq.model import Host, Record
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.frame import encode_command
from rocketq.protocol.headers.pull import PullRequest
from rocketq.protocol.messages import decode_records, encode_record
from rocketq.protocol.properties import encode_properties
from rocketq.protocol.requests import make_request

from .stored import run_of, stored

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=3)
RECORD = Record(
    size=0,
    version=1,
    body_crc=0,
    queue_id=3,
    flag=9,
    queue_offset=5,
    log_offset=1_234,
    sys_flag=0,
    born_ms=11,
    born_host=Host.of("10.0.0.1", 1),
    store_ms=12,
    store_host=Host.of("10.0.0.2", 2),
    reconsume_times=1,
    prepared_offset=0,
    body=b"body",
    topic="T",
    properties=encode_properties({"TAGS": "a", "UNIQ_KEY": "u"}),
)
V6 = replace(RECORD, born_host=Host.of("::1", 1))
LONG_TOPIC = replace(RECORD, version=2)


def held_of(start: int, end: int) -> MessageList:
    return MessageList(run_of(start, end))


@pytest.mark.parametrize("records", [[RECORD] * 3, [V6, RECORD], [RECORD, LONG_TOPIC, RECORD], []])
def test_bodies_are_cut_as_the_general_decoder_cuts_them(records: list[Record]) -> None:
    """Goal: the quick way and the general one give the same messages, whatever kinds of records are mixed."""
    body = b"".join(map(encode_record, records))
    expected = tuple(stored_message(record, "broker-a") for record in decode_records(body))
    assert pulled_messages(body, QUEUE) == expected


@given(cut=st.integers(0, 2 * len(encode_record(RECORD))), noise=st.binary(max_size=8), at=st.integers(0, 300))
def test_garbage_is_an_error_of_the_peer(cut: int, noise: bytes, at: int) -> None:
    """Goal: a broker's garbage is told as such, never a fault of ours."""
    body = bytearray(encode_record(RECORD) * 2)
    body[at : at + len(noise)] = noise
    with suppress(RemoteProtocolError):
        pulled_messages(bytes(body[:cut]), QUEUE)


@pytest.mark.parametrize("cut", [1, 50, 90, 110])
def test_a_body_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        pulled_messages(encode_record(RECORD)[:cut], QUEUE)


def test_tags_retries_and_namespaces_as_users_see_them() -> None:
    other = replace(RECORD, properties=encode_properties({"TAGS": "b"}))
    body = encode_record(RECORD) + encode_record(other)
    assert [message.tag for message in pulled_messages(body, QUEUE, frozenset({"b"}))] == ["b"]
    retried = replace(RECORD, properties=encode_properties({"RETRY_TOPIC": "NS%First"}))
    queue = MessageQueue(topic="%RETRY%NS%g", broker_name="b", queue_id=0)
    (message,) = pulled_messages(encode_record(retried), queue, None, Namespace("NS"))
    assert (message.topic, message.queue.topic) == ("First", "%RETRY%g")


@pytest.mark.parametrize("with_expression", [True, False])
def test_frames_of_pulls_are_those_of_the_general_way(with_expression: bool) -> None:
    subscription = Subscription(topic="T", expression='a || "b"', version=77)
    template = PullTemplate("g%\u00e4", QUEUE, subscription, count_max=32, with_expression=with_expression)
    request = PullRequest(
        group="g%\u00e4",
        topic="T",
        queue_id=3,
        queue_offset=10**12,
        count_max=32,
        sys_flag=7,
        commit_offset=9,
        hold_ms=15_000,
        subscription=subscription.expression if with_expression else None,
        subscription_version=0 if with_expression else 77,
        expression_type="TAG",
    )
    expected = encode_command(make_request(request, opaque=41))
    assert template.frame(41, 10**12, 7, 9, 15_000) == expected


def test_what_was_handed_out_is_settled_when_more_is_asked_for() -> None:
    queue = PulledQueue(QUEUE, 0)
    queue.seek(0)
    assert queue.put(held_of(0, 5), 5, queue.seeks)
    assert [message.queue_offset for message in queue.take(2)] == [0, 1]
    assert (queue.position, queue.consumed, queue.pull_offset) == (2, 0, 5)
    queue.mark_consumed()
    rest = queue.take(9)
    assert (queue.position, queue.consumed, queue.bytes) == (5, 2, 0)
    queue.put_back(rest[1:])
    assert (queue.position, queue.count) == (3, 2)
    assert [message.queue_offset for message in queue.take(1)] == [3]


def test_a_seek_forgets_what_is_held_and_what_is_on_its_way() -> None:
    queue = PulledQueue(QUEUE, 0)
    queue.seek(0)
    before = queue.seeks
    queue.put(held_of(0, 5), 5, before)
    taken = queue.take(2)
    queue.seek(40)
    assert not queue.put(held_of(5, 9), 9, before)
    queue.put_back(taken)
    assert (queue.count, queue.position, queue.pull_offset) == (0, 40, 40)


def test_filtered_stretches_are_passed_over() -> None:
    """Goal: where nothing was for us the position moves on, but not past messages that are not settled."""
    queue = PulledQueue(QUEUE, 0)
    queue.seek(0)
    queue.put(None, 100, queue.seeks)
    assert (queue.position, queue.consumed) == (100, 100)
    queue.put(MessageList([stored(100)]), 101, queue.seeks)
    queue.take(1)
    queue.put(None, 200, queue.seeks)
    assert (queue.position, queue.consumed) == (200, 100)
    queue.paused = True
    queue.put(MessageList([stored(200)]), 201, queue.seeks)
    assert queue.take(1) == []
    assert not queue.ready


def test_figures_of_the_last_minute_and_hour() -> None:
    stats = ConsumerStats()
    one = stats.of("T", 0)
    for second in range(100):
        one.pulled(second * 1_000, 32, 4)
        one.consumed(second * 1_000, 30, 2, 10)
    rates = stats.rates(99_500)["T"]
    assert rates.pull_tps == pytest.approx(32, rel=0.02)
    assert rates.consume_ok_tps == pytest.approx(30, rel=0.02)
    assert (rates.pull_rt, rates.consume_rt) == (4.0, 10.0)
    assert rates.consume_failed_count == 200
    assert (one.done_total, one.failed_total, one.pulled_total) == (3_000, 200, 3_200)
    later = stats.rates(99_500 + 61_000)["T"]
    assert (later.pull_tps, later.consume_rt, later.consume_failed_count) == (0.0, 0.0, 200)
    assert stats.rates(99_500 + 3_700_000)["T"].consume_failed_count == 0


def test_subscriptions_have_hashes_of_tags_and_growing_versions() -> None:
    table = SubscriptionTable()
    table.put(make_subscription("T", " TagA || TagB ||", None, 100))
    first = table.get("T")
    assert first is not None
    assert (first.tags, set(first.codes)) == (("TagA", "TagB"), {2598919, 2598920})
    assert table.tags("T") == {"TagA", "TagB"}
    table.put(make_subscription("T", "*", None, 50))
    second = table.get("T")
    assert second is not None
    assert second.version == 101
    table.touch("T", 90)
    assert table.all()[0].version == 102
    table.put(make_subscription("S", "*", "a > 5", 1))
    assert table.tags("S") is None
    assert table.remove("S")
    assert not table.remove("S")


@pytest.mark.parametrize(
    ("topic", "expression", "sql"),
    [("", "*", None), ("a b", "*", None), ("T", "a", "b > 1"), ("T", "*", "  "), ("T", 5, None), (None, "*", None)],
)
def test_subscriptions_no_broker_would_take(topic: str, expression: str, sql: str | None) -> None:
    with pytest.raises(SubscriptionInvalidError):
        make_subscription(topic, expression, sql, 0)


@pytest.mark.parametrize(("sql", "position"), [("a >", 3), ("a > 5 AND", 9), ("a ? 5", 2), ("a IN (1)", 6)])
def test_a_bad_sql_expression_is_told_with_its_position(sql: str, position: int) -> None:
    """Goal: at once and where, before any broker is asked."""
    with pytest.raises(SubscriptionInvalidError, match=f"at character {position + 1}") as caught:
        make_subscription("T", "*", sql, 0)
    assert caught.value.position == position
