"""What a subscription lets through, as hashes of tags that queue entries are compared with."""

from __future__ import annotations

from rocketq.filter import parse_tags, tag_code
from rocketq.protocol.bodies.clients import ALL, Subscription
from rocketq.protocol.flags import ExpressionType


def is_tag_filter(expression_type: str | None) -> bool:
    return expression_type in (None, "", ExpressionType.TAG)


def subscription_of(topic: str, expression: str | None, version: int) -> Subscription:
    """From an expression in a request; BadExpressionError when it is none."""
    tags = parse_tags(expression)
    return Subscription(
        topic=topic,
        expression=expression or ALL,
        tags=tags or (),
        codes=tuple(tag_code(tag) for tag in tags or ()),
        version=version,
    )


def tag_codes(subscription: Subscription) -> frozenset[int] | None:
    """Hashes of the wanted tags, None for all. Worked out from the tags: some clients send other numbers."""
    if subscription.class_filter or subscription.expression == ALL or not is_tag_filter(subscription.expression_type):
        return None
    tags = subscription.tags or parse_tags(subscription.expression)
    return None if tags is None else frozenset(tag_code(tag) for tag in tags)
