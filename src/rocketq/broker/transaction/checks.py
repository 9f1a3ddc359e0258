"""Runs rounds of transaction checks on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.members import ProducerGroups
from rocketq.broker.transaction.service import Check, Transactions
from rocketq.errors import RocketQError
from rocketq.protocol.headers.send import CheckTransactionRequest
from rocketq.protocol.names import HALF_TOPIC
from rocketq.protocol.requests import make_request
from rocketq.protocol.versions import V5_0_0
from rocketq.remoting import Connection
from rocketq.runtime.clock import Clock
from rocketq.store import StoreWriter

log = logging.getLogger(__name__)

TICK_MS: Final = 1_000
SLICE: Final = 64  # transactions checked per turn of the loop
VISIBLE_MS_MAX: Final = 5_000


class TransactionChecks:
    """Checks open transactions in one task; rounds never overlap."""

    def __init__(
        self,
        transactions: Transactions,
        producers: ProducerGroups[Connection],
        store: StoreWriter,
        settings: Settings,
        clock: Clock,
        *,
        may_check: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_check`: whether this broker's lease as master is valid."""
        self._transactions = transactions
        self._producers = producers
        self._store = store
        self._settings = settings
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._may_check = may_check

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop, and save the floors for the next start."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        try:
            flushed_to = await asyncio.to_thread(self._store.flush)
            self._transactions.save_floors(flushed_to, flushed_to)
        except OSError as error:
            log.warning("transaction floors not saved, the next start replays more: %s", error)

    async def _run(self) -> None:
        last_ms = self._clock.monotonic_ms()
        while True:
            interval_ms = self._settings.config.transaction_check_interval_ms
            await asyncio.sleep(min(interval_ms, TICK_MS) / 1000)
            if not self._may_check():
                continue
            try:
                self._transactions.save_floors(self._store.log_end, self._store.flushed_to)
                if self._clock.monotonic_ms() - last_ms >= interval_ms:
                    last_ms = self._clock.monotonic_ms()
                    await self.round()
            except Exception:  # the next round retries
                log.exception("a round of transaction checks failed")

    async def round(self) -> None:
        """Check every open transaction once."""
        roots = self._transactions.start_round()
        for at in range(0, len(roots), SLICE):
            found = (self._transactions.check(root) for root in roots[at : at + SLICE])
            checks = [check for check in found if check is not None]
            if checks:
                await self._wait_until_visible(checks[-1].log_end)
            for check in checks:
                self._ask(check)
            await asyncio.sleep(0)

    async def _wait_until_visible(self, log_end: int) -> None:
        """Wait until the copies are readable: a producer may answer a check immediately."""
        deadline_ms = self._clock.monotonic_ms() + VISIBLE_MS_MAX
        while self._store.visible_to < log_end and self._clock.monotonic_ms() < deadline_ms:
            await asyncio.sleep(0.005)

    def _ask(self, check: Check) -> None:
        """Ask one producer of the group, round robin; unreachable ones are skipped."""
        members = self._producers.members(check.group)
        for turn in range(len(members)):
            member = members[(check.root + check.checks + turn) % len(members)]
            try:
                if not member.connection.is_closed:
                    member.connection.call_oneway(
                        make_request(self._header(check, member.version), opaque=0, body=check.body)
                    )
                    return
            except RocketQError as error:
                log.debug("transaction check failed client=%s: %s", member.client_id, error)
        log.info("transaction check not sent, no producer connected group=%s message=%s", check.group, check.unique_key)

    def _header(self, check: Check, version: int) -> CheckTransactionRequest:
        newer = version >= V5_0_0
        return CheckTransactionRequest(
            half_queue_offset=check.queue_offset,
            half_log_offset=check.log_offset,
            message_id=check.unique_key or None,
            transaction_id=check.unique_key or None,
            offset_message_id=check.message_id,
            topic=HALF_TOPIC if newer else None,
            broker_name=self._settings.config.name if newer else None,
        )
