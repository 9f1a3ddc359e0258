"""Admin requests about cold reads: show and limit the bytes that groups read from disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.pull.cold_reads import ColdReads
from rocketq.protocol.bodies.stats import ColdReaderStats, ColdReadStats
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.config_text import decode_config
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class ColdPorts:
    settings: Settings
    cold_reads: ColdReads
    clock: Clock


LIMITS_MAX: Final = 1_000

handlers: Handlers[ColdPorts] = Handlers()


@handlers.on(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG)
def limit(request: Request[None], ports: ColdPorts) -> Reply:
    """Set limits by lines `group=bytes`, per window."""
    wanted = decode_config(request.body)
    if len(ports.cold_reads.limits.keys() | wanted.keys()) > LIMITS_MAX:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"at most {LIMITS_MAX} groups may have limits")
    if bad := {group: text for group, text in wanted.items() if not group or not text.strip().isdecimal()}:
        group, text = next(iter(bad.items()))
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{group}={text[:40]} is not of the form group=bytes")
    ports.cold_reads.limits |= {group: int(text) for group, text in wanted.items()}
    return Reply()


@handlers.on(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG)
def unlimit(request: Request[None], ports: ColdPorts) -> Reply:
    """The body is the group's name."""
    ports.cold_reads.limits.pop(request.body.decode("utf-8", "replace").strip(), None)
    return Reply()


@handlers.on(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
def show(request: Request[None], ports: ColdPorts) -> Reply:
    config, now_ms = ports.settings.config, ports.clock.monotonic_ms()
    to_wall_ms = ports.clock.now_ms() - now_ms
    readers = {
        group: ColdReaderStats(
            window_bytes=reader.window_bytes,
            last_ms=reader.last_ms + to_wall_ms,
            since_ms=reader.since_ms + to_wall_ms,
        )
        for group, reader in ports.cold_reads.readers(now_ms).items()
    }
    return Reply(
        body=ColdReadStats(
            readers=readers,
            limits=dict(ports.cold_reads.limits),
            group_bytes_max=config.cold_bytes_max,
            total_bytes_max=config.cold_bytes_max_all,
            total_bytes=ports.cold_reads.total_bytes(now_ms),
        )
    )
