"""SQL92 text to a condition. As with Apache, text behind a complete condition is not looked at."""

from __future__ import annotations

from typing import Any, Final

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from rocketq.filter.builder import Builder, Misuse, Placed, condition
from rocketq.filter.errors import BadExpressionError
from rocketq.filter.grammar import GRAMMAR, READABLE
from rocketq.filter.syntax import Node

CHARS_MAX: Final = 16_384
NESTING_MAX: Final = 60
DOUBLE_MINUS_MAX: Final = 200
"""Each of them may begin a comment, for whose end all that follows is searched."""

_PARSER: Final = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=Builder(), maybe_placeholders=False)


def parse(expression: str) -> Node:
    """The condition; BadExpressionError says what is wrong and where."""
    if len(expression) > CHARS_MAX:
        raise BadExpressionError(f"the expression is longer than {CHARS_MAX} characters", expression)
    if expression.count("--") > DOUBLE_MINUS_MAX:
        raise BadExpressionError(f"the expression has more than {DOUBLE_MINUS_MAX} double minus signs", expression)
    try:
        found = _read(expression)
        if found.depth > NESTING_MAX:
            raise Misuse(f"the condition is nested more than {NESTING_MAX} deep", found.position)
        return condition(found)
    except Misuse as error:
        raise BadExpressionError(error.what, expression, error.position) from None
    except UnexpectedCharacters as error:
        raise BadExpressionError("a character that has no meaning here", expression, error.pos_in_stream) from None
    except UnexpectedToken as error:
        raise BadExpressionError(_explain(error), expression, _place(error, expression)) from None


def _read(expression: str) -> Placed:
    parsing = _PARSER.parse_interactive(expression)
    last: Token | None = None
    try:
        for token in parsing.iter_parse():
            last = token
    except UnexpectedToken as error:
        try:
            return _finish(parsing, last)
        except UnexpectedInput:
            raise error from None
    return _finish(parsing, last)


def _finish(parsing: Any, last: Token | None) -> Placed:
    found = parsing.feed_eof(last)
    assert isinstance(found, Placed)
    return found


def _explain(error: UnexpectedToken) -> str:
    wanted = sorted({READABLE.get(name, name) for name in error.accepts or error.expected})
    found = "the end" if error.token.type == "$END" else repr(str(error.token))
    return f"found {found}, expected {', '.join(wanted)},"


def _place(error: UnexpectedToken, expression: str) -> int:
    at: int | None = None if error.token.type == "$END" else error.token.start_pos
    return len(expression) if at is None else at
