"""Makes grants of the fast path from admissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketq.broker.pipeline.admission import (
    AdmissionTables,
    PullAdmission,
    PullAsk,
    Rejection,
    SendAsk,
    admit_pull,
    admit_send,
)
from rocketq.broker.pipeline.answer_templates import Templates
from rocketq.broker.pull.filters import is_tag_filter, subscription_of, tag_codes
from rocketq.filter import BadExpressionError
from rocketq.kernel.admission import Grant, PullGrant, SendGrant
from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.signatures import Account
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.names import GROUP_CHARS_MAX, SCHEDULE_TOPIC
from rocketq.protocol.properties import encode_properties
from rocketq.remoting import Connection
from rocketq.store.consume_queue import QUEUE_ID_MAX, QueueTable

_NOT_PLAIN: Final = "%"  # a send to a retry topic may become a dead letter
_EXPRESSION_CHARS_MAX: Final = 1_024  # clients choose the expressions; longer ones are not cached


SendKey = tuple[int, Account | None, bytes, bytes]
"""Key of a send grant: scope, account, topic, group."""
PullKey = tuple[int, Account | None, bytes]
"""Key of a pull grant: scope, account, encoded PulledTopic."""


@dataclass(frozen=True, slots=True)
class PulledTopic:
    """The topic of a pull; `expression` is None for the group's own subscription."""

    group: str
    topic: str
    expression: str | None

    @classmethod
    def of(cls, key: bytes) -> PulledTopic:
        group, topic, *expression = key.decode("ascii").split("\0")
        return cls(group, topic, expression[0] if expression else None)


class GrantFactory:
    """Makes grants of one generation; returns None if the slow path must decide."""

    def __init__(self, tables: AdmissionTables, known: QueueTable, delay_levels: int) -> None:
        self._tables = tables
        self._known = known
        self._queues: dict[tuple[str, int], list[QueueTail | None]] = {}
        self._delay_queues: list[QueueTail | None] = [None] * delay_levels
        self._delayed: SendGrant | None = None

    def find_delay_queue(self, level: int) -> bool:
        """Look up the queue of a delay level for all grants; returns whether it exists."""
        self._delay_queues[level - 1] = self.tail(SCHEDULE_TOPIC, level - 1)
        return self._delay_queues[level - 1] is not None

    def forget_queues(self) -> None:
        """Forget all queues after some were removed."""
        self._queues.clear()
        self._delay_queues = [None] * len(self._delay_queues)

    def find_queue(self, grant: Grant, queue_id: int) -> bool:
        """Look up a queue for all grants of its topic; returns whether it exists."""
        grant.queues[queue_id] = self.tail(grant.topic.decode(), queue_id)
        return grant.queues[queue_id] is not None

    def tail(self, topic: str, queue_id: int) -> QueueTail | None:
        """The kernel's tail of a queue; None before its first message."""
        queue = self._known.get(topic, queue_id)
        return None if queue is None else queue.tail

    def for_sends(
        self, key: SendKey, generation: int, connection: Connection, templates: Templates, now_ms: int
    ) -> SendGrant | None:
        scope, account, topic_name, group_name = key
        topic, group = topic_name.decode("utf-8", "replace"), group_name.decode("utf-8", "replace")
        if topic.startswith(_NOT_PLAIN) or len(group) > GROUP_CHARS_MAX:
            return None
        admitted = admit_send(SendAsk(topic, group, connection, _owner_of(account)), self._tables, now_ms)
        if isinstance(admitted, Rejection):
            return None
        grant = SendGrant(
            topic_name,
            group_name,
            scope,
            account,
            self._queues_of(topic, admitted.queue_count),
            generation,
            admitted.sys_flag,
            encode_properties(dict(admitted.properties)).removesuffix(b"\x02"),
            len(admitted.properties) > 1,
            templates,
        )
        grant.limit(admitted.quotas)
        if self._delayed is None:
            self._delayed = SendGrant(SCHEDULE_TOPIC.encode(), b"", 0, None, [], 0, 0, b"", False, templates)
        grant.delay_by(self._delay_queues, self._delayed)
        return grant

    def for_pulls(self, key: PullKey, generation: int, connection: Connection, now_ms: int) -> PullGrant | None:
        scope, account, text = key
        wanted = PulledTopic.of(text)
        if wanted.expression is not None and len(wanted.expression) > _EXPRESSION_CHARS_MAX:
            return None
        ask = PullAsk(
            wanted.group,
            wanted.topic,
            connection,
            carries_filter=wanted.expression is not None,
            principal=_owner_of(account),
        )
        admitted = admit_pull(ask, self._tables, now_ms)
        if isinstance(admitted, Rejection):
            return None
        try:
            subscription = admitted.subscription or subscription_of(wanted.topic, wanted.expression, 0)
            codes = tag_codes(subscription)
        except BadExpressionError:
            return None
        if not is_tag_filter(subscription.expression_type):
            return None
        grant = PullGrant(
            key,
            wanted.topic.encode(),
            wanted.group.encode(),
            scope,
            account,
            self._queues_of(wanted.topic, admitted.topic.read_queue_count),
            generation,
            codes,
            subscription.version,
            self._numbers(admitted, subscription),
        )
        grant.limit(admitted.quotas)
        return grant

    def _queues_of(self, topic: str, count: int) -> list[QueueTail | None]:
        """The queue list shared by all grants of a topic, filled on demand: clients choose the number of grants, and a
        topic may have 65,535 queues."""
        place = topic, min(count, QUEUE_ID_MAX + 1)
        queues = self._queues.get(place)
        if queues is None:
            queues = self._queues[place] = [None] * place[1]
        return queues

    def _numbers(self, admitted: PullAdmission, subscription: Subscription) -> tuple[int, int, int, int]:
        group = admitted.group
        slave_read = self._tables.settings.config.slave_read
        near, far = (group.broker_id, group.slow_consumer_broker_id) if slave_read else (0, 0)
        return near, far, admitted.topic.topic_sys_flag, group.group_sys_flag or 0


def _owner_of(account: Account | None) -> str | None:
    return None if account is None else account.owner
