"""Subscriptions: tags, SQL92 expressions, and the table a consumer announces."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from rocketq.client.errors import ClientError
from rocketq.kernel.properties import hash_text
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.failures import SubscriptionRejectedError
from rocketq.protocol.flags import ExpressionType
from rocketq.protocol.names import NOT_FOR_CLIENTS, topic_fault

ALL: Final = "*"


def tags_of(expression: str | None) -> frozenset[str] | None:
    """The tags in `a || b`; None for all."""
    if not expression or expression.strip() == ALL:
        return None
    return frozenset(tag.strip() for tag in expression.split("||") if tag.strip()) or None


def is_wanted(tag: str | None, tags: frozenset[str] | None) -> bool:
    return tags is None or tag in tags


class SubscriptionInvalidError(ClientError):
    """A subscription no broker would take. `position`: the index of the character at which an SQL92 expression goes
    wrong, where there is one."""

    def __init__(self, what: str, position: int | None = None) -> None:
        super().__init__(what)
        self.position = position


def make_subscription(topic: str, expression: str | None, sql: str | None, now_ms: int) -> Subscription:
    """By tags (`a || b`, `*` for all) or by an SQL92 expression; SubscriptionInvalidError if it is malformed."""
    if not isinstance(topic, str):
        raise SubscriptionInvalidError(f"a topic is a text, not {type(topic).__name__}")
    if (fault := topic_fault(topic)) is not None:
        raise SubscriptionInvalidError(fault)
    if topic in NOT_FOR_CLIENTS:
        raise SubscriptionInvalidError(f"topic {topic} is the broker's own")
    if sql is not None:
        if expression not in (None, ALL):
            raise SubscriptionInvalidError("give tags or an SQL92 expression, not both")
        if not isinstance(sql, str) or not sql.strip():
            raise SubscriptionInvalidError("the SQL92 expression is empty")
        _check_sql(sql)
        return Subscription(topic=topic, expression=sql, expression_type=ExpressionType.SQL92, version=now_ms)
    if expression is not None and not isinstance(expression, str):
        raise SubscriptionInvalidError(f"an expression is a text, not {type(expression).__name__}")
    tags = sorted(tags_of(expression) or ())
    if not tags:
        return Subscription(topic=topic, version=now_ms)
    codes = tuple(hash_text(tag) for tag in tags)
    return Subscription(topic=topic, expression=expression or ALL, tags=tuple(tags), codes=codes, version=now_ms)


def _check_sql(sql: str) -> None:
    from rocketq.filter import BadExpressionError, compile_sql  # noqa: PLC0415 most need no parser

    try:
        compile_sql(sql)
    except BadExpressionError as error:
        raise SubscriptionInvalidError(f"the SQL92 expression: {error}", error.position) from None


class SubscriptionTable:
    """By topic. Versions only grow: brokers ignore an older one."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Subscription] = {}
        self._tags: dict[str, frozenset[str] | None] = {}
        self._rejections: dict[tuple[str, str], SubscriptionRejectedError] = {}

    def put(self, subscription: Subscription) -> None:
        before = self._by_topic.get(subscription.topic)
        if before is not None and before.version >= subscription.version:
            subscription = replace(subscription, version=before.version + 1)
        self._forget_rejections(subscription.topic)
        self._by_topic[subscription.topic] = subscription
        by_tag = subscription.expression_type == ExpressionType.TAG
        self._tags[subscription.topic] = frozenset(subscription.tags) or None if by_tag else None

    def remove(self, topic: str) -> bool:
        self._tags.pop(topic, None)
        self._forget_rejections(topic)
        return self._by_topic.pop(topic, None) is not None

    def get(self, topic: str) -> Subscription | None:
        return self._by_topic.get(topic)

    def tags(self, topic: str) -> frozenset[str] | None:
        """Which tags are wanted, by name; None for all, and where the broker decides."""
        return self._tags.get(topic)

    def topics(self) -> Collection[str]:
        return tuple(self._by_topic)

    def all(self) -> tuple[Subscription, ...]:
        return tuple(self._by_topic.values())

    def reject(self, subscription: Subscription, broker_name: str, error: SubscriptionRejectedError) -> bool:
        """A broker rejected the subscription; its name is empty where it is not known.

        False if that is known of the topic, or if another subscription replaced this one.
        """
        if not self._has(subscription):
            return False
        is_known = any(topic == subscription.topic for topic, _ in self._rejections)
        self._rejections[subscription.topic, broker_name] = error
        return not is_known

    def accept(self, subscription: Subscription, broker_name: str) -> None:
        """A broker answered a pull with the subscription."""
        if self._rejections and self._has(subscription):
            self._rejections.pop((subscription.topic, broker_name), None)
            self._rejections.pop((subscription.topic, ""), None)

    @property
    def rejection(self) -> SubscriptionRejectedError | None:
        """Why a broker rejects a subscription; None when all are accepted."""
        return next(iter(self._rejections.values()), None)

    def _has(self, subscription: Subscription) -> bool:
        """Whether it is the current one; only its version may differ."""
        current = self._by_topic.get(subscription.topic)
        return current is not None and replace(current, version=subscription.version) == subscription

    def _forget_rejections(self, topic: str) -> None:
        for key in [key for key in self._rejections if key[0] == topic]:
            del self._rejections[key]

    def touch(self, topic: str, now_ms: int) -> None:
        """The assignment of this topic changed: brokers get the subscription with a newer version."""
        before = self._by_topic.get(topic)
        if before is not None:
            self._by_topic[topic] = replace(before, version=max(now_ms, before.version + 1))
