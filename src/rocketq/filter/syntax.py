"""Syntax tree of SQL92 conditions. BETWEEN, <>, IS NULL and similar forms are expressed by simpler nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntFlag

from rocketq.kernel import filter_program as program


class NumberKind(Enum):
    """Java's types; a text is read as the type of the number it meets."""

    INT = program.INT
    LONG = program.LONG
    DOUBLE = program.DOUBLE


class Outcome(IntFlag):
    """What a comparison may find."""

    LESS = program.LESS
    SAME = program.SAME
    GREATER = program.GREATER


class Place(Enum):
    """Where a text is searched for."""

    ANYWHERE = program.ANYWHERE
    AT_START = program.AT_START
    AT_END = program.AT_END


@dataclass(frozen=True, slots=True)
class Number:
    value: int | float
    kind: NumberKind


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Property:
    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """Minus; of anything but a number it is NULL."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Cast:
    """A property used as a condition: FALSE if it is set, otherwise NULL."""

    property: Property


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """The sides differ: see NULL."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Compare:
    left: Node
    right: Node
    wanted: Outcome


@dataclass(frozen=True, slots=True)
class In:
    property: Property
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Search:
    operand: Node
    text: str
    place: Place
    absent: bool


Constant = Number | Text | Truth
Condition = Truth | Cast | Not | And | Or | Equal | Compare | In | Search
Node = Constant | Condition | Property | Negate

CONSTANTS = (Number, Text, Truth)
CONDITIONS = (Truth, Cast, Not, And, Or, Equal, Compare, In, Search)
