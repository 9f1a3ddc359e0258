"""Requests under way over the links of a client: sent without waiting, each answered or lost in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rocketq.client.blocking.client import BlockingClient
from rocketq.errors import RemotingError
from rocketq.protocol.command import Command

_Item = TypeVar("_Item")


@dataclass(slots=True)
class _Flight(Generic[_Item]):
    item: _Item
    code: int
    deadline_s: float


class RequestLine(Generic[_Item]):
    """Belongs to one thread, as its client does."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._flights: dict[tuple[str, int], _Flight[_Item]] = {}  # in the order they were sent
        self._lost: list[tuple[_Item, RemotingError]] = []

    def __len__(self) -> int:
        return len(self._flights) + len(self._lost)

    def post(self, addr: str, item: _Item, code: int, frame_of: Callable[[int], bytes], timeout_ms: int) -> None:
        """Send it; what fails comes out of next() like everything else."""
        try:
            opaque = self._client.link(addr).post(frame_of)
        except RemotingError as error:
            self._lost.append((item, error))
            self._lose(addr, error)
        else:
            self._flights[addr, opaque] = _Flight(item, code, time.monotonic() + timeout_ms / 1000)

    def next(self) -> tuple[str, _Item, Command | RemotingError]:
        """Wait until something becomes of a request: its address (blank when it is lost), itself, and what it is."""
        while not self._lost:
            addr, flight = next((addr, flight) for (addr, _), flight in self._flights.items())
            left_ms = max(1, round((flight.deadline_s - time.monotonic()) * 1000))
            try:
                answer = self._client.link(addr).receive(flight.code, left_ms)
            except RemotingError as error:
                self._lose(addr, error)
                continue
            answered = self._flights.pop((addr, answer.opaque), None)
            if answered is not None:
                return addr, answered.item, answer
        item, loss = self._lost.pop(0)
        return "", item, loss

    def abandon(self) -> None:
        """Nobody waits any more: connections with answers to come are not used again."""
        for addr in {addr for addr, _ in self._flights}:
            self._client.drop(addr)
        self._flights.clear()
        self._lost.clear()

    def _lose(self, addr: str, error: RemotingError) -> None:
        """A connection that failed takes along everything that waits there."""
        self._client.drop(addr)
        gone = [key for key in self._flights if key[0] == addr]
        self._lost += [(self._flights.pop(key).item, error) for key in gone]
