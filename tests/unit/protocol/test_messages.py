"""Records and batches in bodies."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.model import Host, Record
from rocketq.protocol.messages import (
    BatchElement,
    body_crc,
    decode_batch,
    decode_records,
    encode_batch,
    encode_record,
)
from rocketq.protocol.properties import encode_properties

PROPERTIES = encode_properties({"UNIQ_KEY": "0A000001303918B4AAC2000000010000", "WAIT": "true", "TAGS": "TagA"})
ELEMENT = bytes.fromhex("00000059 00000000 00000000 00000000 00000005 68656C6C6F 003E") + PROPERTIES
STORED = (
    bytes.fromhex(
        "000000A7 DAA320A7 3610A686 00000003 00000000 000000000000002A 000000000012D687 00000000 00000174876E8000"
        "0A000009 0000C3CB 00000174876E807B 0A000001 00002A9F 00000000 0000000000000000 00000005 68656C6C6F 09"
        "546F70696354657374 003E"
    )
    + PROPERTIES
)
RECORD = Record(
    size=167,
    version=1,
    body_crc=907060870,
    queue_id=3,
    flag=0,
    queue_offset=42,
    log_offset=1234567,
    sys_flag=0,
    born_ms=1600000000000,
    born_host=Host.of("10.0.0.9", 50123),
    store_ms=1600000000123,
    store_host=Host.of("10.0.0.1", 10911),
    reconsume_times=0,
    prepared_offset=0,
    body=b"hello",
    topic="TopicTest",
    properties=PROPERTIES,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, 0xFFFF))
RECORDS = st.builds(
    Record,
    size=st.just(0),
    version=st.sampled_from([1, 2]),
    body_crc=st.just(0),
    queue_id=INT32,
    flag=INT32,
    queue_offset=INT64,
    log_offset=INT64,
    sys_flag=INT32,
    born_ms=INT64,
    born_host=HOSTS,
    store_ms=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_offset=INT64,
    body=st.binary(max_size=20),
    topic=st.text("abc%-_", max_size=127),
    properties=st.binary(max_size=20),
)


def test_a_stored_message_is_that_of_java() -> None:
    """Goal: the published bytes of Apache 4.7.1 read as the published fields, and are written again."""
    assert decode_records(STORED) == [RECORD]
    assert encode_record(RECORD) == STORED
    assert RECORD.message_id == "0A00000100002A9F000000000012D687"
    assert body_crc(b"hello") == 0x3610A686


@given(st.lists(RECORDS, max_size=3))
def test_every_record_reads_back(records: list[Record]) -> None:
    """Goal: both versions and both address families survive, one after the other in a body."""
    data = b"".join(encode_record(record) for record in records)
    for record, decoded in zip(records, decode_records(data), strict=True):
        hosts = (0x10 if record.born_host.is_ipv6 else 0) | (0x20 if record.store_host.is_ipv6 else 0)
        expected = replace(
            record,
            size=len(encode_record(record)),
            body_crc=body_crc(record.body),
            sys_flag=record.sys_flag & ~0x30 | hosts,
        )
        assert decoded == expected


def test_a_topic_longer_than_a_v1_record_can_say_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        encode_record(replace(RECORD, topic="t" * 128))
    assert decode_records(encode_record(replace(RECORD, topic="t" * 256, version=2)))[0].topic == "t" * 256


@pytest.mark.parametrize("cut", [1, 3, 4, 50, 80, 100, 166])
def test_a_cut_record_is_refused(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_records(STORED + STORED[:cut])


def test_a_record_with_a_foreign_magic_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="0xcbd43194"):
        decode_records(STORED[:4] + bytes.fromhex("CBD43194") + STORED[8:])


@given(st.integers(0, len(STORED) - 1), st.integers(0, 255))
def test_a_damaged_record_is_read_or_refused(at: int, value: int) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_records(STORED[:at] + bytes([value]) + STORED[at + 1 :])


def test_a_batch_element_is_that_of_java() -> None:
    element = BatchElement(body=b"hello", properties=PROPERTIES)
    assert encode_batch([element]) == ELEMENT
    assert decode_batch(ELEMENT * 2) == [element, element]


@given(
    st.lists(
        st.builds(BatchElement, body=st.binary(max_size=9), properties=st.binary(max_size=9), flag=INT32), min_size=1
    )
)
def test_every_batch_reads_back(elements: list[BatchElement]) -> None:
    assert decode_batch(encode_batch(elements)) == elements


@pytest.mark.parametrize("data", [b"", bytes(4), bytes(20), ELEMENT[:-1], ELEMENT + b"\x00", ELEMENT[:3]])
def test_a_batch_that_cannot_be_cut_into_elements_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_batch(data)


@given(st.integers(0, len(ELEMENT) - 1), st.integers(0, 255))
def test_a_damaged_batch_is_read_or_refused(at: int, value: int) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_batch(ELEMENT[:at] + bytes([value]) + ELEMENT[at + 1 :])


def test_properties_past_the_limit_are_a_local_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_batch([BatchElement(body=b"", properties=bytes(32768))])
