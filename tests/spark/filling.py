"""Topics with known contents: what was sent, by the place that brokers gave it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rocketq.client import Admin, Message, Producer
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.testing import EmbeddedCluster

Place = tuple[str, int, int]
"""Broker name, queue id, queue offset."""

BATCH_COUNT: Final = 500
_numbers = itertools.count(1)


class Filler:
    """Makes topics of a cluster and fills them. One per cluster: it keeps its connections."""

    def __init__(self, cluster: EmbeddedCluster | str) -> None:
        self.name_servers = cluster if isinstance(cluster, str) else cluster.name_server_addr
        self.admin = Admin(self.name_servers)
        self.producer = Producer("filler", name_servers=self.name_servers)

    def close(self) -> None:
        self.producer.close()
        self.admin.close()

    def topic(self, *, queues: int = 2, name: str | None = None) -> str:
        """A new topic with so many queues on every broker."""
        topic = name or f"Topic{next(_numbers)}"
        self.admin.topics.create(topic, queues=queues)
        return topic

    def queues(self, topic: str) -> list[MessageQueue]:
        return sorted(self.producer.queues(topic), key=lambda queue: (queue.broker_name, queue.queue_id))

    def send(self, messages: Iterable[Message], queues: Sequence[MessageQueue] | None = None) -> dict[Place, Message]:
        """All of one topic, dealt out to its queues one by one; where each lies then."""
        sent = list(messages)
        places: dict[Place, Message] = {}
        if not sent:
            return places
        targets = list(queues or self.queues(sent[0].topic))
        for number, queue in enumerate(targets):
            own = sent[number :: len(targets)]
            for at in range(0, len(own), BATCH_COUNT):
                chunk = own[at : at + BATCH_COUNT]
                for message, result in zip(chunk, self.producer.send_batch(chunk, queue=queue), strict=True):
                    places[result.queue.broker_name, result.queue.queue_id, result.queue_offset] = message
        return places

    def messages(
        self,
        topic: str,
        count: int,
        *,
        first: int = 0,
        tags: Sequence[str] = ("A", "B"),
        body_bytes: int = 16,
        properties: Mapping[str, str] | None = None,
    ) -> list[Message]:
        """Numbered from `first`: body "<n>...", key "k<n>", property n, tags in turn."""
        return [
            Message(
                topic=topic,
                body=f"{n}".encode().ljust(body_bytes, b"."),
                tag=tags[n % len(tags)] if tags else None,
                keys=(f"k{n}",),
                properties={"n": str(n), **(properties or {})},
            )
            for n in range(first, first + count)
        ]

    def fill(
        self,
        count: int,
        *,
        topic: str | None = None,
        queues: int = 2,
        tags: Sequence[str] = ("A", "B"),
        body_bytes: int = 16,
        properties: Mapping[str, str] | None = None,
        first: int = 0,
    ) -> tuple[str, dict[Place, Message]]:
        """A topic (new unless named) with messages numbered from `first`, and where each lies."""
        topic = topic or self.topic(queues=queues)
        made = self.messages(topic, count, first=first, tags=tags, body_bytes=body_bytes, properties=properties)
        return topic, self.send(made)
