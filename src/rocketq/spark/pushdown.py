"""Filters that Spark pushes down: which of them narrow the read, and which Spark must still apply.

| column | narrows | Spark applies it again |
|---|---|---|
| topic, brokerName, queueId | queues | no |
| queueOffset | offsets | no (a list of them: yes) |
| storeTimestamp | offsets, by time | yes: times are looked up to the millisecond |
| tags | what brokers send | yes: brokers compare hashes |
| keys | messages, through the brokers' index | yes |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rocketq.spark.offsets import QueueKey

KEYS_MAX: Final = 32
"""More keys than this are looked for by reading."""

_NEVER_NULL: Final = frozenset({"topic", "brokerName", "queueId", "queueOffset", "storeTimestamp"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """Where rows that pass can be; None is everywhere, an empty set nowhere. `high` bounds are exclusive."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    offset_low: int | None = None
    offset_high: int | None = None
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None

    def has(self, queue: QueueKey) -> bool:
        return (
            _among(queue.topic, self.topics)
            and _among(queue.broker_name, self.brokers)
            and _among(queue.queue_id, self.queue_ids)
        )

    def within(self, low: int, high: int) -> tuple[int, int]:
        """What is left of a stretch of offsets."""
        if self.offset_low is not None:
            low = max(low, self.offset_low)
        if self.offset_high is not None:
            high = min(high, self.offset_high)
        return low, max(low, high)


EVERYWHERE: Final = Narrowing()


def narrow(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """The combined restriction of all filters, and the filters that Spark must apply."""
    narrowing, left = EVERYWHERE, []
    for each in filters:
        narrowing, is_exact = _narrowed(narrowing, each)
        if not is_exact:
            left.append(each)
    return narrowing, left


def _narrowed(narrowing: Narrowing, given: Filter) -> tuple[Narrowing, bool]:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    column = ".".join(attribute)
    match column, given:
        case _, IsNotNull() if column in _NEVER_NULL:
            return narrowing, True
        case (("topic" | "brokerName" | "queueId"), (EqualTo() | EqualNullSafe() | In())):
            field = {"topic": "topics", "brokerName": "brokers", "queueId": "queue_ids"}[column]
            return _kept(narrowing, field, _values(given)), True
        case "queueOffset", _:
            return _offsets(narrowing, given)
        case "storeTimestamp", _ if all(map(_is_instant, _values(given))):
            return _times(narrowing, given), False
        case "tags", (EqualTo() | In()) if all(map(_is_plain_tag, _values(given))):
            return _kept(narrowing, "tags", _values(given)), False
        case "keys", (EqualTo() | In()) if all(map(_is_indexed, _values(given))):
            return _kept(narrowing, "keys", _values(given)), False
    return narrowing, False


def _values(given: Filter) -> frozenset[Any]:
    """What a column may be; a null equals nothing."""
    value: Any = getattr(given, "value", None)
    values: Iterable[Any] = value if isinstance(given, In) else [value]
    return frozenset(each for each in values if each is not None)


def _kept(narrowing: Narrowing, field: str, values: frozenset[Any]) -> Narrowing:
    before = getattr(narrowing, field)
    changes: dict[str, Any] = {field: values if before is None else before & values}
    return replace(narrowing, **changes)


def _offsets(narrowing: Narrowing, given: Filter) -> tuple[Narrowing, bool]:
    match given:
        case EqualTo(value=int(at)) | EqualNullSafe(value=int(at)):
            return _bounded(narrowing, at, at + 1), True
        case GreaterThan(value=int(at)):
            return _bounded(narrowing, at + 1, None), True
        case GreaterThanOrEqual(value=int(at)):
            return _bounded(narrowing, at, None), True
        case LessThan(value=int(at)):
            return _bounded(narrowing, None, at), True
        case LessThanOrEqual(value=int(at)):
            return _bounded(narrowing, None, at + 1), True
        case In() if values := _values(given):
            return _bounded(narrowing, min(values), max(values) + 1), False
    return narrowing, False


def _bounded(narrowing: Narrowing, low: int | None, high: int | None) -> Narrowing:
    lows = [each for each in (low, narrowing.offset_low) if each is not None]
    highs = [each for each in (high, narrowing.offset_high) if each is not None]
    return replace(narrowing, offset_low=max(lows, default=None), offset_high=min(highs, default=None))


def _times(narrowing: Narrowing, given: Filter) -> Narrowing:
    match given:
        case EqualTo(value=datetime() as at) | EqualNullSafe(value=datetime() as at):
            return _stored(narrowing, _ms_up(at), _ms_down(at) + 1)
        case GreaterThan(value=datetime() as at):
            return _stored(narrowing, _ms_down(at) + 1, None)
        case GreaterThanOrEqual(value=datetime() as at):
            return _stored(narrowing, _ms_up(at), None)
        case LessThan(value=datetime() as at):
            return _stored(narrowing, None, _ms_up(at))
        case LessThanOrEqual(value=datetime() as at):
            return _stored(narrowing, None, _ms_down(at) + 1)
        case In() if values := _values(given):
            return _stored(narrowing, _ms_up(min(values)), _ms_down(max(values)) + 1)
    return narrowing


def _stored(narrowing: Narrowing, low_ms: int | None, high_ms: int | None) -> Narrowing:
    if low_ms is not None:
        narrowing = replace(narrowing, stored_from_ms=max(low_ms, narrowing.stored_from_ms or 0, 0))
    if high_ms is not None:
        before = narrowing.stored_before_ms
        narrowing = replace(narrowing, stored_before_ms=max(0, high_ms if before is None else min(high_ms, before)))
    return narrowing


def _is_instant(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _ms_down(at: datetime) -> int:
    return (at - _EPOCH) // _MS


def _ms_up(at: datetime) -> int:
    return -((_EPOCH - at) // _MS)


def _is_plain_tag(tag: object) -> bool:
    """Whether it can be written into a subscription and means itself there."""
    return isinstance(tag, str) and tag == tag.strip() and tag not in ("", "*") and "|" not in tag


def _is_indexed(keys: object) -> bool:
    """Whether messages with these keys are found under one of them."""
    return isinstance(keys, str) and bool(keys.split(" ")[0].strip())


def _among(value: object, allowed: frozenset[Any] | None) -> bool:
    return allowed is None or value in allowed
