"""A plain evaluation of parsed conditions, written for reading: what the kernel's programs are compared with."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from rocketq.filter import syntax
from rocketq.filter.parser import parse_steps
from rocketq.filter.syntax import Node, NumberKind, Outcome, Place


class EvaluationError(Exception):
    """Where Java throws."""


@dataclass(frozen=True)
class Numeric:
    value: int | float
    kind: NumberKind


Value = Numeric | str | bool | None
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")


def verdict(node: Node, properties: Mapping[str, str]) -> str:
    """T, F, N, or X when it fails."""
    try:
        found = evaluate(node, properties)
    except EvaluationError:
        return "X"
    assert found is None or isinstance(found, bool)
    return {True: "T", False: "F", None: "N"}[found]


def evaluate(node: Node, properties: Mapping[str, str]) -> Value:
    match node:
        case syntax.Number(value, kind):
            return Numeric(value, kind)
        case syntax.Text(text):
            return text
        case syntax.Truth(truth):
            return truth
        case syntax.Property(name):
            return properties.get(name)
        case syntax.Negate(operand):
            found = evaluate(operand, properties)
            return Numeric(-found.value, found.kind) if isinstance(found, Numeric) else None
        case syntax.Cast(operand):
            return None if evaluate(operand, properties) is None else False
        case syntax.Not(operand):
            found = evaluate(operand, properties)
            assert found is None or isinstance(found, bool)
            return None if found is None else not found
        case syntax.And(terms):
            return _join(terms, properties, deciding=False)
        case syntax.Or(terms):
            return _join(terms, properties, deciding=True)
        case syntax.Equal(left, right):
            return _equal(evaluate(left, properties), evaluate(right, properties))
        case syntax.Compare(left, right, wanted):
            first = evaluate(left, properties)
            second = None if first is None else evaluate(right, properties)
            return None if first is None or second is None else _compare(first, second, wanted)
        case syntax.In(operand, texts):
            found = evaluate(operand, properties)
            return None if found is None else found in texts
        case syntax.Search(operand, text, place, absent):
            found = evaluate(operand, properties) if text else None
            return isinstance(found, str) and _has(found, text, place) != absent


def _join(terms: tuple[Node, ...], properties: Mapping[str, str], *, deciding: bool) -> bool | None:
    unknown = False
    for term in terms:
        found = evaluate(term, properties)
        if found is deciding:
            return deciding
        unknown |= found is None
    return None if unknown else not deciding


def _has(text: str, wanted: str, place: Place) -> bool:
    match place:
        case Place.ANYWHERE:
            return wanted in text
        case Place.AT_START:
            return text.startswith(wanted)
        case Place.AT_END:
            return text.endswith(wanted)


def _equal(left: Value, right: Value) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, bool) and isinstance(right, str):
        raise EvaluationError("a truth and a text")
    if isinstance(left, str) and isinstance(right, bool):
        return (left.lower() == "true") == right
    if isinstance(left, bool) or isinstance(right, bool) or (isinstance(left, str) and isinstance(right, str)):
        return type(left) is type(right) and left == right
    return _order(left, right) == 0


def _compare(left: Value, right: Value, wanted: Outcome) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        left, right = _read(left, NumberKind.DOUBLE), _read(right, NumberKind.DOUBLE)
    order = _order(left, right)
    return bool(wanted & (Outcome.LESS if order < 0 else Outcome.GREATER if order > 0 else Outcome.SAME))


def _order(left: Value, right: Value) -> int:
    first = _read(left, right.kind) if isinstance(left, str) and isinstance(right, Numeric) else left
    second = _read(right, left.kind) if isinstance(right, str) and isinstance(left, Numeric) else right
    assert isinstance(first, Numeric)
    assert isinstance(second, Numeric)
    if NumberKind.DOUBLE in (first.kind, second.kind):
        return _order_floats(float(first.value), float(second.value))
    return (first.value > second.value) - (first.value < second.value)


def _order_floats(a: float, b: float) -> int:
    """By a key: NaN above all, -0.0 below 0.0."""
    first, second = ((math.isnan(x), 0.0 if math.isnan(x) else x, math.copysign(1, x)) for x in (a, b))
    if math.isnan(a) and math.isnan(b):
        return 0
    if a == b != 0:
        return 0
    return (first > second) - (first < second)


def _read(text: str, kind: NumberKind) -> Numeric:
    if kind is NumberKind.DOUBLE:
        return Numeric(_read_double(text), kind)
    sign = text[:1] if text[:1] in ("+", "-") else ""
    digits = text[len(sign) :]
    if not digits or any(ord(char) > 0xFFFF or unicodedata.category(char) != "Nd" for char in digits):
        raise EvaluationError(f"{text!r} is no integer")
    value = int(sign + digits)
    bits = 31 if kind is NumberKind.INT else 63
    if not -(2**bits) <= value < 2**bits:
        raise EvaluationError(f"{text!r} does not fit")
    return Numeric(value, kind)


def _read_double(text: str) -> float:
    text = text.strip("".join(chr(n) for n in range(0x21)))
    if text.lstrip("+-") in ("NaN", "Infinity") and len(text) - len(text.lstrip("+-")) < 2:
        return float(text)
    if text[-1:] in ("f", "F", "d", "D") and not _HEX.fullmatch(text):
        text = text[:-1]
    if _DOUBLE.fullmatch(text):
        return float(text)
    if _HEX.fullmatch(text):
        return float.fromhex(text)
    raise EvaluationError(f"{text!r} is no number")


def parse(text: str) -> Node:
    """The syntax tree of a condition."""
    steps = parse_steps(text)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            tree: Node = stop.value
            return tree
