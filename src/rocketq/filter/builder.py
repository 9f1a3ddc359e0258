"""From the grammar's rules to the parts of a condition, with the checks that need no message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from lark import Token, Transformer, v_args

from rocketq.filter import syntax
from rocketq.filter.syntax import Node, NumberKind, Outcome, Place

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1

_PLACES: Final = {"CONTAINS": Place.ANYWHERE, "STARTSWITH": Place.AT_START, "ENDSWITH": Place.AT_END}


class Misuse(Exception):
    """A part that parses and means nothing, with its place in the text."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(what)
        self.what = what
        self.position = position


class Placed:
    """A node while it is being built: where it began, and how deep conditions are nested in it."""

    __slots__ = ("depth", "node", "position")

    def __init__(self, node: Node, position: int, *inner: Placed) -> None:
        self.node = node
        self.position = position
        self.depth: int = 1 + max((each.depth for each in inner), default=0)


def _comparison(outcome: Outcome) -> Callable[..., Placed]:
    def build(self: Builder, left: Placed, right: Placed) -> Placed:
        return Placed(self.compare(left, right, outcome), left.position, left, right)

    return build


@v_args(inline=True)
class Builder(Transformer[Token, Placed]):
    """Used while parsing, so that depth costs nothing here."""

    def text(self, token: Token) -> Placed:
        return Placed(syntax.Text(_unquoted(token)), _start(token))

    def integer(self, token: Token) -> Placed:
        value = int(token[:-1] if token[-1] in "lL" else token) if len(token) <= 20 else LONG_MAX + 1
        if value > LONG_MAX:
            raise Misuse(f"the number is above {LONG_MAX}", _start(token))
        return Placed(syntax.Number(value, NumberKind.INT if value <= INT_MAX else NumberKind.LONG), _start(token))

    def double(self, token: Token) -> Placed:
        value = float(token)
        if not 0.0 < value < float("inf"):
            raise Misuse("a number with a point must be above 0.0 and fit a double", _start(token))
        return Placed(syntax.Number(value, NumberKind.DOUBLE), _start(token))

    def true(self, token: Token) -> Placed:
        return Placed(syntax.Truth(True), _start(token))

    def false(self, token: Token) -> Placed:
        return Placed(syntax.Truth(False), _start(token))

    def null(self, token: Token) -> Placed:
        return Placed(syntax.Truth(None), _start(token))

    def property(self, token: Token) -> Placed:
        return Placed(syntax.Property(str(token)), _start(token))

    # conditions

    def or_(self, *parts: Placed | Token) -> Placed:
        return _chain(syntax.Or, parts)

    def and_(self, *parts: Placed | Token) -> Placed:
        return _chain(syntax.And, parts)

    def not_(self, word: Token, operand: Placed) -> Placed:
        return Placed(syntax.Not(condition(operand)), _start(word), operand)

    def negate(self, sign: Token, operand: Placed) -> Placed:
        return Placed(syntax.Negate(operand.node), _start(sign), operand)

    def equal(self, left: Placed, right: Placed) -> Placed:
        _check_equal(left, right)
        return Placed(syntax.Equal(left.node, right.node), left.position, left, right)

    def not_equal(self, left: Placed, right: Placed) -> Placed:
        _check_equal(left, right)
        return Placed(syntax.Not(syntax.Equal(left.node, right.node)), left.position, left, right)

    def is_null(self, left: Placed, *words: Token) -> Placed:
        return Placed(syntax.Equal(left.node, syntax.Truth(None)), left.position, left)

    def is_not_null(self, left: Placed, *words: Token) -> Placed:
        return Placed(syntax.Not(syntax.Equal(left.node, syntax.Truth(None))), left.position, left)

    less = _comparison(Outcome.LESS)
    greater = _comparison(Outcome.GREATER)
    not_less = _comparison(Outcome.SAME | Outcome.GREATER)
    not_greater = _comparison(Outcome.LESS | Outcome.SAME)

    def compare(self, left: Placed, right: Placed, outcome: Outcome) -> syntax.Compare:
        for side in (left, right):
            if isinstance(side.node, (*syntax.CONDITIONS, syntax.Text)):
                raise Misuse("only numbers and properties can be compared by size", side.position)
        return syntax.Compare(left.node, right.node, outcome)

    def between(self, value: Placed, word: Token, low: Placed, _: Token, high: Placed) -> Placed:
        if _is_above(low.node, high.node):
            raise Misuse("the first limit of BETWEEN is above the second", low.position)
        at_least = self.compare(value, low, Outcome.SAME | Outcome.GREATER)
        at_most = self.compare(value, high, Outcome.LESS | Outcome.SAME)
        return Placed(syntax.And((at_least, at_most)), value.position, value, low, high)

    def not_between(self, value: Placed, *parts: Any) -> Placed:
        low, high = (part for part in parts if isinstance(part, Placed))
        below, above = self.compare(value, low, Outcome.LESS), self.compare(value, high, Outcome.GREATER)
        return Placed(syntax.Or((below, above)), value.position, value, low, high)

    def in_(self, left: Placed, *tokens: Token) -> Placed:
        return Placed(_membership(left, tokens), left.position, left)

    def not_in(self, left: Placed, *tokens: Token) -> Placed:
        return Placed(syntax.Not(_membership(left, tokens)), left.position, left)

    def search(self, left: Placed, word: Token, text: Token) -> Placed:
        return Placed(syntax.Search(left.node, _unquoted(text), _PLACES[word.type], False), left.position, left)

    def search_absent(self, left: Placed, _: Token, word: Token, text: Token) -> Placed:
        return Placed(syntax.Search(left.node, _unquoted(text), _PLACES[word.type], True), left.position, left)


def condition(part: Placed) -> Node:
    """A part that can be true or false; properties become so."""
    if isinstance(part.node, syntax.Property):
        return syntax.Cast(part.node)
    if not isinstance(part.node, syntax.CONDITIONS):
        raise Misuse("this is neither true nor false", part.position)
    return part.node


def _is_above(low: Node, high: Node) -> bool:
    """Of two numbers, as Java compares them: a long beside a double is rounded to one."""
    if not isinstance(low, syntax.Number) or not isinstance(high, syntax.Number):
        return False
    if NumberKind.DOUBLE in (low.kind, high.kind):
        return float(low.value) > float(high.value)
    return low.value > high.value


def _check_equal(left: Placed, right: Placed) -> None:
    for side in (left, right):
        if isinstance(side.node, syntax.Truth) and side.node.value is None:
            raise Misuse("NULL equals nothing, say IS NULL", side.position)
    if isinstance(left.node, syntax.Truth) and isinstance(right.node, syntax.Number | syntax.Text):
        raise Misuse("TRUE and FALSE cannot be compared with this", right.position)


def _membership(left: Placed, tokens: Sequence[Token]) -> syntax.In:
    if not isinstance(left.node, syntax.Property):
        raise Misuse("only a property can be IN a list", left.position)
    return syntax.In(left.node, tuple(_unquoted(token) for token in tokens if token.type == "STRING"))


def _chain(kind: type[syntax.And] | type[syntax.Or], parts: Sequence[Placed | Token]) -> Placed:
    """Terms of terms of the same kind side by side: the order of evaluation is the same, and depth is not used up."""
    terms = [part for part in parts if isinstance(part, Placed)]
    flat: list[Node] = []
    for term in terms:
        node = condition(term)
        flat.extend(node.terms if isinstance(node, kind) else (node,))
    chain = Placed(kind(tuple(flat)), terms[0].position)
    chain.depth = max(term.depth + (not isinstance(term.node, kind)) for term in terms)
    return chain


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _start(token: Token) -> int:
    return cast(int, token.start_pos)
