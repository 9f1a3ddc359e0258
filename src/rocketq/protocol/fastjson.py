"""JSON as Java's fastjson writes and reads it: `loads` takes its dialect, `dumps` writes what every client can read.

Beyond strict JSON the dialect has

    {0:"a",1:"b"}                      bare numbers and names as keys
    {{"queueId":0,"topic":"T"}:10}     objects as keys
    {'a':1,}  /* and */  // comments   single quotes, stray commas, comments
    {"$ref":"$.table.key"}             an object that was already written elsewhere in the document

What `loads` returns is plain (dict, list, str, int, float, bool, None) with one addition: a key that was an object is
an ObjectKey. Every other key is text, so `{0:1}` and `{"0":1}` read alike as `{"0": 1}`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.protocol.references import resolve_references

NESTING_MAX = 128

_BLANK = re.compile(r"(?:[\s\ufeff]+|/\*.*?\*/|//[^\n]*(?:\n|\Z))*", re.DOTALL)
_BLANK_OR_COMMAS = re.compile(r"(?:[\s,]+|/\*.*?\*/|//[^\n]*(?:\n|\Z))*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*")
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_REQUOTE = re.compile(r"\\.|\"", re.DOTALL)
_STRINGS = json.JSONDecoder(strict=False)
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_NESTED = (dict, list, tuple)
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "undefined": None}


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """An object that is the key of a map; `text` is its compact JSON with sorted members, and its identity."""

    text: str

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> ObjectKey:
        return cls(_write_strict(dict(sorted(members.items()))))

    @property
    def members(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.text)
        return value


def loads(data: bytes | str) -> Any:
    """Read one document in fastjson's dialect; RemoteProtocolError, with the position, when it is not one."""
    text = data if isinstance(data, str) else decode_text(data)
    try:
        value = STRICT_DECODER.decode(text) if text else _fail("empty", 0)
    except RecursionError:
        raise RemoteProtocolError(f"JSON nested deeper than {NESTING_MAX}") from None
    except ValueError:
        value = _Reader(text).document()
    _check_nesting(text, value)
    return resolve_references(value) if '"$ref"' in text or "'$ref'" in text else value


def dumps(value: Any, *, pretty: bool = False) -> bytes:
    """Write compact JSON, or with `pretty` the tabbed form of Java's config files.

    Raw UTF-8, members in the order given. Integer keys are quoted, as every client accepts; ObjectKeys are written
    inline, which only fastjson (and Go, for reset offsets) reads.
    """
    return to_bytes(write_text(value, "\n" if pretty else ""))


def write_text(value: Any, line: str = "") -> str:
    """A value inside a document; `line` is the break and indent of its level there, empty in the compact form."""
    try:
        return _write_lines(value, line) if line else _write_strict(value)
    except TypeError:
        return _write(value, line)
    except (ValueError, RecursionError) as error:
        raise LocalProtocolError(f"not writable as JSON: {error}") from None


def to_bytes(text: str) -> bytes:
    """A lone surrogate becomes "?", as Java writes it."""
    return text.encode("utf-8", "replace")


def decode_text(data: bytes) -> str:
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"JSON is not UTF-8 at byte {error.start}") from None


def _fail(what: str, at: int) -> NoReturn:
    raise RemoteProtocolError(f"bad JSON at character {at}: {what}")


def _finite(text: str) -> float:
    """JSON has no infinity, so what was read can always be written."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


STRICT_DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=_no_constant)


def _check_nesting(text: str, value: Any) -> None:
    """The stdlib has no nesting limit of its own; only a text with many brackets can be too deep."""
    if text.count("{") + text.count("[") <= NESTING_MAX:
        return
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        if depth > NESTING_MAX:
            raise RemoteProtocolError(f"JSON nested deeper than {NESTING_MAX}")
        level = [item for parent in level for item in (parent.values() if isinstance(parent, dict) else parent)]


class _Reader:
    """Recursive descent over the dialect, for what the stdlib refuses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> Any:
        self._skip(_BLANK)
        value = self._value(1)
        self._skip(_BLANK)
        if self._at < len(self._text):
            _fail("text after the document", self._at)
        return value

    def _value(self, depth: int) -> Any:
        match self._text[self._at : self._at + 1]:
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case '"' | "'":
                return self._string()
        if found := _NUMBER.match(self._text, self._at):
            return self._number(found)
        word = self._take(_NAME, "a value was expected")
        if word not in _WORDS:
            _fail(f"unknown word {word[:20]!r}", self._at - len(word))
        return _WORDS[word]

    def _object(self, depth: int) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        self._open(depth)
        while self._more("}"):
            key = self._key(depth)
            self._skip(_BLANK)
            if self._text[self._at : self._at + 1] != ":":
                _fail("a colon was expected", self._at)
            self._at += 1
            self._skip(_BLANK)
            members[key] = self._value(depth + 1)
            self._separator("}")
        return members

    def _key(self, depth: int) -> str | ObjectKey:
        match self._text[self._at : self._at + 1]:
            case '"' | "'":
                return self._string()
            case "{":
                return self._object_key(depth)
        if found := _NUMBER.match(self._text, self._at):
            self._at = found.end()
            return found.group()
        return self._take(_NAME, "a key was expected")

    def _object_key(self, depth: int) -> ObjectKey:
        start = self._at
        try:
            return ObjectKey.of(self._object(depth + 1))
        except TypeError:
            _fail("an object key inside an object key", start)

    def _array(self, depth: int) -> list[Any]:
        items = []
        self._open(depth)
        while self._more("]"):
            items.append(self._value(depth + 1))
            self._separator("]")
        return items

    def _open(self, depth: int) -> None:
        if depth > NESTING_MAX:
            raise RemoteProtocolError(f"JSON nested deeper than {NESTING_MAX}")
        self._at += 1

    def _more(self, closing: str) -> bool:
        """Whether another item follows; steps over stray commas, and over the closing bracket when not."""
        self._skip(_BLANK_OR_COMMAS)
        if self._text[self._at : self._at + 1] == closing:
            self._at += 1
            return False
        return True

    def _separator(self, closing: str) -> None:
        self._skip(_BLANK)
        if self._text[self._at : self._at + 1] not in (",", closing):
            _fail(f"a comma or {closing} was expected", self._at)

    def _string(self) -> str:
        start = self._at
        try:
            if self._text[start] == '"':
                value, self._at = _STRINGS.raw_decode(self._text, start)
                return str(value)
            quoted = self._take(_SINGLE_QUOTED, "unterminated text")
            return str(_STRINGS.decode(f'"{_REQUOTE.sub(_requote, quoted[1:-1])}"'))
        except json.JSONDecodeError as error:
            _fail(f"bad text ({error.msg})", start)

    def _number(self, found: re.Match[str]) -> int | float:
        self._at = found.end()
        try:
            return _finite(found.group()) if found[1] or found[2] else int(found.group())
        except ValueError as error:
            _fail(f"bad number ({error})", found.start())

    def _take(self, pattern: re.Pattern[str], otherwise: str) -> str:
        found = pattern.match(self._text, self._at) or _fail(otherwise, self._at)
        self._at = found.end()
        return found.group()

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at


def _requote(found: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(found.group(), found.group())


def _write_strict(value: Any, indent: str | None = None) -> str:
    if indent is None:
        return _COMPACT.encode(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), indent=indent)


def _write_lines(value: Any, line: str) -> str:
    """The tabbed form. An object of plain members is written by the compiled writer, which knows no indents."""
    if not isinstance(value, dict) or not value or any(item and isinstance(item, _NESTED) for item in value.values()):
        return _write_strict(value, indent="\t").replace("\n", line)
    inner = line + "\t"
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=("," + inner, ":"))
    return "{" + inner + text[1:-1] + line + "}"


def _write(value: Any, line: str) -> str:
    """The slow writer, for values with ObjectKeys in them; `line` is the break and indent of this level, or empty."""
    inner = line + "\t" if line else ""
    match value:
        case dict() if value:
            items = [f"{write_key(key)}:{_write(item, inner)}" for key, item in value.items()]
            return "{" + inner + f",{inner}".join(items) + line + "}"
        case list() | tuple() if value:
            return "[" + inner + f",{inner}".join(_write(item, inner) for item in value) + line + "]"
    try:
        return _write_strict(value)
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"not writable as JSON: {error}") from None


def write_key(key: Any) -> str:
    """A member's name with its quotes; an ObjectKey inline."""
    match key:
        case ObjectKey():
            return key.text
        case str():
            return _write_strict(key)
        case bool() | None:
            return f'"{_write_strict(key)}"'
        case int() | float():
            return f'"{key}"'
    raise LocalProtocolError(f"not a JSON key: {key!r}")
