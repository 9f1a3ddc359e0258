"""The grammar: levels, words, limits, and errors that say where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.filter.reference import parse

from rocketq.filter import BadExpressionError, compile_sql
from rocketq.filter.parser import CHARS_MAX, NESTING_MAX
from rocketq.filter.syntax import (
    And,
    Cast,
    Compare,
    Equal,
    In,
    Negate,
    Not,
    Number,
    NumberKind,
    Or,
    Outcome,
    Place,
    Property,
    Search,
    Text,
    Truth,
)

A, B = Property("a"), Property("b")


def number(value: float) -> Number:
    return Number(value, NumberKind.INT if isinstance(value, int) else NumberKind.DOUBLE)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a = 1", Equal(A, number(1))),
        ("a <> 'x'", Not(Equal(A, Text("x")))),
        ("a = 'it''s'", Equal(A, Text("it's"))),
        ("a = 2147483648", Equal(A, Number(2147483648, NumberKind.LONG))),
        ("a = 5L", Equal(A, number(5))),
        ("a = -5", Equal(A, Negate(number(5)))),
        ("a > .5", Compare(A, number(0.5), Outcome.GREATER)),
        ("a >= 5.", Compare(A, number(5.0), Outcome.GREATER | Outcome.SAME)),
        ("a <= 1E3", Compare(A, number(1000.0), Outcome.LESS | Outcome.SAME)),
        ("a IS NULL", Equal(A, Truth(None))),
        ("a is not null", Not(Equal(A, Truth(None)))),
        ("NOT a = 1", Equal(Not(Cast(A)), number(1))),
        ("NOT (a = 1)", Not(Equal(A, number(1)))),
        ("a = 1 OR b = 2 AND a", Or((Equal(A, number(1)), And((Equal(B, number(2)), Cast(A)))))),
        ("(a = 1 OR b) AND a", And((Or((Equal(A, number(1)), Cast(B))), Cast(A)))),
        ("(a or b) or (a or b)", Or((Cast(A), Cast(B), Cast(A), Cast(B)))),
        ("a In ('x', 'y')", In(A, ("x", "y"))),
        ("a NOT IN ('x')", Not(In(A, ("x",)))),
        ("a contains 'x'", Search(A, "x", Place.ANYWHERE, False)),
        ("a NOT StartsWith 'x'", Search(A, "x", Place.AT_START, True)),
        ("'abc' endswith 'c'", Search(Text("abc"), "c", Place.AT_END, False)),
        ("nota = 1", Equal(Property("nota"), number(1))),
        ("_a$1 = 1", Equal(Property("_a$1"), number(1))),
        ("a=1\t\r\n\f", Equal(A, number(1))),
    ],
)
def test_text_becomes_this_tree(text: str, wanted: object) -> None:
    """Goal: levels and words as RocketMQ has them; NOT binds tighter than a comparison."""
    assert parse(text) == wanted


def test_between_is_said_with_comparisons() -> None:
    """Goal: the AND inside BETWEEN is not the AND behind it."""
    inside = And(
        (Compare(A, number(1), Outcome.GREATER | Outcome.SAME), Compare(A, number(3), Outcome.LESS | Outcome.SAME))
    )
    assert parse("a BETWEEN 1 AND 3") == inside
    assert parse("a BETWEEN 1 AND 3 AND b") == And((*inside.terms, Cast(B)))
    assert parse("a NOT BETWEEN 1 AND 3") == Or(
        (Compare(A, number(1), Outcome.LESS), Compare(A, number(3), Outcome.GREATER))
    )


@pytest.mark.parametrize("text", ["a LIKE 'x'", "a )", "a -- b", "a , )", "a 5", "a b #"])
def test_text_behind_a_complete_condition_is_ignored(text: str) -> None:
    """Goal: what Apache takes is taken, however odd."""
    assert parse(text) == Cast(A)


@pytest.mark.parametrize("text", ["a ; b", "a 'x", "a #"])
def test_the_next_word_behind_a_complete_condition_must_be_one(text: str) -> None:
    """Goal: Apache reads one word further before it stops."""
    with pytest.raises(BadExpressionError, match="at character 3"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "position", "word"),
    [
        ("", 0, "expected"),
        ("a >", 3, "the end"),
        ("a = 1 AND", 9, "the end"),
        ("(a = 1", 6, "expected )"),
        ("a = = 1", 4, "'='"),
        ("a ! b", 2, "character"),
        ("a = 'x", 4, "character"),
        ("a = 1 AND b NOT x", 16, "BETWEEN"),
        ("a IS 5", 5, "NULL"),
        ("a IN (5)", 6, "a text in quotes"),
        ("a IN ()", 6, "a text in quotes"),
        ("a > 'x'", 4, "size"),
        ("a > TRUE", 4, "size"),
        ("(a = 1) > 5", 1, "size"),
        ("a = NULL", 4, "IS NULL"),
        ("TRUE = 5", 7, "TRUE and FALSE"),
        ("5", 0, "neither"),
        ("a = 1 AND 'x'", 10, "neither"),
        ("NOT -a", 4, "neither"),
        ("b = 1 OR a BETWEEN 3 AND 1", 19, "limit"),
        ("'x' IN ('y')", 0, "property"),
        ("a = 9223372036854775808", 4, "above"),
        ("a = 0.0", 4, "point"),
        ("a = 1e999", 4, "point"),
    ],
)
def test_error_says_what_is_wrong_and_where(text: str, position: int, word: str) -> None:
    """Goal: whoever wrote the condition finds the place."""
    with pytest.raises(BadExpressionError) as caught:
        compile_sql(text)
    assert caught.value.position == position
    assert word in str(caught.value)
    assert f"at character {position + 1}" in str(caught.value)


def test_what_is_too_long_too_deep_or_asks_for_too_much_is_refused() -> None:
    """Goal: no condition, however made, costs more than a bounded amount."""
    with pytest.raises(BadExpressionError, match="longer than"):
        compile_sql("a = 1" + " " * CHARS_MAX)
    deep = NESTING_MAX + 5
    for text in ("NOT " * deep + "a", "a = 1 AND (b OR (" * deep + "a" + "))" * deep):
        with pytest.raises(BadExpressionError, match="nested"):
            compile_sql(text)
    with pytest.raises(BadExpressionError, match="properties"):
        compile_sql(" OR ".join(f"p{n} = 1" for n in range(65)))


def test_long_and_bracketed_chains_are_taken() -> None:
    """Goal: brackets and many terms of one kind cost no depth."""
    chain = " OR ".join(f"a = '{n}'" for n in range(800))
    assert compile_sql(chain).matches(b"a\x01799\x02")
    assert compile_sql("(" * 3000 + "a = 1" + ")" * 3000).matches(b"a\x011\x02")
    left = "(" * 300 + "a = '0'" + "".join(f" OR a = '{n}')" for n in range(1, 301))
    assert compile_sql(left).matches(b"a\x01300\x02")


def test_the_same_text_is_compiled_once() -> None:
    """Goal: one program per condition, however many ask; a bad one stays bad."""
    assert compile_sql("kept = 1") is compile_sql("kept = 1")
    for _ in range(2):
        with pytest.raises(BadExpressionError, match="at character 6"):
            compile_sql("bad =")


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("ab15.'()=<>-+,*/ \n\tNOTANDRISULE_$é")), max_size=60))
def test_any_text_is_a_condition_or_an_error_with_a_place(text: str) -> None:
    """Goal: nothing else ever comes out of the parser."""
    assert -1 <= place_of_error(text) <= len(text)


def place_of_error(text: str) -> int:
    """-1 when there is none."""
    try:
        compile_sql(text)
    except BadExpressionError as error:
        return len(text) + 1 if error.position is None else error.position
    return -1


@pytest.mark.parametrize(
    "text", ["-" * (CHARS_MAX - 10) + "1 > 0", "a = --1 OR " * 1_400 + "a = 1", "\n" + "--" * 8_000]
)
def test_minus_signs_without_end_are_refused_before_comments_are_looked_for(text: str) -> None:
    """Goal: each pair may begin a comment, and each such search reads to the end: thousands would take seconds."""
    with pytest.raises(BadExpressionError, match="double minus signs"):
        parse(text)


def test_minus_signs_in_numbers_texts_and_comments_are_allowed() -> None:
    """Goal: the limit is far above what conditions have."""
    text = "a = '" + "-" * 300 + "' OR a = - -1 -- a line of its own\n OR a = -1"
    assert parse(text) == parse("a = '" + "-" * 300 + "' OR a = - -1 OR a = -1")
