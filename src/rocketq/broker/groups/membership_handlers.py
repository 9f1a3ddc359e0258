"""Heartbeats, unregistration, and requests about connected clients."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.change_notices import ChangeNotices, Client
from rocketq.broker.groups.consumer_groups import ConsumerGroups, describe
from rocketq.broker.groups.members import Member, ProducerGroups
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.pull.consumer_filters import ConsumerFilters
from rocketq.broker.pull.filters import compile_checked, is_tag_filter
from rocketq.broker.topics.table import TopicTable
from rocketq.filter import BadExpressionError, compile_steps, is_compiled, parse_tags
from rocketq.protocol.bodies import clients as bodies
from rocketq.protocol.bodies import lazy_tuple
from rocketq.protocol.bodies.clients import CheckClient, ConsumerData, Heartbeat, Subscription
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import ExpressionType, TopicSysFlag
from rocketq.protocol.headers import groups as headers
from rocketq.protocol.names import GROUP_CHARS_MAX, retry_topic, topic_fault
from rocketq.remoting import Connection, Handlers, Reply, Request, RequestRejected
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import collect, finish

log = logging.getLogger(__name__)

HEARTBEAT_BYTES_MAX: Final = 1 << 20
GROUPS_PER_CONNECTION_MAX: Final = 1_000
SUBSCRIPTIONS_MAX: Final = 1_000  # of a group
SUBSCRIPTION_CHARS_MAX: Final = 128 << 10  # of a group: topics, expressions and tags
CLIENT_ID_CHARS_MAX: Final = 1_024
_SMALL_BYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class MembershipPorts:
    settings: Settings
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    producers: ProducerGroups[Connection]
    clock: Clock
    filters: ConsumerFilters
    notices: ChangeNotices


handlers: Handlers[MembershipPorts] = Handlers()


@handlers.on(RequestCode.HEART_BEAT)
def heartbeat(request: Request[None], ports: MembershipPorts) -> Reply | Coroutine[Any, Any, Reply]:
    """Register a client. A long heartbeat, or one with new SQL92 expressions, is processed in slices."""
    if len(request.body) > HEARTBEAT_BYTES_MAX:
        remark = f"the heartbeat has {len(request.body)} bytes, more than {HEARTBEAT_BYTES_MAX}"
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
    if len(request.body) > _SMALL_BYTES:
        return _heartbeat_in_slices(request, ports)
    beat = Heartbeat.decode(request.body)
    _check_limits(beat, request.connection, ports)
    if expressions := _new_expressions(beat):
        return _heartbeat_after_compiling(request, beat, expressions, ports)
    return _register(request, beat, ports)


async def _heartbeat_in_slices(request: Request[None], ports: MembershipPorts) -> Reply:
    beat = await finish(Heartbeat.decode_steps(request.body))
    _check_limits(beat, request.connection, ports)
    return await _heartbeat_after_compiling(request, beat, _new_expressions(beat), ports)


async def _heartbeat_after_compiling(
    request: Request[None], beat: Heartbeat, expressions: set[str], ports: MembershipPorts
) -> Reply:
    for expression in expressions:
        await collect(compile_steps(expression))
    if request.connection.is_closed:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the connection was closed")
    return _register(request, beat, ports)


def _check_limits(beat: Heartbeat, connection: Connection, ports: MembershipPorts) -> None:
    if (fault := _limit_fault(beat, connection, ports)) is not None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)


def _limit_fault(beat: Heartbeat, connection: Connection, ports: MembershipPorts) -> str | None:
    """Which limit a heartbeat exceeds, or None: what it registers stays in memory."""
    names = {producer.group for producer in beat.producers} | {consumer.group for consumer in beat.consumers}
    joined = ports.producers.groups_of(connection) | ports.consumers.groups_joined(connection)
    if len(names | joined) > GROUPS_PER_CONNECTION_MAX:
        return f"a connection may be in {GROUPS_PER_CONNECTION_MAX} groups, not {len(names | joined)}"
    if len(beat.client_id) > CLIENT_ID_CHARS_MAX or any(len(name) > GROUP_CHARS_MAX for name in names):
        return f"client ids have up to {CLIENT_ID_CHARS_MAX} characters, group names up to {GROUP_CHARS_MAX}"
    for consumer in beat.consumers:
        count = len(consumer.subscriptions)
        if count > SUBSCRIPTIONS_MAX:
            return f"group {consumer.group} has {count} subscriptions, more than {SUBSCRIPTIONS_MAX}"
        chars = sum(_chars_of(subscription) for subscription in consumer.subscriptions)
        if chars > SUBSCRIPTION_CHARS_MAX:
            return f"group {consumer.group} subscribes with {chars} characters, more than {SUBSCRIPTION_CHARS_MAX}"
    return None


def _chars_of(subscription: Subscription) -> int:
    tags = len(subscription.codes) + sum(len(tag) + 1 for tag in subscription.tags)
    return len(subscription.topic) + len(subscription.expression or "") + tags


def _new_expressions(beat: Heartbeat) -> set[str]:
    """SQL92 expressions that are not compiled yet."""
    return {
        subscription.expression
        for consumer in beat.consumers
        for subscription in consumer.subscriptions
        if subscription.expression_type == ExpressionType.SQL92
        and subscription.expression
        and not is_compiled(subscription.expression)
    }


def _register(request: Request[None], beat: Heartbeat, ports: MembershipPorts) -> Reply:
    connection = request.connection
    connection.client_id = beat.client_id
    member = Member(connection, beat.client_id, request.command.language, request.version, ports.clock.monotonic_ms())
    for producer in beat.producers:
        ports.producers.put(producer.group, member)
    refused = [found for consumer in beat.consumers if (found := _take_consumer(consumer, member, ports)) is not None]
    if refused:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "; ".join(refused))
    return Reply()


def _take_consumer(data: ConsumerData, member: Client, ports: MembershipPorts) -> str | None:
    """Register a consumer group of a heartbeat; returns why it is rejected, or None."""
    config, now_ms = ports.settings.config, ports.clock.now_ms()
    fault = ports.topics.limit_fault(retry_topic(data.group)) if config.auto_create_groups else None
    if fault is not None:
        return fault
    group = ports.groups.find(data.group, auto_create=config.auto_create_groups, now_ms=now_ms)
    retry = retry_topic(data.group)
    is_new = group is not None and retry not in ports.topics and topic_fault(retry) is None
    if group is not None and is_new:
        sys_flag = int(TopicSysFlag.UNIT_SUB) if data.unit_mode else 0
        ports.topics.create_exactly(retry, group.retry_queue_count, now_ms=now_ms, sys_flag=sys_flag)
    if group is not None and group.is_strict and (found := ports.consumers.disagreements(data, member.connection)):
        return f"group {data.group} is strict and its members subscribe differently: {describe(found)}"
    changed = ports.consumers.heartbeat(data, member)
    if ports.consumers.is_new_conflict(data.group):
        found = ports.consumers.conflicts(data.group)
        log.warning("conflicting subscriptions in group %s: %s", data.group, describe(found))
    ports.filters.register(data.group, data.subscriptions, now_ms)
    if changed and config.notify_changes and (group is None or group.notify_changes):
        (ports.notices.notify_later if is_new else ports.notices.notify)(data.group)
    return None


@handlers.on(RequestCode.UNREGISTER_CLIENT)
def unregister(request: Request[headers.UnregisterClientRequest], ports: MembershipPorts) -> Reply:
    header = request.header
    if header.producer_group:
        ports.producers.remove(header.producer_group, request.connection)
    group = header.consumer_group
    if group and ports.consumers.leave(group, request.connection):
        _note_departure(group, ports)
        if _may_notify(group, ports):
            ports.notices.notify(group)
    return Reply()


def _note_departure(group: str, ports: MembershipPorts) -> None:
    """Mark the group's filters as unused if its last member left."""
    if ports.consumers.get(group) is None:
        ports.filters.unregister(group, ports.clock.now_ms())


def _may_notify(group: str, ports: MembershipPorts) -> bool:
    config = ports.groups.get(group)
    return ports.settings.config.notify_changes and (config is None or config.notify_changes)


def disconnected(connection: Connection, ports: MembershipPorts) -> None:
    """Remove a closed connection and notify the other members, regardless of the group's settings."""
    ports.producers.disconnect(connection)
    for group in ports.consumers.disconnect(connection):
        _note_departure(group, ports)
        ports.notices.notify(group)


def expire(ports: MembershipPorts) -> None:
    """Close connections of clients without heartbeats, and notify the other members."""
    heard_before_ms = ports.clock.monotonic_ms() - ports.settings.config.client_life_ms
    producers, consumers = ports.producers.expire(heard_before_ms), ports.consumers.expire(heard_before_ms)
    for connection in producers.connections | consumers.connections:
        connection.close("no heartbeat within channelExpiredTimeout")
    for group in consumers.groups:
        _note_departure(group, ports)
        ports.notices.notify(group)


@handlers.on(RequestCode.CHECK_CLIENT_CONFIG)
async def check_client(request: Request[None], ports: MembershipPorts) -> Reply:
    if len(request.body) > SUBSCRIPTION_CHARS_MAX:
        remark = f"the subscription has {len(request.body)} bytes, more than {SUBSCRIPTION_CHARS_MAX}"
        raise RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
    subscription = CheckClient.decode(request.body).subscription
    if not is_tag_filter(subscription.expression_type):
        if ports.settings.config.property_filter and not is_compiled(subscription.expression or ""):
            await collect(compile_steps(subscription.expression or ""))
        compile_checked(subscription.expression_type, subscription.expression, ports.settings.config.filter_rules)
        return Reply()
    try:
        parse_tags(subscription.expression)
    except BadExpressionError as error:
        raise RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    return Reply()


@handlers.on(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
def consumer_list(request: Request[headers.ConsumerListRequest], ports: MembershipPorts) -> Reply:
    members = ports.consumers.members(request.header.group)
    if not members:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"no member of consumer group {request.header.group} is connected"
        )
    return Reply(body=bodies.ConsumerList(client_ids=tuple(member.client_id for member in members)))


@handlers.on(RequestCode.GET_CONSUMER_CONNECTION_LIST)
def consumer_connections(request: Request[headers.ConsumerConnectionRequest], ports: MembershipPorts) -> Reply:
    name = request.header.group
    group = ports.consumers.get(name)
    if group is None:
        raise RequestRejected(ResponseCode.CONSUMER_NOT_ONLINE, f"no member of consumer group {name} is connected")
    return Reply(
        body=bodies.ConsumerConnections(
            connections=_connections(ports.consumers.members(name)),
            consume_type=group.consume_type,
            model=group.model,
            from_where=group.from_where,
            subscriptions=dict(group.subscriptions),
            conflicts=ports.consumers.conflicts(name) or None,
        )
    )


@handlers.on(RequestCode.GET_PRODUCER_CONNECTION_LIST)
def producer_connections(request: Request[headers.ProducerConnectionRequest], ports: MembershipPorts) -> Reply:
    members = ports.producers.members(request.header.group)
    if not members:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"no member of producer group {request.header.group} is connected"
        )
    return Reply(body=bodies.ProducerConnections(connections=_connections(members)))


@handlers.on(RequestCode.GET_ALL_PRODUCER_INFO)
def all_producers(request: Request[None], ports: MembershipPorts) -> Reply:
    offset_ms = ports.clock.now_ms() - ports.clock.monotonic_ms()
    producer = partial(_producer, offset_ms=offset_ms)
    groups = {group: lazy_tuple(producer, ports.producers.members(group)) for group in ports.producers}
    return Reply(body=bodies.ProducerTable(groups=groups))


def _producer(member: Client, offset_ms: int) -> bodies.Producer:
    return bodies.Producer(
        client_id=member.client_id,
        remote_addr=f"/{member.connection.peer_addr}",
        language=member.language.name,
        version=member.version,
        updated_ms=member.updated_ms + offset_ms,
    )


def _connections(members: list[Client]) -> tuple[bodies.Connection, ...]:
    return lazy_tuple(_connection, members)


def _connection(member: Client) -> bodies.Connection:
    return bodies.Connection(
        client_id=member.client_id,
        addr=member.connection.peer_addr,
        language=member.language.name,
        version=member.version,
    )
