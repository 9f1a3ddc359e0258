"""What a subscription lets through, as hashes of tags that queue entries are compared with."""

from __future__ import annotations

from typing import Final, cast

from rocketq.kernel.properties import hash_text
from rocketq.protocol.bodies.heartbeat import ALL, Subscription
from rocketq.protocol.flags import ExpressionType

_OR: Final = "||"


class BadExpressionError(ValueError):
    """An expression without a tag in it."""


def is_tag_filter(expression_type: str | None) -> bool:
    return expression_type in (None, "", ExpressionType.TAG)


def parse_tags(expression: str | None) -> tuple[str, ...] | None:
    """The tags of `a || b`; None for all messages. Blanks alone match nothing."""
    if not expression or expression == ALL:
        return None
    parts = expression.split(_OR)
    tags = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not tags and len(parts) > 1:
        raise BadExpressionError(f"{expression!r} has no tag in it")
    return tags


def subscription_of(topic: str, expression: str | None, version: int) -> Subscription:
    """From an expression in a request; BadExpressionError when it is none."""
    tags = parse_tags(expression)
    return Subscription(
        topic=topic,
        expression=expression or ALL,
        tags=tags or (),
        codes=tuple(cast(int, hash_text(tag)) for tag in tags or ()),
        version=version,
    )


def tag_codes(subscription: Subscription) -> frozenset[int] | None:
    """Hashes of the wanted tags, None for all. Worked out from the tags: some clients send other numbers."""
    if subscription.class_filter or subscription.expression == ALL:
        return None
    tags = subscription.tags or parse_tags(subscription.expression)
    return None if tags is None else frozenset(cast(int, hash_text(tag)) for tag in tags)
