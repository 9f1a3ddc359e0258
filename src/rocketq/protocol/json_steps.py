"""Reads a long JSON document in steps that take microseconds each, where `fastjson.loads` would take milliseconds.

Objects and lists are walked here as long as they are long; what fits in a few hundred characters is read by the
compiled parser at once. A document that is not strict JSON, or refers to itself, is read by `loads` in one step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any, Final, TypeVar, cast

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.fastjson import NESTING_MAX, STRICT_DECODER, decode_text, loads

Steps = Generator[None, None, Any]

_Result = TypeVar("_Result")

_SHORT_CHARS: Final = 512
_BLANK = re.compile(r"[ \t\n\r]*")


class _NotStrictError(ValueError):
    """The text is none that this reader understands."""


def load_steps(data: bytes) -> Steps:
    """Yields between two steps and returns what `loads` does; RemoteProtocolError when it is no JSON."""
    if len(data) <= _SHORT_CHARS:
        return loads(data)
    text = decode_text(data)
    if '"$ref"' in text or "'$ref'" in text:
        return loads(text)
    try:
        value, end = yield from _value(text, _skip(text, 0), 1)
        if _skip(text, end) < len(text):
            raise _NotStrictError
    except ValueError:
        return loads(text)
    return value


def run_steps(steps: Generator[None, None, _Result]) -> _Result:
    """What they return at their end, at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(_Result, end.value)


def _value(text: str, at: int, depth: int) -> Steps:
    """A value, and where it ends."""
    if depth > NESTING_MAX:
        raise RemoteProtocolError(f"JSON nested deeper than {NESTING_MAX}")
    first = text[at : at + 1]
    if first not in ("{", "["):
        return STRICT_DECODER.raw_decode(text, at)
    start = text[at : at + _SHORT_CHARS]
    if start.count("{") + start.count("[") <= NESTING_MAX - depth:
        try:
            value, length = STRICT_DECODER.raw_decode(start)
            return value, at + length
        except json.JSONDecodeError:
            pass  # it goes on behind these characters, or is bad
    return (yield from (_object(text, at, depth) if first == "{" else _list(text, at, depth)))


def _object(text: str, at: int, depth: int) -> Steps:
    members: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        if members:
            at = _skip(text, _expect(text, at, ","))
        if text[at : at + 1] != '"':
            raise _NotStrictError
        name, at = STRICT_DECODER.raw_decode(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        members[name], at = yield from _value(text, at, depth + 1)
        at = _skip(text, at)
        yield
    return members, at + 1


def _list(text: str, at: int, depth: int) -> Steps:
    items: list[Any] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        if items:
            at = _skip(text, _expect(text, at, ","))
        item, at = yield from _value(text, at, depth + 1)
        items.append(item)
        at = _skip(text, at)
        yield
    return items, at + 1


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _expect(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise _NotStrictError
    return at + 1
