"""Transactional sends: the listener, the end of a transaction, and the broker's checks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rocketq.client.core.messages import Message
from rocketq.client.core.send_flow import SendResult, SendStatus, TransactionResult
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.session import Session
from rocketq.errors import RemoteProtocolError, RocketQError
from rocketq.model import decode_message_id
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.headers.send import CheckTransactionRequest, EndTransactionRequest

log = logging.getLogger(__name__)

Verdict = TransactionState | None
"""None means UNKNOWN."""


@dataclass(frozen=True, slots=True)
class TransactionListener:
    """Both may be `def`, run on a thread, or `async def`. An exception means UNKNOWN: the broker asks again later.

    `execute(message, arg)` runs the local transaction once the half message is stored; `check(message)` runs later,
    maybe in another process, and returns the state of that transaction.
    """

    execute: Callable[[Message, Any], Verdict | Awaitable[Verdict]]
    check: Callable[[StoredMessage], Verdict | Awaitable[Verdict]]


def end_of_send(group: str, topic: str, sent: SendResult, state: TransactionState) -> EndTransactionRequest:
    """The request that reports the state of a local transaction to the broker of its half message."""
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
    """The state a listener returned; anything else is UNKNOWN."""
    return given if isinstance(given, TransactionState) else TransactionState.UNKNOWN


class Transactions:
    """Of one producer group, with the namespace."""

    def __init__(
        self, session: Session, group: str, listener: TransactionListener, *, checks_at_once: int, checks_max: int
    ) -> None:
        self._session = session
        self._group = group
        self._listener = listener
        self._gate = asyncio.Semaphore(checks_at_once)
        self._checks_max = checks_max
        self._checks = 0

    async def finish(self, message: Message, arg: Any, sent: SendResult, topic: str, addr: str) -> TransactionResult:
        """Run the local transaction and report it to the broker at `addr`, which checks later if the report is lost."""
        error: BaseException | None = None
        if sent.status is SendStatus.SEND_OK:
            state, error = await self._ask(self._listener.execute, message, arg)
        else:
            state = TransactionState.ROLLBACK
        try:
            await self._session.notify(addr, end_of_send(self._group, topic, sent, state))
        except RocketQError as lost:
            log.warning("the end of transaction %s was not sent: %s", sent.message_id, lost)
        return TransactionResult(sent=sent, state=state, error=error)

    async def check(self, addr: str, header: CheckTransactionRequest, message: StoredMessage) -> None:
        if self._checks >= self._checks_max:
            log.warning("a transaction check of %s was dropped: %d wait", message.message_id, self._checks)
            return
        self._checks += 1
        try:
            async with self._gate:
                state, _ = await self._ask(self._listener.check, message)
            await self._session.notify(addr, end_of_check(self._group, header, message, state))
        except RocketQError as lost:
            log.warning("the result of the check of %s was not sent: %s", message.message_id, lost)
        finally:
            self._checks -= 1

    async def _ask(
        self, listener: Callable[..., Any], *arguments: Any
    ) -> tuple[TransactionState, BaseException | None]:
        """Runs on a thread unless it is asynchronous; an exception means UNKNOWN."""
        try:
            if inspect.iscoroutinefunction(listener):
                given = await listener(*arguments)
            else:
                given = await asyncio.to_thread(listener, *arguments)
                if inspect.isawaitable(given):
                    given = await given
        except Exception as error:  # the listener is the user's; its failure is a verdict
            log.exception("a transaction listener failed")
            return TransactionState.UNKNOWN, error
        return verdict(given), None
