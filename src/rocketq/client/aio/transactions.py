"""Transactional sends: the half message, the local part, the verdict; and answers to brokers that ask about one."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from rocketq.client.aio.session import Session
from rocketq.client.core.messages import Message
from rocketq.client.core.send_results import SendResult, SendStatus, TransactionResult
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.transactions import TransactionListener, end_of_check, end_of_send, verdict
from rocketq.errors import RocketQError
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.headers.send import CheckTransactionRequest

log = logging.getLogger(__name__)


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

    async def settle(self, message: Message, arg: Any, sent: SendResult, topic: str, addr: str) -> TransactionResult:
        """Run the local part and tell the broker at `addr`; it asks again when it does not hear of it."""
        error: BaseException | None = None
        if sent.status is SendStatus.SEND_OK:
            state, error = await self._ask(self._listener.execute, message, arg)
        else:
            state = TransactionState.ROLLBACK
        try:
            await self._session.notify(addr, end_of_send(self._group, topic, sent, state))
        except RocketQError as lost:
            log.warning("the end of transaction %s was not told: %s", sent.message_id, lost)
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
            log.warning("the verdict on %s was not told: %s", message.message_id, lost)
        finally:
            self._checks -= 1

    async def _ask(
        self, listener: Callable[..., Any], *arguments: Any
    ) -> tuple[TransactionState, BaseException | None]:
        """On a thread unless it is asynchronous; whatever it raises means that nothing is known."""
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
