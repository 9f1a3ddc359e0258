"""Topics that a master has deleted: their queues go at its slaves too, and nothing that was written later. Pure."""

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
    """What a master tells the slaves of a fenced group at once. The stream's data may be behind it or ahead: the end of
    the log says which messages a deletion is about."""

    topics: TopicConfigTable = member("topics")
    groups: GroupConfigTable = member("groups")
    log_end: int = member("logEnd", default=0)
    """Where the master's log ended: queues without a topic, of messages from before it, were deleted."""
    unlisted: tuple[str, ...] = member("unlisted", default=())
    """Topics without settings whose queues the master has all the same."""
    deleted: Mapping[str, int] = member("deleted", factory=dict)
    """Where the log ended when a topic was deleted; it may have been made again since."""
    epoch: int = member("epoch", default=0)
    """The master's. Behind the start of a later one the log may have been cut, and gone on with other messages."""

    def drops(self, topics: Iterable[str], is_system: Callable[[str], bool], epochs: EpochList) -> dict[str, int]:
        """Of a slave's topics, those whose queues go, each as far as its messages end here or before."""
        kept = {*self.topics.topics, *self.unlisted}
        ends = {topic: self.log_end for topic in topics if topic not in kept and not is_system(topic)}
        valid_to = min((epoch.start for epoch in epochs if epoch.number > self.epoch), default=self.log_end)
        return {topic: min(end, valid_to) for topic, end in {**self.deleted, **ends}.items()}


class DeletedTopics:
    """A master's own: which topics are gone, and since where in the log. The oldest are forgotten first."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self.ends: dict[str, int] = {}

    def look(self, names: Iterable[str], log_end: int) -> None:
        """The table may have changed."""
        before, self._names = self._names, frozenset(names)
        for topic in sorted(before - self._names):
            self.ends.pop(topic, None)
            self.ends[topic] = log_end
        for topic in list(self.ends)[:-DELETED_COUNT_MAX]:
            del self.ends[topic]
