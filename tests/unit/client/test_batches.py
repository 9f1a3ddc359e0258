"""Batches: what may be one, how it is cut and encoded, and when gathered messages go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.client.core.batches import (
    Batching,
    batch_fault,
    batch_request,
    check_batch,
    encode_element,
    split,
)
from rocketq.client.core.messages import Message, check_and_encode
from rocketq.client.core.send_flow import SendStatus, accepted, batch_results, send_result
from rocketq.client.errors import MessageInvalidError
from rocketq.errors import ConfigError, RemoteProtocolError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.messages import BatchElement, decode_batch, encode_batch
from rocketq.protocol.properties import decode_properties

MESSAGE = Message(topic="T", body=b"x")
QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=1)


def test_elements_are_what_the_protocol_says() -> None:
    packed = [check_and_encode(replace(MESSAGE, body=b"b%d" % at, tag="ü", flag=at), f"ID{at}") for at in range(3)]
    data = b"".join(map(encode_element, packed))
    assert data == encode_batch(
        BatchElement(body=one.body, properties=one.properties.encode(), flag=one.flag) for one in packed
    )
    assert [decode_properties(one.properties)["UNIQ_KEY"] for one in decode_batch(data)] == ["ID0", "ID1", "ID2"]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [MESSAGE, replace(MESSAGE, topic="U")],
        [MESSAGE, replace(MESSAGE, wait=False)],
        [MESSAGE, replace(MESSAGE, delay_level=1)],
        [MESSAGE, replace(MESSAGE, delay_ms=5)],
        [replace(MESSAGE, topic="%RETRY%g")],
        [MESSAGE, "text"],
    ],
)
def test_what_cannot_be_one_batch_is_said(messages: list[Message]) -> None:
    assert batch_fault(messages)
    with pytest.raises(MessageInvalidError):
        check_batch(messages)


def test_only_a_batch_that_does_not_wait_has_properties_of_its_own() -> None:
    assert batch_fault([MESSAGE, MESSAGE]) is None
    assert batch_request([b"a", b"b"], wait=True).properties == ""
    assert decode_properties(batch_request([b"a"], wait=False).properties.encode()) == {"WAIT": "false"}


@given(st.lists(st.integers(1, 50)), st.integers(1, 100))
def test_parts_are_whole_in_order_and_as_large_as_may_be(sizes: list[int], bytes_max: int) -> None:
    parts = list(split(sizes, bytes_max))
    assert [at for first, end in parts for at in range(first, end)] == list(range(len(sizes)))
    for first, end in parts:
        assert end - first == 1 or sum(sizes[first:end]) <= bytes_max
    for first, end in parts[:-1]:
        assert sum(sizes[first : end + 1]) > bytes_max


def test_each_message_of_a_batch_has_a_result_of_its_own() -> None:
    fields = {"msgId": "A,B,C", "queueId": "1", "queueOffset": "7", "MSG_REGION": "r", "TRACE_ON": "false"}
    results = batch_results(accepted(10, fields, QUEUE), ["x", "y", "z"])
    assert [(one.message_id, one.offset_message_id, one.queue_offset) for one in results] == [
        ("x", "A", 7),
        ("y", "B", 8),
        ("z", "C", 9),
    ]
    assert {(one.status, one.region, one.trace_on) for one in results} == {(SendStatus.FLUSH_DISK_TIMEOUT, "r", False)}
    stored_as_one = batch_results(accepted(0, {**fields, "msgId": "A"}, QUEUE), ["x", "y"])
    assert [(one.offset_message_id, one.queue_offset) for one in stored_as_one] == [("A", 7), ("", 8)]


@pytest.mark.parametrize("lost", ["msgId", "queueId", "queueOffset"])
def test_an_answer_that_lacks_something_is_no_result(lost: str) -> None:
    fields = {"msgId": "A", "queueId": "1", "queueOffset": "7"}
    assert send_result(accepted(0, fields, QUEUE), "x").queue is QUEUE
    assert accepted(0, {**fields, "queueId": "3"}, QUEUE).queue.queue_id == 3
    with pytest.raises(RemoteProtocolError):
        accepted(0, {name: text for name, text in fields.items() if name != lost}, QUEUE)
    with pytest.raises(RemoteProtocolError):
        accepted(0, {**fields, "queueOffset": "seven"}, QUEUE)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"linger_ms": -1}, {"count_max": 0}, {"bytes_max": 0}, {"requests_max": 0}):
        with pytest.raises(ConfigError):
            Batching(**wrong)
