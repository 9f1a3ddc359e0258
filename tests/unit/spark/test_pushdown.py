"""Filters: what they narrow, and which ones Spark still has to apply."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rocketq.spark.offsets import QueueKey
from rocketq.spark.pushdown import EVERYWHERE, Narrowing, narrow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def col(name: str) -> tuple[str, ...]:
    return (name,)


def at_us(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


@pytest.mark.parametrize(
    ("given", "narrowing"),
    [
        (EqualTo(col("topic"), "T"), Narrowing(topics=frozenset({"T"}))),
        (In(col("brokerName"), ("a", "b", None)), Narrowing(brokers=frozenset({"a", "b"}))),
        (EqualNullSafe(col("queueId"), 3), Narrowing(queue_ids=frozenset({3}))),
        (EqualTo(col("queueOffset"), 7), Narrowing(offset_low=7, offset_high=8)),
        (GreaterThan(col("queueOffset"), 7), Narrowing(offset_low=8)),
        (GreaterThanOrEqual(col("queueOffset"), 7), Narrowing(offset_low=7)),
        (LessThan(col("queueOffset"), 7), Narrowing(offset_high=7)),
        (LessThanOrEqual(col("queueOffset"), 7), Narrowing(offset_high=8)),
        (IsNotNull(col("queueId")), EVERYWHERE),
    ],
)
def test_exact_filters_are_taken_over(given: Filter, narrowing: Narrowing) -> None:
    """Goal: what the plan applies by itself Spark need not look at again."""
    assert narrow([given]) == (narrowing, [])


@pytest.mark.parametrize(
    ("given", "narrowing"),
    [
        (In(col("queueOffset"), (9, 4)), Narrowing(offset_low=4, offset_high=10)),
        (EqualTo(col("tags"), "A"), Narrowing(tags=frozenset({"A"}))),
        (In(col("tags"), ("A", "B")), Narrowing(tags=frozenset({"A", "B"}))),
        (EqualTo(col("keys"), "k1 k2"), Narrowing(keys=frozenset({"k1 k2"}))),
        (GreaterThan(col("storeTimestamp"), at_us(5_000)), Narrowing(stored_from_ms=6)),
        (GreaterThan(col("storeTimestamp"), at_us(5_001)), Narrowing(stored_from_ms=6)),
        (GreaterThanOrEqual(col("storeTimestamp"), at_us(5_000)), Narrowing(stored_from_ms=5)),
        (GreaterThanOrEqual(col("storeTimestamp"), at_us(5_001)), Narrowing(stored_from_ms=6)),
        (LessThan(col("storeTimestamp"), at_us(5_000)), Narrowing(stored_before_ms=5)),
        (LessThan(col("storeTimestamp"), at_us(5_001)), Narrowing(stored_before_ms=6)),
        (LessThanOrEqual(col("storeTimestamp"), at_us(5_000)), Narrowing(stored_before_ms=6)),
        (EqualTo(col("storeTimestamp"), at_us(5_000)), Narrowing(stored_from_ms=5, stored_before_ms=6)),
    ],
)
def test_what_only_narrows_is_applied_again_by_spark(given: Filter, narrowing: Narrowing) -> None:
    assert narrow([given]) == (narrowing, [given])


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(col("tags"), "A||B"),
        EqualTo(col("tags"), "*"),
        EqualTo(col("tags"), " A"),
        EqualTo(col("keys"), " k"),
        EqualTo(col("keys"), ""),
        EqualTo(("properties", "topic"), "T"),
        Not(EqualTo(col("queueId"), 3)),
        IsNull(col("queueId")),
        IsNotNull(col("tags")),
        StringStartsWith(col("topic"), "T"),
        EqualTo(col("body"), b"x"),
        GreaterThan(col("storeTimestamp"), datetime(2020, 1, 1)),  # of no zone, so no instant
    ],
)
def test_everything_else_is_left_to_spark(given: Filter) -> None:
    """Goal: a filter that is not understood narrows nothing and is not forgotten."""
    assert narrow([given]) == (EVERYWHERE, [given])


def test_filters_are_all_true_at_once() -> None:
    narrowing, left = narrow(
        [
            In(col("topic"), ("A", "B")),
            EqualTo(col("topic"), "C"),
            LessThan(col("queueOffset"), 9),
            GreaterThan(col("queueOffset"), 3),
            LessThan(col("queueOffset"), 5),
        ]
    )
    assert narrowing == Narrowing(topics=frozenset(), offset_low=4, offset_high=5)
    assert left == []
    assert not narrowing.has(QueueKey("A", "b", 0))


comparisons = st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])


def holds(given: Any, value: Any) -> bool:
    match given:
        case EqualTo():
            return bool(value == given.value)
        case GreaterThan():
            return bool(value > given.value)
        case GreaterThanOrEqual():
            return bool(value >= given.value)
        case LessThan():
            return bool(value < given.value)
        case _:
            return bool(value <= given.value)


@given(st.lists(st.tuples(comparisons, st.integers(-5, 15)), max_size=4))
def test_offset_bounds_hold_exactly_the_rows_that_pass(chosen: list[tuple[Any, int]]) -> None:
    """Goal: Spark trusts us with these: not a row more or less."""
    filters = [kind(col("queueOffset"), value) for kind, value in chosen]
    narrowing, left = narrow(filters)
    low, high = narrowing.within(0, 12)
    assert left == []
    assert list(range(low, high)) == [n for n in range(12) if all(holds(each, n) for each in filters)]


@given(st.lists(st.tuples(comparisons, st.integers(0, 12_000)), max_size=4))
def test_time_bounds_hold_every_row_that_passes(chosen: list[tuple[Any, int]]) -> None:
    """Goal: times of filters are finer than the milliseconds that brokers know; no row may fall between."""
    filters = [kind(col("storeTimestamp"), at_us(us)) for kind, us in chosen]
    narrowing, left = narrow(filters)
    assert left == filters
    low = narrowing.stored_from_ms or 0
    high = 12 if narrowing.stored_before_ms is None else narrowing.stored_before_ms
    passing = [ms for ms in range(12) if all(holds(each, at_us(ms * 1000)) for each in filters)]
    assert set(passing) <= set(range(low, high))
