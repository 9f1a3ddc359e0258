"""From a topic's route to its queues and to the addresses of its brokers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rocketq.client.errors import NoQueueError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import QueueData, TopicRoute
from rocketq.protocol.flags import Perm

MASTER_ID: Final = 0


def queue_order(queue: MessageQueue) -> tuple[str, str, int]:
    """How queues are sorted wherever they are listed."""
    return queue.topic, queue.broker_name, queue.queue_id


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Where a message may go: as an ordered topic says, else every writable queue of a broker with a master."""
    if route.order_config:
        return tuple(_queues(topic, parse_order(route.order_config)))
    masters = {broker.broker_name for broker in route.brokers if MASTER_ID in broker.addrs}
    usable = (data for data in _sorted(route) if data.perm & Perm.WRITE and data.broker_name in masters)
    return tuple(_queues(topic, ((data.broker_name, data.write_queue_count) for data in usable)))


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Every readable queue; a slave is enough to read."""
    readable = (data for data in _sorted(route) if data.perm & Perm.READ)
    return tuple(_queues(topic, ((data.broker_name, data.read_queue_count) for data in readable)))


def parse_order(order_config: str) -> tuple[tuple[str, int], ...]:
    """`broker:queues;broker:queues` in its order; entries that say nothing are left out."""
    found = []
    for entry in order_config.split(";"):
        name, _, count = entry.strip().rpartition(":")
        if name and count.isascii() and count.isdigit():
            found.append((name, int(count)))
    return tuple(found)


def format_order(counts: Iterable[tuple[str, int]]) -> str:
    return ";".join(f"{name}:{count}" for name, count in counts)


def from_template(template: TopicRoute, queue_count: int) -> TopicRoute:
    """The route a topic will have that a send makes, given the route of the topic it is made after."""
    queues = (
        replace(data, read_queue_count=count, write_queue_count=count)
        for data in template.queues
        for count in [min(queue_count, data.read_queue_count)]
    )
    return replace(template, queues=tuple(queues), order_config=None)


def broker_addr(route: TopicRoute, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
    """The address of this broker, or of any with its name when that one is not there."""
    addrs = next((broker.addrs for broker in route.brokers if broker.broker_name == broker_name), {})
    return addrs.get(broker_id) or next((addr for _, addr in sorted(addrs.items())), None)


def master_addr(route: TopicRoute, queue: MessageQueue) -> str:
    """Where to write; NoQueueError when the broker has no master at present."""
    addrs = next((broker.addrs for broker in route.brokers if broker.broker_name == queue.broker_name), {})
    if MASTER_ID not in addrs:
        raise NoQueueError(queue.topic, f"broker {queue.broker_name} has no master at present")
    return addrs[MASTER_ID]


def masters_of(route: TopicRoute) -> dict[str, str]:
    """The addresses to ask about a topic, by broker name: each master, or what there is instead."""
    found = ((broker.broker_name, broker_addr(route, broker.broker_name)) for broker in route.brokers)
    return {name: addr for name, addr in sorted(found) if addr is not None}


def _sorted(route: TopicRoute) -> list[QueueData]:
    return sorted(route.queues, key=lambda data: data.broker_name)


def _queues(topic: str, counts: Iterable[tuple[str, int]]) -> Iterable[MessageQueue]:
    for name, count in counts:
        yield from (MessageQueue(topic=topic, broker_name=name, queue_id=queue_id) for queue_id in range(count))
