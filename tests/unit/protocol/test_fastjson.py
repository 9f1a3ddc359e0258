"""The dialect of Java's JSON library: what we read, what we write."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.protocol.fastjson import NESTING_MAX, ObjectKey, dumps, loads

QUEUE = {"brokerName": "broker-a", "queueId": 0, "topic": "T"}

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ('{"0":"a"}', {"0": "a"}),
        ("{-1:2}", {"-1": 2}),
        ("{name:1,$x_2:null}", {"name": 1, "$x_2": None}),
        ("{'it':'say \"yes\" and \\'no\\''}", {"it": "say \"yes\" and 'no'"}),
        ("{'tab':'a\\tb\\u0041'}", {"tab": "a\tbA"}),
        ('{"a":[1,2,],}', {"a": [1, 2]}),
        ('{,"a":1,,"b":2}', {"a": 1, "b": 2}),
        ('/* one */ {"a":1 // two\n}', {"a": 1}),
        ("{0:1.5e3,1:-7,2:true,3:[]}", {"0": 1500.0, "1": -7, "2": True, "3": []}),
        ('{"a":"line\nbreak"}', {"a": "line\nbreak"}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('"text"', "text"),
        ("{0:{},0:{}}", {"0": {}}),
        (" \ufeff{0:1} ", {"0": 1}),
    ],
)
def test_the_dialect_reads_as_plain_values(text: str, value: object) -> None:
    """Goal: quoted and bare keys, quotes of both kinds, stray commas and comments all mean the same."""
    assert loads(text) == value
    assert loads(text.encode()) == value


def test_objects_as_keys_become_object_keys() -> None:
    """Goal: message queues as map keys survive reading and are written back byte for byte."""
    text = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:10}}'
    value = loads(text)
    assert value == {"offsetTable": {ObjectKey.of(QUEUE): 10}}
    assert next(iter(value["offsetTable"])).members == QUEUE
    assert dumps(value) == text


def test_object_keys_do_not_depend_on_member_order() -> None:
    assert ObjectKey.of(QUEUE) == ObjectKey.of(dict(reversed(QUEUE.items())))
    assert loads('{{"topic":"T","queueId":0,"brokerName":"broker-a"}:1}') == {ObjectKey.of(QUEUE): 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"10.0.0.9@1":{"x":1}},"b":{"$ref":"$.a.10\\\\.0\\\\.0\\\\.9\\\\@1"}}', {"x": 1}),
        ('{"a":[{"x":1}],"b":{"$ref":"$.a[0]"}}', {"x": 1}),
        ('{"a":{0:{"x":1}},"b":{"$ref":"$.a[0]"}}', {"x": 1}),
        ('{"a":{"x":1},"b":{"$ref":"$.nowhere"}}', {"$ref": "$.nowhere"}),
        ('{"a":{"x":1},"b":{"$ref":"@"}}', {"$ref": "@"}),
        ('{"a":{"x":1},"b":{"$ref":".."}}', {"$ref": ".."}),
        ('{"a":{"x":1},"b":{"$ref":"$"}}', {"$ref": "$"}),
    ],
)
def test_references_are_followed_when_they_end_outside_themselves(text: str, value: object) -> None:
    """Goal: an object mentioned twice reads as two equal ones; a cycle stays a reference."""
    assert loads(text)["b"] == value


def test_references_to_references_are_left_alone() -> None:
    """Goal: a small document of references can not unfold into a huge one."""
    layers = ",".join(f'"k{n}":[{{"$ref":"$.k{n - 1}"}},{{"$ref":"$.k{n - 1}"}}]' for n in range(1, 60))
    value = loads('{"k0":[1],' + layers + "}")
    assert value["k1"] == [[1], [1]]
    assert value["k3"] == [{"$ref": "$.k2"}, {"$ref": "$.k2"}]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "}",
        "{1}",
        "{1:}",
        "[1",
        "[1 2]",
        '{"a" 1}',
        "'open",
        '"open',
        '{"a":1}x',
        "NaN",
        "[nope]",
        "-",
        "{'a\\':1}",
        "9" * 5000,
        "{0:" + "9" * 5000 + "}",
        "{{{1:2}:3}:4}",
        "{{1:{{}:3}}:4}",
        "1e999",
        "{0:-1e999}",
        "/*",
        "{0:1}/",
        '{0:"\\u12"}',
    ],
)
def test_garbage_is_refused_with_a_clear_error(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        loads(text)


def test_the_error_names_the_position() -> None:
    with pytest.raises(RemoteProtocolError, match="character 6"):
        loads("{0:1, @}")


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="byte 2"):
        loads(b'{"\xff":1}')


@pytest.mark.parametrize("opening", ["[", '{"a":', "{0:", "{"])
@pytest.mark.parametrize("depth", [NESTING_MAX + 1, 100_000])
def test_nesting_is_bounded(opening: str, depth: int) -> None:
    """Goal: a deep document is an error of the peer, never an exhausted stack."""
    with pytest.raises(RemoteProtocolError):
        loads(opening * depth)
    closing = {"[": "]"}.get(opening, "}")
    with pytest.raises(RemoteProtocolError):
        loads(opening * depth + "0" + closing * depth)


def test_nesting_up_to_the_limit_is_fine() -> None:
    assert loads("[" * NESTING_MAX + "]" * NESTING_MAX)
    assert loads("[" * (NESTING_MAX - 1) + "{0:1}" + "]" * (NESTING_MAX - 1))


def test_output_is_compact_raw_utf8_with_quoted_integer_keys() -> None:
    assert (
        dumps({0: "标签", "a": [1, 0.0, None, True], "e": {}}) == '{"0":"标签","a":[1,0.0,null,true],"e":{}}'.encode()
    )
    assert dumps("\x01\x02") == b'"\\u0001\\u0002"'


def test_pretty_output_uses_tabs() -> None:
    value = {"a": {"b": [1, 2]}, "c": {}}
    expected = b'{\n\t"a":{\n\t\t"b":[\n\t\t\t1,\n\t\t\t2\n\t\t]\n\t},\n\t"c":{}\n}'
    assert dumps(value, pretty=True) == expected
    mixed = dumps({**value, "d": {ObjectKey.of({"x": 1}): 1}}, pretty=True)
    assert mixed == expected[:-2] + b',\n\t"d":{\n\t\t{"x":1}:1\n\t}\n}'


def test_the_slow_writer_agrees_with_the_fast_one() -> None:
    value = {"s": "x", 2: 2, None: 1, True: False, 1.5: [(), [{}]]}
    assert dumps({**value, "k": {ObjectKey.of({}): 1}}) == dumps(value)[:-1] + b',"k":{{}:1}}'


@pytest.mark.parametrize(
    "value", [float("nan"), object(), {(1, 2): 3}, {"a": {ObjectKey.of({}): float("inf")}}, b"raw"]
)
def test_what_json_cannot_carry_is_a_local_error(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        dumps(value)


def test_lone_surrogates_are_written_as_question_marks() -> None:
    assert dumps(loads('"\\ud800"')) == b'"?"'


@given(PLAIN)
def test_what_is_written_reads_back(value: object) -> None:
    assert loads(dumps(value)) == json.loads(json.dumps(value).encode("utf-8", "replace")) or "\\ud" in json.dumps(
        value
    )


@given(st.dictionaries(st.dictionaries(st.text("ab:{},\"'\\"), st.integers()).map(ObjectKey.of), PLAIN, min_size=1))
def test_object_keys_read_back(value: dict[ObjectKey, object]) -> None:
    """Goal: braces, quotes and colons inside the key's own texts do not confuse the reader."""
    assert loads(dumps(value)) == value or "\\ud" in json.dumps(list(value.values()))


@given(st.text("{}[]:,'\"\\01a$ref./*-en \n", max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(RemoteProtocolError):
        loads(text)


@given(st.binary(max_size=60))
def test_any_bytes_parse_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        loads(data)
