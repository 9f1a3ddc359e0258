"""What lies in a topic after a write, read without Spark."""

from __future__ import annotations

from collections import Counter

from rocketq.client.blocking import BlockingClient, QueueReader, ReadOptions
from rocketq.client.core.routes import subscribe_queues
from rocketq.model import Record
from rocketq.protocol.bodies.topics import TopicStats
from rocketq.protocol.headers.topics import TopicStatsRequest
from rocketq.protocol.messages import decode_records
from rocketq.protocol.properties import decode_properties


def stored(name_servers: str, topic: str) -> list[Record]:
    """All records of a topic, queue by queue in their order."""
    found = []
    with BlockingClient(name_servers) as client:
        for queue in subscribe_queues(topic, client.route(topic)):
            addr = client.broker(topic, queue.broker_name)
            stats = TopicStats.decode(client.call(addr, TopicStatsRequest(topic=topic)).body)
            spans = {each.queue_id: span for each, span in stats.queues.items()}
            if queue.queue_id in spans and spans[queue.queue_id].max_offset > spans[queue.queue_id].min_offset:
                span = spans[queue.queue_id]
                bodies = QueueReader(client, queue, span.min_offset, span.max_offset, ReadOptions(group="looking"))
                found += [record for body in bodies for record in decode_records(body)]
    return found


def bodies(name_servers: str, topic: str) -> Counter[bytes]:
    """How often each body lies there."""
    return Counter(record.body for record in stored(name_servers, topic))


def properties(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)
