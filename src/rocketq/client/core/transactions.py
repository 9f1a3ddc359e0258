"""Transactions: what a half message carries, and how its end is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rocketq.client.core.messages import Message
from rocketq.client.core.send_results import SendResult
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.errors import RemoteProtocolError
from rocketq.model import decode_message_id
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.headers.send import CheckTransactionRequest, EndTransactionRequest
from rocketq.protocol.names import Property

Verdict = TransactionState | None
"""None means UNKNOWN."""


@dataclass(frozen=True, slots=True)
class TransactionListener:
    """Both may be `def`, run on a thread, or `async def`. An exception means UNKNOWN: the broker asks again later.

    `execute(message, arg)` does the local part after the half message is stored; `check(message)` says later, maybe in
    another process, how it ended.
    """

    execute: Callable[[Message, Any], Verdict | Awaitable[Verdict]]
    check: Callable[[StoredMessage], Verdict | Awaitable[Verdict]]


def half_properties(group: str) -> dict[str, str]:
    return {Property.TRANSACTION_PREPARED: "true", Property.PRODUCER_GROUP: group}


def end_of_send(group: str, topic: str, sent: SendResult, state: TransactionState) -> EndTransactionRequest:
    """What tells the broker how the local part of a message it holds ended."""
    try:
        _, half_log_offset = decode_message_id(sent.offset_message_id)
    except ValueError as error:
        raise RemoteProtocolError(f"the answer to a half message has no place in it: {error}") from None
    return EndTransactionRequest(
        group=group,
        half_queue_offset=sent.queue_offset,
        half_log_offset=half_log_offset,
        state=int(state),
        message_id=sent.message_id,
        transaction_id=sent.transaction_id or sent.message_id,
        topic=topic,
        broker_name=sent.queue.broker_name,
    )


def end_of_check(
    group: str, header: CheckTransactionRequest, message: StoredMessage, state: TransactionState
) -> EndTransactionRequest:
    return EndTransactionRequest(
        group=group,
        half_queue_offset=header.half_queue_offset,
        half_log_offset=header.half_log_offset,
        state=int(state),
        from_check=True,
        message_id=message.unique_key or header.message_id or message.message_id,
        transaction_id=header.transaction_id,
        topic=header.topic,
        broker_name=header.broker_name,
    )


def verdict(given: object) -> TransactionState:
    """What a listener said; whatever is no state is UNKNOWN."""
    return given if isinstance(given, TransactionState) else TransactionState.UNKNOWN
