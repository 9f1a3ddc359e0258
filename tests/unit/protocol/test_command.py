"""Commands in their two header forms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.protocol.codes import RequestCode, ResponseCode, code_name
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import Language
from rocketq.protocol.frame import decode_command, encode_command
from rocketq.protocol.versions import HIGHER_VERSION, V4_7_1, release_version, version_name

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INT16 = st.integers(-0x8000, 0x7FFF)
INT32 = st.integers(-0x80000000, 0x7FFFFFFF)

COMMANDS = st.builds(
    Command,
    code=INT16.filter(lambda code: not 3442 <= code <= 3543),
    opaque=INT32,
    flag=st.integers(0, 3),
    language=st.sampled_from(Language),
    version=INT16,
    remark=st.none() | TEXT.filter(bool),
    ext_fields=st.dictionaries(TEXT, TEXT, max_size=4),
    body=st.binary(max_size=20),
    form=st.sampled_from(HeaderForm),
)

ROUTE_QUERY = Command(
    code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
    opaque=7,
    language=Language.JAVA,
    version=V4_7_1,
    ext_fields={"topic": "TopicTest"},
)
NO_ROUTE = Command(
    code=ResponseCode.TOPIC_NOT_EXIST,
    opaque=7,
    flag=1,
    language=Language.JAVA,
    version=V4_7_1,
    remark="no route",
    body=b"\x01\x02\x03",
)


def json_frame(header: str, body: bytes = b"") -> bytes:
    return len(header.encode()).to_bytes(4, "big") + header.encode() + body


def binary_frame(header: bytes, body: bytes = b"") -> bytes:
    return b"\x01" + len(header).to_bytes(3, "big") + header + body


@pytest.mark.parametrize(
    ("command", "form", "frame"),
    [
        (
            ROUTE_QUERY,
            HeaderForm.JSON,
            bytes.fromhex("0000008700000083")
            + b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":7,'
            + b'"serializeTypeCurrentRPC":"JSON","version":355}',
        ),
        (
            ROUTE_QUERY,
            HeaderForm.BINARY,
            bytes.fromhex(
                "0000002D 01000029 0069 00 0163 00000007 00000000 00000000 00000014"
                "0005 746F706963 00000009 546F70696354657374"
            ),
        ),
        (
            NO_ROUTE,
            HeaderForm.JSON,
            bytes.fromhex("0000007B00000074")
            + b'{"code":17,"flag":1,"language":"JAVA","opaque":7,"remark":"no route",'
            + b'"serializeTypeCurrentRPC":"JSON","version":355}\x01\x02\x03',
        ),
        (
            NO_ROUTE,
            HeaderForm.BINARY,
            bytes.fromhex("00000024 0100001D 0011 00 0163 00000007 00000001 00000008 6E6F20726F757465 00000000 010203"),
        ),
    ],
)
def test_bytes_are_those_of_java(command: Command, form: HeaderForm, frame: bytes) -> None:
    """Goal: the same command gives the bytes Apache 4.7.1 gives, in both header forms, and reads back."""
    command = replace(command, form=form)
    assert encode_command(command) == frame
    assert decode_command(frame[4:]) == command


@given(COMMANDS)
def test_every_command_reads_back(command: Command) -> None:
    assert decode_command(encode_command(command)[4:]) == command


def test_native_json_types_in_ext_fields_become_texts() -> None:
    """Goal: C++ and Node clients, which send numbers and booleans, are understood."""
    header = '{"code":310,"extFields":{"e":3,"g":1600000000000,"k":false,"m":true,"n":null,"x":1.5,"s":"t"},"opaque":1}'
    command = decode_command(json_frame(header))
    assert command.ext_fields == {"e": "3", "g": "1600000000000", "k": "false", "m": "true", "x": "1.5", "s": "t"}


def test_odd_but_legal_json_headers_are_understood() -> None:
    header = '{"code":"34","language":"KLINGON","opaque":"-5","version":"355","remark":"","new":[1],"extFields":null}'
    command = decode_command(json_frame(header))
    assert command == Command(code=34, opaque=-5, language=Language.OTHER, version=355)
    assert decode_command(json_frame('{"code":34,"language":9}')).language is Language.GO
    assert decode_command(json_frame("{}")) == Command(code=0, language=Language.JAVA, version=0)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "[]",
        "17",
        '{"code":17',
        '{"code":"seventeen"}',
        '{"code":true}',
        '{"code":1.5}',
        '{"opaque":4294967296}',
        '{"extFields":[]}',
        '{"extFields":{{"a":1}:"b"}}',
    ],
)
def test_bad_json_headers_are_refused(header: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_command(json_frame(header))


FIXED = bytes.fromhex("0069 00 0163 00000007 00000000")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        FIXED,
        FIXED + bytes.fromhex("00000000"),
        FIXED + bytes.fromhex("FFFFFFFF 00000000"),
        FIXED + bytes.fromhex("00000009 00000000"),
        FIXED + bytes.fromhex("00000000 FFFFFFFF"),
        FIXED + bytes.fromhex("00000000 00000009 0001"),
        FIXED + bytes.fromhex("00000000 00000003 0001 61"),
        FIXED + bytes.fromhex("00000000 00000007 0001 61 00000001 62"),
        FIXED + bytes.fromhex("00000000 00000007 FFFF 61 00000001"),
        FIXED + bytes.fromhex("00000001 FF 00000000"),
    ],
)
def test_bad_binary_headers_are_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_command(binary_frame(header))


def test_the_last_of_two_equal_binary_fields_counts() -> None:
    entries = bytes.fromhex("0001 61 00000001 62 0001 61 00000001 63")
    header = FIXED + bytes(4) + len(entries).to_bytes(4, "big") + entries
    assert decode_command(binary_frame(header)).ext_fields == {"a": "c"}


def test_an_unknown_header_form_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="form 2"):
        decode_command(b"\x02\x00\x00\x02{}")


@pytest.mark.parametrize("code", [code for code in RequestCode if code > 0x7FFF])
def test_codes_past_16_bits_survive_a_binary_header(code: RequestCode) -> None:
    """Goal: Java cuts these codes off; we put them back, for requests only."""
    command = Command(code=code, form=HeaderForm.BINARY)
    frame = encode_command(command)
    assert decode_command(frame[4:]) == command
    assert int.from_bytes(frame[8:10], "big") == code & 0xFFFF
    with pytest.raises(LocalProtocolError):
        encode_command(replace(command, flag=1))


def test_what_a_binary_header_cannot_carry_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_command(Command(code=70000, form=HeaderForm.BINARY))
    with pytest.raises(LocalProtocolError):
        encode_command(Command(code=1, form=HeaderForm.BINARY, ext_fields={"k" * 40000: "v"}))


@pytest.mark.parametrize("form", HeaderForm)
def test_an_answer_mirrors_the_request(form: HeaderForm) -> None:
    request = Command(code=105, opaque=9, flag=2, form=form)
    assert request.is_oneway
    assert not request.is_response
    answer = request.answer(ResponseCode.TOPIC_NOT_EXIST, remark="gone", ext_fields={"a": "b"}, body=b"x")
    assert (answer.opaque, answer.flag, answer.form, answer.code) == (9, 1, form, 17)
    assert answer.is_response
    assert answer.version >= 232


def test_changing_a_received_command_changes_what_is_written() -> None:
    """Goal: remembering how a header came must never hide what was set since."""
    received = decode_command(json_frame('{"opaque":1,"code":5}'))
    changed = replace(received, remark="late", ext_fields={"a": "b"}, flag=1, language=Language.GO)
    assert decode_command(encode_command(changed)[4:]) == changed
    assert encode_command(received)[8:] == b'{"opaque":1,"code":5}'


def test_releases_have_numbers_and_names() -> None:
    known = {
        (4, 0, 0): 213,
        (4, 1, 0): 233,
        (4, 5, 2): 317,
        (4, 7, 1): 355,
        (4, 9, 8): 409,
        (5, 0, 0): 413,
        (5, 3, 3): 479,
    }
    assert {release: release_version(*release) for release in known} == known
    assert [version_name(number) for number in (28, 121, 232, 355, 412, 479)] == [
        "V3_0_7_SNAPSHOT",
        "V3_4_9",
        "V4_1_0_SNAPSHOT",
        "V4_7_1",
        "V5_0_0_SNAPSHOT",
        "V5_3_3",
    ]
    assert version_name(HIGHER_VERSION) == "HIGHER_VERSION"
    assert version_name(5) == "5"
    with pytest.raises(ValueError, match="no such release"):
        release_version(6, 0, 0)


def test_codes_have_names_for_people() -> None:
    assert code_name(11) == "PULL_MESSAGE"
    assert code_name(29999) == "29999"
    assert code_name(17, ResponseCode) == "TOPIC_NOT_EXIST"
