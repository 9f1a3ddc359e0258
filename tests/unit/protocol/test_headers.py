"""Typed headers."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Language, PullFlag, TopicFilterType
from rocketq.protocol.headers import I32, I64, BadFieldError, Header, header, wire
from rocketq.protocol.headers.groups import DeleteGroupRequest
from rocketq.protocol.headers.pull import PullRequest, PullResponse
from rocketq.protocol.headers.send import SendRequest, decode_send, encode_send, uses_letters
from rocketq.protocol.requests import HEADERS, decode_header

PULL = {
    "consumerGroup": "CG",
    "topic": "T",
    "queueId": "3",
    "queueOffset": "42",
    "maxMsgNums": "32",
    "sysFlag": "6",
}


@header
class Sample(Header):
    CODE: ClassVar = RequestCode.GET_CLIENT_CONFIG
    name: str = wire("theName")
    small: I32 = wire("small")
    large: I64 = wire("large", default=7)
    switch: bool = wire("switch", default=False)
    maybe: bool | None = wire("maybe", default=None)
    language: Language | None = wire("language", default=None)
    kind: TopicFilterType = wire("kind", default=TopicFilterType.SINGLE_TAG)


SAMPLES = st.builds(
    Sample,
    name=st.text(min_size=1),
    small=st.integers(-(1 << 31), (1 << 31) - 1),
    large=st.integers(-(1 << 63), (1 << 63) - 1),
    switch=st.booleans(),
    maybe=st.none() | st.booleans(),
    language=st.none() | st.sampled_from(Language),
    kind=st.sampled_from(TopicFilterType),
)


@given(SAMPLES)
def test_every_header_reads_back(sample: Sample) -> None:
    assert Sample.decode(sample.encode()) == sample


def test_values_are_written_as_java_writes_them() -> None:
    sample = Sample(name="n", small=-1, switch=True, language=Language.GO)
    expected = {"theName": "n", "small": "-1", "large": "7", "switch": "true", "language": "9", "kind": "SINGLE_TAG"}
    assert sample.encode() == expected


@pytest.mark.parametrize(
    ("ext_fields", "name", "reason"),
    [
        ({"small": "1"}, "theName", "missing"),
        ({"theName": "", "small": "1"}, "theName", "missing"),
        ({"theName": "n"}, "small", "missing"),
        ({"theName": "n", "small": "one"}, "small", "not a number"),
        ({"theName": "n", "small": " 1"}, "small", "not a number"),
        ({"theName": "n", "small": "1_0"}, "small", "not a number"),
        ({"theName": "n", "small": "٣"}, "small", "not a number"),
        ({"theName": "n", "small": "9" * 9000}, "small", "not a number"),
        ({"theName": "n", "small": "2147483648"}, "small", "32-bit"),
        ({"theName": "n", "small": "1", "large": "9223372036854775808"}, "large", "64-bit"),
        ({"theName": "n", "small": "1", "language": "99"}, "language", "99"),
        ({"theName": "n", "small": "1", "kind": "NONE"}, "kind", "NONE"),
    ],
)
def test_a_bad_field_is_named(ext_fields: dict[str, str], name: str, reason: str) -> None:
    """Goal: the peer learns which field is wrong and why; the error is one of the peer's."""
    with pytest.raises(BadFieldError, match=reason) as caught:
        Sample.decode(ext_fields)
    assert caught.value.name == name
    assert isinstance(caught.value, RemoteProtocolError)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("1", True), ("false", False), ("yes", False)]
)
def test_truth_has_two_spellings(text: str, value: bool) -> None:
    assert Sample.decode({"theName": "n", "small": "1", "switch": text}).switch is value


def test_a_pull_without_its_optional_fields_is_understood() -> None:
    request = PullRequest.decode({**PULL, "unknown": "x", "subscription": ""})
    assert request == PullRequest(group="CG", topic="T", queue_id=3, queue_offset=42, count_max=32, sys_flag=6)
    assert request.flags == PullFlag.HOLD | PullFlag.SUBSCRIPTION
    assert PullResponse(next_offset=1, min_offset=0, max_offset=2).encode() == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "1",
        "minOffset": "0",
        "maxOffset": "2",
    }


def test_names_and_letters_carry_the_same_send() -> None:
    """Goal: codes 10 and 310 with the same content are the same request."""
    request = SendRequest(
        group="PG",
        topic="T",
        default_queue_count=4,
        queue_id=-1,
        sys_flag=0,
        born_ms=1600000000000,
        flag=0,
        properties="TAGS\x01TagA\x02",
        max_reconsume_times=3,
        batch=True,
    )
    letters = encode_send(request, RequestCode.SEND_MESSAGE_V2)
    assert letters["a"] == "PG"
    assert letters["l"] == "3"
    for code in (10, 310, 320, 324, 325):
        ext_fields = encode_send(request, RequestCode(code))
        assert decode_send(Command(code=code, ext_fields=ext_fields)) == request
        assert ("b" in ext_fields) == uses_letters(code)


def test_both_names_of_a_renamed_field_are_read() -> None:
    assert DeleteGroupRequest.decode({"groupName": "G", "removeOffset": "true"}).clean_offset
    assert DeleteGroupRequest.decode({"groupName": "G", "cleanOffset": "true"}).clean_offset
    assert "removeOffset" not in DeleteGroupRequest(group="G").encode()


def test_every_header_declares_names_once() -> None:
    """Goal: no declaration has two fields with one wire name, or no way to read what it writes."""
    for code, kind in HEADERS.items():
        names = [name for item in fields(kind) for name in item.metadata["names"]]  # type: ignore[arg-type]
        assert len(names) == len(set(names)), code
        required = {item.metadata["names"][0]: "1" for item in fields(kind) if item.default is MISSING}  # type: ignore[arg-type]
        assert kind.decode(required).encode().items() >= numbers_or_true(kind, required).items(), code


def numbers_or_true(kind: type[Header], required: dict[str, str]) -> dict[str, Any]:
    truths = {item.metadata["names"][0] for item in fields(kind) if item.type == "bool"}  # type: ignore[arg-type]
    return {name: "true" if name in truths else text for name, text in required.items()}


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
)
def test_a_request_is_read_by_its_code_alone(code: RequestCode) -> None:
    sent = SendRequest(topic="T", queue_id=1, sys_flag=0, born_ms=5, flag=0)
    assert decode_header(Command(code=code, ext_fields=encode_send(sent, code))) == sent
    assert decode_header(Command(code=RequestCode.HEART_BEAT)) is None
    assert decode_header(Command(code=29999)) is None
