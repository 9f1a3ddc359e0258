"""What a topic is for, by its name."""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum

from rocketq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic


class TopicKind(StrEnum):
    NORMAL = "normal"
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    SYSTEM = "system"


def topic_kind(topic: str, reserved: Set[str] = frozenset()) -> TopicKind:
    """`reserved` are names of clusters and brokers, each of which is a topic of the system."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DEAD_LETTER
    if is_system_topic(topic) or topic in reserved or topic.removesuffix("_REPLY_TOPIC") in reserved:
        return TopicKind.SYSTEM
    return TopicKind.NORMAL
