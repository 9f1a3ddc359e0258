"""The grammar of SQL92 conditions, with RocketMQ's words and levels.

NOT binds tighter than any comparison: `NOT a = 1` is `(NOT a) = 1`. A line comment needs the end of its line.
"""

from __future__ import annotations

from typing import Final

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
"""How errors call the words of the grammar; keywords by themselves."""
