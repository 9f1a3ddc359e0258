"""Requests about offsets: committed offsets of groups, start and end of queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.topics.table import TopicTable
from rocketq.protocol.bodies.offsets import CorrectionOffsets
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.headers import offsets as headers
from rocketq.protocol.names import GROUP_CHARS_MAX, TOPIC_CHARS_MAX
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReader


@dataclass(frozen=True, slots=True)
class OffsetPorts:
    settings: Settings
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    store: StoreReader
    clock: Clock


handlers: Handlers[OffsetPorts] = Handlers()

_NOBODY_BEHIND: Final = (1 << 63) - 1


@handlers.on(RequestCode.QUERY_CONSUMER_OFFSET)
def query(request: Request[headers.QueryOffsetRequest], ports: OffsetPorts) -> Reply:
    """The committed offset; 0 for a new group while the queue still has its first message (unless youngTopicRule is
    false: then a new group starts at its consumers' consumeFromWhere)."""
    header, young = request.header, ports.settings.config.young_topic_rule
    offset = ports.offsets.get(header.group, header.topic, header.queue_id)
    if offset is None and young and header.zero_if_none is not False and _starts_at_zero(request, ports.store):
        offset = 0
    if offset is None:
        remark = f"group {header.group} has committed nothing for queue {header.queue_id} of {header.topic}"
        raise RequestRejected(ResponseCode.QUERY_NOT_FOUND, remark)
    return Reply(header=headers.OffsetResponse(queue_offset=offset))


def _starts_at_zero(request: Request[headers.QueryOffsetRequest], store: StoreReader) -> bool:
    """Includes empty queues: a client without an offset requests the end next, and skips messages stored in between."""
    header = request.header
    if store.min_offset(header.topic, header.queue_id) > 0:
        return False
    return not store.is_far(header.topic, header.queue_id, 0)


@handlers.on(RequestCode.UPDATE_CONSUMER_OFFSET)
def update(request: Request[headers.UpdateOffsetRequest], ports: OffsetPorts) -> Reply:
    """Commit an offset of an existing topic and queue, as 5.x checks it: committed offsets stay in memory. The group is
    created if that is allowed, as by a pull."""
    header = request.header
    if (fault := commit_fault(header.group, header.topic, header.queue_id, ports)) is not None:
        raise fault
    ports.offsets.commit(header.group, header.topic, header.queue_id, header.commit_offset)
    return Reply()


def commit_fault(group: str, topic: str, queue_id: int, ports: OffsetPorts) -> RequestRejected | None:
    """Why an offset must not be committed, or None."""
    auto_create = ports.settings.config.auto_create_groups
    if ports.groups.find(group, auto_create=auto_create, now_ms=ports.clock.now_ms()) is None:
        remark = f"consumer group {group[:GROUP_CHARS_MAX]} does not exist"
        return RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    config = ports.topics.get(topic)
    if config is None:
        remark = f"topic {topic[:TOPIC_CHARS_MAX]} does not exist"
        return RequestRejected(ResponseCode.TOPIC_NOT_EXIST, remark)
    count = max(config.read_queue_count, config.write_queue_count)
    if not 0 <= queue_id < count and ports.store.max_offset(topic, queue_id) <= 0:
        return RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"queue {queue_id} is outside topic {topic}, which has {count}"
        )
    return None


@handlers.on(RequestCode.GET_MAX_OFFSET)
def max_offset(request: Request[headers.MaxOffsetRequest], ports: OffsetPorts) -> Reply:
    offset = ports.store.max_offset(request.header.topic, request.header.queue_id)
    return Reply(header=headers.OffsetResponse(queue_offset=offset))


@handlers.on(RequestCode.GET_MIN_OFFSET)
def min_offset(request: Request[headers.MinOffsetRequest], ports: OffsetPorts) -> Reply:
    offset = ports.store.min_offset(request.header.topic, request.header.queue_id)
    return Reply(header=headers.OffsetResponse(queue_offset=max(0, offset)))


@handlers.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
def search(request: Request[headers.SearchOffsetRequest], ports: OffsetPorts) -> Reply:
    header = request.header
    upper = (header.boundary or "").upper() == "UPPER"
    offset = ports.store.offset_by_time(header.topic, header.queue_id, header.timestamp_ms, upper=upper)
    return Reply(header=headers.OffsetResponse(queue_offset=offset))


@handlers.on(RequestCode.GET_EARLIEST_MSG_STORETIME)
def earliest(request: Request[headers.EarliestTimeRequest], ports: OffsetPorts) -> Reply:
    header, store = request.header, ports.store
    first = store.min_offset(header.topic, header.queue_id)
    time_ms = store.store_ms_of(header.topic, header.queue_id, first) if first >= 0 else -1
    return Reply(header=headers.EarliestTimeResponse(timestamp_ms=time_ms))


@handlers.on(RequestCode.QUERY_CORRECTION_OFFSET)
def correction(request: Request[headers.CorrectionOffsetRequest], ports: OffsetPorts) -> Reply:
    """By queue, the offset of the slowest group; the maximum i64 if all groups are ahead of the named one."""
    return Reply(body=_correction(request.header, ports))


def _correction(header: headers.CorrectionOffsetRequest, ports: OffsetPorts) -> Iterator[str]:
    """Yields an empty piece per group, because a topic may have thousands."""
    left_out = {group.strip() for group in (header.filter_groups or "").split(",")}
    slowest: dict[int, int] = {}
    for group in ports.offsets.groups_of(header.topic):
        if group not in left_out:
            ports.offsets.lower(slowest, group, header.topic)
            yield ""
    slowest = {
        queue_id: offset
        for queue_id, offset in slowest.items()
        if offset >= ports.store.min_offset(header.topic, queue_id)
    }
    for queue_id, offset in ports.offsets.of(header.group, header.topic).items():
        if slowest.get(queue_id, -1) > offset:
            slowest[queue_id] = _NOBODY_BEHIND
    yield from CorrectionOffsets(offsets=slowest).pieces()
