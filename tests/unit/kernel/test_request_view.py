"""The kernel's parser against the lenient decoder of rocketq.protocol: what it parses, both read alike."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketq.errors import RemoteProtocolError
from rocketq.kernel.request_view import FIELDS_MAX, RequestView
from rocketq.protocol.command import JAVA_MEMBERS, Command, HeaderForm
from rocketq.protocol.flags import Language
from rocketq.protocol.frame import _decode_leniently, command_of, decode_command, encode_command

NUMBERS = st.sampled_from([0, 1, -1, 310, 34, 0x7FFFFFFF, -0x7FFFFFFF, -0x80000000, 1 << 31, 10**17, 10**18])
CHARACTERS = st.characters(codec="utf-8") | st.sampled_from('\\"/\x00\x01\x02\n\t\x7f{}[],:\ufeff\u20ac\U0001f600')
TEXTS = st.text(CHARACTERS, max_size=12)
BLANKS = st.sampled_from(["", "", "", " ", "\t", "\r\n", "  \n"])
ESCAPES = st.sampled_from(
    (
        *("\\u0041", "\\u00e9", "\\u20ac", "\\uD83D\\uDE00", "\\ud83d", "\\ude00", "\\ud83d\\u0041", "\\ud83d\\uffff"),
        *("\\/", "\\b", "\\f", "\\n", "\\r", "\\t", '\\"', "\\\\", "\\x41", "\\u00g1", "\\u12", "\\", "\\'", "\\v"),
    )
)
PLAIN = st.sampled_from(["a", "TagA", "\x01", "\x02", "{", "}", ",", "é", "键", "\U0001f600", ""])
RAW_TEXTS = st.lists(PLAIN | ESCAPES, max_size=6).map(lambda parts: f'"{"".join(parts)}"')
RAW_NUMBERS = NUMBERS.map(str) | st.sampled_from(["-0", "007", "1.5", "1e5", "+1", "--1", "9" * 18, "9" * 19, "1x"])
RAW_VALUES = RAW_TEXTS | RAW_NUMBERS | st.sampled_from(["true", "false", "null", "nul", "True", "{}", "[]", "'a'", ""])
RAW_NAMES = st.sampled_from(["a", "b", "i", "AccessKey", "properties", "", "a b", "é", "\\u0061", "x\\/y"]).map(
    lambda name: f'"{name}"'
)
RAW_MEMBER_NAMES = st.sampled_from([*JAVA_MEMBERS, *JAVA_MEMBERS, "unknown", "cod", "extfields"]).map(
    lambda name: f'"{name}"'
)
WORDS = st.sampled_from(['"JAVA"', '"GO"', '"KLINGON"', '""', '"JSON"', '"é"', "0", "null", '"J\\u0041VA"'])


@st.composite
def raw_objects(draw: st.DrawFn, names: st.SearchStrategy[str], values: st.SearchStrategy[str], size: int) -> str:
    items = draw(st.lists(st.tuples(BLANKS, names, BLANKS, BLANKS, values, BLANKS), max_size=size))
    inside = ",".join(f"{a}{name}{b}:{c}{value}{d}" for a, name, b, c, value, d in items)
    return f"{{{inside}}}"


RAW_FIELDS = raw_objects(RAW_NAMES, RAW_VALUES, 6)
RAW_HEADERS = raw_objects(RAW_MEMBER_NAMES, RAW_FIELDS | RAW_VALUES | RAW_NUMBERS | WORDS, 8)


@st.composite
def likely_headers(draw: st.DrawFn) -> str:
    """JSON headers of which most are well-formed: each member with a value of its kind, in any order."""
    values = {
        "code": draw(RAW_NUMBERS),
        "extFields": draw(RAW_FIELDS | st.just("null")),
        "flag": draw(RAW_NUMBERS),
        "language": draw(WORDS),
        "opaque": draw(RAW_NUMBERS),
        "remark": draw(RAW_TEXTS | st.just("null")),
        "serializeTypeCurrentRPC": '"JSON"',
        "version": draw(RAW_NUMBERS),
    }
    names = draw(st.lists(st.sampled_from(JAVA_MEMBERS), unique=True))
    blank, other = draw(BLANKS), draw(BLANKS)
    members = f"{other},{blank}".join(f'"{name}"{blank}:{other}{values[name]}' for name in names)
    return f"{blank}{{{members}}}{other}"


def frame_of(header: bytes, body: bytes = b"", form: HeaderForm = HeaderForm.JSON) -> bytes:
    return (form << 24 | len(header)).to_bytes(4, "big") + header + body


def outcome(frame: bytes) -> tuple[Command | None, str]:
    """What the lenient decoder makes of a frame: a command or why there is none."""
    try:
        return _decode_leniently(frame), ""
    except RemoteProtocolError as error:
        return None, str(error)


def assert_agreed(frame: bytes) -> Command | None:
    """The kernel's command when it parses the frame; the lenient decoder's must be the same to the last member."""
    view = RequestView()
    parts = view.command_parts(frame) if view.parse_frame(frame) else None
    lenient, fault = outcome(frame)
    if parts is None:
        if lenient is None:
            with pytest.raises(RemoteProtocolError) as raised:
                decode_command(frame)
            assert str(raised.value) == fault
        else:
            assert decode_command(frame) == lenient
        return None
    assert lenient is not None, fault
    command = command_of(parts)
    assert command == lenient
    assert list(command.ext_fields) == list(lenient.ext_fields)
    assert command.json_members == lenient.json_members
    assert encode_command(command) == encode_command(lenient)
    return command


@settings(max_examples=400)
@given(header=likely_headers(), body=st.binary(max_size=20))
@example('{"code":1,"language":""}', b"")
@example('{"code":1,"extFields":{"a":"1","a":null}}', b"")
@example('{"code":1,"extFields":{"a":null,"b":"2","a":"1"}}', b"")
@example('{"code":1,"extFields":{"a":"\\ud83d\\u0041"}}', b"")
@example('{"code":1,"extFields":{"a":"\\ud83d\\uffff"}}', b"")
@example('{"code":1,"remark":""}', b"x")
@example("{}", b"")
def test_json_headers_are_read_alike(header: str, body: bytes) -> None:
    assert_agreed(frame_of(header.encode(), body))


@given(header=RAW_HEADERS)
def test_any_json_is_read_alike(header: str) -> None:
    assert_agreed(frame_of(header.encode()))


@st.composite
def binary_headers(draw: st.DrawFn) -> bytes:
    remark = draw(TEXTS).encode() + draw(st.sampled_from([b"", b"", b"", b"\xff"]))
    names = st.sampled_from(["a", "b", "AccessKey", "", "é"])
    fields = draw(st.lists(st.tuples(names, TEXTS), max_size=6))
    entries = b"".join(
        len(name.encode()).to_bytes(2, "big") + name.encode() + len(text.encode()).to_bytes(4, "big") + text.encode()
        for name, text in fields
    )
    sizes = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    code, language, flag = draw(st.sampled_from([10, 310, -1, 0x7FFF])), draw(st.integers(0, 255)), draw(NUMBERS)
    fixed = code.to_bytes(2, "big", signed=True) + bytes([language]) + (407).to_bytes(2, "big")
    numbers = (7).to_bytes(4, "big") + (flag & 0xFFFFFFFF).to_bytes(4, "big") + len(remark).to_bytes(4, "big")
    return fixed + numbers + remark + (len(entries) + sizes).to_bytes(4, "big", signed=True) + entries


@given(header=binary_headers(), body=st.binary(max_size=20))
def test_binary_headers_are_read_alike(header: bytes, body: bytes) -> None:
    assert_agreed(frame_of(header, body, HeaderForm.BINARY))


@given(
    fields=st.dictionaries(TEXTS, TEXTS, max_size=8),
    remark=st.none() | TEXTS,
    form=st.sampled_from(HeaderForm),
    damage=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
)
@example(fields={}, remark="\x1f", form=HeaderForm.JSON, damage=[(97, 128)], cut=0)  # a serialize type beyond UTF-8
def test_damaged_frames_are_read_alike(
    fields: dict[str, str], remark: str | None, form: HeaderForm, damage: list[tuple[int, int]], cut: int
) -> None:
    command = Command(code=310, opaque=7, language=Language.GO, ext_fields=fields, remark=remark, form=form, body=b"b")
    frame = bytearray(encode_command(command)[4:])
    for at, byte in damage:
        frame[at % len(frame)] = byte
    assert_agreed(bytes(frame[: len(frame) - cut] if cut > 20 else frame))


@pytest.mark.parametrize("form", HeaderForm)
@pytest.mark.parametrize("count", [FIELDS_MAX, FIELDS_MAX + 1])
def test_only_very_many_fields_are_left_to_the_lenient_decoder(form: HeaderForm, count: int) -> None:
    fields = {f"f{number}": str(number) for number in range(count)}
    frame = encode_command(Command(code=10, ext_fields=fields, form=form))[4:]
    parsed = assert_agreed(frame)
    assert (parsed is None) == (count > FIELDS_MAX)
    assert dict(decode_command(frame).ext_fields) == fields


@given(fields=st.dictionaries(st.text(st.characters(codec="ascii", exclude_characters='\\"'), min_size=1), TEXTS))
def test_what_clients_write_is_parsed_by_the_kernel(fields: dict[str, str]) -> None:
    """Goal: the lenient decoder is for the unusual; headers as json.dumps writes them never reach it."""
    printable = {name: text for name, text in fields.items() if name.isprintable()}
    header = {"code": 310, "extFields": printable, "flag": 0, "language": "JAVA", "opaque": 1, "version": 407}
    for text in (json.dumps(header), json.dumps(header, ensure_ascii=False)):
        parsed = assert_agreed(frame_of(text.encode()))
        assert parsed is not None
        assert parsed.ext_fields == printable


def test_headers_of_every_member_order_keep_it() -> None:
    """Goal: more orders than are remembered; each is written again as it came."""
    members = [*JAVA_MEMBERS]
    for number in range(600):
        members = [*members[1:], members[0]] if number % 8 else [members[1], members[0], *members[2:][::-1]]
        values = {"language": '"JAVA"', "remark": '"r"', "serializeTypeCurrentRPC": '"JSON"', "extFields": '{"a":"1"}'}
        text = "{" + ",".join(f'"{name}":{values.get(name, 1)}' for name in members[: 1 + number % 8]) + "}"
        parsed = assert_agreed(frame_of(text.encode()))
        assert parsed is not None
        assert parsed.json_members == tuple(members[: 1 + number % 8])
