"""Admin requests about topics: create, change, delete and list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.topics.table import TopicTable, reply_topic
from rocketq.protocol.bodies.groups import GroupList
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigList, TopicList, attribute_fault
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import TopicFilterType
from rocketq.protocol.headers import topics as headers
from rocketq.protocol.names import SYSTEM_TOPICS, topic_fault
from rocketq.remoting import Connection, Handlers, Reply, Request, RequestRejected
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import collect, finish
from rocketq.store import StoreWriter


@dataclass(frozen=True, slots=True)
class TopicPorts:
    settings: Settings
    topics: TopicTable
    consumers: ConsumerGroups[Connection]
    offsets: OffsetTable
    positions: PullPositions
    stats: BrokerStats
    store: StoreWriter
    clock: Clock


handlers: Handlers[TopicPorts] = Handlers()

_QUEUES_MAX: Final = 0xFFFF
_PERM_MAX: Final = 0xF


@handlers.on(RequestCode.UPDATE_AND_CREATE_TOPIC)
def create(request: Request[headers.CreateTopicRequest], ports: TopicPorts) -> Reply:
    header = request.header
    filter_type = TopicFilterType.__members__.get(header.filter_type)
    if filter_type is None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{header.filter_type!r} is not a topic filter type")
    known = ports.topics.get(header.topic)
    topic = TopicConfig(
        topic=header.topic,
        read_queue_count=header.read_queue_count,
        write_queue_count=header.write_queue_count,
        perm=header.perm,
        filter_type=filter_type,
        topic_sys_flag=header.topic_sys_flag,
        attributes=_attributes(header.attributes, known),
    )
    _refuse_bad(topic, ports)
    _put([topic], ports)
    return Reply()


@handlers.on(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
async def create_several(request: Request[None], ports: TopicPorts) -> Reply:
    topics = (await finish(TopicConfigList.decode_steps(request.body))).topics
    await collect(_refuse_each_bad(topics, ports))
    _put(topics, ports)
    return Reply()


def _put(topics: Sequence[TopicConfig], ports: TopicPorts) -> None:
    for topic in topics:
        if ports.topics.is_being_deleted(topic.topic):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"topic {topic.topic} is being deleted, try again")
    if topics:
        ports.topics.put(*topics, now_ms=ports.clock.now_ms())


def _refuse_each_bad(topics: Iterable[TopicConfig], ports: TopicPorts) -> Iterator[None]:
    for topic in topics:
        _refuse_bad(topic, ports)
        yield


def _refuse_bad(topic: TopicConfig, ports: TopicPorts) -> None:
    _refuse_bad_name(topic.topic, ports)
    if max(topic.read_queue_count, topic.write_queue_count) > _QUEUES_MAX:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"a topic has at most {_QUEUES_MAX} queues")
    if min(topic.read_queue_count, topic.write_queue_count) < 0:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the number of queues must not be negative")
    if not 0 <= topic.perm <= _PERM_MAX:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"perm {topic.perm} is invalid: 2 (write), 4 (read) or 6 (both) is allowed"
        )
    if (fault := attribute_fault(topic.attributes or {})) is not None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"topic {topic.topic}: {fault}")


def _refuse_bad_name(topic: str, ports: TopicPorts) -> None:
    if (fault := topic_fault(topic)) is not None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
    if ports.topics.is_system(topic):
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{topic} is a system topic")


def _attributes(changes: str | None, known: TopicConfig | None) -> dict[str, str] | None:
    """Apply `+name=value,-name` to the topic's attributes."""
    attributes = dict((known.attributes if known is not None else None) or {})
    for change in filter(None, (changes or "").split(",")):
        name, _, value = change[1:].partition("=")
        if change.startswith("+") and name:
            attributes[name] = value
        elif change.startswith("-"):
            attributes.pop(name, None)
        else:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{change[:40]!r} is not of the form +name=value or -name")
    return attributes or None


@handlers.on(RequestCode.DELETE_TOPIC_IN_BROKER)
async def delete(request: Request[headers.DeleteTopicRequest], ports: TopicPorts) -> Reply:
    """Delete a topic, its queues and its committed offsets."""
    topic = request.header.topic
    _refuse_bad_name(topic, ports)
    ports.topics.begin_deletion(topic, now_ms=ports.clock.now_ms())
    try:
        await forget(topic, ports)
    finally:
        ports.topics.end_deletion(topic)
    return Reply()


async def forget(topic: str, ports: TopicPorts) -> None:
    ports.offsets.forget_topic(topic)
    ports.positions.forget_topic(topic)
    ports.stats.forget_topic(topic)
    await asyncio.to_thread(ports.store.delete_topic, topic)


@handlers.on(RequestCode.CLEAN_UNUSED_TOPIC)
async def clean_unused(request: Request[None], ports: TopicPorts) -> Reply:
    """Delete queues of topics that are not configured; system topics stay."""
    for topic in ports.store.topics():
        if topic not in ports.topics and not ports.topics.is_system(topic):
            await forget(topic, ports)
    return Reply()


@handlers.on(RequestCode.GET_ALL_TOPIC_CONFIG)
def list_configs(request: Request[headers.AllTopicConfigRequest], ports: TopicPorts) -> Reply:
    """The whole table, or a range of the sorted names."""
    table, first, count = ports.topics.snapshot(), request.header.first_index, request.header.count_max
    if first is None or count is None:
        return Reply(body=table)
    names = sorted(table.topics)[first : first + count]
    part = replace(table, topics={name: table.topics[name] for name in names})
    return Reply(header=headers.AllTopicConfigResponse(total_count=len(table.topics)), body=part)


@handlers.on(RequestCode.GET_TOPIC_CONFIG)
def show_config(request: Request[headers.TopicConfigRequest], ports: TopicPorts) -> Reply:
    topic = ports.topics.get(request.header.topic)
    if topic is None:
        raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {request.header.topic} does not exist")
    return Reply(body=replace(topic, attributes=topic.attributes or {}))


@handlers.on(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
def list_system(request: Request[None], ports: TopicPorts) -> Reply:
    """List system topics, including those that do not exist yet."""
    config = ports.settings.config
    own = {config.cluster, config.name, reply_topic(config.cluster)}
    return Reply(body=TopicList(topics=tuple(sorted(SYSTEM_TOPICS | own))))


@handlers.on(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
def consumed_by(request: Request[headers.TopicConsumersRequest], ports: TopicPorts) -> Reply:
    topic = request.header.topic
    groups = {*ports.consumers.groups_of(topic), *ports.offsets.groups_of(topic)}
    return Reply(body=GroupList(groups=tuple(sorted(groups))))
