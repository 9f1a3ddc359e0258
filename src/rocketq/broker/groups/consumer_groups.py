"""Connected consumers by group, the subscriptions of each group, and conflicts between its members. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic

from rocketq.broker.groups.members import ConnectionT, Departures, Member, Roster
from rocketq.broker.pull.filters import is_tag_filter
from rocketq.protocol.bodies.clients import ConsumerData, Subscription
from rocketq.protocol.flags import ConsumeFromWhere, ConsumeType, MessageModel
from rocketq.protocol.names import RETRY_PREFIX


@dataclass(slots=True)
class ConsumerGroup:
    """The latest heartbeat data of a group."""

    consume_type: ConsumeType
    model: MessageModel
    from_where: ConsumeFromWhere
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def subscribe(self, wanted: tuple[Subscription, ...]) -> bool:
        """Replace subscriptions by newer versions; returns whether topics were added or removed."""
        topics = {subscription.topic for subscription in wanted}
        gone = [topic for topic in self.subscriptions if topic not in topics]
        for topic in gone:
            del self.subscriptions[topic]
        changed = bool(gone)
        for subscription in wanted:
            known = self.subscriptions.get(subscription.topic)
            if known is None or subscription.version > known.version:
                self.subscriptions[subscription.topic] = subscription
                changed |= known is None
        return changed


class ConsumerGroups(Generic[ConnectionT]):
    """Consumer groups by name. Methods return which groups must be notified. `changed` is called when a change affects
    the admission of pulls."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._roster: Roster[ConnectionT] = Roster()
        self._groups: dict[str, ConsumerGroup] = {}
        self._expressions: dict[str, dict[ConnectionT, Expressions]] = {}
        self._reported: dict[str, dict[str, tuple[str, ...]]] = {}
        self._unreported: set[str] = set()

    def heartbeat(self, data: ConsumerData, member: Member[ConnectionT]) -> bool:
        """Register a heartbeat; returns whether members or topics of the group changed."""
        group = self._groups.get(data.group)
        if group is None:
            group = self._groups[data.group] = ConsumerGroup(data.consume_type, data.model, data.from_where)
            self._changed()
        before = (group.model, dict(group.subscriptions))
        group.consume_type, group.model, group.from_where = data.consume_type, data.model, data.from_where
        joined = self._roster.put(data.group, member)
        self._record_expressions(data, member.connection)
        changed = group.subscribe(data.subscriptions)
        if before != (group.model, group.subscriptions):
            self._changed()
        return changed or joined

    def disagreements(self, data: ConsumerData, connection: ConnectionT) -> dict[str, tuple[str, ...]]:
        """By topic, the conflicting expressions if this member joined."""
        expressions, known = normalized_expressions(data.subscriptions), self._expressions.get(data.group, {})
        if known.get(connection) == expressions and data.group not in self._reported:
            return {}
        return conflicts([expressions, *(other for one, other in known.items() if one != connection)])

    def conflicts(self, group: str) -> dict[str, tuple[str, ...]]:
        """By topic, the conflicting expressions of a group's members."""
        return conflicts(self._expressions.get(group, {}).values())

    def is_new_conflict(self, group: str) -> bool:
        """Whether the conflicts of a group differ from those at the last call."""
        if group not in self._unreported:
            return False
        self._unreported.discard(group)
        found = self.conflicts(group)
        before = self._reported.pop(group, {})
        if found:
            self._reported[group] = found
        return bool(found) and found != before

    def _record_expressions(self, data: ConsumerData, connection: ConnectionT) -> None:
        expressions, known = normalized_expressions(data.subscriptions), self._expressions.setdefault(data.group, {})
        if known.get(connection) == expressions:
            return
        agreed = data.group not in self._reported and data.group not in self._unreported
        if connection in known or not agreed or next(iter(known.values()), None) != expressions:
            self._unreported.add(data.group)  # otherwise the members agree as before: no comparison of all of them
        known[connection] = expressions

    def leave(self, group: str, connection: ConnectionT) -> bool:
        """Remove a member; returns whether it was one."""
        left = self._roster.remove(group, connection)
        self._forget_empty(group)
        return left

    def disconnect(self, connection: ConnectionT) -> list[str]:
        groups = self._roster.disconnect(connection)
        self._forget_empty(*groups)
        return groups

    def expire(self, heard_before_ms: int) -> Departures[ConnectionT]:
        gone = self._roster.expire(heard_before_ms)
        self._forget_empty(*gone.groups)
        return gone

    def get(self, group: str) -> ConsumerGroup | None:
        return self._groups.get(group)

    def names(self) -> list[str]:
        """Groups with online members."""
        return list(self._groups)

    def groups_joined(self, connection: ConnectionT) -> set[str]:
        """The groups a connection is in."""
        return self._roster.groups_of(connection)

    def members(self, group: str) -> list[Member[ConnectionT]]:
        return self._roster.members(group)

    def client(self, group: str, client_id: str) -> Member[ConnectionT] | None:
        return self._roster.client(client_id, group)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        known = self._groups.get(group)
        return None if known is None else known.subscriptions.get(topic)

    def groups_of(self, topic: str) -> list[str]:
        """Groups whose members subscribe to a topic."""
        return sorted(name for name, group in self._groups.items() if topic in group.subscriptions)

    def _forget_empty(self, *groups: str) -> None:
        for group in groups:
            present = {member.connection for member in self._roster.members(group)}
            self._expressions[group] = {
                connection: expressions
                for connection, expressions in self._expressions.get(group, {}).items()
                if connection in present
            }
            self._unreported.add(group)
            if not present:
                self._unreported.discard(group)
                if self._groups.pop(group, None) is not None:
                    self._changed()
                self._expressions.pop(group, None)
                self._reported.pop(group, None)


Expressions = Mapping[str, str]
"""Normalized expression by topic."""
NOTHING = "-"


def normalized_expressions(subscriptions: Iterable[Subscription]) -> dict[str, str]:
    """A member's expressions in a form that is equal for equivalent ones. Retry topics are left out."""
    return {one.topic: _form(one) for one in subscriptions if not one.topic.startswith(RETRY_PREFIX)}


def _form(subscription: Subscription) -> str:
    expression = subscription.expression or "*"
    if not is_tag_filter(subscription.expression_type):
        return f"{subscription.expression_type} {expression.strip()}"
    tags = sorted({tag.strip() for tag in expression.split("||")} - {""})
    return " || ".join(tags)


def conflicts(expressions_by_member: Iterable[Expressions]) -> dict[str, tuple[str, ...]]:
    """By topic, the different expressions of members; topics without differences are left out."""
    members = list(expressions_by_member)
    topics = {topic for expressions in members for topic in expressions}
    found = {topic: {expressions.get(topic, NOTHING) for expressions in members} for topic in topics}
    return {topic: tuple(sorted(kinds)) for topic, kinds in sorted(found.items()) if len(kinds) > 1}


def describe(found: Mapping[str, tuple[str, ...]]) -> str:
    return "; ".join(f"{topic}: {' against '.join(kinds)}" for topic, kinds in found.items())
