"""Resets offsets of groups, and asks their members for their positions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.change_notices import Client, ask, push
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.topics.table import TopicTable
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.offsets import ConsumerStatus, ResetOffsets
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.fastjson import to_bytes
from rocketq.protocol.flags import Language
from rocketq.protocol.headers import offsets as headers
from rocketq.protocol.versions import CONSUMER_CALLS_SINCE, V5_0_0
from rocketq.remoting import Connection, Handlers, Reply, Request, RequestRejected
from rocketq.runtime.slices import collect
from rocketq.store import StoreReader

STATUS_TIMEOUT_MS: Final = 5_000
_TO_THE_END: Final = -1


@dataclass(frozen=True, slots=True)
class ResetPorts:
    settings: Settings
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    offsets: OffsetTable
    store: StoreReader


handlers: Handlers[ResetPorts] = Handlers()


@handlers.on(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
async def reset(request: Request[headers.ResetOffsetRequest], ports: ResetPorts) -> Reply:
    """Reset offsets and notify connected members. Without members 4.x tools get CONSUMER_NOT_ONLINE and commit the
    offsets themselves; for 5.x tools the broker commits them."""
    header, newer = request.header, request.version >= V5_0_0
    topic = ports.topics.get(header.topic)
    if topic is None:
        code = ResponseCode.TOPIC_NOT_EXIST if newer else ResponseCode.SYSTEM_ERROR
        raise RequestRejected(code, f"topic {header.topic} does not exist")
    if newer and ports.groups.get(header.group) is None:
        remark = f"consumer group {header.group} does not exist"
        raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    targets = ResetOffsets(offsets=dict(await collect(_targets(header, topic, ports, needs_commit=not newer))))
    members = [one for one in ports.consumers.members(header.group) if one.version >= CONSUMER_CALLS_SINCE]
    if not members and not newer:
        raise RequestRejected(
            ResponseCode.CONSUMER_NOT_ONLINE, f"no member of consumer group {header.group} is connected"
        )
    if newer:
        for queue, offset in targets.offsets.items():
            ports.offsets.commit(header.group, header.topic, queue.queue_id, offset)
    is_cpp = request.command.language is Language.CPP
    body = targets.encode_list() if is_cpp else to_bytes("".join(await collect(targets.pieces())))
    order = headers.ResetClientOffsetRequest(topic=header.topic, group=header.group, timestamp_ms=header.timestamp_ms)
    push(members, order, body)
    return Reply(body=targets)


def _targets(
    header: headers.ResetOffsetRequest, topic: TopicConfig, ports: ResetPorts, *, needs_commit: bool
) -> Iterator[tuple[MessageQueue, int]]:
    """One queue per step, because each takes a search by time."""
    queue_ids = range(topic.write_queue_count)
    if header.queue_id is not None and header.queue_id >= 0:
        if header.queue_id >= max(topic.write_queue_count, topic.read_queue_count):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"topic {topic.topic} has no queue {header.queue_id}")
        queue_ids = range(header.queue_id, header.queue_id + 1)
    for queue_id in queue_ids:
        current = ports.offsets.get(header.group, header.topic, queue_id)
        if current is None and needs_commit:
            remark = f"group {header.group} has committed nothing for queue {queue_id} of {header.topic}"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
        target = _target(header, queue_id, ports.store)
        keeps = current is not None and not header.force and target >= current
        queue = MessageQueue(topic=header.topic, broker_name=ports.settings.config.name, queue_id=queue_id)
        yield queue, current if keeps and current is not None else target


def _target(header: headers.ResetOffsetRequest, queue_id: int, store: StoreReader) -> int:
    if header.queue_offset is not None and header.queue_offset >= 0 and (header.queue_id or 0) >= 0:
        return header.queue_offset
    if header.timestamp_ms == _TO_THE_END:
        return store.max_offset(header.topic, queue_id)
    return max(0, store.offset_by_time(header.topic, queue_id, header.timestamp_ms))


@handlers.on(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
async def consumer_status(request: Request[headers.ConsumerStatusRequest], ports: ResetPorts) -> Reply:
    """Ask connected members for their offsets of a topic's queues."""
    header = request.header
    members = ports.consumers.members(header.group)
    if not members:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no member of consumer group {header.group} is connected")
    wanted = [one for one in members if header.client_id in (None, one.client_id)]
    question = headers.ClientStatusRequest(topic=header.topic, group=header.group)
    answers = await asyncio.gather(*(_status_of(client, question) for client in wanted))
    consumers = {client.client_id: queues for client, queues in zip(wanted, answers, strict=True) if queues is not None}
    return Reply(body=ConsumerStatus(consumers=consumers))


async def _status_of(client: Client, question: headers.ClientStatusRequest) -> dict[MessageQueue, int] | None:
    try:
        answer = await ask(client, question, STATUS_TIMEOUT_MS)
        return ConsumerStatus.decode(answer.body).queues if answer.code == ResponseCode.SUCCESS else None
    except RocketQError:
        return None
