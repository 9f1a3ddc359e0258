"""Send-backs: messages that a consumer failed to process, retried later or stored as dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay.placement import place, without_orders
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.ha.durability import is_durable
from rocketq.broker.send.handlers import retries_max, with_origin
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.stats.stats_table import StatName, group_key
from rocketq.broker.topics.table import TopicTable
from rocketq.model import NewMessage, Record
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import Perm, TopicSysFlag
from rocketq.protocol.headers.pull import SendBackRequest
from rocketq.protocol.names import (
    DLQ_PREFIX,
    HALF_OP_TOPIC,
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    Property,
    dlq_topic,
    retry_topic,
    topic_fault,
)
from rocketq.protocol.properties import decode_properties
from rocketq.protocol.versions import RETRY_LIMIT_SINCE
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.remoting.handlers import TypedAnswer
from rocketq.runtime.clock import Clock
from rocketq.store import AppendStatus, FlushType, StoreWriter

FIRST_RETRY_LEVEL: Final = 3
FAILURE_CHARS_MAX: Final = 512
log = logging.getLogger(__name__)
_HIDDEN: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, HALF_OP_TOPIC})
"""Topics of undelivered messages, which cannot be sent back."""
_UNIT_SUB: Final = int(TopicSysFlag.UNIT_SUB)


@dataclass(frozen=True, slots=True)
class SendBackPorts:
    settings: Settings
    topics: TopicTable
    groups: GroupTable
    store: StoreWriter
    stats: BrokerStats
    clock: Clock
    pick: Callable[[int], int]
    """A random number below the argument."""


handlers: Handlers[SendBackPorts] = Handlers()


@handlers.on(RequestCode.CONSUMER_SEND_MSG_BACK)
def send_back(request: Request[SendBackRequest], ports: SendBackPorts) -> TypedAnswer:
    group = _find_group(request.header, ports)
    if group.retry_queue_count <= 0:
        return Reply()
    queue_count = _retry_queue_count(request.header, group, ports)
    record = _find_message(request.header, ports)
    asked = request.header.max_reconsume_times if request.version >= RETRY_LIMIT_SINCE else None
    if record.reconsume_times >= retries_max(group, asked) or request.header.delay_level < 0:
        message = _dead_letter(record, request.header, ports)
        log.warning(
            "message became a dead letter: group=%s topic=%s id=%s keys=%s attempts=%d error=%s", request.header.group,
            record.topic, record.message_id, decode_properties(record.properties).get(Property.KEYS, ""),
            record.reconsume_times + 1, request.header.failure or "unknown",
        )  # fmt: skip
    else:
        message = _retry(record, request.header, ports.pick(queue_count), ports)
    return _append(message, record, request.header.group, ports)


def _find_group(header: SendBackRequest, ports: SendBackPorts) -> GroupConfig:
    config = ports.settings.config
    group = ports.groups.find(header.group, auto_create=config.auto_create_groups, now_ms=ports.clock.now_ms())
    if group is None:
        remark = f"consumer group {header.group} does not exist"
        raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not config.perm & Perm.WRITE:
        raise RequestRejected(
            ResponseCode.NO_PERMISSION, f"broker {config.name} does not accept messages (brokerPermission)"
        )
    return group


def _retry_queue_count(header: SendBackRequest, group: GroupConfig, ports: SendBackPorts) -> int:
    """Queue count of the group's retry topic, which is created if it is missing."""
    name, sys_flag = retry_topic(header.group), _UNIT_SUB if header.unit_mode else 0
    if (fault := topic_fault(name)) is not None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
    topic = ports.topics.create_exactly(name, group.retry_queue_count, now_ms=ports.clock.now_ms(), sys_flag=sys_flag)
    if not topic.perm & Perm.WRITE:
        raise RequestRejected(ResponseCode.NO_PERMISSION, f"topic {name} may not be written to")
    return max(1, min(group.retry_queue_count, topic.write_queue_count))


def _find_message(header: SendBackRequest, ports: SendBackPorts) -> Record:
    record = ports.store.queued_message_at(header.log_offset)
    if record is None or record.topic in _HIDDEN:
        remark = f"no consumable message at log offset {header.log_offset}"
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
    return record


# the stored message


def _retry(record: Record, header: SendBackRequest, queue_id: int, ports: SendBackPorts) -> NewMessage:
    """The copy for the retry topic, with the requested delay level or one that grows with each retry."""
    level = header.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
    properties = _origin(record, header.failure) | {Property.DELAY: str(level)}
    rules = ports.settings.config.delay_rules(len(ports.store.config.delays_ms))
    message = _copy(record, retry_topic(header.group), queue_id, retries=record.reconsume_times + 1)
    return place(message, properties, rules, ports.clock.now_ms())


def _dead_letter(record: Record, header: SendBackRequest, ports: SendBackPorts) -> NewMessage:
    """The copy for the dead-letter topic, without delay."""
    topic = ports.topics.create_exactly(dlq_topic(header.group), 1, now_ms=ports.clock.now_ms())
    properties = with_origin(without_orders(_origin(record, header.failure)))
    rules = ports.settings.config.delay_rules(len(ports.store.config.delays_ms))
    message = _copy(record, topic.topic, 0, retries=record.reconsume_times + 1)
    return place(message, properties, rules, ports.clock.now_ms())


def _origin(record: Record, failure: str | None) -> dict[str, str]:
    """The message's properties with its original topic and id."""
    properties = decode_properties(record.properties)
    properties.setdefault(Property.RETRY_TOPIC, record.topic)
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, record.message_id)
    properties[Property.WAIT] = "false"
    if failure:
        properties[Property.FAILURE] = failure[:FAILURE_CHARS_MAX]
    return properties


def _copy(record: Record, topic: str, queue_id: int, *, retries: int) -> NewMessage:
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=record.body,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_ms=record.born_ms,
        born_host=record.born_host,
        reconsume_times=retries,
    )


def _append(message: NewMessage, record: Record, group: str, ports: SendBackPorts) -> TypedAnswer:
    result = ports.store.append(message, wait=False)
    if result.status is not AppendStatus.OK:
        ports.stats.totals.put_failed()
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, result.reason or result.status.value)
    ports.stats.stored(message.topic, 1, result.size, 0, kind=None)
    if message.topic.startswith(DLQ_PREFIX):
        ports.stats.metrics.dead_letter(
            group, decode_properties(record.properties).get(Property.RETRY_TOPIC, record.topic)
        )
    ports.stats.table.add(StatName.SEND_BACK_COUNT, group_key(record.topic, group), 1)
    if ports.store.config.flush_type is FlushType.SYNC_FLUSH:
        return _when_durable(result.end, ports)
    return Reply()


async def _when_durable(log_end: int, ports: SendBackPorts) -> Reply:
    """With SYNC_FLUSH answer after the copy is flushed, because the consumer then commits its offset."""
    if not await is_durable(ports.store, log_end):
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, AppendStatus.FLUSH_DISK_TIMEOUT.value)
    return Reply()
