"""Parses SQL92 text to a condition. As with Apache, text behind a complete condition is ignored."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from rocketq.filter.builder import Builder, Misuse, Placed, condition
from rocketq.filter.sql import BadExpressionError
from rocketq.filter.syntax import Node

GRAMMAR: Final = r"""
?start: or_

?or_: and_ (OR and_)*
?and_: equality (AND equality)*

?equality: comparison
    | equality "=" comparison                           -> equal
    | equality "<>" comparison                          -> not_equal
    | equality IS NULL                                  -> is_null
    | equality IS NOT NULL                              -> is_not_null

?comparison: unary
    | comparison ">" unary                              -> greater
    | comparison ">=" unary                             -> not_less
    | comparison "<" unary                              -> less
    | comparison "<=" unary                             -> not_greater
    | comparison BETWEEN unary AND unary                -> between
    | comparison NOT BETWEEN unary AND unary            -> not_between
    | comparison IN "(" STRING ("," STRING)* ")"        -> in_
    | comparison NOT IN "(" STRING ("," STRING)* ")"    -> not_in
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) STRING      -> search
    | comparison NOT (CONTAINS | STARTSWITH | ENDSWITH) STRING  -> search_absent

?unary: primary
    | "+" unary
    | MINUS unary                                        -> negate
    | NOT unary                                         -> not_

?primary: STRING    -> text
    | INTEGER       -> integer
    | FLOAT         -> double
    | TRUE          -> true
    | FALSE         -> false
    | NULL          -> null
    | NAME          -> property
    | "(" or_ ")"

AND.3: /and(?![a-z0-9_$])/i
OR.3: /or(?![a-z0-9_$])/i
NOT.3: /not(?![a-z0-9_$])/i
IS.3: /is(?![a-z0-9_$])/i
IN.3: /in(?![a-z0-9_$])/i
NULL.3: /null(?![a-z0-9_$])/i
TRUE.3: /true(?![a-z0-9_$])/i
FALSE.3: /false(?![a-z0-9_$])/i
BETWEEN.3: /between(?![a-z0-9_$])/i
CONTAINS.3: /contains(?![a-z0-9_$])/i
STARTSWITH.3: /startswith(?![a-z0-9_$])/i
ENDSWITH.3: /endswith(?![a-z0-9_$])/i

NAME: /[a-zA-Z_$][a-zA-Z0-9_$]*/
FLOAT.2: /[0-9]+\.[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
INTEGER.1: /0|[1-9][0-9]*l?/i
MINUS: "-"
STRING: /'(?:''|[^'])*'/

BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.4: /--[^\n\r]*(?:\r\n|\n|\r)/
BLOCK_COMMENT.4: /\/\*(?:[^*]|\*(?!\/))*\*\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

READABLE: Final = {
    "NAME": "a property",
    "STRING": "a text in quotes",
    "INTEGER": "a number",
    "FLOAT": "a number",
    "LPAR": "(",
    "RPAR": ")",
    "EQUAL": "=",
    "COMMA": ",",
    "PLUS": "+",
    "MINUS": "-",
    "LESSTHAN": "<",
    "MORETHAN": ">",
    "$END": "the end",
}
"""Names of grammar terminals in error messages; keywords are shown unchanged."""


CHARS_MAX: Final = 16_384
NESTING_MAX: Final = 60
DOUBLE_MINUS_MAX: Final = 200
"""Each of them may start a comment, whose end is searched in all following text."""

_PARSER: Final = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=Builder(), maybe_placeholders=False)


def parse_steps(expression: str) -> Generator[None, None, Node]:
    """Parse a condition, one token per step; BadExpressionError has the fault and its position."""
    if len(expression) > CHARS_MAX:
        raise BadExpressionError(f"the expression is longer than {CHARS_MAX} characters", expression)
    if expression.count("--") > DOUBLE_MINUS_MAX:
        raise BadExpressionError(f"the expression has more than {DOUBLE_MINUS_MAX} double minus signs", expression)
    try:
        found = yield from _read_steps(expression)
        if found.depth > NESTING_MAX:
            raise Misuse(f"the condition is nested more than {NESTING_MAX} deep", found.position)
        return condition(found)
    except Misuse as error:
        raise BadExpressionError(error.what, expression, error.position) from None
    except UnexpectedCharacters as error:
        raise BadExpressionError("a character that has no meaning here", expression, error.pos_in_stream) from None
    except UnexpectedToken as error:
        raise BadExpressionError(_explain(error), expression, _place(error, expression)) from None


def _read_steps(expression: str) -> Generator[None, None, Placed]:
    parsing = _PARSER.parse_interactive(expression)
    last: Token | None = None
    try:
        for token in parsing.iter_parse():
            last = token
            yield
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
