"""Two-phase sends."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, I64, Header, header, wire


@header
class EndTransactionRequest(Header):
    """`state` is a TransactionState; other numbers are possible and refused by the broker with code 1."""

    CODE: ClassVar = RequestCode.END_TRANSACTION
    group: str = wire("producerGroup")
    half_queue_offset: I64 = wire("tranStateTableOffset")
    half_log_offset: I64 = wire("commitLogOffset")
    state: I32 = wire("commitOrRollback")
    from_check: bool = wire("fromTransactionCheck", default=False)
    message_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    topic: str | None = wire("topic", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class CheckTransactionRequest(Header):
    """Broker to client, with the half message as body: how did it end?"""

    CODE: ClassVar = RequestCode.CHECK_TRANSACTION_STATE
    half_queue_offset: I64 = wire("tranStateTableOffset")
    half_log_offset: I64 = wire("commitLogOffset")
    message_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    offset_message_id: str | None = wire("offsetMsgId", default=None)
    topic: str | None = wire("topic", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class ResumeCheckRequest(Header):
    CODE: ClassVar = RequestCode.RESUME_CHECK_HALF_MESSAGE
    message_id: str | None = wire("msgId", default=None)
    topic: str | None = wire("topic", default=None)
