"""What brokers ask of clients, handed to the member it is for."""

from __future__ import annotations

import sys
import threading
import traceback
from dataclasses import replace

from rocketq.client.aio.members import ChecksTransactions, Consumes, Members, TakesReplies
from rocketq.client.core.replies import pushed_reply
from rocketq.client.core.stored_messages import StoredMessage, stored_message
from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.offsets import ConsumerStatus, ResetOffsets
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.headers.groups import ConsumeDirectlyRequest, ConsumersChangedRequest, RunningInfoRequest
from rocketq.protocol.headers.offsets import ClientStatusRequest, ResetClientOffsetRequest
from rocketq.protocol.headers.send import CheckTransactionRequest, PushReplyRequest
from rocketq.protocol.messages import decode_records
from rocketq.protocol.names import Property
from rocketq.remoting import Handlers, Refusal, Reply, Request

handlers: Handlers[Members] = Handlers()


@handlers.on(RequestCode.CHECK_TRANSACTION_STATE)
async def check_transaction(request: Request[CheckTransactionRequest], members: Members) -> Reply:
    """Asked one-way: who is not here, or cannot tell, says nothing."""
    message = _message(request.body, request.header.broker_name)
    producer = members.producer(message.properties.get(Property.PRODUCER_GROUP, ""))
    if isinstance(producer, ChecksTransactions):
        await producer.check_transaction(request.connection.peer_addr, request.header, message)
    return Reply()


@handlers.on(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
def take_reply(request: Request[PushReplyRequest], members: Members) -> Reply:
    """A reply nobody waits for any more is no failure of the broker's."""
    reply = pushed_reply(request.header, request.body)
    correlation_id = reply.properties.get(Property.CORRELATION_ID, "")
    for member in members.implementing(TakesReplies):  # type: ignore[type-abstract]
        if member.take_reply(correlation_id, reply):
            break
    return Reply()


@handlers.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
def ids_changed(request: Request[ConsumersChangedRequest], members: Members) -> Reply:
    consumer = members.consumer(request.header.group)
    if isinstance(consumer, Consumes):
        consumer.ids_changed()
    return Reply()


@handlers.on(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
async def reset_offsets(request: Request[ResetClientOffsetRequest], members: Members) -> Reply:
    consumer = members.consumer(request.header.group)
    if isinstance(consumer, Consumes):
        await consumer.reset_offsets(request.header.topic, ResetOffsets.decode(request.body).offsets)
    return Reply()


@handlers.on(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
def consume_positions(request: Request[ClientStatusRequest], members: Members) -> Reply:
    positions = _consumer(members, request.header.group).consume_positions(request.header.topic)
    return Reply(body=ConsumerStatus(queues=dict(positions)))


@handlers.on(RequestCode.GET_CONSUMER_RUNNING_INFO)
def running_info(request: Request[RunningInfoRequest], members: Members) -> Reply:
    running = _consumer(members, request.header.group).running_info()
    if request.header.with_stacks:
        running = replace(running, stacks=_stacks())
    return Reply(body=running)


@handlers.on(RequestCode.CONSUME_MESSAGE_DIRECTLY)
async def consume_directly(request: Request[ConsumeDirectlyRequest], members: Members) -> Reply:
    consumer = _consumer(members, request.header.group)
    return Reply(body=await consumer.consume_directly(_message(request.body, request.header.broker_name)))


def _consumer(members: Members, group: str) -> Consumes:
    consumer = members.consumer(group)
    if not isinstance(consumer, Consumes):
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"consumer group {group} is not in this client")
    return consumer


def _message(body: bytes, broker_name: str | None) -> StoredMessage:
    records = decode_records(body)
    if len(records) != 1:
        raise RemoteProtocolError(f"one message was expected, not {len(records)}")
    return stored_message(records[0], broker_name or "")


def _stacks() -> str:
    """What every thread does, for operators."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
