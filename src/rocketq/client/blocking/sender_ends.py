"""The ends of many transactions, several under way, each with its answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from rocketq.client.blocking.client import BlockingClient
from rocketq.client.blocking.sender_line import RequestLine
from rocketq.client.core.routes import MASTER_ID
from rocketq.errors import RocketQError, UnreachableError
from rocketq.protocol.bodies.routes import ClusterTable
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.failures import BrokerError, failure_of
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.frame import encode_command
from rocketq.protocol.headers.send import EndTransactionRequest
from rocketq.protocol.requests import make_request

IN_FLIGHT_MAX: Final = 128
PAUSE_MS_MAX: Final = 2_000
_LATER: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLUSH_DISK_TIMEOUT}
)
"""The decision is not taken, or not on disk yet: saying it again is harmless, and answered when it is."""


@dataclass(frozen=True, slots=True, order=True)
class HalfHandle:
    """Where a half message lies: what its transaction is ended by."""

    broker_name: str
    half_queue_offset: int
    half_log_offset: int


@dataclass(slots=True)
class _End:
    handle: HalfHandle
    tries: int = 0


class TransactionEnds:
    """Decides on half messages. Belongs to one thread."""

    def __init__(
        self,
        client: BlockingClient,
        *,
        timeout_ms: int = 10_000,
        retries: int = 8,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._retries = retries
        self._pause = pause
        self._masters: dict[str, str] = {}

    def settle(
        self, group: str, handles: Iterable[HalfHandle], state: TransactionState
    ) -> dict[HalfHandle, RocketQError]:
        """Say this of all of them and wait for every answer; what could not be settled, and why."""
        waiting = deque(_End(handle) for handle in handles)
        line: RequestLine[_End] = RequestLine(self._client)
        failures: dict[HalfHandle, RocketQError] = {}
        while waiting or len(line):
            while waiting and len(line) < IN_FLIGHT_MAX:
                end = waiting.popleft()
                if (error := self._post(line, group, end, state)) is not None:
                    self._tried(end, error, waiting, failures)
            if len(line):
                addr, end, outcome = line.next()
                if isinstance(outcome, RocketQError):
                    self._tried(end, outcome, waiting, failures)
                elif outcome.code != ResponseCode.SUCCESS:
                    self._tried(end, failure_of(outcome, peer=addr), waiting, failures)
        return failures

    def _tried(
        self, end: _End, error: RocketQError, waiting: deque[_End], failures: dict[HalfHandle, RocketQError]
    ) -> None:
        later = error.code in _LATER if isinstance(error, BrokerError) else error.retriable
        end.tries += 1
        if not later or end.tries > self._retries:
            failures[end.handle] = error
            return
        self._masters.clear()
        if not any(other.tries >= end.tries for other in waiting):  # one pause for all that failed together
            self._pause(min(PAUSE_MS_MAX, 50 << end.tries) / 1000)
        waiting.append(end)

    def _post(self, line: RequestLine[_End], group: str, end: _End, state: TransactionState) -> RocketQError | None:
        handle = end.handle
        try:
            addr = self._master(handle.broker_name)
        except RocketQError as error:
            return error
        header = EndTransactionRequest(
            group=group,
            half_queue_offset=handle.half_queue_offset,
            half_log_offset=handle.half_log_offset,
            state=int(state),
            broker_name=handle.broker_name,
        )
        command = self._client.signed(make_request(header, opaque=0))
        code = RequestCode.END_TRANSACTION
        line.post(addr, end, code, lambda opaque: encode_command(replace(command, opaque=opaque)), self._timeout_ms)
        return None

    def _master(self, broker_name: str) -> str:
        if broker_name not in self._masters:
            cluster = ClusterTable.decode(self._client.ask(code=RequestCode.GET_BROKER_CLUSTER_INFO).body)
            found = {name: data.addrs[MASTER_ID] for name, data in cluster.brokers.items() if MASTER_ID in data.addrs}
            self._masters.update(found)
        if broker_name not in self._masters:
            raise UnreachableError(broker_name, "the broker is not registered at present, or has no master")
        return self._masters[broker_name]
