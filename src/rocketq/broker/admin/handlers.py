"""Admin requests about the broker itself: settings, runtime info, cleaning, replication state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.stats.runtime_info import RuntimeInfo
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.offsets import DelayOffsets
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.bodies.stats import ReplicationState
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.config_text import decode_config
from rocketq.protocol.headers.admin import BrokerConfigResponse, ReadModeRequest, ResetFlushOffsetRequest
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.runtime.clock import Clock
from rocketq.store import StoreWriter


@dataclass(frozen=True, slots=True)
class OperationPorts:
    settings: Settings
    runtime: RuntimeInfo
    offsets: OffsetTable
    delay_offsets: Callable[[], DelayOffsets]
    store: StoreWriter
    clock: Clock
    replication: Callable[[], ReplicationState]


handlers: Handlers[OperationPorts] = Handlers()

_READ_MODES: Final = {0: "true", 1: "false"}
"""madvise modes of Apache's request: 0 normal, 1 random (no read-ahead)."""


@handlers.on(RequestCode.UPDATE_BROKER_CONFIG)
async def update_config(request: Request[None], ports: OperationPorts) -> Reply:
    changes = decode_config(request.body)
    if not changes:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "no settings were sent")
    try:
        await ports.settings.update(changes, ports.clock.now_ms())
    except ConfigError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return Reply()


@handlers.on(RequestCode.GET_BROKER_CONFIG)
def get_config(request: Request[None], ports: OperationPorts) -> Reply:
    version = ports.settings.data_version.encode().decode()
    return Reply(header=BrokerConfigResponse(data_version=version), body=ports.settings.text().encode())


@handlers.on(RequestCode.GET_BROKER_RUNTIME_INFO)
def runtime_info(request: Request[None], ports: OperationPorts) -> Reply:
    return Reply(body=KeyValues(table=ports.runtime.table()))


@handlers.on(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
def clean_queues(request: Request[None], ports: OperationPorts) -> Reply:
    """Nothing to do: queue files are deleted with the log files they point to."""
    return Reply()


@handlers.on(RequestCode.DELETE_EXPIRED_COMMITLOG)
async def clean_log(request: Request[None], ports: OperationPorts) -> Reply:
    await asyncio.to_thread(ports.store.clean)
    return Reply()


@handlers.on(RequestCode.GET_ALL_CONSUMER_OFFSET)
def all_offsets(request: Request[None], ports: OperationPorts) -> Reply:
    return Reply(body=ports.offsets.body())


@handlers.on(RequestCode.GET_ALL_DELAY_OFFSET)
def all_delay_offsets(request: Request[None], ports: OperationPorts) -> Reply:
    return Reply(body=ports.delay_offsets())


@handlers.on(RequestCode.SET_COMMITLOG_READ_MODE)
async def set_read_mode(request: Request[ReadModeRequest], ports: OperationPorts) -> Reply:
    """The remark is printed by Apache's tools."""
    mode = request.header.mode
    if mode not in _READ_MODES:
        raise RequestRejected(ResponseCode.INVALID_PARAMETER, f"read mode {mode} is neither 0 (normal) nor 1 (random)")
    await ports.settings.update({"dataReadAheadEnable": _READ_MODES[mode]}, ports.clock.now_ms())
    return Reply(remark=f"read mode of the log set to {mode}")


@handlers.on(RequestCode.GET_BROKER_HA_STATUS)
def replication_state(request: Request[None], ports: OperationPorts) -> Reply:
    return Reply(body=ports.replication())


@handlers.on(RequestCode.RESET_MASTER_FLUSH_OFFSET)
def reset_master_position(request: Request[ResetFlushOffsetRequest], ports: OperationPorts) -> Reply:
    """Nothing to do: only Apache's replicas need their master's flush offset."""
    return Reply()
