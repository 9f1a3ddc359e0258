"""JSON bodies from one declaration: our name, its type and the wire name on one line.

    @body
    class LockRequest(Body):
        group: str = member("consumerGroup")
        queues: tuple[MessageQueue, ...] = member("mqSet", default=())

Types are str, int, float, bool, a StrEnum (by name or ordinal), another Body, tuple[X, ...], Mapping[K, X] and Any,
each with `| None`. Keys are str, int or a Body (an object as key). As fastjson does, reading ignores unknown members,
takes null for absent and numbers for texts and back; writing sorts members and leaves out None.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import (
    Any,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.fastjson import ObjectKey, dumps, load_steps, loads, write_key, write_text
from rocketq.protocol.values import Value, value

_Class = TypeVar("_Class")
_Body = TypeVar("_Body", bound="Body")
_Source = TypeVar("_Source")
_Entry = TypeVar("_Entry")
_SHORT_COUNT = 32
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}")


def member(name: str, *, default: Any = MISSING, factory: Any = MISSING, also: str = "", twin: str = "") -> Any:
    """A member with its wire name; `also` is another name to read, `twin` another to read and to write."""
    metadata = {"name": name, "also": tuple(filter(None, (also, twin))), "twin": twin}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(member,))
def body(cls: type[_Class]) -> type[_Class]:
    """Make a frozen value of a Body declaration; equal bodies are equal and may be keys."""
    return value(cls)


def lazy_tuple(make: Callable[[_Source], _Entry], sources: Sequence[_Source]) -> tuple[_Entry, ...]:
    """A long tuple of a body that is only encoded: each entry is made when it is written."""
    return cast(tuple[_Entry, ...], _LazyTuple(make, sources))


class _LazyTuple:
    def __init__(self, make: Callable[[Any], Any], sources: Sequence[Any]) -> None:
        self._make = make
        self._sources = sources

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._sources)


class Body(Value):
    """A JSON object with named and typed members."""

    __slots__ = ()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a body; RemoteProtocolError names what is missing or bad."""
        return cls.from_json(loads(data))

    @classmethod
    def decode_steps(cls, data: bytes) -> Generator[None, None, Self]:
        """As `decode`, in steps that take microseconds each."""
        value = yield from load_steps(data)
        return (yield from _read_steps(cls, value))

    def encode(self) -> bytes:
        return dumps(self.to_json())

    @classmethod
    def from_json(cls, value: Any) -> Self:
        return cls(**read_members(cls, value))

    def to_json(self) -> dict[str, Any]:
        written = _plan_of(type(self)).written
        return {
            item.name: item.codec.write(value)
            for item in written
            if (value := getattr(self, item.attribute)) is not None
        }

    def is_short(self) -> bool:
        """Whether `encode` takes well under a millisecond."""
        return all(item.is_short(self) for item in _plan_of(type(self)).long)

    def pieces(self, line: str = "") -> Iterator[str]:
        """What `encode` gives, in pieces each of which takes microseconds to make; `line` as in `write_text`. A table
        may change between two pieces: what is in it when its turn comes is written, each entry as it is then."""
        values = ((item, getattr(self, item.attribute)) for item in _plan_of(type(self)).written)
        entries = ((f'"{item.name}":', item.codec, value) for item, value in values if value is not None)
        return _pieces_of("{", entries, "}", line)


def read_members(cls: type[Body], value: Any, known: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The declared members that are in this object, by our names; `known` were read before."""
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{cls.__name__}: an object was expected, not {type(value).__name__}")
    items = [item for item in _plan_of(cls).items if item.attribute not in known]
    members = {item.attribute: item.read(value, cls.__name__) for item in items}
    return {name: value for name, value in {**members, **known}.items() if value is not None}


def _read_steps(cls: type[_Body], value: Any) -> Generator[None, None, _Body]:
    """Long members of an object are read in steps, then the others with these left out."""
    long = {item.name: item for item in _plan_of(cls).long if isinstance(value, dict) and value.get(item.name)}
    if not long or cls.from_json.__func__ is not Body.from_json.__func__:  # type: ignore[attr-defined]
        return cls.from_json(value)
    members = {}
    for name, item in long.items():
        members[item.attribute] = yield from item.read_steps(value[name], cls.__name__)
        yield
    return cls(**read_members(cls, {name: raw for name, raw in value.items() if name not in long}, members))


class _Codec(NamedTuple):
    """How values of one type are read and written; reading gives None for what counts as absent.

    A value can be long when its type has `pieces`; it is then written with these, unless it `is_short`.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    pieces: Callable[[Any, str], Iterator[str]] | None = None
    is_short: Callable[[Any], bool] = lambda value: True
    read_steps: Callable[[Any], Generator[None, None, Any]] | None = None


def _pieces_of(opening: str, entries: Iterable[tuple[str, _Codec, Any]], closing: str, line: str) -> Iterator[str]:
    """A list or an object: each entry has a text before it, such as its name."""
    inner = line + "\t" if line else ""
    before, end = opening + inner, opening + closing
    for prefix, codec, entry in entries:
        if codec.pieces is None or codec.is_short(entry):
            yield before + prefix + write_text(codec.write(entry), inner)
        else:
            yield before + prefix
            yield from codec.pieces(entry, inner)
        before, end = "," + inner, line + closing
    yield end


class _Item(NamedTuple):
    """One declared member."""

    attribute: str
    name: str
    also: tuple[str, ...]
    twin: str
    codec: _Codec
    required: bool

    def is_short(self, owner: Body) -> bool:
        value = getattr(owner, self.attribute)
        return value is None or self.codec.is_short(value)

    def read(self, value: dict[Any, Any], owner: str) -> Any:
        """The member's value; None lets the default stand."""
        raw = self._raw(value)
        try:
            found = None if raw is None else self.codec.read(raw)
        except ValueError as error:
            raise RemoteProtocolError(f"{owner}.{self.name}: {error}") from None
        if found is None and self.required:
            raise RemoteProtocolError(f"{owner}.{self.name} is missing")
        return found

    def read_steps(self, raw: Any, owner: str) -> Generator[None, None, Any]:
        """As `read`, for a value that is present."""
        if self.codec.read_steps is None:
            return self.read({self.name: raw}, owner)
        try:
            return (yield from self.codec.read_steps(raw))
        except ValueError as error:
            raise RemoteProtocolError(f"{owner}.{self.name}: {error}") from None

    def _raw(self, value: dict[Any, Any]) -> Any:
        for name in (self.name, *self.also):
            if (found := value.get(name)) is not None:
                return found
        return None


class _Plan(NamedTuple):
    """How a body class is read and written."""

    items: tuple[_Item, ...]
    written: tuple[_Item, ...]
    """In the order of their names; a member with a second name is written twice."""
    long: tuple[_Item, ...]
    """Those that may be long."""


_plans: dict[type[Body], _Plan] = {}


def _plan_of(cls: type[Body]) -> _Plan:
    """The plan of a body class, made at its first use."""
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _make_plan(cls)
    return plan


def _make_plan(cls: type[Body]) -> _Plan:
    hints = get_type_hints(cls)
    items = tuple(
        _Item(
            attribute=item.name,
            name=item.metadata["name"],
            also=item.metadata["also"],
            twin=item.metadata["twin"],
            codec=_codec(hints[item.name]),
            required=item.default is MISSING and item.default_factory is MISSING,
        )
        for item in fields(cls)  # type: ignore[arg-type]
    )
    twins = tuple(item._replace(name=item.twin) for item in items if item.twin)
    return _Plan(
        items=items,
        written=tuple(sorted(items + twins, key=lambda item: item.name)),
        long=tuple(item for item in items if item.codec.pieces is not None),
    )


def _codec(hint: Any) -> _Codec:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
        return _codec(hint)
    if origin is tuple:
        return _tuple_codec(_codec(get_args(hint)[0]))
    if origin in (Mapping, dict):
        key, value = get_args(hint)
        return _mapping_codec(_key_codec(key), _codec(value))
    if hint is Any:
        return _Codec(_same, _same)
    if issubclass(hint, Body):
        if _plan_of(hint).long:
            return _Codec(hint.from_json, hint.to_json, hint.pieces, hint.is_short, partial(_read_steps, hint))
        return _Codec(hint.from_json, hint.to_json)
    if issubclass(hint, StrEnum):
        return _Codec(lambda value: _read_enum(hint, value), str)
    return _SCALARS[hint]


def _tuple_codec(item: _Codec) -> _Codec:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"a list was expected, not {type(value).__name__}")
        return tuple(item.read(entry) for entry in value if entry is not None)

    def pieces(value: Any, line: str) -> Iterator[str]:
        return _pieces_of("[", (("", item, entry) for entry in value), "]", line)

    def is_short(value: Any) -> bool:
        return len(value) <= _SHORT_COUNT and (item.pieces is None or all(item.is_short(entry) for entry in value))

    def read_steps(value: Any) -> Generator[None, None, tuple[Any, ...]]:
        if not isinstance(value, list):
            return read(value)
        found = []
        for entry in value:
            if entry is not None:
                found.append(item.read(entry))
            yield
        return tuple(found)

    return _Codec(read, lambda value: [item.write(entry) for entry in value], pieces, is_short, read_steps)


def _mapping_codec(key: _Codec, item: _Codec) -> _Codec:
    def read(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"an object was expected, not {type(value).__name__}")
        return {key.read(name): item.read(entry) for name, entry in value.items() if entry is not None}

    def pieces(value: Any, line: str) -> Iterator[str]:
        entries = ((write_key(key.write(name)) + ":", item, entry) for name, entry in tuple(value.items()))
        return _pieces_of("{", entries, "}", line)

    def is_short(value: Any) -> bool:
        if len(value) > _SHORT_COUNT:
            return False
        return item.pieces is None or all(item.is_short(entry) for entry in value.values())

    def read_steps(value: Any) -> Generator[None, None, dict[Any, Any]]:
        if not isinstance(value, dict):
            return read(value)
        found = {}
        for name, entry in value.items():
            if entry is not None:
                found[key.read(name)] = item.read(entry)
            yield
        return found

    return _Codec(
        read,
        lambda value: {key.write(name): item.write(entry) for name, entry in value.items()},
        pieces,
        is_short,
        read_steps,
    )


def _key_codec(hint: Any) -> _Codec:
    if hint is str:
        return _Codec(_read_text_key, str)
    if hint is int:
        return _Codec(_read_int, str)
    return _Codec(lambda key: hint.from_json(_key_members(key)), lambda value: ObjectKey.of(value.to_json()))


def _key_members(key: str | ObjectKey) -> Any:
    """An object key as fastjson writes it, or as a text that holds the object's JSON."""
    return key.members if isinstance(key, ObjectKey) else loads(key)


def _read_text_key(key: Any) -> str:
    return key.text if isinstance(key, ObjectKey) else str(key)


def _same(value: Any) -> Any:
    return value


def _read_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    return dumps(value).decode()


def _read_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueError(f"a whole number was expected: {str(value)[:40]!r}")


def _read_float(value: Any) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise ValueError(f"a number was expected: {str(value)[:40]!r}")


def _read_bool(value: Any) -> bool:
    if isinstance(value, str):
        return value == "1" or value.lower() == "true"
    if isinstance(value, (bool, int)):
        return bool(value)
    raise ValueError(f"true or false was expected: {str(value)[:40]!r}")


def _read_enum(kind: type[StrEnum], value: Any) -> StrEnum | None:
    """By name or ordinal; what we do not know counts as absent, as for Java."""
    members = list(kind)
    if type(value) is int:
        return members[value] if 0 <= value < len(members) else None
    if isinstance(value, str):
        return kind.__members__.get(value)
    raise ValueError(f"a name was expected: {str(value)[:40]!r}")


_SCALARS: dict[Any, _Codec] = {
    str: _Codec(_read_str, _same),
    int: _Codec(_read_int, int),
    float: _Codec(_read_float, float),
    bool: _Codec(_read_bool, bool),
}
