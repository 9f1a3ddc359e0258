"""Long JSON read in steps: what `loads` and `decode` give, and the same errors."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocol.test_body_pieces import TABLES, bodies_of

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies import Body
from rocketq.protocol.bodies.registration import Registration, compress_parts, decode_registration
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.fastjson import dumps, load_steps, loads, run_steps

LONG = "x" * 600
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
    | st.just(LONG),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.just(LONG), inner, max_size=4),
    max_leaves=30,
)  # fmt: skip


def outcome(read: Callable[[], object]) -> object:
    """What is read, or what is said to be wrong with it."""
    try:
        return read()
    except RemoteProtocolError as error:
        return str(error)


@settings(deadline=None)
@given(value=VALUES, pretty=st.booleans())
def test_steps_read_what_is_read_at_once(value: object, pretty: bool) -> None:
    text = dumps([LONG, value], pretty=pretty)
    assert run_steps(load_steps(text)) == loads(text)


@settings(deadline=None)
@given(value=VALUES, at=st.integers(0, 2_000), mark=st.sampled_from([*'{}[],:"x1 ', ""]))
def test_what_is_no_json_is_the_same_error_in_steps(value: object, at: int, mark: str) -> None:
    """Goal: one character more or less; the dialect beyond strict JSON is read too."""
    text = json.dumps([LONG, value, LONG])
    bad = (text[: at % len(text)] + mark + text[at % len(text) + 1 :]).encode()
    assert outcome(lambda: run_steps(load_steps(bad))) == outcome(lambda: loads(bad))


def test_depth_is_limited_in_steps_too() -> None:
    deep = b"[" * 200 + b'"' + LONG.encode() + b'"' + b"]" * 200
    with pytest.raises(RemoteProtocolError, match="nested deeper"):
        run_steps(load_steps(deep))


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_bodies_in_steps_are_those_at_once(kind: type[Body], data: st.DataObject) -> None:
    encoded = data.draw(bodies_of(kind, 12)).encode()
    assert outcome(lambda: run_steps(kind.decode_steps(encoded))) == outcome(lambda: kind.decode(encoded))


@pytest.mark.parametrize("bad", [b'{"topicConfigTable":{"T":{"perm":6}}}', b'{"topicConfigTable":[1]}', b"[]"])
def test_a_bad_table_is_named(bad: bytes) -> None:
    for read in (TopicConfigTable.decode, lambda data: run_steps(TopicConfigTable.decode_steps(data))):
        with pytest.raises(RemoteProtocolError, match="TopicConfig"):
            read(bad)


def test_a_long_compressed_registration() -> None:
    """Goal: it is inflated and read in steps, and is what was compressed."""
    topics = {f"T{number}": TopicConfig(topic=f"T{number}", attributes={"a": "b"}) for number in range(3_000)}
    registration = Registration(topics=TopicConfigTable(topics=topics))
    packed = compress_parts(registration.compressed_parts(479))
    assert decode_registration(packed, compressed=True, version=479) == registration
    with pytest.raises(RemoteProtocolError, match="truncated"):
        decode_registration(packed[:-40], compressed=True, version=479)
