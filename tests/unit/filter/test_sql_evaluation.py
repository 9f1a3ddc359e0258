"""What conditions say about properties: NULL logic, types, order of evaluation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.filter.conditions import Conditions
from tests.unit.filter.reference import parse, verdict

from rocketq.filter import BadExpressionError, compile_sql
from rocketq.kernel.filter_program import FAILED, FALSE, TRUE, UNKNOWN, FilterProgram
from rocketq.protocol.properties import decode_properties

LETTERS = {TRUE: "T", FALSE: "F", UNKNOWN: "N", FAILED: "X"}


def properties(text: str) -> bytes:
    """`a=1;b=x` as a record holds it."""
    return "".join(item.replace("=", "\x01", 1) + "\x02" for item in text.split(";") if item).encode()


def judge(condition: str, given_properties: str) -> str:
    return LETTERS[compile_sql(condition).verdict(properties(given_properties))]


@pytest.mark.parametrize(
    ("condition", "given_properties", "wanted"),
    [
        ("a > 5", "a=6", "T"),
        ("a > 5", "a=6.5", "X"),
        ("a > 5.0", "a=6.5", "T"),
        ("a > 5", "a=abc", "X"),
        ("a > 5", "a=2147483648", "X"),
        ("a > 5000000000", "a=5000000001", "T"),
        ("a > 5 OR b = '1'", "a=abc;b=1", "X"),
        ("b = '1' OR a > 5", "a=abc;b=1", "T"),
        ("b = '2' AND a > 5", "a=abc;b=1", "F"),
        ("a > 5 OR b = '1'", "b=1", "T"),
        ("NOT (a = '1')", "", "N"),
        ("NOT ('1' = a)", "", "T"),
        ("a IS NULL", "", "T"),
        ("a IS NULL", "a=", "T"),
        ("a IS NOT NULL", "a=x", "T"),
        ("a BETWEEN 1 AND 3", "a=3", "T"),
        ("a NOT BETWEEN 1 AND 3", "a=4", "T"),
        ("a BETWEEN 1 AND 3", "", "N"),
        ("a IN ('x', 'y')", "a=y", "T"),
        ("a NOT IN ('x', 'y')", "a=y", "F"),
        ("a NOT IN ('x', 'y')", "", "N"),
        ("a = 1", "a=1.5", "X"),
        ("a = 1.5", "a=1.50", "T"),
        ("a = '1.5'", "a=1.50", "F"),
        ("a", "a=true", "F"),
        ("NOT a", "a=true", "T"),
        ("a", "", "N"),
        ("a = TRUE", "a=tRuE", "T"),
        ("a = FALSE", "a=anything", "T"),
        ("TRUE = a", "a=true", "X"),
        ("TRUE = a", "", "F"),
        ("-a = 5", "a=5", "N"),
        ("a = -5", "a=-5", "T"),
        ("a < b", "a=9;b=10", "T"),
        ("a < b", "a=-0.0;b=0.0", "T"),
        ("a > 1e300", "a=NaN", "T"),
        ("a < b", "a=x;b=10", "X"),
        ("NOT a = 1", "a=1", "F"),
        ("a = b = TRUE", "a=1;b=1", "T"),
        ("a = b", "", "T"),
        ("a LIKE 'x'", "a=x", "F"),
        ("a CONTAINS 'bc'", "a=abcd", "T"),
        ("a STARTSWITH 'bc'", "a=abcd", "F"),
        ("a ENDSWITH 'cd'", "a=abcd", "T"),
        ("a NOT CONTAINS 'x'", "a=abcd", "T"),
        ("a NOT CONTAINS 'x'", "", "F"),
        ("a CONTAINS ''", "a=abcd", "F"),
        ("a NOT CONTAINS ''", "a=abcd", "F"),
        ("a = 'it''s'", "a=it's", "T"),
        ("a = 5 -- not that /* */", "a=5", "T"),
        ("a -- the name\n = 5", "a=5", "T"),
        ("a = --5", "a=5", "T"),
        ("a /* the name */ = 5", "a=5", "T"),
        ("a = 5", "a=\u0665", "T"),
        ("a = '中'", "a=中", "T"),
        ("TAGS = 'TagA' AND a IS NULL", "TAGS=TagA;KEYS=k", "T"),
        ("a = '2'", "a=1;a=2", "T"),
        ("a = '1'", "a=1;a=", "T"),
    ],
)
def test_condition_gives_what_apache_gives(condition: str, given_properties: str, wanted: str) -> None:
    """Goal: each rule of NULL, types and order that can be told apart from its neighbours."""
    assert judge(condition, given_properties) == wanted


TRUTHS = {"TRUE": "T", "FALSE": "F", "NULL": "N"}


@pytest.mark.parametrize("left", TRUTHS)
@pytest.mark.parametrize("right", TRUTHS)
def test_and_or_not_follow_three_valued_logic(left: str, right: str) -> None:
    """Goal: the whole table of Kleene's logic."""
    found = {TRUTHS[left], TRUTHS[right]}
    assert judge(f"{left} AND {right}", "") == ("F" if "F" in found else "N" if "N" in found else "T")
    assert judge(f"{left} OR {right}", "") == ("T" if "T" in found else "N" if "N" in found else "F")
    assert judge(f"NOT {left}", "") == {"T": "F", "F": "T", "N": "N"}[TRUTHS[left]]


def test_only_true_lets_a_message_through() -> None:
    """Goal: NULL and errors do not match."""
    assert compile_sql("a > 5").matches(properties("a=6")) is True
    for text in ("a=4", "", "a=x"):
        assert compile_sql("a > 5").matches(properties(text)) is False


@settings(max_examples=600, deadline=None)
@given(st.randoms(use_true_random=False))
def test_programs_agree_with_the_reference(rng: random.Random) -> None:
    """Goal: the kernel's program and a plain walk over the parsed tree give the same verdict, whatever the types."""
    made = Conditions(rng, newer=True)
    condition, data = made.condition(rng.randrange(5)), made.properties()
    try:
        program = compile_sql(condition)
    except BadExpressionError:
        return
    assert LETTERS[program.verdict(data)] == verdict(parse(condition), decode_properties(data))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.randoms(use_true_random=False))
def test_any_bytes_may_stand_where_properties_should(data: bytes, rng: random.Random) -> None:
    """Goal: garbage has a verdict like everything else."""
    data = data.replace(b"0", b"\x01").replace(b"1", b"\x02").replace(b"2", b"a")
    program = compile_sql(rng.choice(("a > 5 OR b = 1.5", "a = TRUE", "a < b", "a NOT IN ('x')", "a NOT ENDSWITH 'a'")))
    assert program.verdict(data) in LETTERS


@settings(max_examples=500, deadline=None)
@given(
    st.floats(allow_nan=False, allow_infinity=False), st.floats(min_value=5e-324, allow_infinity=False, allow_nan=False)
)
def test_doubles_are_read_to_the_last_bit(value: float, limit: float) -> None:
    """Goal: the quick way to read a number rounds as the slow one does."""
    for text in (repr(value), f"{value:.6f}", f"{value:.17e}"):
        wanted = "T" if float(text) > limit else "F"
        assert judge(f"a > {limit!r}", f"a={text}") == wanted


@pytest.mark.parametrize(
    ("names", "code", "constants"),
    [
        ([], [], []),
        ([b"a"], [(0, 1, 0)], []),
        ([b"a"], [(0, 0, 0), (0, 0, 0)], []),
        ([], [(1, 0, 0)], []),
        ([b"a"], [(0, 0, 0), (99, 0, 0)], []),
        ([b"a"], [(0, 0, 0), (11, 0, 0)], []),
        ([b"a"], [(0, 0, 0), (7, 0, 3)], [(5, b"x")]),
        ([b"a"], [(0, 0, 0)] * 70 + [(5, 0, 0)] * 69, []),
        ([b"%d" % n for n in range(65)], [(0, 0, 0)], []),
    ],
)
def test_a_program_that_reaches_outside_is_refused(names: list[bytes], code: object, constants: object) -> None:
    """Goal: no instruction addresses a cell, name or constant that is not there."""
    with pytest.raises(ValueError):
        FilterProgram(names, code, constants)
