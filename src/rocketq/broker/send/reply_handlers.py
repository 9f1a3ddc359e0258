"""Replies to request messages: stored, and pushed to the requesting client over its connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketq.broker.groups.change_notices import ask
from rocketq.broker.groups.members import ProducerGroups
from rocketq.broker.send import handlers as sends
from rocketq.broker.send.handlers import SendPorts
from rocketq.errors import RocketQError
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.headers.send import PushReplyRequest, SendRequest, SendResponse
from rocketq.protocol.names import Property
from rocketq.protocol.properties import decode_properties, encode_properties
from rocketq.remoting import Connection, Handlers, Reply, Request
from rocketq.remoting.address import join_addr

PUSH_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ReplyPorts:
    sends: SendPorts
    producers: ProducerGroups[Connection]


handlers: Handlers[ReplyPorts] = Handlers()


@handlers.on(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
async def reply(request: Request[SendRequest], ports: ReplyPorts) -> Reply:
    """Store a reply like any send and push it. The answer has its location even if the push fails."""
    config = ports.sends.settings.config
    plan = sends.admit(request, ports.sends)
    kept = SendResponse(
        message_id="0", queue_id=plan.queue_id, queue_offset=0, region=config.region, trace_on=config.trace_on
    )
    if config.store_replies:
        stored = sends.store_now(plan, ports.sends)
        assert isinstance(stored.header, SendResponse)
        kept = stored.header
    failure = await _push(request, ports)
    if failure is not None:
        return Reply(ResponseCode.SYSTEM_ERROR, failure, header=kept)
    return Reply(header=kept)


async def _push(request: Request[SendRequest], ports: ReplyPorts) -> str | None:
    """Push a reply; returns the failure, or None."""
    properties = decode_properties(request.header.properties.encode("utf-8", "replace"))
    client_id = properties.get(Property.REPLY_TO_CLIENT)
    if not client_id:
        return f"the reply names no client ({Property.REPLY_TO_CLIENT})"
    client = ports.producers.client(client_id)
    if client is None:
        return f"client {client_id} is not connected here as a producer"
    try:
        answer = await ask(client, _header(request, properties, ports.sends), PUSH_TIMEOUT_MS, request.body)
    except RocketQError as error:
        return f"client {client_id} rejected the reply: {error}"
    if answer.code != ResponseCode.SUCCESS:
        return f"client {client_id} rejected the reply: code {answer.code} {answer.remark or ''}".rstrip()
    return None


def _header(request: Request[SendRequest], properties: dict[str, str], ports: SendPorts) -> PushReplyRequest:
    header, config, now_ms = request.header, ports.settings.config, ports.clock.now_ms()
    properties = properties | {Property.PUSH_REPLY_MS: str(now_ms)}
    return PushReplyRequest(
        group=header.group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_queue_count=header.default_queue_count,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        born_ms=header.born_ms,
        flag=header.flag,
        properties=encode_properties(properties).decode(),
        reconsume_times=header.reconsume_times,
        unit_mode=header.unit_mode,
        born_host=request.connection.peer_addr,
        store_host=join_addr(config.ip, config.port),
        store_ms=now_ms,
    )
