"""Small rules of consumers: plans, where to start, what failed means, offsets kept."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import pytest

from rocketq.client.core.config import PullConfig, PushConfig
from rocketq.client.core.consume_results import (
    ConsumeOutcome,
    ConsumeResult,
    dead_copy,
    judge,
    may_be_retried,
    retry_copy,
    retry_level,
    send_back_request,
    suspend_ms,
)
from rocketq.client.core.offsets import OffsetTable, StartRule, decode_offset_file, encode_offset_file, start_rule
from rocketq.client.core.stored_messages import delivered
from rocketq.client.listener import accepts_two_arguments
from rocketq.client.rebalance import plan_topic, unsubscribed
from rocketq.errors import ConfigError, RocketQError
from rocketq.model import SysFlag
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeFromWhere
from rocketq.protocol.properties import decode_properties

from .stored import stored

A, B, C = (MessageQueue(topic="T", broker_name="b", queue_id=number) for number in range(3))


def test_a_plan_drops_adds_and_begins_stuck_queues_anew() -> None:
    plan = plan_topic([A, B], [B, C], stuck=[B])
    assert (plan.drop, plan.add) == ((A, B), (B, C))
    assert not plan_topic([A], [A]).changes
    assert plan_topic([A], [], stuck=[A]).add == ()
    assert unsubscribed([A, B], {"Other"}) == (A, B)


@pytest.mark.parametrize(
    ("from_where", "normal", "retried"),
    [
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, StartRule.END, StartRule.ZERO),
        (ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET, StartRule.END, StartRule.ZERO),
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, StartRule.ZERO, StartRule.ZERO),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, StartRule.TIME, StartRule.END),
    ],
)
def test_where_a_new_group_starts(from_where: ConsumeFromWhere, normal: StartRule, retried: StartRule) -> None:
    assert start_rule(from_where, "T") is normal
    assert start_rule(from_where, "%RETRY%g") is retried


@pytest.mark.parametrize(
    ("returned", "error", "elapsed_ms", "result", "outcome"),
    [
        (None, None, 1, ConsumeResult.SUCCESS, ConsumeOutcome.SUCCESS),
        (ConsumeResult.SUCCESS, None, 1, ConsumeResult.SUCCESS, ConsumeOutcome.SUCCESS),
        (ConsumeResult.LATER, None, 1, ConsumeResult.LATER, ConsumeOutcome.FAILED),
        (ConsumeResult.ROLLBACK, None, 1, ConsumeResult.ROLLBACK, ConsumeOutcome.FAILED),
        (None, ValueError("x"), 1, ConsumeResult.LATER, ConsumeOutcome.EXCEPTION),
        (None, None, 900, ConsumeResult.SUCCESS, ConsumeOutcome.TIMEOUT),
    ],
)
def test_what_counts_of_a_listener(
    returned: object, error: Exception | None, elapsed_ms: int, result: ConsumeResult, outcome: ConsumeOutcome
) -> None:
    verdict = judge(returned, error, elapsed_ms, timeout_ms=900)
    assert (verdict.result, verdict.outcome, verdict.error) == (result, outcome, error)


def test_a_listener_that_returns_something_else_is_told_so() -> None:
    """Goal: `return True` means "again", as in Apache's clients, but never without a word."""
    verdict = judge(True, None, 1, timeout_ms=900)
    assert (verdict.result, verdict.outcome) == (ConsumeResult.LATER, ConsumeOutcome.NULL)
    assert "returned True" in str(verdict.error)


@pytest.mark.parametrize("config", [PushConfig, PullConfig])
@pytest.mark.parametrize("wrong", [{"from_where": "first"}, {"model": "BROADCASTING"}, {"from_where": None}])
def test_a_text_is_no_choice(config: type[PushConfig | PullConfig], wrong: dict[str, Any]) -> None:
    """Goal: a setting that would be taken for another is refused, with the name to import."""
    with pytest.raises(ConfigError, match=r"such as (ConsumeFromWhere|MessageModel)\."):
        config(**wrong)


@pytest.mark.parametrize(
    ("listener", "fits"),
    [
        (lambda messages, context: None, True),
        (lambda *given: None, True),
        (lambda messages, context, more=1: None, True),
        (print, True),
        (dict.fromkeys, True),
        (lambda messages: None, False),
        (lambda messages, *, context: None, False),
        (lambda messages, context, more: None, False),
    ],
)
def test_listeners_take_messages_and_a_context(listener: Any, fits: bool) -> None:
    assert accepts_two_arguments(listener) is fits


def test_levels_of_retries() -> None:
    assert [retry_level(times) for times in (0, 1, 15)] == [3, 4, 18]
    assert retry_level(4, asked=2) == 2


def test_a_message_is_sent_back_by_its_place_in_the_log() -> None:
    request = send_back_request(stored(5), "g", -1, configured=-1)
    assert (request.log_offset, request.delay_level, request.max_reconsume_times) == (500, -1, 16)
    assert (request.origin_topic, request.origin_message_id) == ("T", "U5")
    assert send_back_request(stored(5), "g", 0, configured=3).max_reconsume_times == 3


def test_a_retry_copy_keeps_what_the_message_was() -> None:
    """Goal: the fallback loses neither the first topic nor the first id, and leaves the message itself alone."""
    properties = {"UNIQ_KEY": "U", "TRAN_MSG": "true", "DELAY": "9", "k": "v"}
    message = delivered(stored(5, topic="%RETRY%g", properties=properties, reconsume_times=2), topic="T")
    copy = retry_copy(message, "g", 0, -1)
    assert copy.topic == "%RETRY%g"
    assert decode_properties(copy.properties.encode()) == {
        "UNIQ_KEY": "U",
        "k": "v",
        "RETRY_TOPIC": "T",
        "DELAY": "5",
        "ORIGIN_MESSAGE_ID": message.offset_message_id,
    }
    assert message.properties == properties
    assert (copy.flag, copy.body, copy.reconsume_times, copy.max_reconsume_times) == (7, b"body", 3, 16)


def test_a_dead_copy_is_beyond_its_limit_and_not_delayed() -> None:
    for copy in (dead_copy(stored(5, reconsume_times=2), "g", 2), retry_copy(stored(5), "g", -1, 2)):
        assert copy.reconsume_times >= copy.max_reconsume_times == 2
        assert "DELAY" not in decode_properties(copy.properties.encode())


def test_a_copy_carries_the_body_as_it_was_stored() -> None:
    """Goal: a compressed body is neither inflated nor compressed again, bits of transactions and hosts do not stay."""
    body = zlib.compress(b"x" * 100)
    message = stored(5, body=body, sys_flag=SysFlag.COMPRESSED | SysFlag.TRANSACTION_COMMIT | SysFlag.BORN_HOST_V6)
    request = retry_copy(message, "g", 0, -1).request(3, "broker-a", "p", 9)
    assert message.body == b"x" * 100
    assert (message.stored_body, request.sys_flag, request.queue_id) == (body, SysFlag.COMPRESSED, 3)


def test_order_is_retried_without_end_unless_told_otherwise() -> None:
    assert may_be_retried(stored(0, reconsume_times=10**6), -1)
    assert may_be_retried(stored(0, reconsume_times=1), 2)
    assert not may_be_retried(stored(0, reconsume_times=2), 2)
    assert [suspend_ms(asked, 1_000) for asked in (None, 1, 10**6)] == [1_000, 10, 30_000]


def test_offsets_know_what_is_not_saved() -> None:
    table = OffsetTable()
    table.learn(A, 5)
    assert table.unsaved() == {}
    table.update(A, 4, increase_only=True)
    assert table.get(A) == 5
    table.update(A, 3)
    table.update(B, 1, increase_only=True)
    assert table.unsaved() == {A: 3, B: 1}
    assert table.unsaved([B, C]) == {B: 1}
    table.saved(A, 3)
    table.forget(B)
    assert table.unsaved() == {}


def test_the_offset_file_is_read_and_written_as_by_java() -> None:
    data = encode_offset_file({A: 12})
    assert b'"offsetTable"' in data
    assert data.replace(b" ", b"").replace(b"\n", b"").replace(b"\t", b"") == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12}}'
    )
    assert decode_offset_file(data) == {A: 12}
    with pytest.raises(RocketQError):
        decode_offset_file(encode_offset_file({A: -1}))
    with pytest.raises(RocketQError):
        decode_offset_file(b"{")


def test_tags_are_found_without_decoding_the_rest() -> None:
    """Goal: what looks like a tag inside another value is none, and the last of two counts."""
    plain = stored(0, properties={"xTAGS": "no", "note": "TAGS\x01not", "TAGS": "yes"})
    assert plain.tag == "yes"
    assert plain._properties is None
    assert plain.properties["note"] == "TAGS\x01not"
    assert stored(0, properties={"a": "TAGS\x01x"}).tag is None


def test_equal_messages_are_equal_and_say_what_they_are() -> None:
    one, two = stored(3), stored(3)
    assert one == two
    assert hash(one) == hash(two)
    assert one != stored(4)
    assert one != delivered(two, reconsume_times=1)
    assert "message_id='U3'" in repr(one)
    assert pickle.loads(pickle.dumps(one)) == one
