"""The topic table: configured, built-in and automatically created topics, with a version. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.flags import Perm
from rocketq.protocol.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)
from rocketq.remoting import RequestRejected

TOPIC_COUNT_MAX: Final = 50_000
READ_WRITE: Final = int(Perm.READ | Perm.WRITE)

TopicListener = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """The settings that the topic table depends on."""

    cluster: str
    broker_name: str
    auto_create: bool = True
    default_queue_count: int = 8
    cluster_topic: bool = True
    broker_topic: bool = True
    trace_topic: str | None = None
    delay_levels: int = 18


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"


def builtin_topics(rules: TopicRules) -> list[TopicConfig]:
    """Topics that exist on every broker."""
    template = READ_WRITE | Perm.INHERIT
    topics = [
        _topic(SELF_TEST_TOPIC, 1),
        _topic(BENCHMARK_TOPIC, 1024),
        _topic(rules.cluster, 16, Perm.INHERIT | (READ_WRITE if rules.cluster_topic else 0)),
        _topic(rules.broker_name, 1, Perm.INHERIT | (READ_WRITE if rules.broker_topic else 0)),
        _topic(OFFSET_MOVED_TOPIC, 1),
        _topic(SCHEDULE_TOPIC, rules.delay_levels),
        _topic(reply_topic(rules.cluster), 1),
        _topic(TIMER_TOPIC, 1),
    ]
    if rules.auto_create:
        topics.append(_topic(AUTO_CREATE_TOPIC, rules.default_queue_count, template))
    if rules.trace_topic is not None:
        topics.append(_topic(rules.trace_topic, 1))
    return topics


def _topic(name: str, queue_count: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(topic=name, read_queue_count=queue_count, write_queue_count=queue_count, perm=int(perm))


class TopicTable:
    """Topics by name. Each change increments the version and calls the listeners in order."""

    def __init__(
        self,
        builtin: Iterable[TopicConfig] = (),
        *,
        is_copy: bool = False,
        count_max: Callable[[], int] = lambda: TOPIC_COUNT_MAX,
    ) -> None:
        """`is_copy`: a slave's table, which only its master's replaces; no topic is created here automatically."""
        self._topics = {topic.topic: topic for topic in builtin}
        self._own_system = frozenset(self._topics)
        self._going: set[str] = set()
        self.data_version = DataVersion()
        self._is_copy = is_copy
        self._count_max = count_max
        self.listeners: list[TopicListener] = []

    @property
    def is_copy(self) -> bool:
        return self._is_copy

    def become_original(self) -> None:
        """This broker became the master: it may change the table."""
        self._is_copy = False

    def load(self, table: TopicConfigTable) -> None:
        """Load saved entries over the built-in ones."""
        self._topics |= table.topics
        self.data_version = table.data_version

    def replace(self, table: TopicConfigTable) -> None:
        """Replace the table and its version by the master's."""
        self._topics = dict(table.topics)
        self.data_version = table.data_version
        self._notify()

    def snapshot(self) -> TopicConfigTable:
        return TopicConfigTable(data_version=self.data_version, topics=dict(self._topics))

    def get(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def names(self) -> list[str]:
        return sorted(self._topics)

    def is_system(self, topic: str) -> bool:
        """Whether a topic is a system topic, which operators cannot change."""
        return topic in self._own_system or is_system_topic(topic)

    def limit_fault(self, *names: str) -> str | None:
        """Why these topics cannot be added, or None. System topics are not limited."""
        fresh = {name for name in names if name not in self._topics and not self.is_system(name)}
        count_max = self._count_max()
        if not fresh or len(self._topics) + len(fresh) <= count_max:
            return None
        return f"topic limit reached (maxTopicNums={count_max}): topic {min(fresh)} is not created"

    def put(self, *topics: TopicConfig, now_ms: int) -> None:
        """Add or replace topics; RequestRejected if there would be too many."""
        if (fault := self.limit_fault(*(topic.topic for topic in topics))) is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
        self._topics |= {topic.topic: topic for topic in topics}
        self._changed(now_ms)

    def delete(self, *topics: str, now_ms: int) -> bool:
        """Delete topics; returns whether any existed."""
        found = [topic for topic in topics if self._topics.pop(topic, None) is not None]
        if found:
            self._changed(now_ms)
        return bool(found)

    def begin_deletion(self, topic: str, *, now_ms: int) -> None:
        """Block re-creation until `end_deletion`: new messages would be deleted with the queues."""
        self._going.add(topic)
        self.delete(topic, now_ms=now_ms)

    def end_deletion(self, topic: str) -> None:
        self._going.discard(topic)

    def is_being_deleted(self, topic: str) -> bool:
        return topic in self._going

    def create_for_send(
        self, topic: str, *, template: str, queue_count: int, sys_flag: int, auto_create: bool, now_ms: int
    ) -> TopicConfig | None:
        """Create a topic for a send; returns None if auto-creation is not allowed."""
        known = self._topics.get(topic)
        if known is not None or topic in self._going:
            return known
        model = self._topics.get(template)
        refused = template == AUTO_CREATE_TOPIC and not auto_create
        if model is not None and model.perm & Perm.INHERIT and not refused:
            count = model.write_queue_count  # also for an invalid count, which would make a topic without queues
            if 0 < queue_count < count:
                count = queue_count
            fresh = replace(_topic(topic, count, model.perm & ~Perm.INHERIT), filter_type=model.filter_type)
            return self._create(replace(fresh, topic_sys_flag=sys_flag), now_ms)
        if topic.startswith(RETRY_PREFIX):
            return self._create(replace(_topic(topic, 1), topic_sys_flag=sys_flag), now_ms)
        return None

    def create_exactly(self, topic: str, queue_count: int, *, now_ms: int, sys_flag: int = 0) -> TopicConfig:
        """The topic; created with these values if it is missing."""
        known = self._topics.get(topic)
        if known is not None:
            return known
        return self._create(replace(_topic(topic, queue_count), topic_sys_flag=sys_flag), now_ms)

    def set_orders(self, ordered: Iterable[str], *, now_ms: int) -> bool:
        """Set the ordered topics; returns whether anything changed."""
        wanted = frozenset(ordered)
        wrong = [topic for topic in self._topics.values() if topic.order != (topic.topic in wanted)]
        if wrong:
            self.put(*(replace(topic, order=not topic.order) for topic in wrong), now_ms=now_ms)
        return bool(wrong)

    def touch(self, now_ms: int) -> None:
        """Increment the version after a change that affects all topics, such as the broker's permission."""
        self._changed(now_ms)

    def _create(self, topic: TopicConfig, now_ms: int) -> TopicConfig:
        if not self._is_copy:
            self.put(topic, now_ms=now_ms)
        return topic

    def _changed(self, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
        self._notify()

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()
