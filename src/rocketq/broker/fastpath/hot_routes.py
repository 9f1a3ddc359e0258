"""Who the kernel may serve by itself: topics that plain sends go to, groups that pull from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.pull.tag_filter import is_tag_filter, subscription_of, tag_codes
from rocketq.broker.topics.table import TopicTable
from rocketq.filter import BadExpressionError
from rocketq.kernel.pull_frames import PullRoute
from rocketq.kernel.send_frames import SendRoute
from rocketq.model import SysFlag
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.bodies.heartbeat import Subscription
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.flags import MessageModel, Perm, TopicFilterType
from rocketq.protocol.names import NOT_FOR_CLIENTS
from rocketq.remoting import Connection
from rocketq.store import Store
from rocketq.store.queue_table import QUEUE_ID_MAX

_SYSTEM_PREFIXES: Final = ("%", "RMQ_SYS_", "rmq_sys_")
_KEY_END: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class PullKey:
    """What a pull's route is found by; `expression` is None when the group's own subscription counts."""

    group: str
    topic: str
    expression: str | None

    @classmethod
    def of(cls, key: bytes) -> PullKey:
        group, topic, *expression = key.decode("ascii").split("\0")
        return cls(group, topic, expression[0] if expression else None)


@dataclass(frozen=True, slots=True)
class Routes:
    """Makes routes from the tables; None where the handlers must decide."""

    settings: Settings
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    store: Store

    def tail(self, topic: str, queue_id: int) -> Any:
        """The kernel's end of a queue; None before its first message."""
        queue = self.store.queues.get(topic, queue_id)
        return None if queue is None else queue.tail

    def for_sends(self, name: bytes) -> SendRoute | None:
        topic = self.topics.get(name.decode("utf-8", "replace"))
        if topic is None or topic.topic in NOT_FOR_CLIENTS or topic.topic.startswith(_SYSTEM_PREFIXES):
            return None
        count = min(max(topic.write_queue_count, topic.read_queue_count), QUEUE_ID_MAX + 1)
        sys_flag = SysFlag.MULTI_TAGS if topic.filter_type is TopicFilterType.MULTI_TAG else 0
        return SendRoute(name, [self.tail(topic.topic, number) for number in range(count)], sys_flag)

    def for_pulls(self, key: bytes) -> PullRoute | None:
        wanted = PullKey.of(key)
        group, topic = self.groups.get(wanted.group), self.topics.get(wanted.topic)
        if group is None or not group.consume_enable or topic is None or not topic.perm & Perm.READ:
            return None
        if not self.groups.may_read(wanted.group, wanted.topic):
            return None
        members = self.consumers.get(wanted.group)
        try:
            subscription = self._subscription(wanted, group, members)
            codes = None if subscription is None else tag_codes(subscription)
        except BadExpressionError:
            return None
        if subscription is None or not is_tag_filter(subscription.expression_type):
            return None
        count = min(topic.read_queue_count, QUEUE_ID_MAX + 1)
        return PullRoute(
            key,
            wanted,
            [self.tail(topic.topic, number) for number in range(count)],
            codes,
            subscription.version,
            self._numbers(group, topic),
            self._watch(wanted, group, topic, members, subscription),
        )

    def _subscription(self, wanted: PullKey, group: GroupConfig, members: ConsumerGroup | None) -> Subscription | None:
        if wanted.expression is not None:
            return subscription_of(wanted.topic, wanted.expression, 0)
        if members is None or (members.model is MessageModel.BROADCASTING and not group.consume_broadcast_enable):
            return None
        return members.subscriptions.get(wanted.topic)

    def _numbers(self, group: GroupConfig, topic: TopicConfig) -> tuple[int, int, int, int]:
        near, far = (group.broker_id, group.slow_consumer_broker_id) if self.settings.config.slave_read else (0, 0)
        return near, far, topic.topic_sys_flag, group.group_sys_flag or 0

    def _watch(
        self,
        wanted: PullKey,
        group: GroupConfig,
        topic: TopicConfig,
        members: ConsumerGroup | None,
        subscription: Subscription,
    ) -> Callable[[], bool]:
        """Whether the tables still say what the route was made from; all of it is replaced, never edited, but members,
        whose model may change with any heartbeat."""
        groups, topics, consumers, settings = self.groups, self.topics, self.consumers, self.settings
        group_name, topic_name, config = wanted.group, wanted.topic, settings.config
        version = groups.data_version

        def is_current() -> bool:
            return (
                groups.data_version is version
                and settings.config is config
                and groups.get(group_name) is group
                and topics.get(topic_name) is topic
            )

        if wanted.expression is not None:
            return is_current
        assert members is not None
        model = members.model

        def is_subscribed() -> bool:
            known = consumers.get(group_name)
            return (
                is_current()
                and known is members
                and known.model is model
                and known.subscriptions.get(topic_name) is subscription
            )

        return is_subscribed
