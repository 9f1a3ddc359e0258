"""Typed headers from one declaration: our name, its type and the wire name on one line.

    @header
    class PullRequest(Header):
        CODE: ClassVar = RequestCode.PULL_MESSAGE
        group: str = wire("consumerGroup")
        queue_id: I32 = wire("queueId")
        hold_ms: I64 = wire("suspendTimeoutMillis", default=0)

Types are str, bool, I32, I64, an IntEnum or a StrEnum, each with `| None` when absence means something. An empty
text counts as absent, since binary headers do not tell the two apart.
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
        return cls(**{item.attribute: item.read(ext_fields, item.names) for item in _items(cls)})

    @classmethod
    def decode_letters(cls, ext_fields: Mapping[str, str]) -> Self:
        """As `decode`, with the one-letter names of V2 sends."""
        return cls(**{item.attribute: item.read(ext_fields, (item.letter,)) for item in _items(cls) if item.letter})

    def encode(self) -> dict[str, str]:
        """The ext fields, all texts; what is None is left out."""
        values = ((item.names[0], getattr(self, item.attribute)) for item in _items(type(self)))
        return {name: _to_text(value) for name, value in values if value is not None}

    def encode_letters(self) -> dict[str, str]:
        """As `encode`, with the one-letter names of V2 sends."""
        values = ((item.letter, getattr(self, item.attribute)) for item in _items(type(self)) if item.letter)
        return {letter: _to_text(value) for letter, value in values if value is not None}


@dataclass(frozen=True, slots=True)
class _Item:
    """How one declared field is read."""

    attribute: str
    names: tuple[str, ...]
    letter: str
    parse: Callable[[str], Any]
    default: Any

    def read(self, ext_fields: Mapping[str, str], names: tuple[str, ...]) -> Any:
        for name in names:
            if text := ext_fields.get(name):
                try:
                    return self.parse(text)
                except ValueError as error:
                    raise BadFieldError(name, str(error)) from None
        if self.default is MISSING:
            raise BadFieldError(names[0], "is missing")
        return self.default


_plans: dict[type[Header], tuple[_Item, ...]] = {}


def _items(cls: type[Header]) -> tuple[_Item, ...]:
    """The plan of a header class, made at its first use."""
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _plan(cls)
    return plan


def _plan(cls: type[Header]) -> tuple[_Item, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _Item(item.name, item.metadata["names"], item.metadata["letter"], _parser(hints[item.name]), item.default)
        for item in fields(cls)  # type: ignore[arg-type]
    )


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
