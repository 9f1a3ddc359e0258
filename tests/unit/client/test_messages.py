"""Messages before they are sent and after they were stored, and their ids."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from rocketq.client.core.messages import (
    BODY_BYTES_MAX,
    Message,
    UniqueIds,
    born_ms_of,
    copy_of,
    month_start_ms,
    prepare,
)
from rocketq.client.core.stored_messages import stored_message
from rocketq.client.core.subscriptions import is_wanted, tags_of
from rocketq.client.errors import MessageInvalidError
from rocketq.model import Host, Record, SysFlag
from rocketq.protocol.compression import decompress
from rocketq.protocol.properties import decode_properties, encode_properties

NOW_MS = int(datetime(2026, 3, 15, 12).timestamp() * 1000)


def record(**given: Any) -> Record:
    values: dict[str, Any] = {
        "size": 120,
        "version": 1,
        "body_crc": 0,
        "queue_id": 3,
        "flag": 7,
        "queue_offset": 11,
        "log_offset": 1234567,
        "sys_flag": 0,
        "born_ms": 1,
        "born_host": Host.of("10.0.0.9", 50000),
        "store_ms": 2,
        "store_host": Host.of("10.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_offset": 0,
        "body": b"hello",
        "topic": "T",
        "properties": encode_properties({"UNIQ_KEY": "U", "TAGS": "a", "KEYS": "k1 k2", "mine": "x", "CLUSTER": "C"}),
    }
    return Record(**{**values, **given})


def test_a_message_gets_its_properties_and_keeps_the_users() -> None:
    message = Message(topic="T", body=b"x", tag="a", keys=("k1", "k2"), properties={"mine": "1"}, flag=5)
    outgoing = prepare(message, "ID")
    assert decode_properties(outgoing.properties.encode()) == {
        "UNIQ_KEY": "ID",
        "WAIT": "true",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "mine": "1",
    }
    assert (outgoing.body, outgoing.sys_flag, outgoing.unique_key) == (b"x", 0, "ID")
    own = prepare(replace(message, properties={"UNIQ_KEY": "OWN", "WAIT": "false"}), "ID")
    assert own.unique_key == "OWN"


@pytest.mark.parametrize(("size", "compressed"), [(4095, False), (4096, True)])
def test_large_bodies_are_compressed(size: int, compressed: bool) -> None:
    body = b"x" * size
    outgoing = prepare(Message(topic="T", body=body), "ID")
    assert bool(outgoing.sys_flag & SysFlag.COMPRESSED) is compressed
    assert decompress(outgoing.body, outgoing.sys_flag) == body


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": ""}, "blank"),
        ({"topic": "a b"}, "letters"),
        ({"topic": "x" * 128}, "longer"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "own"),
        ({"body": b""}, "empty"),
        ({"body": bytes(BODY_BYTES_MAX + 1)}, "over"),
        ({"keys": ("a b",)}, "key"),
        ({"properties": {"p": "x" * 33_000}}, "properties"),
    ],
)
def test_what_no_broker_would_take_is_refused_before_it_is_sent(given: dict[str, Any], said: str) -> None:
    message = replace(Message(topic="T", body=b"x"), **given)
    with pytest.raises(MessageInvalidError, match=said) as caught:
        prepare(message, "ID")
    assert not caught.value.retriable


def test_a_stored_message_is_inflated_and_named() -> None:
    outgoing = prepare(Message(topic="T", body=b"x" * 5000), "ID")
    message = stored_message(record(body=outgoing.body, sys_flag=outgoing.sys_flag), "broker-a")
    assert message.body == b"x" * 5000
    assert message.body_fault is None
    assert (message.topic, message.queue.broker_name, message.queue.queue_id) == ("T", "broker-a", 3)
    assert (message.message_id, message.offset_message_id) == ("U", "0A00000100002A9F000000000012D687")
    assert (message.tag, message.keys) == ("a", ("k1", "k2"))
    assert stored_message(record(properties=b""), "b").message_id == "0A00000100002A9F000000000012D687"


def test_a_body_that_does_not_inflate_is_shown_as_it_is() -> None:
    message = stored_message(record(body=b"junk", sys_flag=int(SysFlag.COMPRESSED)), "b")
    assert message.body == b"junk"
    assert message.body_fault is not None


def test_a_copy_goes_to_the_first_topic_with_an_id_of_its_own() -> None:
    copy = copy_of(stored_message(record(), "b"))
    assert (copy.topic, copy.body, copy.tag, copy.keys, copy.flag) == ("T", b"hello", "a", ("k1", "k2"), 7)
    assert copy.properties == {"mine": "x", "ORIGIN_MESSAGE_ID": "U"}
    dead = record(topic="%DLQ%g", properties=encode_properties({"RETRY_TOPIC": "First", "DELAY": "3"}))
    assert copy_of(stored_message(dead, "b")).topic == "First"
    assert copy_of(stored_message(dead, "b"), "Other").topic == "Other"
    assert copy_of(stored_message(record(topic="%DLQ%g", properties=b""), "b")).topic == "%DLQ%g"


def test_unique_ids_hold_host_process_time_and_a_counter() -> None:
    ids = UniqueIds(bytes([10, 0, 0, 1]), 0x12345, 0xAABBCCDD)
    span_ms = NOW_MS - month_start_ms(NOW_MS)
    assert ids.next(NOW_MS) == f"0A0000012345AABBCCDD{span_ms:08X}0000"
    assert ids.next(NOW_MS).endswith("0001")
    assert len({ids.next(NOW_MS) for _ in range(65_536)}) == 65_536


def test_an_id_says_about_when_it_was_made() -> None:
    unique_key = UniqueIds(bytes(4), 1, 1).next(NOW_MS)
    assert born_ms_of(unique_key, NOW_MS) == NOW_MS
    next_month_ms = int(datetime(2026, 4, 2).timestamp() * 1000)
    assert born_ms_of(unique_key, next_month_ms) == NOW_MS
    assert born_ms_of("short", NOW_MS) is None
    assert born_ms_of("Z" * 32, NOW_MS) is None


@pytest.mark.parametrize(
    ("expression", "tag", "wanted"),
    [(None, None, True), ("*", "a", True), ("a || b", "b", True), ("a||b", "c", False), ("a", None, False)],
)
def test_tags_are_compared_themselves(expression: str | None, tag: str | None, wanted: bool) -> None:
    assert is_wanted(tag, tags_of(expression)) is wanted
