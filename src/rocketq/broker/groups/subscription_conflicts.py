"""Members of one group that want different things. Each gets queues, so each would lose the other's messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketq.broker.pull.tag_filter import is_tag_filter
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.names import RETRY_PREFIX

Wishes = Mapping[str, str]
"""By topic, what of it is wanted."""
NOTHING = "-"


def wishes_of(subscriptions: Iterable[Subscription]) -> dict[str, str]:
    """What a member wants, in a form that is equal for equal wishes. Retries are everybody's own affair."""
    return {one.topic: _form(one) for one in subscriptions if not one.topic.startswith(RETRY_PREFIX)}


def _form(subscription: Subscription) -> str:
    expression = subscription.expression or "*"
    if not is_tag_filter(subscription.expression_type):
        return f"{subscription.expression_type} {expression.strip()}"
    tags = sorted({tag.strip() for tag in expression.split("||")} - {""})
    return " || ".join(tags)


def conflicts(wishes_by_member: Iterable[Wishes]) -> dict[str, tuple[str, ...]]:
    """By topic, the different things that members want of it; a topic all agree on is left out."""
    members = list(wishes_by_member)
    topics = {topic for wishes in members for topic in wishes}
    found = {topic: {wishes.get(topic, NOTHING) for wishes in members} for topic in topics}
    return {topic: tuple(sorted(kinds)) for topic, kinds in sorted(found.items()) if len(kinds) > 1}


def describe(found: Mapping[str, tuple[str, ...]]) -> str:
    return "; ".join(f"{topic}: {' against '.join(kinds)}" for topic, kinds in found.items())
