"""Filters of pulls: from the expression of the request, or from the group's subscription."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rocketq.broker.pull.consumer_filters import ConsumerFilter, ConsumerFilters
from rocketq.filter import BadExpressionError, compile_sql, parse_tags, tag_code
from rocketq.kernel.filter_program import FilterProgram
from rocketq.protocol.bodies.clients import ALL, Subscription
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.flags import ExpressionType
from rocketq.protocol.headers.pull import PullRequest
from rocketq.protocol.messages import decode_records
from rocketq.protocol.names import RETRY_PREFIX, Property
from rocketq.protocol.properties import decode_properties
from rocketq.remoting import RequestRejected
from rocketq.store.queries import ExtensionFilter, RecordFilter
from rocketq.store.queue_extensions import Extension


def is_tag_filter(expression_type: str | None) -> bool:
    return expression_type in (None, "", ExpressionType.TAG)


def subscription_of(topic: str, expression: str | None, version: int) -> Subscription:
    """The subscription for a tag expression; BadExpressionError if it is invalid."""
    tags = parse_tags(expression)
    return Subscription(
        topic=topic,
        expression=expression or ALL,
        tags=tags or (),
        codes=tuple(tag_code(tag) for tag in tags or ()),
        version=version,
    )


def tag_codes(subscription: Subscription) -> frozenset[int] | None:
    """Hashes of the subscribed tags, None for all. Computed from the tags, because some clients send wrong hashes."""
    if subscription.class_filter or subscription.expression == ALL or not is_tag_filter(subscription.expression_type):
        return None
    tags = subscription.tags or parse_tags(subscription.expression)
    return None if tags is None else frozenset(tag_code(tag) for tag in tags)


@dataclass(frozen=True, slots=True)
class PullFilter:
    """Three stages: hashes of tags compared with queue entries, a test of their extensions, a test of records. None
    passes everything."""

    tag_codes: frozenset[int] | None = None
    records: RecordFilter | None = None
    extensions: ExtensionFilter | None = None


@dataclass(frozen=True, slots=True)
class FilterRules:
    """Settings: whether conditions on properties are allowed, and whether retries use those of the original topic."""

    by_properties: bool
    for_retries: bool


def carried_filter(header: PullRequest, filters: ConsumerFilters, rules: FilterRules) -> PullFilter:
    """The filter of a request that carries one."""
    if is_tag_filter(header.expression_type):
        return _by_tags(lambda: subscription_of(header.topic, header.subscription, 0))
    program = compile_checked(header.expression_type, header.subscription, rules)
    return _by_program(program, header, filters, rules)


def known_filter(
    subscription: Subscription, header: PullRequest, filters: ConsumerFilters, rules: FilterRules
) -> PullFilter:
    """The filter of a group's subscription."""
    if is_tag_filter(subscription.expression_type):
        return _by_tags(lambda: subscription)
    known = filters.get(header.group, header.topic)
    if known is None:
        remark = (
            f"no condition of {header.group} for {header.topic} could be used, {subscription.expression!r} may be bad"
        )
        raise RequestRejected(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
    if known.version < header.subscription_version:
        remark = f"the broker knows an older condition of {header.group} for {header.topic}"
        raise RequestRejected(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
    _require_enabled(subscription.expression_type, rules)
    found = _by_program(known.program, header, filters, rules)
    return replace(found, extensions=BitmapCheck(known, filters)) if found.records is known.program else found


def _by_tags(subscription: Callable[[], Subscription]) -> PullFilter:
    try:
        return PullFilter(tag_codes(subscription()))
    except BadExpressionError as error:
        raise RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def compile_checked(expression_type: str | None, expression: str | None, rules: FilterRules) -> FilterProgram:
    """Compile an expression that is not of type TAG; RequestRejected if it is invalid or not allowed."""
    _require_enabled(expression_type, rules)
    if expression_type != ExpressionType.SQL92:
        raise RequestRejected(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"expressions of type {expression_type} are not known"
        )
    try:
        return compile_sql(expression or "")
    except BadExpressionError as error:
        raise RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"SQL92: {error}") from None


def _require_enabled(expression_type: str | None, rules: FilterRules) -> None:
    if not rules.by_properties:
        remark = f"this broker does not filter by {expression_type}: enablePropertyFilter is false"
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)


def _by_program(
    program: FilterProgram, header: PullRequest, filters: ConsumerFilters, rules: FilterRules
) -> PullFilter:
    if rules.for_retries and header.topic.startswith(RETRY_PREFIX):
        return PullFilter(records=RetryFilter(header.topic.removeprefix(RETRY_PREFIX), filters))
    return PullFilter(records=program)


@dataclass(frozen=True, slots=True)
class BitmapCheck:
    """Skips messages whose bitmap excludes the group's condition."""

    known: ConsumerFilter
    filters: ConsumerFilters

    def __call__(self, extension: Extension) -> bool:
        return self.filters.may_match(self.known, extension.bitmap, extension.store_ms)


@dataclass(frozen=True, slots=True)
class RetryFilter:
    """Filters retried messages by the group's condition for their original topic; without one all pass."""

    group: str
    filters: ConsumerFilters

    def __call__(self, data: bytes) -> bool:
        (record,) = decode_records(data)
        topic = decode_properties(record.properties).get(Property.RETRY_TOPIC)
        known = None if topic is None else self.filters.get(self.group, topic)
        return known is None or bool(known.program.matches(record.properties))
