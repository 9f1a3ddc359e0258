"""Deletions of topics on fenced slaves: removes queues up to the deletion, not later messages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from rocketq.protocol.bodies.groups import GroupConfigTable
from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.topics import TopicConfigTable
from rocketq.replication.epochs import EpochList

DELETED_COUNT_MAX: Final = 1_000


@body
class PushedTables(Body):
    """Tables that a fenced master pushes to its slaves. The log stream may be behind or ahead, so that a deletion has
    the end of the log it applies to."""

    topics: TopicConfigTable = member("topics")
    groups: GroupConfigTable = member("groups")
    log_end: int = member("logEnd", default=0)
    """End of the master's log: queues without a topic and with messages before it were deleted."""
    unlisted: tuple[str, ...] = member("unlisted", default=())
    """Topics without settings whose queues exist at the master."""
    deleted: Mapping[str, int] = member("deleted", factory=dict)
    """End of the log when a topic was deleted; it may exist again."""
    users: str | None = member("users", default=None)
    """Users and policies, sealed with a key of the brokers' inner credentials."""
    epoch: int = member("epoch", default=0)
    """The master's epoch. After the start of a later epoch the log may have been truncated and have other messages."""

    def drops(self, topics: Iterable[str], is_system: Callable[[str], bool], epochs: EpochList) -> dict[str, int]:
        """The slave's topics whose queues are deleted, each with the log end up to which."""
        kept = {*self.topics.topics, *self.unlisted}
        ends = {topic: self.log_end for topic in topics if topic not in kept and not is_system(topic)}
        valid_to = min((epoch.start for epoch in epochs if epoch.number > self.epoch), default=self.log_end)
        return {topic: min(end, valid_to) for topic, end in {**self.deleted, **ends}.items()}


class DeletedTopics:
    """A master's deleted topics with the log end of the deletion; the latest 1,000."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self.ends: dict[str, int] = {}

    def look(self, names: Iterable[str], log_end: int) -> None:
        """Compare the topic table with the last one."""
        before, self._names = self._names, frozenset(names)
        for topic in sorted(before - self._names):
            self.ends.pop(topic, None)
            self.ends[topic] = log_end
        for topic in list(self.ends)[:-DELETED_COUNT_MAX]:
            del self.ends[topic]
