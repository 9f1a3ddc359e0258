"""Limits of connections: the settings, who holds how much of a resource, and the idle timeout.

A resource that peers fill (unfinished frames, unsent answers, handler slots) has limits for the server, for each source
address and for each connection. Beyond a limit the holders with the largest cost are closed, not the peer that
happens to exceed it. Cost is the held amount times the time it has been held, so an active peer has a low cost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rocketq.errors import ConfigError
from rocketq.protocol.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from rocketq.runtime.file_limit import file_limit

if TYPE_CHECKING:
    from rocketq.remoting.connection import Connection

log = logging.getLogger(__name__)

_IDLE_CHECKS_PER_TIMEOUT = 24
_MiB = 1 << 20
_RELEASE_TO: Final = 7 / 8  # holders are closed until this part of a limit is in use, so that a scan is rare
SMALL_HOLDER_SLOTS: Final = 16
"""Handler slots that a connection gets even when its address has used up its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the connections of one server or pool. A limit per address or connection of 0 is derived from the
    total."""

    connections_max: int = 0
    """A server drops connections beyond this. 0: half of the files the process may open; the store needs the rest."""
    unfinished_bytes_max: int = 256 * _MiB
    """Bytes kept of unfinished frames; beyond it the holders with the largest cost are closed."""
    unfinished_bytes_per_address_max: int = 0
    """The same for one source address. 0: half of the total, at least one frame."""
    unsent_bytes_max: int = 256 * _MiB
    """Bytes that peers have not read. From half of it on, slow peers are paused early; beyond it the holders with the
    largest cost are closed."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = HEADER_BYTES_MAX
    """A connection that announces a longer header is closed before the header is read."""
    idle_ms: int = 120_000
    """A connection is closed after this time without a read or a write."""
    write_high_bytes: int = 1 << 20
    """With more unsent bytes, a server stops reading from the peer and answering it."""
    write_bytes_max: int = 64 << 20
    """With more unsent bytes, the connection is dropped."""
    calls_max: int = 65_535
    """Requests to the peer without an answer yet."""
    connect_timeout_ms: int = 3_000

    def __post_init__(self) -> None:
        for name, lowest in _LOWEST.items():
            if (value := getattr(self, name)) < lowest:
                raise ConfigError(f"{name} is {value}, the lowest value is {lowest}")

    @property
    def address_unfinished_bytes_max(self) -> int:
        return self.unfinished_bytes_per_address_max or max(self.unfinished_bytes_max // 2, self.frame_bytes_max)

    @property
    def pressure_bytes(self) -> int:
        """Unsent bytes of all peers from which on slow peers are paused early."""
        return self.unsent_bytes_max // 2


_LOWEST: Final = {"connections_max": 0, "unfinished_bytes_per_address_max": 0, "header_bytes_max": 1024}

Holder = TypeVar("Holder", bound=Hashable)


@dataclass(slots=True)
class _Holding:
    address: str
    amount: int
    since_ms: int


class Holdings(Generic[Holder]):
    """The amounts of one resource by holder and source address. Pure: time is an argument."""

    def __init__(self) -> None:
        self.total = 0
        self._by_holder: dict[Holder, _Holding] = {}
        self._by_address: dict[str, int] = {}

    def of_address(self, address: str) -> int:
        return self._by_address.get(address, 0)

    def of_holder(self, holder: Holder) -> int:
        holding = self._by_holder.get(holder)
        return 0 if holding is None else holding.amount

    @property
    def holders(self) -> list[Holder]:
        return list(self._by_holder)

    def set(self, holder: Holder, address: str, amount: int, now_ms: int) -> None:
        """Set a holder's amount. A smaller one than before counts as newly held: what was held is complete."""
        holding = self._by_holder.get(holder)
        if holding is None:
            if amount <= 0:
                return
            holding = self._by_holder[holder] = _Holding(address, 0, now_ms)
        change = amount - holding.amount
        self.total += change
        left = self._by_address.get(holding.address, 0) + change
        if left:
            self._by_address[holding.address] = left
        else:
            self._by_address.pop(holding.address, None)
        if amount <= 0:
            del self._by_holder[holder]
            return
        if change < 0:
            holding.since_ms = now_ms
        holding.amount = amount

    def refresh(self, measure: Callable[[Holder], int], now_ms: int) -> None:
        """Measure the amounts again, where they shrink without notice."""
        for holder, holding in list(self._by_holder.items()):
            self.set(holder, holding.address, measure(holder), now_ms)

    def excess(self, total_max: int, address_max: int, now_ms: int) -> list[Holder]:
        """The holders to close so that no limit is exceeded, those with the largest cost first."""
        chosen: list[Holder] = []
        crowded = [address for address, amount in self._by_address.items() if amount > address_max]
        for address in crowded:
            chosen += self._costliest(self._by_address[address] - int(address_max * _RELEASE_TO), now_ms, address)
        left = self.total - sum(self._by_holder[holder].amount for holder in chosen)
        if left > total_max:
            chosen += self._costliest(left - int(total_max * _RELEASE_TO), now_ms, None, frozenset(chosen))
        return chosen

    def _costliest(
        self, amount: int, now_ms: int, address: str | None, except_for: frozenset[Holder] = frozenset()
    ) -> list[Holder]:
        """Holders that have at least this amount together."""
        costs = [
            (holding.amount * (now_ms - holding.since_ms + 1), position, holder)
            for position, (holder, holding) in enumerate(self._by_holder.items())
            if address in (None, holding.address) and holder not in except_for
        ]
        costs.sort(key=lambda cost: (-cost[0], cost[1]))
        chosen = []
        for _, _, holder in costs:
            if amount <= 0:
                break
            chosen.append(holder)
            amount -= self._by_holder[holder].amount
        return chosen


class HandlerSlots:
    """Handlers in progress: for the dispatcher, per source address and per connection.

    A connection may use a quarter and an address three quarters of all slots, unless set otherwise. A connection with
    few handlers is served even when others of its address have used up the slots of the address.
    """

    def __init__(self, slots_max: int, *, per_connection: int = 0, per_address: int = 0) -> None:
        self.slots_max = slots_max
        self._per_connection = per_connection
        self._per_address = per_address
        self._used: Holdings[Hashable] = Holdings()

    @property
    def used(self) -> int:
        return self._used.total

    def rejection(self, connection: Hashable, address: str, elsewhere: int) -> str | None:
        """Why a connection gets no slot; `elsewhere` counts the requests that wait outside of handlers."""
        own, of_address = self._used.of_holder(connection), self._used.of_address(address)
        if self.used + elsewhere >= self.slots_max:
            return f"{self.used + elsewhere} requests are in progress"
        if own >= (self._per_connection or max(SMALL_HOLDER_SLOTS, self.slots_max // 4)):
            return f"{own} requests of this connection are in progress"
        per_address = self._per_address or max(SMALL_HOLDER_SLOTS, self.slots_max * 3 // 4)
        if own >= SMALL_HOLDER_SLOTS and of_address >= per_address:
            return f"{of_address} requests of address {address} are in progress"
        return None

    def take(self, connection: Hashable, address: str) -> None:
        self._used.set(connection, address, self._used.of_holder(connection) + 1, 0)

    def release(self, connection: Hashable, address: str) -> None:
        self._used.set(connection, address, self._used.of_holder(connection) - 1, 0)


class ConnectionLimit:
    """The number of connections a server accepts, so that the store keeps enough file descriptors."""

    def __init__(self, connections_max: int = 0, *, what: str = "connections") -> None:
        self._connections_max = connections_max or file_limit() // 2
        self._what = what
        self._exceeded = False

    def allows(self, count: int) -> bool:
        """Whether `count` connections, the new one included, are allowed. Logs once each time the limit is reached."""
        if count <= self._connections_max:
            self._exceeded = False
            return True
        if not self._exceeded:
            self._exceeded = True
            log.warning("limit of %s reached (%d): dropping new ones", self._what, self._connections_max)
        return False


class IdleWatch:
    """Closes connections without reads and writes for `idle_ms`; one timer checks all of them 24 times per timeout."""

    def __init__(self, connections: Iterable[Connection], idle_ms: int) -> None:
        self._connections = connections
        self._idle_ms = idle_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_ms / _IDLE_CHECKS_PER_TIMEOUT / 1000, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        idle = [connection for connection in self._connections if connection.idle_ms() >= self._idle_ms]
        for connection in idle:
            if connection.unsent_bytes:
                connection.abort(f"the peer read nothing for {self._idle_ms} ms")  # close() would wait for it forever
            else:
                connection.close(f"idle for {self._idle_ms} ms")
        self.start()
