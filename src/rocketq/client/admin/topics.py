"""Topics, for operators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rocketq.client.admin.brokers import BrokerDirectory
from rocketq.client.core.routes import format_order, masters_of, queue_order
from rocketq.client.errors import NotFoundError
from rocketq.client.fan_out import on_each
from rocketq.client.session import Session
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.groups import GroupList
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable, TopicList, TopicStats
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.flags import Perm
from rocketq.protocol.headers import nameserver as name_headers
from rocketq.protocol.headers import topics as headers
from rocketq.protocol.names import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    ORDER_NAMESPACE,
    RETRY_PREFIX,
    is_system_topic,
    topic_fault,
)


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


READ_WRITE: Final = int(Perm.READ | Perm.WRITE)
QUEUES: Final = 8
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """`brokers` by name took it; `routed` is False when the NameServer did not know it in time."""

    topic: str
    brokers: Mapping[str, str]
    routed: bool


class AsyncTopics:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)

    async def create(
        self,
        topic: str,
        *,
        queues: int = QUEUES,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> CreatedTopic:
        """Make or change a topic on every master, on those of a cluster, or on one broker; and wait for its route."""
        if (fault := topic_fault(topic)) is not None:
            raise ConfigError(fault)
        masters = await self._directory.masters(cluster, broker)
        request = headers.CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_count=queues if read_queues is None else read_queues,
            write_queue_count=queues if write_queues is None else write_queues,
            perm=perm,
            order=order,
            attributes=",".join(f"+{name}={value}" for name, value in (attributes or {}).items()) or None,
        )
        await on_each({name: self._session.call(addr, request) for name, addr in masters.items()})
        if order:
            text = format_order((name, request.write_queue_count) for name in masters)
            await self._session.call_all_name_servers(
                name_headers.PutConfigRequest(namespace=ORDER_NAMESPACE, key=topic, value=text)
            )
        routed = await self._await_route(topic, request, set(masters.values()))
        return CreatedTopic(topic=topic, brokers=masters, routed=routed)

    async def list(self, *, cluster: str | None = None) -> dict[str, TopicKind]:
        """Every topic with a route, and what it is for."""
        if cluster is None:
            answer = await self._session.call_name_server(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            await self._directory.masters(cluster)
            answer = await self._session.call_name_server(name_headers.ClusterTopicsRequest(cluster=cluster))
        table = await self._session.cluster()
        reserved = {*table.brokers, *table.clusters}
        topics = TopicList.decode(answer.body).topics if answer.body else ()
        return {topic: topic_kind(topic, reserved) for topic in sorted(topics)}

    async def route(self, topic: str) -> TopicRoute:
        """The current route of the NameServer; TopicNotFoundError if no broker has the topic."""
        return await self._session.routes.refresh(topic)

    async def configs(self, topic: str) -> dict[str, TopicConfig]:
        """The topic as each of its brokers has it, by broker name."""
        masters = masters_of(await self.route(topic))
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        tables = await on_each({name: self._session.call(addr, None, code=code) for name, addr in masters.items()})
        found = {name: TopicConfigTable.decode(answer.body).topics.get(topic) for name, answer in tables.items()}
        return {name: config for name, config in found.items() if config is not None}

    async def stats(self, topic: str) -> TopicStats:
        """First and next offset of every queue, of all brokers together."""
        masters = masters_of(await self.route(topic))
        request = headers.TopicStatsRequest(topic=topic)
        answers = await on_each({name: self._session.call(addr, request) for name, addr in masters.items()})
        parts = [TopicStats.decode(answer.body) for answer in answers.values()]
        queues = {queue: found for part in parts for queue, found in part.queues.items()}
        rates = [part.put_tps for part in parts if part.put_tps is not None]
        ordered = {queue: queues[queue] for queue in sorted(queues, key=queue_order)}
        return TopicStats(queues=ordered, put_tps=sum(rates) if rates else None)

    async def consumers(self, topic: str) -> tuple[str, ...]:
        """Groups that subscribe to it or have consumed from it."""
        masters = masters_of(await self.route(topic))
        request = headers.TopicConsumersRequest(topic=topic)
        answers = await on_each({name: self._session.call(addr, request) for name, addr in masters.items()})
        found = {group for answer in answers.values() if answer.body for group in GroupList.decode(answer.body).groups}
        return tuple(sorted(found))

    async def delete(self, topic: str, *, cluster: str | None = None) -> dict[str, str]:
        """From the brokers, by name, that have it, and from every NameServer. Its messages cannot be read any more."""
        in_scope = await self._directory.masters(cluster)
        route = await self.route(topic)
        brokers = {name: addr for name, addr in masters_of(route).items() if name in in_scope}
        if not brokers:
            raise NotFoundError("topic", topic, f"cluster {cluster} has no broker with it" if cluster else None)
        request = headers.DeleteTopicRequest(topic=topic)
        await on_each({name: self._session.call(addr, request) for name, addr in brokers.items()})
        await self._session.call_all_name_servers(name_headers.ForgetTopicRequest(topic=topic, cluster=cluster))
        if route.order_config:
            await self._session.call_all_name_servers(
                name_headers.DeleteConfigRequest(namespace=ORDER_NAMESPACE, key=topic)
            )
        self._session.routes.forget(topic)
        return brokers

    async def _await_route(self, topic: str, request: headers.CreateTopicRequest, addrs: set[str]) -> bool:
        """Brokers register a topic some time after they created it; there is no notification."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._session.config.control_timeout_ms / 1000):
                while not await self._is_routed(topic, request, addrs):
                    await asyncio.sleep(_LOOK_S)
                return True
        return False

    async def _is_routed(self, topic: str, request: headers.CreateTopicRequest, addrs: set[str]) -> bool:
        try:
            route = await self._session.routes.refresh(topic)
        except TopicNotFoundError:
            return False
        wanted = (request.read_queue_count, request.write_queue_count, request.perm)
        ready = {
            data.broker_name
            for data in route.queues
            if (data.read_queue_count, data.write_queue_count, data.perm) == wanted
        }
        found = {addr for broker in route.brokers if broker.broker_name in ready for addr in broker.addrs.values()}
        return addrs <= found
