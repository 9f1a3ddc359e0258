"""Requests about transactions: decisions of producers, and restarting checks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from rocketq.broker.ha.durability import is_durable
from rocketq.broker.transaction.half_messages import Half
from rocketq.broker.transaction.service import Decision, RejectedDecisionError, Transactions
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.headers.send import EndTransactionRequest, ResumeCheckRequest
from rocketq.protocol.names import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC
from rocketq.remoting import Check, Handlers, Reply, Request, RequestRejected
from rocketq.remoting.handlers import TypedAnswer
from rocketq.store import AppendStatus, FlushType, StoreWriter

VISIBLE_MS_MAX: Final = 5_000

_CODES: Final = {
    AppendStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    AppendStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}


@dataclass(frozen=True, slots=True)
class TransactionPorts:
    transactions: Transactions
    store: StoreWriter
    check: Check = lambda request, connection: None
    """Access control, which is asked again about a half message that could not be read before."""


handlers: Handlers[TransactionPorts] = Handlers()


@handlers.on(RequestCode.END_TRANSACTION)
def end(request: Request[EndTransactionRequest], ports: TransactionPorts) -> TypedAnswer:
    """Commit or roll back. An undecided state has no effect and no answer."""
    header, store = request.header, ports.store
    if header.state == TransactionState.UNKNOWN:
        return None
    if header.state not in (TransactionState.COMMIT, TransactionState.ROLLBACK):
        remark = f"commitOrRollback is 8 (commit), 12 (rollback) or 0 (not known yet), not {header.state}"
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
    decision = Decision(header.group, header.half_queue_offset, header.half_log_offset, TransactionState(header.state))
    if store.visible_to <= decision.half_log_offset < store.log_end or (
        store.config.flush_type is FlushType.SYNC_FLUSH and not request.command.is_oneway
    ):
        return _end_in_time(request, decision, ports)
    return _end(decision, ports)


def _end(decision: Decision, ports: TransactionPorts) -> Reply:
    try:
        ports.transactions.decide(decision)
    except RejectedDecisionError as refused:
        raise _refusal(refused) from None
    return Reply()


async def _end_in_time(request: Request[EndTransactionRequest], decision: Decision, ports: TransactionPorts) -> Reply:
    """Wait until the half is readable, decide, and with SYNC_FLUSH wait until the decision is flushed."""
    store = ports.store
    tries = VISIBLE_MS_MAX // 5
    while store.visible_to <= decision.half_log_offset < store.log_end and tries:
        await asyncio.sleep(0.005)
        tries -= 1
    if (rejection := ports.check(request.command, request.connection)) is not None:
        raise RequestRejected(rejection.code, rejection.remark or "")
    reply = _end(decision, ports)
    if store.config.flush_type is FlushType.SYNC_FLUSH and not await is_durable(store, store.log_end):
        raise RequestRejected(ResponseCode.FLUSH_DISK_TIMEOUT, "the decision is stored, but not flushed yet")
    return reply


@handlers.on(RequestCode.RESUME_CHECK_HALF_MESSAGE)
def resume(request: Request[ResumeCheckRequest], ports: TransactionPorts) -> Reply:
    """Restart the checks of a transaction."""
    message_id = request.header.message_id
    if not message_id:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "msgId, the offset id of a half message, is missing")
    try:
        record = ports.store.message_by_id(message_id)
    except ValueError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
    if record is None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"there is no message {message_id}")
    half = Half.of(record)
    if record.topic not in (HALF_TOPIC, CHECK_EXHAUSTED_TOPIC) or not half.topic:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"message {message_id} of topic {record.topic} is not a half message"
        )
    try:
        ports.transactions.resume(half)
    except RejectedDecisionError as refused:
        raise _refusal(refused) from None
    return Reply()


def _refusal(refused: RejectedDecisionError) -> RequestRejected:
    if refused.topic_missing:
        return RequestRejected(ResponseCode.TOPIC_NOT_EXIST, refused.reason)
    code = (
        ResponseCode.SYSTEM_ERROR if refused.append is None else _CODES.get(refused.append, ResponseCode.SYSTEM_ERROR)
    )
    return RequestRejected(code, refused.reason)
