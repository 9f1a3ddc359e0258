"""Pull requests: admission, reading, and long polling."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.pipeline.admission import AdmissionTables, PullAsk, Rejection, admit_pull
from rocketq.broker.pipeline.quotas import charge
from rocketq.broker.pull.cold_reads import ColdReads
from rocketq.broker.pull.consumer_filters import ConsumerFilters
from rocketq.broker.pull.disk_loads import DiskLoads
from rocketq.broker.pull.filters import PullFilter, carried_filter, is_tag_filter, known_filter
from rocketq.broker.pull.held_pulls import HeldPull
from rocketq.broker.pull.long_polling import LongPolling
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.filter import compile_steps, is_compiled
from rocketq.model import NewMessage
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.bodies.offsets import OffsetMoved
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import PullFlag
from rocketq.protocol.headers.pull import PullRequest, PullResponse
from rocketq.protocol.names import OFFSET_MOVED_TOPIC, Property
from rocketq.protocol.properties import encode_properties
from rocketq.protocol.versions import V5_0_0
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.remoting.dispatch import failure_answer
from rocketq.runtime.clock import Clock
from rocketq.runtime.machine import boot_id, file_id
from rocketq.runtime.slices import collect
from rocketq.store import ReadResult, ReadStatus, StoreWriter

HeldRequest = HeldPull[Request[PullRequest]]


@dataclass(frozen=True, slots=True)
class PullPorts:
    admission: AdmissionTables
    offsets: OffsetTable
    positions: PullPositions
    store: StoreWriter
    stats: BrokerStats
    clock: Clock
    polling: LongPolling[Request[PullRequest]]
    loads: DiskLoads
    cold_reads: ColdReads
    filters: ConsumerFilters

    @property
    def settings(self) -> Settings:
        return self.admission.settings


@dataclass(slots=True)
class PullPlan:
    """An admitted pull."""

    group: GroupConfig
    topic: TopicConfig
    filter: PullFilter
    quotas: tuple[Any, ...]


handlers: Handlers[PullPorts] = Handlers()
PULL_CODES: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

_CODES: Final = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@handlers.on(*PULL_CODES)
def pull(request: Request[PullRequest], ports: PullPorts) -> Reply | Coroutine[Any, Any, Reply | None] | None:
    """Answer from memory, load from disk, or hold the pull. A load does not block the connection's later requests."""
    header = request.header
    if header.flags & PullFlag.SUBSCRIPTION and not is_tag_filter(header.expression_type):
        expression = header.subscription or ""
        if ports.settings.config.property_filter and not is_compiled(expression):
            return _pull_after_compiling(request, expression, ports)
    return _pull(request, ports)


async def _pull_after_compiling(request: Request[PullRequest], expression: str, ports: PullPorts) -> Reply | None:
    await collect(compile_steps(expression), is_wanted=lambda: not request.connection.is_closed)
    answer = _pull(request, ports)
    return await answer if isinstance(answer, Coroutine) else answer


def _pull(request: Request[PullRequest], ports: PullPorts) -> Reply | Coroutine[Any, Any, Reply | None] | None:
    header = request.header
    plan = _admit(request, ports)
    _refuse_too_cold(header, ports)
    found = _read(header, plan, header.queue_offset, ports)
    if header.flags & PullFlag.COMMIT_OFFSET and not ports.settings.config.is_slave:
        ports.offsets.commit(header.group, header.topic, header.queue_id, header.commit_offset)
    if found.status is ReadStatus.NOT_RESIDENT:
        return _pull_from_disk(request, plan, found, ports)
    return _reply_or_hold(request, plan, found, ports)


async def _pull_from_disk(
    request: Request[PullRequest], plan: PullPlan, found: ReadResult, ports: PullPorts
) -> Reply | None:
    loaded = await _load(request, plan, found, ports)
    return None if loaded is None else _reply_or_hold(request, *loaded, ports)


def _reply_or_hold(request: Request[PullRequest], plan: PullPlan, found: ReadResult, ports: PullPorts) -> Reply | None:
    header = request.header
    if _code(found, header.queue_offset) == ResponseCode.PULL_NOT_FOUND and header.flags & PullFlag.HOLD:
        _hold(_held(request, ports), ports)
        return None
    return _reply(request, plan, found, ports)


def _hold(held: HeldRequest, ports: PullPorts) -> None:
    if (fault := ports.polling.hold(held)) is not None:
        raise RequestRejected(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]system busy, {fault}")


def _held(request: Request[PullRequest], ports: PullPorts) -> HeldRequest:
    header, config = request.header, ports.settings.config
    hold_ms = max(0, header.hold_ms) if config.long_polling else config.short_polling_ms
    deadline_ms = ports.clock.monotonic_ms() + hold_ms
    connection = request.connection
    queue = (header.topic, header.queue_id)
    return HeldPull(queue, header.queue_offset, deadline_ms, connection, request, address=connection.peer_host)


def serve_held(held: HeldRequest, last: bool, ports: PullPorts) -> bool:
    """Answer a held pull; False if no matching message has arrived and it stays held."""
    request = held.payload
    try:
        plan = _admit(request, ports)
        found = _read(request.header, plan, held.scan_offset, ports)
        if found.status is ReadStatus.NOT_RESIDENT:
            ports.loads.start(_serve_held_from_disk(held, last, plan, found, ports))
            return True
        response = _held_response(held, last, plan, found, ports)
    except Exception as error:  # boundary: a failure of a held pull is answered
        response = failure_answer(request.command, error)
    if response is None:
        return False
    request.connection.answer(request.command, response)
    return True


async def _serve_held_from_disk(
    held: HeldRequest, last: bool, plan: PullPlan, found: ReadResult, ports: PullPorts
) -> None:
    request = held.payload
    try:
        loaded = await _load(request, plan, found, ports)
        if loaded is None:
            return
        response = _held_response(held, last, *loaded, ports)
        if response is None:
            _hold(held, ports)
            return
    except Exception as error:  # the same boundary as in serve_held
        response = failure_answer(request.command, error)
    request.connection.answer(request.command, response)


def _held_response(
    held: HeldRequest, last: bool, plan: PullPlan, found: ReadResult, ports: PullPorts
) -> Command | None:
    """The answer, or None if the pull stays held."""
    if not last and found.status is not ReadStatus.FOUND and _may_wait(found, held.scan_offset):
        held.scan_offset = max(held.scan_offset, found.next_offset)
        return None
    if found.status is ReadStatus.OFFSET_OVERFLOW_ONE and held.scan_offset > held.start_offset:
        found = replace(found, status=ReadStatus.NO_MATCHED_MESSAGE)  # the scanned messages did not match
    return _reply(held.payload, plan, found, ports).to_command(held.payload.command)


def _may_wait(found: ReadResult, queue_offset: int) -> bool:
    """Whether a pull may stay held: only at the end of the queue, because a scan is limited and the client continues
    it."""
    if found.status is ReadStatus.NO_MATCHED_MESSAGE:
        return found.next_offset >= found.max_offset
    return _code(found, queue_offset) == ResponseCode.PULL_NOT_FOUND


# checks


def _admit(request: Request[PullRequest], ports: PullPorts) -> PullPlan:
    """Admit a pull; creates the group if auto-creation is allowed."""
    header, tables, now_ms = request.header, ports.admission, ports.clock.now_ms()
    config = tables.settings.config
    ask = PullAsk(
        header.group,
        header.topic,
        request.connection,
        queue_id=header.queue_id,
        carries_filter=bool(header.flags & PullFlag.SUBSCRIPTION),
        version=header.subscription_version,
        principal=tables.access.principal_of(request.command, request.connection),
    )
    admitted = admit_pull(
        ask,
        tables,
        now_ms,
        lambda group: tables.groups.find(group, auto_create=config.auto_create_groups, now_ms=now_ms),
    )
    if isinstance(admitted, Rejection):
        raise RequestRejected(admitted.code, admitted.remark, admitted.fields)
    if admitted.subscription is None:
        wanted = carried_filter(header, ports.filters, config.filter_rules)
    else:
        wanted = known_filter(admitted.subscription, header, ports.filters, config.filter_rules)
    return PullPlan(admitted.group, admitted.topic, wanted, admitted.quotas)


def _refuse_too_cold(header: PullRequest, ports: PullPorts) -> None:
    """Reject pulls of groups over their limit of cold reads, so that one group does not slow down all others."""
    config = ports.settings.config
    if not config.cold_flow_control or not ports.cold_reads.is_over(
        header.group,
        ports.clock.monotonic_ms(),
        group_bytes_max=config.cold_bytes_max,
        total_bytes_max=config.cold_bytes_max_all,
    ):
        return
    if ports.store.is_cold(header.topic, header.queue_id, header.queue_offset):
        remark = f"consumer group {header.group} is over its limit of cold reads"
        raise RequestRejected(ResponseCode.SYSTEM_BUSY, remark)


# reading


def _read(
    header: PullRequest, plan: PullPlan, queue_offset: int, ports: PullPorts, *, loaded_to: int | None = None
) -> ReadResult:
    """Read resident messages only, or those up to `loaded_to`."""
    config, began_ms = ports.settings.config, ports.clock.monotonic_ms()
    count_max, bytes_max = _limits(header, config)
    found = ports.store.read(
        header.topic,
        header.queue_id,
        queue_offset,
        count_max=count_max,
        bytes_max=bytes_max,
        tag_codes=plan.filter.tag_codes,
        extension_filter=plan.filter.extensions,
        record_filter=plan.filter.records,
        correct_offset=_corrects(config),
        in_place=_in_place(header, config),
        resident_only=loaded_to is None,
        loaded_to=loaded_to,
    )
    if found.status is not ReadStatus.NOT_RESIDENT:
        took_ms = ports.clock.monotonic_ms() - began_ms
        ports.stats.pulled(header.topic, header.group, found.count, found.size_bytes, took_ms)
        charge(plan.quotas, found.count, found.size_bytes)
    return found


async def _load(
    request: Request[PullRequest], plan: PullPlan, found: ReadResult, ports: PullPorts
) -> tuple[PullPlan, ReadResult] | None:
    """Load messages after `found` from disk, admit the pull again and read. None if the connection was closed."""
    header, connection = request.header, request.connection
    count_max, bytes_max = _limits(header, ports.settings.config)
    load = partial(
        ports.store.load,
        header.topic,
        header.queue_id,
        found.next_offset,
        found.max_offset,
        count_max=count_max,
        bytes_max=bytes_max,
        tag_codes=plan.filter.tag_codes,
    )
    loaded = await ports.loads.run(load, is_wanted=lambda: not connection.is_closed)
    if loaded is None:
        return None
    if ports.settings.config.cold_flow_control:
        ports.cold_reads.count(header.group, loaded.size_bytes, ports.clock.monotonic_ms())
    plan = _admit(request, ports)
    return plan, _read(header, plan, found.next_offset, ports, loaded_to=loaded.stop)


def _limits(header: PullRequest, config: BrokerConfig) -> tuple[int, int | None]:
    count_max = max(1, header.count_max)
    if header.bytes_max is None or header.bytes_max <= 0:
        return count_max, None
    return min(count_max, config.pull_count_max), min(header.bytes_max, config.pull_bytes_max)


def _in_place(header: PullRequest, config: BrokerConfig) -> bool:
    """Whether the answer has record locations instead of records: the reader is on this machine and requests them."""
    return config.pull_in_place and bool(header.reader_boot_id) and header.reader_boot_id == boot_id()


def _corrects(config: BrokerConfig) -> bool:
    """Whether an invalid offset is corrected in the answer; a slave that is behind cannot do that."""
    return not config.is_slave or config.slave_offset_check


def _code(found: ReadResult, queue_offset: int) -> ResponseCode:
    if found.status in (ReadStatus.NO_MATCHED_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE):
        return ResponseCode.PULL_NOT_FOUND if queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[found.status]


def _reply(request: Request[PullRequest], plan: PullPlan, found: ReadResult, ports: PullPorts) -> Reply:
    header, code = request.header, _code(found, request.header.queue_offset)
    ports.positions.put(header.group, header.topic, header.queue_id, found.next_offset)
    if code == ResponseCode.PULL_OFFSET_MOVED and not _corrects(ports.settings.config):
        code = ResponseCode.PULL_RETRY_IMMEDIATELY  # the master may have messages that this slave lacks
    elif code == ResponseCode.PULL_OFFSET_MOVED and not ports.settings.config.is_slave:
        _tell_offset_moved(header, found, ports)
    newer = request.version >= V5_0_0
    answer = PullResponse(
        suggested_broker_id=_suggest_broker(plan.group, found, ports),
        next_offset=found.next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        topic_sys_flag=plan.topic.topic_sys_flag if newer else None,
        group_sys_flag=(plan.group.group_sys_flag or 0) if newer else None,
    )
    if found.count and _in_place(header, ports.settings.config):
        answer = _placed(answer, found, ports.store)
    status = ReadStatus.NO_MESSAGE_IN_QUEUE if found.status is ReadStatus.NO_MATCHED_QUEUE else found.status
    return Reply(code, status.value, header=answer, body=found.records)


def _placed(answer: PullResponse, found: ReadResult, store: StoreWriter) -> PullResponse:
    folder = store.config.log_dir.absolute()
    return replace(
        answer,
        log_folder=str(folder),
        log_folder_id=file_id(folder),
        log_file_bytes=store.config.segment_bytes,
        placed_bytes=found.size_bytes,
    )


def _suggest_broker(group: GroupConfig, found: ReadResult, ports: PullPorts) -> int:
    if not ports.settings.config.slave_read:
        return 0
    return group.slow_consumer_broker_id if found.suggest_slave else group.broker_id


def _tell_offset_moved(header: PullRequest, found: ReadResult, ports: PullPorts) -> None:
    """Record a corrected offset in the topic OFFSET_MOVED_EVENT, for operators."""
    queue = MessageQueue(topic=header.topic, broker_name=ports.settings.config.name, queue_id=header.queue_id)
    moved = OffsetMoved(
        group=header.group, queue=queue, requested_offset=header.queue_offset, new_offset=found.next_offset
    )
    properties = encode_properties({Property.KEYS: header.group, Property.TAGS: header.group})
    message = NewMessage(
        topic=OFFSET_MOVED_TOPIC,
        queue_id=0,
        body=moved.encode(),
        properties=properties,
        born_ms=ports.clock.now_ms(),
        born_host=ports.store.config.store_host,
    )
    ports.store.append(message, wait=False)
