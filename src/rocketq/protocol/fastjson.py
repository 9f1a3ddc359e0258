"""JSON as Java's fastjson writes and reads it: `loads` reads its dialect, `dumps` writes what every client can read.

The dialect adds to strict JSON:

    {0:"a",1:"b"}                      bare numbers and names as keys
    {{"queueId":0,"topic":"T"}:10}     objects as keys
    {'a':1,}  /* and */  // comments   single quotes, stray commas, comments
    {"$ref":"$.table.key"}             the path to the first copy of an object that occurs again

`loads` returns dict, list, str, int, float, bool and None. A key that was an object becomes an ObjectKey. Every other
key becomes text, so `{0:1}` and `{"0":1}` both read as `{"0": 1}`.

References:

    {"$ref":"$.consumerTable.10\\.0\\.0\\.9\\@1"}    from the root; a backslash escapes the next character
    {"$ref":"$"}  {"$ref":"@"}  {"$ref":".."}        the root, the object itself, its parent: cycles

A reference is replaced by its target unless the target contains references itself. So neither a cycle nor an
exponentially large document can arise. References that are not replaced stay `{"$ref": path}`.

`load_steps` reads a long document in steps of microseconds, where `loads` takes milliseconds. It walks objects and
lists that are long, and parses a value of a few hundred characters with the compiled parser. A document in the dialect
is read one member per step. References are resolved in one step at the end.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar, cast

from rocketq.errors import LocalProtocolError, RemoteProtocolError

NESTING_MAX = 128

Steps = Generator[None, None, Any]
_Result = TypeVar("_Result")

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


def loads(data: bytes | str, *, relaxed_chars_max: int | None = None) -> Any:
    """Read one document in fastjson's dialect; RemoteProtocolError, with the position, when it is not one.

    A document longer than `relaxed_chars_max` must be strict JSON, which is parsed about 100 times faster.
    """
    text = data if isinstance(data, str) else decode_text(data)
    try:
        value = STRICT_DECODER.decode(text) if text else _fail("empty", 0)
    except RecursionError:
        raise RemoteProtocolError(f"JSON nested deeper than {NESTING_MAX}") from None
    except ValueError as error:
        if relaxed_chars_max is not None and len(text) > relaxed_chars_max:
            raise RemoteProtocolError(f"bad JSON in a text of over {relaxed_chars_max} characters: {error}") from None
        value = run_steps(_Reader(text).document())
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
    """Enforce NESTING_MAX, which the stdlib lacks; only a text with many brackets is checked."""
    if text.count("{") + text.count("[") <= NESTING_MAX:
        return
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        if depth > NESTING_MAX:
            raise RemoteProtocolError(f"JSON nested deeper than {NESTING_MAX}")
        level = [item for parent in level for item in (parent.values() if isinstance(parent, dict) else parent)]


class _Reader:
    """Recursive descent over the dialect, for text the stdlib rejects; yields after each member."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> Steps:
        self._skip(_BLANK)
        value = yield from self._value(1)
        self._skip(_BLANK)
        if self._at < len(self._text):
            _fail("text after the document", self._at)
        return value

    def _value(self, depth: int) -> Steps:
        match self._text[self._at : self._at + 1]:
            case "{":
                return (yield from self._object(depth))
            case "[":
                return (yield from self._array(depth))
        return self._scalar()

    def _scalar(self) -> Any:
        if self._text[self._at : self._at + 1] in ('"', "'"):
            return self._string()
        if found := _NUMBER.match(self._text, self._at):
            return self._number(found)
        word = self._take(_NAME, "a value was expected")
        if word not in _WORDS:
            _fail(f"unknown word {word[:20]!r}", self._at - len(word))
        return _WORDS[word]

    def _object(self, depth: int) -> Steps:
        members: dict[Any, Any] = {}
        self._open(depth)
        while self._more("}"):
            key = yield from self._key(depth)
            self._skip(_BLANK)
            if self._text[self._at : self._at + 1] != ":":
                _fail("a colon was expected", self._at)
            self._at += 1
            self._skip(_BLANK)
            members[key] = yield from self._value(depth + 1)
            self._separator("}")
            yield
        return members

    def _key(self, depth: int) -> Steps:
        match self._text[self._at : self._at + 1]:
            case '"' | "'":
                return self._string()
            case "{":
                return (yield from self._object_key(depth))
        if found := _NUMBER.match(self._text, self._at):
            self._at = found.end()
            return found.group()
        return self._take(_NAME, "a key was expected")

    def _object_key(self, depth: int) -> Steps:
        start = self._at
        members = yield from self._object(depth + 1)
        try:
            return ObjectKey.of(members)
        except TypeError:
            _fail("an object key inside an object key", start)

    def _array(self, depth: int) -> Steps:
        items: list[Any] = []
        self._open(depth)
        while self._more("]"):
            items.append((yield from self._value(depth + 1)))
            self._separator("]")
            yield
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


_REFERENCE_STEP = re.compile(r"\.((?:[^\\.\[]|\\.)+)|\[(\d{1,9})\]", re.DOTALL)
_REFERENCE_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MISSING = object()


def resolve_references(document: Any) -> Any:
    """Replace the references in a document, in place."""
    holders: dict[int, bool] = {}
    _mark_reference_holders(document, holders)
    _replace_references(document, document, holders)
    return document


def _mark_reference_holders(node: Any, holders: dict[int, bool]) -> bool:
    """Note, by identity, every container with a reference somewhere inside (a reference is one itself)."""
    if not isinstance(node, (dict, list)):
        return False
    children = node.values() if isinstance(node, dict) else node
    inside = [_mark_reference_holders(child, holders) for child in children]
    holders[id(node)] = _reference_path(node) is not None or any(inside)
    return holders[id(node)]


def _replace_references(node: Any, root: Any, holders: dict[int, bool]) -> None:
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in list(entries):
        path = _reference_path(child)
        target = _MISSING if path is None else _resolve_path(path, root)
        if target is not _MISSING and not holders.get(id(target), False):
            node[key] = target
        elif holders.get(id(child), False):
            _replace_references(child, root, holders)


def _reference_path(node: Any) -> str | None:
    if not isinstance(node, dict) or len(node) != 1:
        return None
    path = node.get("$ref")
    return path if isinstance(path, str) else None


def _resolve_path(path: str, root: Any) -> Any:
    """What a `$...` path points at, or _MISSING."""
    if not path.startswith("$"):
        return _MISSING
    at, node = 1, root
    while at < len(path):
        found = _REFERENCE_STEP.match(path, at)
        if found is None:
            return _MISSING
        node = _resolve_step(node, found)
        if node is _MISSING:
            return _MISSING
        at = found.end()
    return node


def _resolve_step(node: Any, found: re.Match[str]) -> Any:
    name, index = found.groups()
    if isinstance(node, dict):
        return node.get(_REFERENCE_ESCAPE.sub(r"\1", name) if name is not None else index, _MISSING)
    if isinstance(node, list) and index is not None and int(index) < len(node):
        return node[int(index)]
    return _MISSING


_SHORT_CHARS: Final = 512
_STRICT_BLANK = re.compile(r"[ \t\n\r]*")


class _NotStrictError(ValueError):
    """The text is none that this reader understands."""


def load_steps(data: bytes) -> Steps:
    """Yields between two steps and returns what `loads` does; RemoteProtocolError when it is no JSON."""
    if len(data) <= _SHORT_CHARS:
        return loads(data)
    text = decode_text(data)
    try:
        value, end = yield from _value_steps(text, _skip_blank(text, 0), 1)
        if _skip_blank(text, end) < len(text):
            raise _NotStrictError
    except ValueError:
        value = yield from _Reader(text).document()
    return resolve_references(value) if '"$ref"' in text or "'$ref'" in text else value


def run_steps(steps: Generator[None, None, _Result]) -> _Result:
    """Run all steps without a pause and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(_Result, end.value)


def _value_steps(text: str, at: int, depth: int) -> Steps:
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
            pass  # longer than these characters, or invalid
    return (yield from (_object_steps(text, at, depth) if first == "{" else _list_steps(text, at, depth)))


def _object_steps(text: str, at: int, depth: int) -> Steps:
    members: dict[str, Any] = {}
    at = _skip_blank(text, at + 1)
    while text[at : at + 1] != "}":
        if members:
            at = _skip_blank(text, _expect(text, at, ","))
        if text[at : at + 1] != '"':
            raise _NotStrictError
        name, at = STRICT_DECODER.raw_decode(text, at)
        at = _skip_blank(text, _expect(text, _skip_blank(text, at), ":"))
        members[name], at = yield from _value_steps(text, at, depth + 1)
        at = _skip_blank(text, at)
        yield
    return members, at + 1


def _list_steps(text: str, at: int, depth: int) -> Steps:
    items: list[Any] = []
    at = _skip_blank(text, at + 1)
    while text[at : at + 1] != "]":
        if items:
            at = _skip_blank(text, _expect(text, at, ","))
        item, at = yield from _value_steps(text, at, depth + 1)
        items.append(item)
        at = _skip_blank(text, at)
        yield
    return items, at + 1


def _skip_blank(text: str, at: int) -> int:
    found = _STRICT_BLANK.match(text, at)
    return at if found is None else found.end()


def _expect(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise _NotStrictError
    return at + 1
