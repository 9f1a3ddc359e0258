"""Batches encoded by the kernel: the same bytes as the general encoder, for every message it accepts."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.client.core.batches import encode_element
from rocketq.client.core.messages import Message, UniqueIds, check_and_encode
from rocketq.client.core.send_flow import SendResult, SendStatus
from rocketq.client.errors import MessageInvalidError
from rocketq.kernel.send_batch import SendBatch
from rocketq.protocol.bodies.queues import MessageQueue

NOW_MS = 1_763_500_000_000
QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=1)
TEXTS = st.one_of(st.text(max_size=12), st.text(st.characters(min_codepoint=30, max_codepoint=130), max_size=12))
MESSAGES = st.builds(
    Message,
    topic=st.just("T"),
    body=st.binary(max_size=40),
    tag=st.one_of(st.none(), TEXTS, st.just(b"t")),
    keys=st.one_of(st.lists(TEXTS, max_size=3).map(tuple), st.just("k"), st.just((5,))),
    properties=st.one_of(st.none(), st.just({}), st.just({"a": "b"})),
    flag=st.one_of(st.integers(-5, 5), st.just(1 << 40), st.just("1")),
    delay_level=st.sampled_from([0, 0, 3]),
    wait=st.sampled_from([True, True, False]),
)


def ids() -> UniqueIds:
    return UniqueIds(b"\x0a\x00\x00\x01", 7, 9)


def batch_of(source: UniqueIds, body_bytes_max: int = 30) -> SendBatch:
    return SendBatch(source.source(NOW_MS), body_bytes_max, 8_000)


@given(messages=st.lists(MESSAGES, max_size=6))
def test_plain_messages_have_the_bytes_of_the_general_encoder(messages: list[Message]) -> None:
    """Goal: the kernel accepts only what the general encoder accepts, and makes the same of it."""
    fast, slow, batch, expected = ids(), ids(), None, []
    batch = batch_of(fast)
    for message in messages:
        if batch.add(message, None, NOW_MS):
            expected.append(check_and_encode(message, slow.next(NOW_MS)))
    assert batch.encoded() == b"".join(map(encode_element, expected))
    assert [batch.unique_key(at) for at in range(len(batch))] == [one.unique_key for one in expected]
    for at, one in enumerate(expected):
        assert batch.element(at) == (one.flag, one.body, one.properties.encode())
    assert batch.body_bytes == sum(len(one.body) for one in expected)


@given(
    rows=st.lists(
        st.tuples(st.binary(max_size=40), st.one_of(st.none(), TEXTS), st.lists(TEXTS, max_size=2).map(tuple)),
        max_size=8,
    ),
    bytes_max=st.integers(1, 1_000),
)
def test_many_bodies_have_the_bytes_of_single_messages(
    rows: list[tuple[bytes, str | None, tuple[str, ...]]], bytes_max: int
) -> None:
    fast, slow = ids(), ids()
    batch = batch_of(fast)
    bodies, tags, keys = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    end = batch.add_bodies(bodies, tags, keys, 0, bytes_max, 100, NOW_MS)
    expected = [
        check_and_encode(Message(topic="T", body=body, tag=tag, keys=words), slow.next(NOW_MS))
        for body, tag, words in rows[:end]
    ]
    assert batch.encoded() == b"".join(map(encode_element, expected))
    assert len(batch) <= 1 or len(batch.encoded()) <= bytes_max


def test_messages_encoded_elsewhere_stand_among_the_others() -> None:
    source = ids()
    batch = batch_of(source)
    outgoing = check_and_encode(Message(topic="T", body=b"x", properties={"a": "ü"}), source.next(NOW_MS))
    assert batch.add(Message(topic="T", body=b"1"), None, NOW_MS)
    batch.add_encoded(outgoing.body, outgoing.flag, outgoing.properties.encode(), None)
    assert batch.element(1) == (0, b"x", outgoing.properties.encode())
    assert batch.unique_key(1) == outgoing.unique_key
    results: list[SendResult] = batch.results(SendResult, SendStatus.SEND_OK, "A,B", QUEUE, 5, "r", True)
    assert [(one.message_id, one.offset_message_id, one.queue_offset) for one in results] == [
        (batch.unique_key(0), "A", 5),
        (outgoing.unique_key, "B", 6),
    ]
    assert pickle.loads(pickle.dumps(results[1])) == results[1]
    short: list[SendResult] = batch.results(SendResult, SendStatus.SEND_OK, "A", QUEUE, 5, None, True)
    assert [one.offset_message_id for one in short] == ["A", ""]


def test_the_counter_of_ids_starts_again_after_65536() -> None:
    source = ids()
    batch = SendBatch(source.source(NOW_MS), 30, 8_000)
    assert batch.add_bodies([b"x"] * 65_537, None, None, 0, 1 << 30, 1 << 20, NOW_MS) == 65_537
    assert batch.unique_key(0) == batch.unique_key(65_536)
    assert batch.unique_key(65_535).endswith("FFFF")


def test_messages_are_values() -> None:
    one = Message(topic="T", body=b"b" * 100, tag="t", keys=("k",), properties={"a": "b"})
    same = replace(one)
    assert same == one
    assert pickle.loads(pickle.dumps(one)) == one == copy.copy(one)
    assert replace(one, tag="u") != one
    assert asdict(one)["properties"] == {"a": "b"}
    assert repr(one).startswith("Message(topic='T', body=b'" + "b" * 64 + "'... (100 bytes), tag='t'")
    assert Message(topic="T", body=b"x").properties == {}
    for name in ("topic", "body", "tag"):
        with pytest.raises(AttributeError):
            setattr(one, name, b"other")
    assert Message("T", b"x", keys="k") == Message(topic="T", body=b"x", keys=("k",))
    wrong: Any = Message(topic="T", body="text")  # type: ignore[arg-type]
    with pytest.raises(MessageInvalidError):
        check_and_encode(wrong, "ID")


def test_results_are_values() -> None:
    one = SendResult(SendStatus.SEND_OK, "id", "offset", QUEUE, 5, region="r")
    assert one == replace(one)
    assert replace(one, queue_offset=6) != one
    assert asdict(one)["message_id"] == "id"
    assert repr(one).startswith("SendResult(status=<SendStatus.SEND_OK")
    one.queue = replace(QUEUE, queue_id=9)
    assert one.queue.queue_id == 9
