"""Admin requests that are forwarded to a consumer over its connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketq.broker.groups.change_notices import Client, relayed
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.errors import RemotingError, RequestTimeoutError
from rocketq.model import decode_message_id
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers.groups import ConsumeDirectlyRequest, RunningInfoRequest
from rocketq.protocol.messages import encode_record
from rocketq.protocol.versions import RUNNING_INFO_SINCE
from rocketq.remoting import Connection, Handlers, Reply, Request, RequestRejected
from rocketq.store import StoreReader

RELAY_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RelayPorts:
    consumers: ConsumerGroups[Connection]
    store: StoreReader


handlers: Handlers[RelayPorts] = Handlers()


@handlers.on(RequestCode.GET_CONSUMER_RUNNING_INFO)
async def running_info(request: Request[RunningInfoRequest], ports: RelayPorts) -> Reply:
    client = _find(request.header.group, request.header.client_id, ports)
    return await _relay(client, relayed(RequestCode.GET_CONSUMER_RUNNING_INFO, request.command))


@handlers.on(RequestCode.CONSUME_MESSAGE_DIRECTLY)
async def consume_directly(request: Request[ConsumeDirectlyRequest], ports: RelayPorts) -> Reply:
    header = request.header
    client = _find(header.group, header.client_id, ports)
    record = ports.store.queued_message_at(_log_offset(header.message_id))
    if record is None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"there is no message {header.message_id}")
    return await _relay(client, relayed(RequestCode.CONSUME_MESSAGE_DIRECTLY, request.command, encode_record(record)))


def _find(group: str, client_id: str | None, ports: RelayPorts) -> Client:
    """The named member, or any if none is named."""
    members = ports.consumers.members(group)
    client = next((one for one in members if client_id in (None, one.client_id)), None)
    if client is None and client_id is None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no member of consumer group {group} is connected")
    if client is None:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"client {client_id} of consumer group {group} is not connected"
        )
    if client.version < RUNNING_INFO_SINCE:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"client {client.client_id} is too old for this request")
    return client


def _log_offset(message_id: str | None) -> int:
    try:
        return decode_message_id(message_id or "")[1]
    except ValueError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None


async def _relay(client: Client, command: Command) -> Reply:
    try:
        answer = await client.connection.call(command, RELAY_TIMEOUT_MS)
    except RequestTimeoutError:
        remark = f"client {client.client_id} did not answer within {RELAY_TIMEOUT_MS} ms"
        raise RequestRejected(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
    except RemotingError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return _passed_on(answer)


def _passed_on(answer: Command) -> Reply:
    return Reply(answer.code, answer.remark, body=answer.body)
