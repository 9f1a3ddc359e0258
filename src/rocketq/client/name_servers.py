"""NameServer addresses as users write them, and requests with failover between NameServers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from rocketq.errors import ConfigError, RemotingError, UnreachableError
from rocketq.protocol.command import Command
from rocketq.remoting.address import split_addr

if TYPE_CHECKING:
    from rocketq.remoting.address_server import AddressList, AddressServer

VARIABLE: Final = "NAMESRV_ADDR"
DEFAULT: Final = "127.0.0.1:9876"
_SCHEME: Final = "http://"


def parse_name_servers(addrs: str | Sequence[str] | None) -> tuple[str, ...]:
    """Parse `host:port;host:port` or a list, else NAMESRV_ADDR, else 127.0.0.1:9876. ConfigError if malformed."""
    given = (os.environ.get(VARIABLE) or DEFAULT) if addrs is None else addrs
    texts = given.replace(",", ";").split(";") if isinstance(given, str) else given
    found = [text.strip().removeprefix(_SCHEME) for text in texts if text.strip()]
    for addr in found:
        split_addr(addr)
    if not found:
        raise ConfigError(f"no NameServer was given: name one as host:port, or set {VARIABLE}")
    return tuple(dict.fromkeys(found))


def address_list(
    addrs: str | Sequence[str] | None, server: AddressServer | None, unit_name: str | None = None
) -> AddressList | None:
    """The list of an address server, where neither addresses nor NAMESRV_ADDR are given; None otherwise."""
    if addrs or os.environ.get(VARIABLE):
        return None
    from rocketq.remoting.address_server import AddressList, AddressServer  # noqa: PLC0415

    server = server or AddressServer.of_environment(unit_name)
    return None if server is None else AddressList(server)


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

    def __init__(self, addrs: Sequence[str] | AddressList, call_one: CallOne) -> None:
        self._list = None if isinstance(addrs, Sequence) else addrs
        self._start = int.from_bytes(os.urandom(2), "big")  # many clients spread
        self._failover = FailoverList(addrs, self._start) if isinstance(addrs, Sequence) else None
        self._call_one = call_one

    @property
    def addrs(self) -> tuple[str, ...]:
        """The addresses; empty before the first answer of an address server."""
        return () if self._failover is None else self._failover.addrs

    async def find(self) -> tuple[str, ...]:
        """The addresses, fetched where an address server has them; UnreachableError when it has never answered."""
        return (await self._current()).addrs

    async def _current(self) -> FailoverList:
        if self._list is not None:
            addrs = await self._list.addrs()
            if self._failover is None or self._failover.addrs != addrs:
                self._failover = FailoverList(addrs, self._start)
        assert self._failover is not None
        return self._failover

    async def call(self, command: Command) -> Command:
        """The answer of the first NameServer that answers; UnreachableError if none does."""
        failures: list[RemotingError] = []
        failover = await self._current()
        for addr in failover.order():
            try:
                answer = await self._call_one(addr, command)
            except RemotingError as error:
                failures.append(error)
                continue
            failover.answered(addr)
            return answer
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(str(error) for error in failures)
        raise UnreachableError(";".join(self.addrs), f"no NameServer answered: {reasons}")
