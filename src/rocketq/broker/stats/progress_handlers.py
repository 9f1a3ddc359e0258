"""Handlers of requests for queue ranges, consumer progress and windowed stats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.stats.progress_json import ProgressCache, ProgressJson, TopicProgress, joined
from rocketq.broker.topics.table import TopicTable
from rocketq.protocol.bodies.offsets import TimeSpan
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.fastjson import write_text
from rocketq.protocol.headers.admin import BrokerConsumeStatsRequest, StatsRequest
from rocketq.protocol.headers.groups import ConsumeStatsRequest
from rocketq.protocol.headers.topics import ConsumeTimeSpanRequest, TopicStatsRequest
from rocketq.protocol.versions import V5_0_0
from rocketq.remoting import Connection, Handlers, Reply, Request, RequestRejected
from rocketq.remoting.address import join_addr
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReader


@dataclass(frozen=True, slots=True)
class ProgressPorts:
    settings: Settings
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    offsets: OffsetTable
    positions: PullPositions
    stats: BrokerStats
    store: StoreReader
    clock: Clock
    cache: ProgressCache


handlers: Handlers[ProgressPorts] = Handlers()


@handlers.on(RequestCode.GET_TOPIC_STATS_INFO)
def topic_stats(request: Request[TopicStatsRequest], ports: ProgressPorts) -> Reply:
    topic, newer = _topic(request.header.topic, ports), request.version >= V5_0_0
    count = max(topic.read_queue_count, topic.write_queue_count) if newer else topic.write_queue_count
    put_tps = ports.stats.put_tps(topic.topic) if newer else None
    return Reply(body=_json(request, ports).topic_stats(topic.topic, count, put_tps))


def _topic(name: str, ports: ProgressPorts) -> TopicConfig:
    topic = ports.topics.get(name)
    if topic is None:
        raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist")
    return topic


def _json(request: Request[Any], ports: ProgressPorts) -> ProgressJson:
    newer = request.version >= V5_0_0
    name, cache = ports.settings.config.name, ports.cache
    return ProgressJson(name, ports.offsets, ports.positions, ports.store, newer, cache)


@handlers.on(RequestCode.GET_CONSUME_STATS)
def consume_stats(request: Request[ConsumeStatsRequest], ports: ProgressPorts) -> Reply:
    header = request.header
    asked = [header.topic] if header.topic else [name for name in (header.topics or "").split(";") if name]
    topics = list(_consumed_topics(header.group, asked or ports.offsets.topics_of(header.group), ports))
    tps = sum(ports.stats.get_tps(topic.topic, header.group) for topic in topics)
    by_name = {topic.topic: topic for topic in topics}
    return Reply(body=_json(request, ports).consume_stats(header.group, by_name.values(), tps))


def _consumed_topics(group: str, names: list[str], ports: ProgressPorts) -> Iterator[TopicConfig]:
    """Existing topics that the group, if it is online, still subscribes to."""
    members = ports.consumers.get(group)
    for name in names:
        topic = ports.topics.get(name)
        if topic is not None and (members is None or not members.subscriptions or name in members.subscriptions):
            yield topic


@handlers.on(RequestCode.GET_BROKER_CONSUME_STATS)
def broker_consume_stats(request: Request[BrokerConsumeStatsRequest], ports: ProgressPorts) -> Reply:
    config, ordered_only = ports.settings.config, request.header.order
    groups = ((name, _group_progress(name, ordered_only, ports)) for name in ports.groups.names())
    return Reply(body=_json(request, ports).all_consume_stats(groups, join_addr(config.ip, config.port)))


def _group_progress(group: str, ordered_only: bool, ports: ProgressPorts) -> Iterator[TopicProgress]:
    for topic in _consumed_topics(group, ports.offsets.topics_of(group), ports):
        if topic.order or not ordered_only:
            yield TopicProgress(group, topic, ports.stats.get_tps(topic.topic, group))


@handlers.on(RequestCode.QUERY_CONSUME_TIME_SPAN)
def time_spans(request: Request[ConsumeTimeSpanRequest], ports: ProgressPorts) -> Reply:
    topic = _topic(request.header.topic, ports)
    spans = (_span(topic.topic, request.header.group, number, ports) for number in range(topic.write_queue_count))
    return Reply(body=joined('{"consumeTimeSpanSet":[', (write_text(span.to_json()) for span in spans), "]}"))


def _span(topic: str, group: str, queue_id: int, ports: ProgressPorts) -> TimeSpan:
    store, consumed = ports.store, ports.offsets.get(group, topic, queue_id) or 0
    high = store.max_offset(topic, queue_id)
    min_ms = max(0, store.store_ms_of(topic, queue_id, max(0, store.min_offset(topic, queue_id))))
    max_ms = max(0, store.store_ms_of(topic, queue_id, high - 1)) if high > 0 else 0
    consumed_ms = max(0, store.store_ms_of(topic, queue_id, consumed - 1)) if consumed > 0 else min_ms
    waiting_ms = store.store_ms_of(topic, queue_id, consumed) if consumed < high else -1
    return TimeSpan(
        queue=MessageQueue(topic=topic, broker_name=ports.settings.config.name, queue_id=queue_id),
        min_ms=min_ms,
        max_ms=max_ms,
        consume_ms=consumed_ms,
        delay_ms=max(0, ports.clock.now_ms() - waiting_ms) if waiting_ms >= 0 else 0,
        min_text=_text(min_ms),
        max_text=_text(max_ms),
        consume_text=_text(consumed_ms),
    )


def _text(time_ms: int) -> str:
    at = datetime.fromtimestamp(time_ms / 1000)
    return f"{at:%Y-%m-%d#%H:%M:%S}:{time_ms % 1000:03d}"


@handlers.on(RequestCode.VIEW_BROKER_STATS_DATA)
def statistic(request: Request[StatsRequest], ports: ProgressPorts) -> Reply:
    counter = ports.stats.table.get(request.header.name, request.header.key)
    if counter is None:
        remark = f"no stats for name {request.header.name} and key {request.header.key}"
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
    return Reply(body=counter.stats())
