"""Who is connected."""

from __future__ import annotations

from rocketq.protocol.bodies.heartbeat import Subscription
from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.flags import ConsumeFromWhere, ConsumeType, MessageModel


@body
class Connection(Body):
    client_id: str = member("clientId", default="")
    addr: str = member("clientAddr", default="")
    language: str = member("language", default="JAVA")
    version: int = member("version", default=0)


@body
class ConsumerConnections(Body):
    connections: tuple[Connection, ...] = member("connectionSet", default=())
    consume_type: ConsumeType | None = member("consumeType", default=None)
    model: MessageModel | None = member("messageModel", default=None)
    from_where: ConsumeFromWhere | None = member("consumeFromWhere", default=None)
    subscriptions: dict[str, Subscription] = member("subscriptionTable", factory=dict)
    conflicts: dict[str, tuple[str, ...]] | None = member("subscriptionConflicts", default=None)
    """By topic, the different things that members want of it; only our brokers tell."""


@body
class ProducerConnections(Body):
    connections: tuple[Connection, ...] = member("connectionSet", default=())


@body
class Producer(Body):
    """`remote_addr` is a Java socket text with a leading slash and the port."""

    client_id: str = member("clientId", default="")
    remote_addr: str = member("remoteIP", default="")
    language: str = member("language", default="JAVA")
    version: int = member("version", default=0)
    updated_ms: int = member("lastUpdateTimestamp", default=0)


@body
class ProducerTable(Body):
    groups: dict[str, tuple[Producer, ...]] = member("data", factory=dict)


@body
class ConsumerList(Body):
    client_ids: tuple[str, ...] = member("consumerIdList", default=())
