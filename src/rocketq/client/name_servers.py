"""NameServer addresses as users write them, and requests with failover between NameServers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Protocol

from rocketq.errors import ConfigError, RemotingError, UnreachableError
from rocketq.protocol.command import Command
from rocketq.remoting.address import split_addr

VARIABLE: Final = "NAMESRV_ADDR"
_SCHEME: Final = "http://"


def parse_name_servers(addrs: str | Sequence[str] | None) -> tuple[str, ...]:
    """Parse `host:port;host:port` or a sequence, else NAMESRV_ADDR; ConfigError if an address is malformed."""
    given = os.environ.get(VARIABLE, "") if addrs is None else addrs
    texts = given.replace(",", ";").split(";") if isinstance(given, str) else given
    found = [text.strip().removeprefix(_SCHEME) for text in texts if text.strip()]
    for addr in found:
        split_addr(addr)
    if not found:
        raise ConfigError(f"no NameServer was given: name one as host:port, or set {VARIABLE}")
    return tuple(dict.fromkeys(found))


class FailoverList:
    """Addresses in failover order: the one that answered last, then the others, each once."""

    def __init__(self, addrs: Sequence[str], start: int = 0) -> None:
        self.addrs = tuple(addrs)
        self._at = start % len(self.addrs)

    def order(self) -> tuple[str, ...]:
        return self.addrs[self._at :] + self.addrs[: self._at]

    def answered(self, addr: str) -> None:
        self._at = self.addrs.index(addr)


class CallOne(Protocol):
    """One request to one address; failure answers are raised."""

    async def __call__(self, addr: str, command: Command) -> Command: ...


class NameServers:
    """NameServers do not share state: reads go to one of them, changes to all."""

    def __init__(self, addrs: Sequence[str], call_one: CallOne) -> None:
        self._failover = FailoverList(addrs, start=int.from_bytes(os.urandom(2), "big"))  # many clients spread
        self._call_one = call_one

    @property
    def addrs(self) -> tuple[str, ...]:
        return self._failover.addrs

    async def call(self, command: Command) -> Command:
        """The answer of the first NameServer that answers; UnreachableError if none does."""
        failures: list[RemotingError] = []
        for addr in self._failover.order():
            try:
                answer = await self._call_one(addr, command)
            except RemotingError as error:
                failures.append(error)
                continue
            self._failover.answered(addr)
            return answer
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(str(error) for error in failures)
        raise UnreachableError(";".join(self.addrs), f"no NameServer answered: {reasons}")
