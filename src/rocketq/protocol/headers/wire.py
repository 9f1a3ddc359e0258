"""Typed headers from one declaration: our name, its type and the wire name on one line.

    @header
    class PullRequest(Header):
        CODE: ClassVar = RequestCode.PULL_MESSAGE
        group: str = wire("consumerGroup")
        queue_id: I32 = wire("queueId")
        hold_ms: I64 = wire("suspendTimeoutMillis", default=0)

Types are str, bool, I32, I64, an IntEnum or a StrEnum, each with `| None` when absence means something. An empty
text counts as absent, since binary headers do not distinguish the two.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import IntEnum, StrEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.values import Value, value

I32 = Annotated[int, 32]
I64 = Annotated[int, 64]

_Class = TypeVar("_Class")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}")
_SMALL_DIGITS = 10  # a number of fewer fits in 32 bits


class BadFieldError(RemoteProtocolError):
    """An ext field is missing or does not hold what it should; the request is refused, the connection stays."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"ext field {name}: {reason}")
        self.name = name
        self.reason = reason


def wire(name: str, *, default: Any = MISSING, letter: str = "", also: str = "") -> Any:
    """A field with its wire name; `letter` is its name in V2 sends, `also` an older name that is read as well."""
    return field(default=default, metadata={"names": (name, *filter(None, (also,))), "letter": letter})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire,))
def header(cls: type[_Class]) -> type[_Class]:
    """Make a frozen value of a Header declaration."""
    return value(cls)


class Header(Value):
    """Ext fields with names and types; CODE is the request they belong to, None for an answer's."""

    __slots__ = ()
    CODE: ClassVar[RequestCode | None] = None

    @classmethod
    def decode(cls, ext_fields: Mapping[str, str]) -> Self:
        """Read the fields; BadFieldError names the first that is missing or bad. Others are ignored."""
        return cls(**_read_all(_plan_of(cls).by_name, ext_fields))

    @classmethod
    def decode_letters(cls, ext_fields: Mapping[str, str]) -> Self:
        """As `decode`, with the one-letter names of V2 sends."""
        return cls(**_read_all(_plan_of(cls).by_letter, ext_fields))

    def encode(self) -> dict[str, str]:
        """The ext fields, all texts; what is None is left out."""
        return _write_all(_plan_of(type(self)).by_name, self)

    def encode_letters(self) -> dict[str, str]:
        """As `encode`, with the one-letter names of V2 sends."""
        return _write_all(_plan_of(type(self)).by_letter, self)


class _Item(NamedTuple):
    """How one declared field is read and written."""

    attribute: str
    name: str
    others: tuple[str, ...]
    """Older names that are read as well."""
    is_text: bool
    is_number: bool
    parse: Callable[[str], Any]
    default: Any


@dataclass(frozen=True, slots=True)
class _Plan:
    """The fields of a header class, by wire name and by the one-letter names of V2 sends."""

    by_name: tuple[_Item, ...]
    by_letter: tuple[_Item, ...]


def _read_all(items: tuple[_Item, ...], ext_fields: Mapping[str, str]) -> dict[str, Any]:
    """Read all fields; texts, small numbers and missing fields are handled without a call because they are frequent."""
    values: dict[str, Any] = {}
    get = ext_fields.get
    for item in items:
        attribute, name, others, is_text, is_number, _, default = item
        text = get(name)
        if not text and others:
            name = next((other for other in others if get(other)), name)
            text = get(name)
        if not text:
            if default is MISSING:
                raise BadFieldError(item.name, "is missing")
            values[attribute] = default
        elif is_text:
            values[attribute] = text
        elif is_number and len(text) < _SMALL_DIGITS and text.isdecimal() and text.isascii():
            values[attribute] = int(text)
        else:
            values[attribute] = _parse(item, name, text)
    return values


def _parse(item: _Item, name: str, text: str) -> Any:
    try:
        return item.parse(text)
    except ValueError as error:
        raise BadFieldError(name, str(error)) from None


def _write_all(items: tuple[_Item, ...], header: Header) -> dict[str, str]:
    fields = {}
    for item in items:
        value = getattr(header, item.attribute)
        if value is not None:
            fields[item.name] = value if type(value) is str else _to_text(value)
    return fields


_plans: dict[type[Header], _Plan] = {}


def _plan_of(cls: type[Header]) -> _Plan:
    """The plan of a header class, made at its first use."""
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _make_plan(cls)
    return plan


def _make_plan(cls: type[Header]) -> _Plan:
    hints = get_type_hints(cls, include_extras=True)
    by_name, by_letter = [], []
    for declared in fields(cls):  # type: ignore[arg-type]
        parse = _parser(hints[declared.name])
        (name, *others), letter = declared.metadata["names"], declared.metadata["letter"]
        is_number = parse in (_parse_i32, _parse_i64)
        item = _Item(declared.name, name, tuple(others), parse is str, is_number, parse, declared.default)
        by_name.append(item)
        if letter:
            by_letter.append(item._replace(name=letter, others=()))
    return _Plan(tuple(by_name), tuple(by_letter))


def _parser(hint: Any) -> Callable[[str], Any]:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Annotated:
        return _parse_i32 if hint.__metadata__ == (32,) else _parse_i64
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return lambda text: hint(_parse_i32(text))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return _parse_bool if hint is bool else str


def _parse_i32(text: str) -> int:
    return _parse_int(text, 32)


def _parse_i64(text: str) -> int:
    return _parse_int(text, 64)


def _parse_int(text: str, bits: int) -> int:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"is not a number: {text[:40]!r}")
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"is not a {bits}-bit number: {text}")
    return number


def _parse_bool(text: str) -> bool:
    """Java takes only `true`; older C++ clients write 1 and mean it."""
    return text == "1" or text.lower() == "true"


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value)
