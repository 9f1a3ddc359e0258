"""Names of one tenant among others: `<namespace>%<name>` on the wire, `<name>` for users."""

from __future__ import annotations

import re
from typing import Final

from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic

_SEPARATOR: Final = "%"
_LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]+")
_ENDPOINT: Final = re.compile(r"(?:http://)?(MQ_INST_\w+_\w+)\.")


class Namespace:
    """Without a name it changes nothing."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None and not _LEGAL.fullmatch(name):
            raise ConfigError(f"a namespace has letters, digits, - and _ only: {name[:40]!r}")
        self.name = name

    def topic(self, topic: str) -> str:
        """With the namespace added, as requests carry it; system names have none."""
        return topic if self.name is None or is_system_topic(topic) else self._wrapped(topic)

    def group(self, group: str) -> str:
        return group if self.name is None or is_system_group(group) else self._wrapped(group)

    def plain(self, name: str) -> str:
        """As users know it; names of others stay as they are."""
        if self.name is None:
            return name
        prefix, rest = _split(name)
        return prefix + rest.removeprefix(self.name + _SEPARATOR)

    def queue(self, queue: MessageQueue) -> MessageQueue:
        """As requests carry it."""
        if self.name is None:
            return queue
        return MessageQueue(topic=self.topic(queue.topic), broker_name=queue.broker_name, queue_id=queue.queue_id)

    def plain_queue(self, queue: MessageQueue) -> MessageQueue:
        if self.name is None:
            return queue
        return MessageQueue(topic=self.plain(queue.topic), broker_name=queue.broker_name, queue_id=queue.queue_id)

    def _wrapped(self, name: str) -> str:
        prefix, rest = _split(name)
        own = f"{self.name}{_SEPARATOR}"
        return name if rest.startswith(own) else f"{prefix}{own}{rest}"


def _split(name: str) -> tuple[str, str]:
    """Retry and dead-letter topics have the namespace behind their prefix."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def namespace_in(addr: str) -> str | None:
    """The namespace that an endpoint such as `http://MQ_INST_x_y.example:9876` implies."""
    found = _ENDPOINT.match(addr)
    return found.group(1) if found else None
