"""Send requests on the slow path: admission, placement, append and answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay.placement import TIMER_PROPERTIES, BadDelayError, place, store_as, without_orders
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.ha.durability import must_wait, wait_durable
from rocketq.broker.pipeline.admission import AdmissionTables, Rejection, SendAdmission, SendAsk, admit_send
from rocketq.broker.pipeline.answer_templates import SendAnswers
from rocketq.broker.pipeline.quotas import charge, quota_fault
from rocketq.broker.stats.broker_metrics import NORMAL, message_type
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.topics.table import TopicTable
from rocketq.broker.transaction.half_messages import HALF_PROPERTIES_BYTES_MAX
from rocketq.broker.transaction.service import Transactions
from rocketq.model import NewMessage, SysFlag
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import TopicSysFlag
from rocketq.protocol.handles import handle_of
from rocketq.protocol.headers.send import SendRequest, SendResponse
from rocketq.protocol.messages import batch_elements
from rocketq.protocol.names import (
    HALF_TOPIC,
    RETRY_PREFIX,
    Property,
    dlq_topic,
)
from rocketq.protocol.properties import PROPERTIES_BYTES_MAX, decode_properties, split_properties
from rocketq.protocol.versions import RETRY_LIMIT_SINCE, V5_0_0
from rocketq.remoting import EncodedReply, Handlers, Reply, Request, RequestRejected
from rocketq.remoting.dispatch import OrderedAnswer
from rocketq.remoting.handlers import TypedAnswer
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import collect
from rocketq.store import AppendResult, AppendStatus, StoreWriter


@dataclass(frozen=True, slots=True)
class SendPorts:
    admission: AdmissionTables
    settings: Settings
    topics: TopicTable
    groups: GroupTable
    store: StoreWriter
    stats: BrokerStats
    clock: Clock
    pick: Callable[[int], int]
    """A random number below the argument."""
    answers: SendAnswers
    transactions: Transactions | None = None
    """None rejects half messages."""


@dataclass(slots=True)
class SendPlan:
    """An admitted message to store; the answer has the requested queue, also for delayed messages."""

    message: NewMessage
    queue_id: int
    is_batch: bool
    waits: bool
    transaction_id: str | None
    recall_handle: str | None = None
    quotas: tuple[Any, ...] = ()
    kind: str = NORMAL
    """The message type in metrics."""


handlers: Handlers[SendPorts] = Handlers()

_CODES: Final = {
    AppendStatus.OK: ResponseCode.SUCCESS,
    AppendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    AppendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    AppendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    AppendStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    AppendStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}
_CAUSES: Final[Mapping[int, str]] = {
    ResponseCode.NO_PERMISSION: "no_permission",
    ResponseCode.TOPIC_NOT_EXIST: "unknown_topic",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "unknown_group",
    ResponseCode.SYSTEM_BUSY: "flow_control",
    ResponseCode.MESSAGE_ILLEGAL: "illegal_message",
    ResponseCode.SERVICE_NOT_AVAILABLE: "store_failed",
}
"""Why sends are rejected, for metrics, where the code says it."""
_NOT_IN_BATCHES: Final = (Property.DELAY, Property.TRANSACTION_PREPARED, *TIMER_PROPERTIES)
DEFAULT_RETRIES_MAX: Final = 16
_PROPERTIES_CHARS_MAX: Final = 1 << 16  # longer properties are rejected before parsing
_SMALL_BATCH_BYTES: Final = 64 << 10  # takes 2 ms to check
_HOST_BITS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6


@handlers.on(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
def send(request: Request[SendRequest], ports: SendPorts) -> TypedAnswer:
    if len(request.body) > _SMALL_BATCH_BYTES and _is_batch(request) and _may_be_delayed(request.body):
        return _send_after_checking(request, ports)
    return _send(request, ports)


async def _send_after_checking(request: Request[SendRequest], ports: SendPorts) -> Reply:
    """A large batch whose bytes include the name of a delay property: its elements are checked in slices."""
    await collect(_batch_faults(request.body, ports))
    plan = admit(request, ports, checks_batch=False)
    return await DurableSend(plan, ports, ports.clock.monotonic_ms())


def _send(request: Request[SendRequest], ports: SendPorts) -> TypedAnswer:
    plan = admit(request, ports)
    if plan.waits and must_wait(ports.store):
        return DurableSend(plan, ports, ports.clock.monotonic_ms())
    result = _append(plan, ports)
    if result.status is AppendStatus.OK and plan.recall_handle is None and _is_plain(plan.transaction_id):
        return EncodedReply(ports.answers.encode(request.command, result, plan.queue_id, plan.transaction_id))
    return _reply(plan, result, ports)


def store_now(plan: SendPlan, ports: SendPorts) -> Reply:
    """Store and answer without waiting for the disk; RequestRejected on failure."""
    return _reply(plan, _append(plan, ports), ports)


# the stored message


def admit(request: Request[SendRequest], ports: SendPorts, *, checks_batch: bool = True) -> SendPlan:
    """Admit a send and make the message to store; RequestRejected if it is rejected."""
    header, config = request.header, ports.settings.config
    if len(header.properties) > _PROPERTIES_CHARS_MAX:
        remark = f"the properties have {len(header.properties)} characters, more than {PROPERTIES_BYTES_MAX} bytes"
        raise _refusal(ports, ResponseCode.MESSAGE_ILLEGAL, remark)
    admitted = _admit(request, ports)
    topic = admitted.topic
    queue_id = _choose_queue(header, topic, ports)
    is_batch = _is_batch(request)
    properties = split_properties(header.properties)
    waits = properties.get(Property.WAIT, "true").lower() == "true"
    if is_batch:
        if checks_batch and _may_be_delayed(request.body):
            deque(_batch_faults(request.body, ports), maxlen=0)
    else:
        properties.pop(Property.WAIT, None)
        if _is_exhausted(request, topic, ports):
            topic, queue_id = _dead_letters(topic, ports), 0
            properties = with_origin(without_orders(properties))
    for name, value in admitted.properties.items():
        properties.pop(name, None)
        properties[name] = value
    message = NewMessage(
        topic=topic.topic,
        queue_id=queue_id,
        body=request.body,
        flag=header.flag,
        sys_flag=(header.sys_flag & ~_HOST_BITS) | admitted.sys_flag,
        born_ms=header.born_ms,
        born_host=request.connection.peer,
        reconsume_times=header.reconsume_times,
    )
    kind = NORMAL if is_batch else message_type(properties)
    message = store_as(message, properties) if is_batch else _place(message, properties, ports)
    transaction_id = properties.get(Property.UNIQUE_KEY) if request.version >= V5_0_0 else None
    return SendPlan(
        message,
        queue_id,
        is_batch,
        waits,
        transaction_id,
        handle_of(message, properties, config.name),
        admitted.quotas,
        kind,
    )


def _admit(request: Request[SendRequest], ports: SendPorts) -> SendAdmission:
    """Admit a send; creates the topic if a send may do so."""
    header, config, now_ms = request.header, ports.settings.config, ports.clock.now_ms()

    def create() -> TopicConfig | None:
        return ports.topics.create_for_send(
            header.topic,
            template=header.default_topic,
            queue_count=header.default_queue_count,
            sys_flag=_sys_flag(header),
            auto_create=config.auto_create_topics,
            now_ms=now_ms,
        )

    principal = ports.admission.access.principal_of(request.command, request.connection)
    ask = SendAsk(header.topic, header.group, request.connection, principal)
    admitted = admit_send(ask, ports.admission, now_ms, create)
    if isinstance(admitted, Rejection):
        raise _refusal(ports, admitted.code, admitted.remark, admitted.cause)
    return admitted


def _place(message: NewMessage, properties: dict[str, str], ports: SendPorts) -> NewMessage:
    """Place a message: in its queue, in a queue for delayed messages, or in the topic of half messages."""
    prepared = properties.get(Property.TRANSACTION_PREPARED, "").lower() == "true" and message.reconsume_times == 0
    if prepared and ports.settings.config.reject_transactions:
        raise _refusal(
            ports, ResponseCode.NO_PERMISSION, "transactional messages are disabled (rejectTransactionMessage)"
        )
    state = message.sys_flag & SysFlag.TRANSACTION_MASK
    if prepared:
        return _prepare(message, properties, ports)
    if state in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK):
        # Apache accepts such a message and never delivers it: without the property it is no half message.
        message = replace(message, sys_flag=message.sys_flag & ~SysFlag.TRANSACTION_MASK)
    rules = ports.settings.config.delay_rules(len(ports.store.config.delays_ms))
    try:
        return place(message, properties, rules, ports.clock.now_ms())
    except BadDelayError as error:
        raise _refusal(ports, error.code, str(error)) from None


def _prepare(message: NewMessage, properties: dict[str, str], ports: SendPorts) -> NewMessage:
    """Make the half message of a transaction."""
    if ports.transactions is None:
        raise _refusal(ports, ResponseCode.SYSTEM_ERROR, "a reply cannot be transactional")
    half = ports.transactions.prepare(message, properties)
    if len(half.properties) > HALF_PROPERTIES_BYTES_MAX:
        remark = f"a half message has up to {HALF_PROPERTIES_BYTES_MAX} bytes of properties, not {len(half.properties)}"
        raise _refusal(ports, ResponseCode.MESSAGE_ILLEGAL, remark)
    return half


def _sys_flag(header: SendRequest) -> int:
    if not header.unit_mode:
        return 0
    return int(TopicSysFlag.UNIT_SUB if header.topic.startswith(RETRY_PREFIX) else TopicSysFlag.UNIT)


def _choose_queue(header: SendRequest, topic: TopicConfig, ports: SendPorts) -> int:
    if header.queue_id >= max(topic.write_queue_count, topic.read_queue_count):
        remark = (
            f"queue {header.queue_id} is outside topic {topic.topic}, which has {topic.write_queue_count} queues to "
            f"write and {topic.read_queue_count} to read"
        )
        raise _refusal(ports, ResponseCode.SYSTEM_ERROR, remark)
    if header.queue_id >= 0:
        return header.queue_id
    if topic.write_queue_count <= 0:
        raise _refusal(ports, ResponseCode.SYSTEM_ERROR, f"topic {topic.topic} has no queue to write")
    return ports.pick(topic.write_queue_count)


def _is_batch(request: Request[SendRequest]) -> bool:
    return request.header.batch or request.command.code == RequestCode.SEND_BATCH_MESSAGE


def _may_be_delayed(body: bytes) -> bool:
    """Whether a batch contains the name of a property that its messages must not have, perhaps in a body."""
    return any(name.encode() + b"\x01" in body for name in _NOT_IN_BATCHES)


def _batch_faults(body: bytes, ports: SendPorts) -> Iterator[None]:
    """Reject delayed or half messages in a batch, one message per step; the store rejects malformed batches."""
    for element in batch_elements(body):
        properties = decode_properties(element.properties)
        if any(properties.get(name, "0") not in ("0", "false") for name in _NOT_IN_BATCHES):
            raise _refusal(ports, ResponseCode.MESSAGE_ILLEGAL, "messages of a batch cannot be delayed or prepared")
        yield


def _is_exhausted(request: Request[SendRequest], topic: TopicConfig, ports: SendPorts) -> bool:
    """Whether a message sent to a retry topic has reached its retry limit."""
    if not topic.topic.startswith(RETRY_PREFIX):
        return False
    header, config = request.header, ports.settings.config
    name = topic.topic.removeprefix(RETRY_PREFIX)
    group = ports.groups.find(name, auto_create=config.auto_create_groups, now_ms=ports.clock.now_ms())
    if group is None:
        raise _refusal(ports, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {name} does not exist")
    asked = header.max_reconsume_times if request.version >= RETRY_LIMIT_SINCE else None
    return header.reconsume_times >= retries_max(group, asked)


def retries_max(group: GroupConfig, asked: int | None) -> int:
    """The retry limit: the request's, otherwise the group's; -1 means 16."""
    limit = group.retry_max if asked is None else asked
    return DEFAULT_RETRIES_MAX if limit == -1 else limit


def _dead_letters(topic: TopicConfig, ports: SendPorts) -> TopicConfig:
    name = dlq_topic(topic.topic.removeprefix(RETRY_PREFIX))
    return ports.topics.create_exactly(name, 1, now_ms=ports.clock.now_ms())


def with_origin(properties: dict[str, str]) -> dict[str, str]:
    """The properties of a dead letter, with its original topic and message id if they are known."""
    for name, source in (
        (Property.DLQ_ORIGIN_TOPIC, Property.RETRY_TOPIC),
        (Property.DLQ_ORIGIN_MESSAGE_ID, Property.ORIGIN_MESSAGE_ID),
    ):
        if source in properties:
            properties.setdefault(name, properties[source])
    return properties


# the store


def _append(plan: SendPlan, ports: SendPorts) -> AppendResult:
    began_ms = ports.clock.monotonic_ms()
    if plan.is_batch:
        result = ports.store.append_batch(plan.message, wait=False)
    else:
        result = ports.store.append(plan.message, wait=False)
    if result.status.stored:
        took_ms = ports.clock.monotonic_ms() - began_ms
        ports.stats.stored(plan.message.topic, len(result.log_offsets), result.size, took_ms, kind=plan.kind)
        charge(plan.quotas, len(result.log_offsets), result.size)
        if plan.message.topic == HALF_TOPIC and ports.transactions is not None:
            ports.transactions.prepared(plan.message, result)
    else:
        ports.stats.totals.put_failed()
    return result


class DurableSend(OrderedAnswer):
    """A send that is answered when its message is flushed and replicated as configured. It is stored by `start`, before
    later requests of the connection; nothing is stored if it waited too long, or a quota was exceeded."""

    def __init__(self, plan: SendPlan, ports: SendPorts, arrived_ms: int) -> None:
        self._plan = plan
        self._ports = ports
        self._arrived_ms = arrived_ms
        self._stored: AppendResult | RequestRejected | None = None

    def start(self) -> None:
        try:
            self._stored = self._store()
        except RequestRejected as rejection:
            self._stored = rejection

    def __await__(self) -> Generator[Any, None, Reply]:
        return self._wait().__await__()

    def close(self) -> None:
        """Nothing is stored."""

    def _store(self) -> AppendResult:
        ports, plan = self._ports, self._plan
        config, waited_ms = ports.settings.config, ports.clock.monotonic_ms() - self._arrived_ms
        if config.fast_failure and waited_ms > config.send_wait_ms_max:
            remark = f"[TIMEOUT_CLEAN_QUEUE]broker busy, the request waited {waited_ms} ms for its turn"
            raise _refusal(ports, ResponseCode.SYSTEM_BUSY, remark)
        if (fault := quota_fault(plan.quotas, ports.clock.now_ms())) is not None:
            raise _refusal(ports, ResponseCode.SYSTEM_BUSY, fault, "quota")
        return _append(plan, ports)

    async def _wait(self) -> Reply:
        if self._stored is None:
            self.start()
        result = self._stored
        if isinstance(result, RequestRejected):
            raise result
        assert result is not None
        if result.status is AppendStatus.OK:
            status, reason = await wait_durable(self._ports.store, result.end)
            result = replace(result, status=status, reason=reason)
        return _reply(self._plan, result, self._ports)


# answers


def _is_plain(text: str | None) -> bool:
    """Whether JSON needs no escapes."""
    return text is None or (text.isascii() and text.isprintable() and '"' not in text and "\\" not in text)


def _reply(plan: SendPlan, result: AppendResult, ports: SendPorts) -> Reply:
    code = _CODES.get(result.status, ResponseCode.SYSTEM_ERROR)
    if not result.status.stored:
        tag = "[REJECTREQUEST]" if code == ResponseCode.SYSTEM_BUSY else ""
        raise _refusal(ports, code, tag + (result.reason or result.status.value), _append_cause(plan, result, ports))
    config = ports.settings.config
    header = SendResponse(
        message_id=result.message_id,
        queue_id=plan.queue_id,
        queue_offset=result.queue_offset,
        transaction_id=plan.transaction_id,
        region=config.region,
        trace_on=config.trace_on,
        recall_handle=plan.recall_handle,
    )
    return Reply(code, result.reason or None, header=header)


def _append_cause(plan: SendPlan, result: AppendResult, ports: SendPorts) -> str | None:
    """Why the store rejected a message, for metrics; None where the answer's code says it."""
    if result.status is AppendStatus.SERVICE_NOT_AVAILABLE:
        return ports.store.refusal_cause
    if result.status is AppendStatus.PAGE_CACHE_BUSY:
        return "page_cache"
    too_large = len(plan.message.body) > ports.store.config.message_bytes_max
    return "too_large" if too_large or result.status is AppendStatus.PROPERTIES_SIZE_EXCEEDED else None


def _refusal(ports: SendPorts, code: int, remark: str, cause: str | None = None) -> RequestRejected:
    """An answer that rejects a send, counted by cause."""
    ports.stats.metrics.refused_send(cause or _CAUSES.get(code, "invalid_request"))
    config = ports.settings.config
    trace = "true" if config.trace_on else "false"
    return RequestRejected(code, remark, {Property.REGION: config.region, Property.TRACE_ON: trace})
