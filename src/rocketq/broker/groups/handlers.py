"""Admin requests about consumer groups: create, change, delete and list."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigList, GroupForbidden, GroupSubscription
from rocketq.protocol.bodies.topics import TopicList
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.headers import groups as headers
from rocketq.protocol.headers.offsets import CloneOffsetRequest
from rocketq.protocol.names import GROUP_CHARS_MAX, group_fault, topic_fault
from rocketq.protocol.versions import V5_0_0
from rocketq.remoting import Connection, Handlers, Reply, Request, RequestRejected
from rocketq.remoting.address import join_addr
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import finish


@dataclass(frozen=True, slots=True)
class GroupPorts:
    settings: Settings
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    offsets: OffsetTable
    positions: PullPositions
    stats: BrokerStats
    clock: Clock


handlers: Handlers[GroupPorts] = Handlers()


@handlers.on(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
def put(request: Request[None], ports: GroupPorts) -> Reply:
    ports.groups.put(GroupConfig.decode(request.body), now_ms=ports.clock.now_ms())
    return Reply()


@handlers.on(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
async def put_several(request: Request[None], ports: GroupPorts) -> Reply:
    if groups := (await finish(GroupConfigList.decode_steps(request.body))).groups:
        ports.groups.put(*groups, now_ms=ports.clock.now_ms())
    return Reply()


@handlers.on(RequestCode.DELETE_SUBSCRIPTIONGROUP)
def delete(request: Request[headers.DeleteGroupRequest], ports: GroupPorts) -> Reply:
    group = request.header.group
    ports.groups.delete(group, now_ms=ports.clock.now_ms())
    ports.stats.forget_group(group)
    ports.positions.forget_group(group)
    if request.header.clean_offset:
        ports.offsets.forget_group(group)
    return Reply()


@handlers.on(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
def list_configs(request: Request[headers.AllGroupConfigRequest], ports: GroupPorts) -> Reply:
    """The whole table, or a range of the sorted names."""
    table, first, count = ports.groups.snapshot(), request.header.first_index, request.header.count_max
    if request.version >= V5_0_0:
        table = replace(table, forbidden=table.forbidden or {})
    if first is None or count is None:
        return Reply(body=table)
    names = sorted(table.groups)[first : first + count]
    part = replace(table, groups={name: table.groups[name] for name in names})
    return Reply(header=headers.AllGroupConfigResponse(total_count=len(table.groups)), body=part)


@handlers.on(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
def show_config(request: Request[headers.GroupConfigRequest], ports: GroupPorts) -> Reply:
    name, auto_create = request.header.group, ports.settings.config.auto_create_groups
    group = ports.groups.find(name, auto_create=auto_create, now_ms=ports.clock.now_ms())
    if group is None:
        raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {name} does not exist")
    return Reply(body=group)


@handlers.on(RequestCode.QUERY_TOPICS_BY_CONSUMER)
def topics_of(request: Request[headers.GroupTopicsRequest], ports: GroupPorts) -> Reply:
    config = ports.settings.config
    topics = tuple(ports.offsets.topics_of(request.header.group))
    return Reply(body=TopicList(topics=topics, broker_addr=join_addr(config.ip, config.port)))


@handlers.on(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
def subscription_of(request: Request[headers.GroupSubscriptionRequest], ports: GroupPorts) -> Reply:
    group, topic = request.header.group, request.header.topic
    subscription = ports.consumers.subscription(group, topic) if topic else None
    return Reply(body=GroupSubscription(group=group, topic=topic, subscription=subscription))


@handlers.on(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
def forbid(request: Request[headers.GroupForbiddenRequest], ports: GroupPorts) -> Reply:
    """Read or change whether a group may read a topic."""
    group, topic, readable = request.header.group, request.header.topic, request.header.readable
    if readable is not None:
        if fault := group_fault(group) or topic_fault(topic):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
        ports.groups.allow_reading(group, topic, readable, now_ms=ports.clock.now_ms())
    return Reply(body=GroupForbidden(group=group, topic=topic, readable=ports.groups.may_read(group, topic)))


@handlers.on(RequestCode.CLONE_GROUP_OFFSET)
def clone(request: Request[CloneOffsetRequest], ports: GroupPorts) -> Reply:
    """Copy a group's offsets to another group, which is created if that is allowed."""
    header, auto_create = request.header, ports.settings.config.auto_create_groups
    target = ports.groups.find(header.target_group, auto_create=auto_create, now_ms=ports.clock.now_ms())
    if target is None:
        remark = f"consumer group {header.target_group[:GROUP_CHARS_MAX]} does not exist"
        raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    for topic in [header.topic] if header.topic else ports.offsets.topics_of(header.source_group):
        ports.offsets.clone(header.source_group, header.target_group, topic)
    return Reply()
