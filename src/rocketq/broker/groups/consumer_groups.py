"""Consumers that are connected, by group, and what each group subscribes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from rocketq.broker.groups.members import Departures, Link, Member, Roster
from rocketq.broker.groups.subscription_conflicts import Wishes, conflicts, wishes_of
from rocketq.protocol.bodies.clients import ConsumerData, Subscription
from rocketq.protocol.flags import ConsumeFromWhere, ConsumeType, MessageModel


@dataclass(slots=True)
class ConsumerGroup:
    """What the members of a group last said about it."""

    consume_type: ConsumeType
    model: MessageModel
    from_where: ConsumeFromWhere
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def subscribe(self, wanted: tuple[Subscription, ...]) -> bool:
        """Whether topics came or went; a newer expression for a known topic is taken without that."""
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


class ConsumerGroups(Generic[Link]):
    """Answers which groups must be notified that their members changed; notifying them is for others. `changed` is
    called when what pulls of a group get is another than before."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._roster: Roster[Link] = Roster()
        self._groups: dict[str, ConsumerGroup] = {}
        self._wishes: dict[str, dict[Link, Wishes]] = {}
        self._told: dict[str, dict[str, tuple[str, ...]]] = {}
        self._reworded: set[str] = set()

    def heartbeat(self, data: ConsumerData, member: Member[Link]) -> bool:
        """Whether members or topics of the group changed."""
        group = self._groups.get(data.group)
        if group is None:
            group = self._groups[data.group] = ConsumerGroup(data.consume_type, data.model, data.from_where)
            self._changed()
        before = (group.model, dict(group.subscriptions))
        group.consume_type, group.model, group.from_where = data.consume_type, data.model, data.from_where
        joined = self._roster.put(data.group, member)
        self._wish(data, member.link)
        changed = group.subscribe(data.subscriptions)
        if before != (group.model, group.subscriptions):
            self._changed()
        return changed or joined

    def disagreements(self, data: ConsumerData, link: Link) -> dict[str, tuple[str, ...]]:
        """In what this member would differ from the others of its group, by topic."""
        wishes, known = wishes_of(data.subscriptions), self._wishes.get(data.group, {})
        if known.get(link) == wishes and data.group not in self._told:
            return {}
        return conflicts([wishes, *(other for one, other in known.items() if one != link)])

    def conflicts(self, group: str) -> dict[str, tuple[str, ...]]:
        """What members of a group want differently, by topic."""
        return conflicts(self._wishes.get(group, {}).values())

    def is_new_conflict(self, group: str) -> bool:
        """Whether the members' differences are others than when this was asked last."""
        if group not in self._reworded:
            return False
        self._reworded.discard(group)
        found = self.conflicts(group)
        before = self._told.pop(group, {})
        if found:
            self._told[group] = found
        return bool(found) and found != before

    def _wish(self, data: ConsumerData, link: Link) -> None:
        wishes, known = wishes_of(data.subscriptions), self._wishes.setdefault(data.group, {})
        if known.get(link) == wishes:
            return
        agreed = data.group not in self._told and data.group not in self._reworded
        if link in known or not agreed or next(iter(known.values()), None) != wishes:
            self._reworded.add(data.group)  # else all agree as before, without asking each of thousands
        known[link] = wishes

    def leave(self, group: str, link: Link) -> bool:
        """Whether it was a member."""
        left = self._roster.remove(group, link)
        self._forget_empty(group)
        return left

    def disconnect(self, link: Link) -> list[str]:
        groups = self._roster.disconnect(link)
        self._forget_empty(*groups)
        return groups

    def expire(self, heard_before_ms: int) -> Departures[Link]:
        gone = self._roster.expire(heard_before_ms)
        self._forget_empty(*gone.groups)
        return gone

    def get(self, group: str) -> ConsumerGroup | None:
        return self._groups.get(group)

    def members(self, group: str) -> list[Member[Link]]:
        return self._roster.members(group)

    def client(self, group: str, client_id: str) -> Member[Link] | None:
        return self._roster.client(client_id, group)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        known = self._groups.get(group)
        return None if known is None else known.subscriptions.get(topic)

    def groups_of(self, topic: str) -> list[str]:
        """Groups whose members subscribe to a topic."""
        return sorted(name for name, group in self._groups.items() if topic in group.subscriptions)

    def _forget_empty(self, *groups: str) -> None:
        for group in groups:
            present = {member.link for member in self._roster.members(group)}
            self._wishes[group] = {
                link: wishes for link, wishes in self._wishes.get(group, {}).items() if link in present
            }
            self._reworded.add(group)
            if not present:
                self._reworded.discard(group)
                if self._groups.pop(group, None) is not None:
                    self._changed()
                self._wishes.pop(group, None)
                self._told.pop(group, None)
