"""The NameServers a session asks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from rocketq.client.aio.scatter import on_each
from rocketq.client.core.turns import Turns
from rocketq.errors import RemotingError, UnreachableError
from rocketq.protocol.command import Command


class Ask(Protocol):
    """One request to one address; failure answers are raised."""

    async def __call__(self, addr: str, command: Command) -> Command: ...


class NameServers:
    """They know nothing of each other: one is asked, and all are told."""

    def __init__(self, addrs: Sequence[str], ask: Ask) -> None:
        self._turns = Turns(addrs, start=int.from_bytes(os.urandom(2), "big"))  # many clients spread
        self._ask = ask

    @property
    def addrs(self) -> tuple[str, ...]:
        return self._turns.addrs

    async def ask(self, command: Command) -> Command:
        """The answer of the first that gives one, whatever it says; UnreachableError when none does."""
        failures: list[RemotingError] = []
        for addr in self._turns.order():
            try:
                answer = await self._ask(addr, command)
            except RemotingError as error:
                failures.append(error)
                continue
            self._turns.answered(addr)
            return answer
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(str(error) for error in failures)
        raise UnreachableError(";".join(self.addrs), f"no NameServer answered: {reasons}")

    async def tell(self, command: Command) -> None:
        """All of them; PartlyFailedError names those that did not take it."""
        await on_each({addr: self._ask(addr, command) for addr in self.addrs})
