"""The messages a transaction is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketq.broker.transaction.half_messages import (
    Half,
    check_body,
    committed,
    copy_of,
    given_up,
    half_of,
    immunity_ms,
    op_for,
    read_op,
)
from rocketq.model import Host, NewMessage, Record, SysFlag
from rocketq.protocol.messages import decode_records
from rocketq.protocol.properties import decode_properties

HOST = Host.of("10.0.0.1", 4711)
SENT = {"KEYS": "k", "TAGS": "TagA", "TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U1", "WAIT": "true"}
MESSAGE = NewMessage(
    topic="Orders",
    queue_id=3,
    body=b"body",
    flag=7,
    sys_flag=SysFlag.COMPRESSED | SysFlag.TRANSACTION_PREPARED,
    born_ms=1_000,
    born_host=HOST,
)


def stored(message: NewMessage, queue_offset: int = 5, log_offset: int = 500) -> Record:
    return Record(
        size=100,
        version=1,
        body_crc=0,
        queue_id=message.queue_id,
        flag=message.flag,
        queue_offset=queue_offset,
        log_offset=log_offset,
        sys_flag=message.sys_flag,
        born_ms=message.born_ms,
        born_host=message.born_host,
        store_ms=1_005,
        store_host=HOST,
        reconsume_times=message.reconsume_times,
        prepared_offset=message.prepared_offset,
        body=message.body,
        topic=message.topic,
        properties=message.properties,
    )


def half(**more: str) -> Half:
    return Half.of(stored(half_of(MESSAGE, {**SENT, **more})))


def test_a_half_is_out_of_sight_and_knows_where_it_belongs() -> None:
    found = half()
    record = found.record
    assert (record.topic, record.queue_id, record.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, SysFlag.COMPRESSED)
    assert (found.topic, found.queue_id, found.group, found.unique_key) == ("Orders", 3, "pg", "U1")
    assert found.properties == {**SENT, "REAL_TOPIC": "Orders", "REAL_QID": "3"}
    assert not record.properties.endswith(b"\x02")
    assert (found.is_copy, found.checks, found.recorded_root) == (False, 0, None)


def test_what_only_brokers_may_say_is_left_out_and_a_half_is_never_delayed() -> None:
    """Goal: a producer can neither forge a copy of another's half nor have its own go astray by a delay."""
    forged = {
        "DELAY": "3",
        "TIMER_DELAY_MS": "5",
        "TRANSACTION_CHECK_TIMES": "9",
        "TRAN_PREPARED_QUEUE_OFFSET": "0",
        "REAL_TOPIC": "Other",
        "ROCKETQ_RESUMED": "true",
    }
    assert half(**forged).properties == half().properties


def test_a_copy_counts_and_names_the_first() -> None:
    copy = Half.of(stored(copy_of(half(), 5, 2)))
    assert (copy.checks, copy.recorded_root, copy.properties["WAIT"]) == (2, 5, "false")
    assert copy.is_same_send(half())
    assert not copy.is_same_send(half(UNIQ_KEY="U2"))
    again = Half.of(stored(copy_of(copy, 5, 3), queue_offset=9))
    assert (again.checks, again.recorded_root) == (3, 5)


def test_a_committed_message_is_as_apache_stores_it() -> None:
    """Goal: the real place, the commit bits, the half's log offset; of the properties only WAIT goes."""
    message = committed(half())
    assert (message.topic, message.queue_id, message.prepared_offset) == ("Orders", 3, 500)
    assert message.sys_flag == SysFlag.COMPRESSED | SysFlag.TRANSACTION_COMMIT
    properties = decode_properties(half().record.properties)
    del properties["WAIT"]
    assert decode_properties(message.properties) == properties
    checked = committed(Half.of(stored(copy_of(half(), 5, 2))))
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in decode_properties(checked.properties)
    assert (message.body, message.flag, message.born_ms, message.born_host) == (b"body", 7, 1_000, HOST)


def test_op_messages_are_as_apache_stores_them() -> None:
    message = op_for(12, now_ms=77, host=HOST)
    assert (message.topic, message.queue_id, message.body) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, b"12")
    assert message.properties == b"WAIT\x01true\x02TAGS\x01d"
    assert (message.born_ms, message.born_host) == (77, HOST)
    assert read_op(stored(message)).half_offsets == (12,)
    assert read_op(stored(op_for(12, now_ms=77, host=HOST, moved_to=20))).moved


@pytest.mark.parametrize(
    ("body", "offsets"),
    [(b"12", (12,)), (b"1,0,4,", (1, 0, 4)), (b"7,x,-3,8", (7, 8)), (b"", ()), (b"\xff", ()), (b"9" * 30, ())],
)
def test_op_messages_of_any_release_are_read(body: bytes, offsets: tuple[int, ...]) -> None:
    record = stored(replace(op_for(0, now_ms=0, host=HOST), body=body))
    assert read_op(record).half_offsets == offsets
    assert read_op(replace(record, properties=b"TAGS\x01x")).half_offsets == ()


@pytest.mark.parametrize(
    ("text", "immunity"),
    [("10", 10_000), ("0", 0), ("-1", None), ("x", None), ("1e3", None), ("9" * 30, None), ("-5", -5_000)],
)
def test_immunity_is_in_seconds_and_nonsense_counts_as_none(text: str, immunity: int | None) -> None:
    assert immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}) == immunity
    assert immunity_ms({}) is None


def test_a_check_carries_the_message_with_its_real_place_and_the_copys_offsets() -> None:
    copy = copy_of(half(), 5, 1)
    (record,) = decode_records(check_body(half(), copy, 8, 800))
    assert (record.topic, record.queue_id, record.queue_offset, record.log_offset) == ("Orders", 3, 8, 800)
    assert (record.body, record.born_ms, record.store_ms) == (b"body", 1_000, 1_005)
    assert decode_properties(record.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    assert record.size == len(check_body(half(), copy, 8, 800))


def test_what_is_given_up_can_be_looked_at() -> None:
    message = given_up(half(), 5)
    assert (message.topic, message.queue_id, message.body) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0, b"body")
    assert decode_properties(message.properties)["REAL_TOPIC"] == "Orders"
